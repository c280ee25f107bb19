"""Notes when a leader holds back its high watermark, or a replica that would join.

Production code logs nothing about what does not happen, so its decisions are observed here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from simulation.observation import patched
from tidelog.model import NO_OFFSET
from tidelog_broker.core.partition import isr
from tidelog_broker.core.partition.isr import FollowerProgress
from tidelog_broker.core.partition.partition import Partition

BELOW_HIGH_WATERMARK = "joiner held back below the high watermark"
BELOW_EPOCH_START = "joiner held back below the epoch's start"
BY_MIN_ISR = "high watermark held by min ISR"
BY_PENDING_CHANGE = "high watermark held by a pending ISR change"
HELD_BACK = (BELOW_HIGH_WATERMARK, BELOW_EPOCH_START, BY_MIN_ISR, BY_PENDING_CHANGE)

_MayJoin = Callable[..., bool]
_Advance = Callable[[Partition], None]


@contextmanager
def noting_held_back(seen: Counter[str]) -> Iterator[None]:
    def asked_to_join(may_join: _MayJoin) -> _MayJoin:
        def noting(progress: FollowerProgress, *, high_watermark: int, epoch_start: int) -> bool:
            joins = may_join(progress, high_watermark=high_watermark, epoch_start=epoch_start)
            why = why_not_joined(progress.log_end_offset, high_watermark, epoch_start)
            if not joins and why is not None:
                seen[why] += 1
            return joins

        return noting

    def advanced(advance: _Advance) -> _Advance:
        def noting(partition: Partition) -> None:
            advance(partition)
            why = why_not_advanced(partition)
            if why is not None:
                seen[why] += 1

        return noting

    with (
        patched(isr, "may_join", asked_to_join),
        patched(Partition, "_advance_high_watermark", advanced),
    ):
        yield


def why_not_joined(end: int, high_watermark: int, epoch_start: int) -> str | None:
    """Returns the reason, or None if the replica has shown nothing yet or may join."""
    if end == NO_OFFSET or end >= max(high_watermark, epoch_start):
        return None
    return BELOW_HIGH_WATERMARK if end < high_watermark else BELOW_EPOCH_START


def why_not_advanced(partition: Partition) -> str | None:
    leading, state = partition.leading, partition.state
    if leading is None or state is None:
        return None
    ends = {b: progress.log_end_offset for b, progress in leading.followers.items()}
    ends[state.leader] = partition.counted_end
    proposed = None if leading.proposed is None else leading.proposed.isr_ids
    return why_held(
        partition.high_watermark,
        ends,
        committed=state.isr_ids,
        proposed=proposed,
        min_isr=state.min_isr,
    )


def why_held(
    high_watermark: int,
    ends: Mapping[int, int],
    *,
    committed: Collection[int],
    proposed: Collection[int] | None,
    min_isr: int,
) -> str | None:
    """Returns what keeps the HW below where the committed or the proposed ISR would have it."""

    def lowest(members: Collection[int]) -> int:
        return min((ends.get(member, NO_OFFSET) for member in members), default=NO_OFFSET)

    if len(committed) < min_isr:
        return BY_MIN_ISR if lowest(committed) > high_watermark else None
    if proposed is not None and max(lowest(committed), lowest(proposed)) > high_watermark:
        return BY_PENDING_CHANGE
    return None
