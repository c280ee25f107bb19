"""The steps of a failover and their durations. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidelog.model import NO_LEADER
from tidelog_pipeline.state_changes.core.departures import Departures, departure_before
from tidelog_pipeline.state_changes.core.key_changes import KeyChange

# The columns of a failover's steps, in sequence from the first sign of the loss, with their ends.
STEPS = {
    "noticed_ms": "until a controller requested an election",
    "decided_ms": "until the store had the election",
    "told_ms": "until the new leader received its command",
    "taken_up_ms": "until it led",
}


class Failover(NamedTuple):
    """A change of leaders, with milliseconds for each step.

    Durations use the wall clocks of the services that report the ends of a step, and are at
    least 0. None: one of the ends is not reported.

    - `broker_lost`: NO_LEADER if no broker was lost, as in a leadership transfer. A transfer
      begins with its request.
    """

    change: KeyChange
    broker_lost: int
    began_ms: int
    noticed_ms: int
    decided_ms: int
    received_ms: int | None
    taken_up_ms: int | None

    @property
    def total_ms(self) -> int:
        ended_ms = self.change.done_ms if self.change.leads_ms is None else self.change.leads_ms
        return max(0, ended_ms - self.began_ms)

    @property
    def is_complete(self) -> bool:
        return self.taken_up_ms is not None


def failovers(changes: Sequence[KeyChange], departures: Departures) -> Iterator[Failover]:
    """Yields a failover for each time that another broker began to lead."""
    leader: int | None = None
    for change in changes:
        if change.leader is None:
            continue
        before = leader if change.leader_before is None else change.leader_before
        leader = change.leader
        if before is None or leader in (before, NO_LEADER):
            continue
        lost = departure_before(departures, before, change.done_ms)
        began_ms = change.requested_ms if lost is None else min(lost.at_ms, change.requested_ms)
        yield Failover(
            change,
            NO_LEADER if lost is None else before,
            began_ms,
            max(0, change.requested_ms - began_ms),
            max(0, change.done_ms - change.requested_ms),
            _between(change.done_ms, change.received_ms),
            _between(change.received_ms, change.leads_ms),
        )


def _between(begin_ms: int | None, end_ms: int | None) -> int | None:
    return None if begin_ms is None or end_ms is None else max(0, end_ms - begin_ms)
