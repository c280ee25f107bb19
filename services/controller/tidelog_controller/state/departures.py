"""How brokers left: as this reign saw it, and as those before it left it in the store."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.state_changes.event import Cause
from tidelog_controller.state.known import Broker
from tidelog_runtime.metadata.schema import STOPPING, Departure

# Of so many brokers at most; ids are chosen by people and may be many.
MAX_DEPARTURES = 1_000


class Departures:
    """What this reign saw stays *unrecorded* until the store is known to have it. Told, and
    never decided by."""

    def __init__(self) -> None:
        self._last: dict[int, Departure] = {}
        self._refused: dict[int, int] = {}  # broker epochs whose address refused a connection
        self._unrecorded: dict[int, Departure | None] = {}  # None: to be forgotten there

    @property
    def last(self) -> Mapping[int, Departure]:
        """The last life of each broker that ended, whether or not it is back since."""
        return self._last

    def unrecorded(self, limit: int) -> tuple[tuple[int, Departure | None], ...]:
        return tuple(self._unrecorded.items())[:limit]

    def recorded(self, broker_id: int, departure: Departure | None) -> None:
        """The store has this one, or none. Of one life what is kept there counts; an older
        life than is known here is overwritten soon."""
        if departure is None:
            if self._unrecorded.get(broker_id) is None:
                self._unrecorded.pop(broker_id, None)
                self._last.pop(broker_id, None)
            return
        known = self._last.get(broker_id)
        if known is not None and known.broker_epoch > departure.broker_epoch:
            return
        self._unrecorded.pop(broker_id, None)
        self._keep(broker_id, departure)

    def refused(self, broker_id: int, broker_epoch: int) -> None:
        """Its process has ended, whoever ends its registration."""
        self._refused[broker_id] = broker_epoch

    def left(self, old: Broker, new: Broker | None, wall_ms: int) -> Departure:
        """`new`: its next life, where it is known together with the end of the last."""
        departure = self.judged(old, new, wall_ms)
        self._refused.pop(old.broker_id, None)
        known = self._last.get(old.broker_id)
        if known is not None and known.broker_epoch == old.broker_epoch:
            # Kept in the transaction that ended its registration.
            return known
        self._unrecorded[old.broker_id] = departure
        self._keep(old.broker_id, departure)
        return departure

    def judged(self, old: Broker, new: Broker | None, wall_ms: int) -> Departure:
        """How it leaves, by what is known now."""
        cause = self._cause(old, new)
        registration = old.registration
        return Departure(
            old.broker_epoch,
            cause,
            wall_ms,
            registration.address,
            registration.external_address,
        )

    def _keep(self, broker_id: int, departure: Departure) -> None:
        self._last.pop(broker_id, None)
        self._last[broker_id] = departure
        if len(self._last) > MAX_DEPARTURES:
            oldest = min(self._last, key=lambda known: self._last[known].at_ms)
            del self._last[oldest]
            self._unrecorded[oldest] = None

    def _cause(self, old: Broker, new: Broker | None) -> Cause:
        if old.registration.state == STOPPING:
            return Cause.BROKER_STOPPED
        if self._refused.get(old.broker_id) == old.broker_epoch:
            return Cause.BROKER_CRASHED
        return Cause.BROKER_LEASE_ENDED if new is None else Cause.BROKER_RESTARTED
