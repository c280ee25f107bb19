"""How brokers left, as detected in this controller term or stored by earlier ones."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.state_changes.event import Cause
from tidelog_controller.state.crash_series import CrashSeries
from tidelog_controller.state.metadata_records import Broker
from tidelog_runtime.metadata.schema import STOPPING, Departure

# A broker that is back before it was missed has ended without a stop.
_CRASHES = frozenset({Cause.BROKER_CRASHED, Cause.BROKER_RESTARTED})
# The maximum number of brokers; administrators choose ids, so there may be many.
MAX_DEPARTURES = 1_000


def crashes_of(departure: Departure) -> CrashSeries:
    return CrashSeries(departure.crashes, departure.crashing_since_ms, departure.crashed_at_ms)


class Departures:
    """The departures of brokers. Reported, but no decision depends on them.

    A departure that this term detected stays *unrecorded* until the store is known to have it.
    """

    def __init__(self) -> None:
        self._last: dict[int, Departure] = {}
        self._refused: dict[int, int] = {}  # broker epochs whose address refused a connection
        self._unrecorded: dict[int, Departure | None] = {}  # None: to be deleted there

    @property
    def last(self) -> Mapping[int, Departure]:
        """The last ended incarnation of each broker, whether or not the broker is back."""
        return self._last

    def unrecorded(self, limit: int) -> tuple[tuple[int, Departure | None], ...]:
        return tuple(self._unrecorded.items())[:limit]

    def recorded(self, broker_id: int, departure: Departure | None) -> None:
        """Takes the stored departure of a broker, or its absence.

        For one incarnation the stored departure wins. A stored departure of an older incarnation is
        soon overwritten.
        """
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

    def connection_refused(self, broker_id: int, broker_epoch: int) -> None:
        """Notes that the process has ended, whatever ends its registration."""
        self._refused[broker_id] = broker_epoch

    def record(self, old: Broker, new: Broker | None, wall_ms: int) -> Departure:
        """Records a departure. `new`: the next incarnation, if known at the same time."""
        departure = self.departure_of(old, new, wall_ms)
        self._refused.pop(old.broker_id, None)
        known = self._last.get(old.broker_id)
        if known is not None and known.broker_epoch == old.broker_epoch:
            # Stored by the transaction that ended its registration.
            return known
        self._unrecorded[old.broker_id] = departure
        self._keep(old.broker_id, departure)
        return departure

    def departure_of(self, old: Broker, new: Broker | None, wall_ms: int) -> Departure:
        """Returns the departure according to what is known now."""
        cause = self._cause(old, new)
        crashes = self._crashes(old.broker_id, cause, wall_ms)
        registration = old.registration
        return Departure(
            old.broker_epoch,
            cause,
            wall_ms,
            registration.address,
            registration.external_address,
            *crashes,
        )

    def _crashes(self, broker_id: int, cause: Cause, wall_ms: int) -> CrashSeries:
        """An expired lease may be a crash of the machine, and neither adds to a series nor ends
        it."""
        if cause is Cause.BROKER_STOPPED:
            return CrashSeries()
        known = self._last.get(broker_id)
        before = CrashSeries() if known is None else crashes_of(known)
        return before.extended(wall_ms) if cause in _CRASHES else before

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
