"""How brokers left, as far as one reign saw it."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.state_changes.event import Cause
from tidelog_controller.policies.causes import Departure
from tidelog_controller.state.context import Broker
from tidelog_runtime.metadata.schema import STOPPING

# Of so many brokers at most; ids are chosen by people and may be many.
MAX_DEPARTURES = 1_000


class Departures:
    def __init__(self) -> None:
        self._last: dict[int, Departure] = {}  # in the order in which they left
        self._refused: dict[int, int] = {}  # broker epochs whose address refused a connection

    @property
    def last(self) -> Mapping[int, Departure]:
        """The last life of each broker that ended, whether or not it is back since."""
        return self._last

    def refused(self, broker_id: int, broker_epoch: int) -> None:
        """Its process has ended, whoever ends its registration."""
        self._refused[broker_id] = broker_epoch

    def left(self, old: Broker, new: Broker | None, wall_ms: int) -> Departure:
        """`new`: its next life, where it is known together with the end of the last."""
        departure = Departure(
            old.broker_epoch, self._cause(old, new), wall_ms, old.registration.address
        )
        self._refused.pop(old.broker_id, None)
        self._last.pop(old.broker_id, None)
        self._last[old.broker_id] = departure
        if len(self._last) > MAX_DEPARTURES:
            del self._last[next(iter(self._last))]
        return departure

    def _cause(self, old: Broker, new: Broker | None) -> Cause:
        if old.registration.state == STOPPING:
            return Cause.BROKER_STOPPED
        if self._refused.get(old.broker_id) == old.broker_epoch:
            return Cause.BROKER_CRASHED
        return Cause.BROKER_LEASE_ENDED if new is None else Cause.BROKER_RESTARTED
