"""Orders changes by store revision, then epoch, then time. Pure.

Revisions are one order for all services; their clocks are not. A change that the store decided is
placed at its revision. A change that a service noticed, or received again, has the newest revision
that the service had read: it is placed by its time, and after that revision."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

from tidelog.state_changes.change_trace import ChangeTrace
from tidelog.state_changes.event import Kind

_NOTICED = frozenset(
    {
        Kind.TRUNCATION,
        Kind.REPLICA_DAMAGED,
        Kind.REPLICA_REPAIRED,
        Kind.BATCH_DAMAGED,
        Kind.REPLICA_DIVERGED,
        Kind.DISK_REFUSED,
        Kind.DISK_RECOVERED,
        Kind.HW_STALLED,
        Kind.HIGH_WATERMARK_RESUMED,
        Kind.REGISTRATION_LOST,
        Kind.COMMAND,
        Kind.LEADER_UNREACHABLE,
        Kind.LEADER_REACHED,
    }
)


def in_causal_order(traces: Sequence[ChangeTrace]) -> list[ChangeTrace]:
    decided = sorted((trace for trace in traces if _is_decided(trace)), key=_causal_key)
    noticed = sorted((trace for trace in traces if not _is_decided(trace)), key=_causal_key)
    revisions = [trace.revision for trace in decided]
    # Clocks differ, so later revisions may have earlier times. Each change counts as begun no
    # later than all changes that follow it, so that the times ascend.
    began_ms = list(accumulate((trace.began_ms for trace in reversed(decided)), min))[::-1]
    before: list[list[ChangeTrace]] = [[] for _ in range(len(decided) + 1)]
    for trace in noticed:
        by_time = bisect_left(began_ms, trace.began_ms)
        before[max(by_time, bisect_right(revisions, trace.revision))].append(trace)
    ordered: list[ChangeTrace] = []
    for number, group in enumerate(before):
        ordered += group
        ordered += decided[number : number + 1]
    return ordered


def _is_decided(trace: ChangeTrace) -> bool:
    return bool(trace.revision) and any(
        not part.is_late and part.kind not in _NOTICED for part in trace.parts
    )


def _causal_key(trace: ChangeTrace) -> tuple[int, int, int, int, str, str, int]:
    event = trace.headline
    decided = _is_decided(trace)
    return (
        trace.revision if decided else 0,
        # An epoch that does not apply is -1 and does not affect the order.
        event.leader_epoch if decided else 0,
        trace.began_ms,
        event.controller_epoch,
        event.service,
        event.topic,
        event.partition,
    )
