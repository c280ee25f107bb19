"""The times in which a partition had no leader, or too few in-sync replicas. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import NamedTuple

from tidelog.model import NO_LEADER
from tidelog.state_changes.event import Cause
from tidelog_pipeline.state_changes.core.departures import Departures, departure_before
from tidelog_pipeline.state_changes.core.incarnations import Incarnation
from tidelog_pipeline.state_changes.core.key_changes import KeyChange


class Trouble(enum.StrEnum):
    NO_LEADER = "no leader"
    UNDER_MIN_ISR = "under min ISR"


class Interval(NamedTuple):
    """A time in which a partition was not available.

    - `change_id`: of the change that ended it, which may be the partition's deletion. Empty:
      none; the interval ends with the events of the partition.
    - `is_open`: no change ended it.
    """

    trouble: Trouble
    begin_ms: int
    end_ms: int
    cause: Cause
    change_id: str = ""
    is_open: bool = False


def without_leader(partition: Incarnation, departures: Departures) -> Iterator[Interval]:
    """Yields the times without a leader.

    Each begins with the first sign of the loss of the leader, or when the store names another
    one. It ends when the new leader has taken up its role.
    """
    leader: int | None = None
    since_ms, cause = None, Cause.NONE
    for change in partition.changes:
        if change.leader is None:
            continue
        before = leader if change.leader_before is None else change.leader_before
        is_new_leadership = change.leads_ms is not None or change.leader != before
        leader = change.leader
        if since_ms is None and is_new_leadership and before not in (None, NO_LEADER):
            since_ms, cause = _lost_ms(change, before, departures), change.cause
        elif since_ms is None and leader == NO_LEADER:
            since_ms, cause = change.done_ms, change.cause
        if since_ms is not None and leader != NO_LEADER:
            end_ms = change.done_ms if change.leads_ms is None else change.leads_ms
            if end_ms > since_ms:
                yield Interval(Trouble.NO_LEADER, since_ms, end_ms, cause, change.trace.change_id)
            since_ms = None
    if since_ms is not None and partition.end_ms > since_ms:
        yield _to_the_end(Trouble.NO_LEADER, since_ms, cause, partition)


def _to_the_end(trouble: Trouble, since_ms: int, cause: Cause, partition: Incarnation) -> Interval:
    deletion = partition.deletion
    ended_by = "" if deletion is None else deletion.change_id
    return Interval(trouble, since_ms, partition.end_ms, cause, ended_by, deletion is None)


def _lost_ms(change: KeyChange, leader: int | None, departures: Departures) -> int:
    departure = None
    if leader is not None and change.leader != leader:
        departure = departure_before(departures, leader, change.done_ms)
    return change.done_ms if departure is None else departure.at_ms


def under_min_isr(partition: Incarnation) -> Iterator[Interval]:
    """Yields the times in which the ISR was smaller than min ISR.

    Uses the last reported min ISR, or the first one before that. Yields nothing if min ISR is
    never reported, e.g. if the ISR never changed.
    """
    reported = [change.min_isr for change in partition.changes if change.min_isr is not None]
    if not reported:
        return
    min_isr = reported[0]
    since_ms, cause = None, Cause.NONE
    for change in partition.changes:
        min_isr = min_isr if change.min_isr is None else change.min_isr
        if change.isr is None:
            continue
        is_under = len(change.isr) < min_isr
        if is_under and since_ms is None:
            since_ms, cause = change.done_ms, change.cause
        elif not is_under and since_ms is not None:
            if change.done_ms > since_ms:
                change_id = change.trace.change_id
                yield Interval(Trouble.UNDER_MIN_ISR, since_ms, change.done_ms, cause, change_id)
            since_ms = None
    if since_ms is not None and partition.end_ms > since_ms:
        yield _to_the_end(Trouble.UNDER_MIN_ISR, since_ms, cause, partition)
