"""Counts recent changes of controller, leaders and registrations. No I/O.

The counts rest on the state changes that this service has reported.
"""

from __future__ import annotations

from collections import deque

from tidelog.inspection.controller_reports import LeaseEnds
from tidelog.inspection.state_reports import NOT_KNOWN, RecentElections
from tidelog.model import TopicPartition
from tidelog.state_changes.event import Cause, Kind, Stage, StateChange
from tidelog_runtime.clock import Clock

WINDOW_MS = 120_000
# Bound on the changes counted for one partition or the controller within the window.
MAX_COUNTED = 100
# Bound on the brokers whose leases ended within the window.
MAX_BROKERS = 1_000
_ROLES = (Kind.BECOME_LEADER, Kind.BECOME_FOLLOWER)


class _Times:
    def __init__(self) -> None:
        self._times: deque[int] = deque(maxlen=MAX_COUNTED)

    def add(self, at_ms: int) -> None:
        self._times.append(at_ms)

    def ages(self, now_ms: int) -> list[int]:
        """Returns the ages of the times within the window, oldest first."""
        while self._times and self._times[0] <= now_ms - WINDOW_MS:
            self._times.popleft()
        return [now_ms - at_ms for at_ms in self._times]


class _Epochs:
    """The times at which a greater epoch followed."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self.times = _Times()

    def take(self, epoch: int, at_ms: int) -> None:
        if epoch > self._epoch:
            self._epoch = epoch
            self.times.add(at_ms)


class ElectionCounts:
    """A sink of a `StateChangeLog` that counts elections and lost registrations.

    It keeps only partitions of which this broker has replicas.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._controller: _Epochs | None = None
        self._leaders: dict[TopicPartition, _Epochs] = {}
        self._registrations_lost = _Times()

    def take(self, change: StateChange) -> None:
        now_ms = self._clock.monotonic_ms()
        if change.kind is Kind.REGISTRATION_LOST:
            self._registrations_lost.add(now_ms)
        elif change.kind in (Kind.DELETE, Kind.STOP):
            self._leaders.pop(TopicPartition(change.topic, change.partition), None)
        elif change.kind in _ROLES and change.stage is Stage.COMPLETED:
            self._take_role(change, now_ms)

    def _take_role(self, change: StateChange, now_ms: int) -> None:
        if self._controller is None:
            self._controller = _Epochs(change.controller_epoch)
        self._controller.take(change.controller_epoch, now_ms)
        name = TopicPartition(change.topic, change.partition)
        known = self._leaders.get(name)
        if known is None:
            self._leaders[name] = _Epochs(change.leader_epoch)
        else:
            known.take(change.leader_epoch, now_ms)

    @property
    def recent(self) -> RecentElections:
        now_ms = self._clock.monotonic_ms()
        controllers = self._controller.times.ages(now_ms) if self._controller else []
        lost = self._registrations_lost.ages(now_ms)
        leaders: list[int] = []
        most = TopicPartition("", NOT_KNOWN)
        for name, epochs in self._leaders.items():
            ages = epochs.times.ages(now_ms)
            if len(ages) > len(leaders):
                leaders, most = ages, name
        last = min((ages[-1] for ages in (controllers, lost, leaders) if ages), default=NOT_KNOWN)
        return RecentElections(
            len(controllers), len(lost), len(leaders), most.topic, most.partition, WINDOW_MS, last
        )


class LeaseEndCounts:
    """A sink of a controller's `StateChangeLog` that counts the ended leases of each broker.

    A broker that stops, or whose process is known to have ended, does not count.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ended: dict[int, _Times] = {}

    def take(self, change: StateChange) -> None:
        if change.kind is not Kind.BROKER_LEFT or change.cause is not Cause.BROKER_LEASE_ENDED:
            return
        times = self._ended.pop(change.broker, None) or _Times()
        times.add(self._clock.monotonic_ms())
        self._ended[change.broker] = times
        if len(self._ended) > MAX_BROKERS:
            # The broker whose last lease ended first.
            del self._ended[next(iter(self._ended))]

    @property
    def recent(self) -> tuple[LeaseEnds, ...]:
        now_ms = self._clock.monotonic_ms()
        ages = {broker: self._ended[broker].ages(now_ms) for broker in sorted(self._ended)}
        return tuple(
            LeaseEnds(broker, len(of_it), WINDOW_MS, of_it[-1])
            for broker, of_it in ages.items()
            if of_it
        )
