"""Fencing and reconciling by leader epoch (section 3 of docs/internals/protocol.md; KIP-101,
KIP-279, KIP-320)."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.errors import ErrorCode
from tidelog.model import NO_EPOCH, EpochEnd


def fence(known_epoch: int, leader_epoch: int) -> ErrorCode | None:
    """What a leader of `leader_epoch` answers to a request that knows `known_epoch`;
    NO_EPOCH is not checked."""
    if known_epoch in (NO_EPOCH, leader_epoch):
        return None
    if known_epoch < leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH


def divergence(
    *,
    last_fetched_epoch: int,
    fetch_offset: int,
    log_start: int,
    epoch_end: Callable[[int], EpochEnd],
) -> EpochEnd | None:
    """Where a follower's log parts from the leader's; None: they agree up to
    `fetch_offset`. `epoch_end` is the leader's cache.

    The follower truncates there and asks again until the epochs agree."""
    if last_fetched_epoch == NO_EPOCH:
        return None
    end = epoch_end(last_fetched_epoch)
    if end.leader_epoch == NO_EPOCH:
        # Nothing so old is left here: the follower's log ends in an epoch before ours.
        return EpochEnd(NO_EPOCH, log_start)
    if end.leader_epoch < last_fetched_epoch or end.end_offset < fetch_offset:
        return end
    return None


def starts_anew(diverging: EpochEnd) -> bool:
    """Whether all that the follower has ended before the leader's log begins, at
    `diverging.end_offset`: it goes there in one step. Cut to its own start first, a member
    of the ISR would for a while hold less than is committed."""
    return diverging.leader_epoch == NO_EPOCH


def truncation_point(
    diverging: EpochEnd, *, log_start: int, log_end: int, epoch_end: Callable[[int], EpochEnd]
) -> int:
    """Where the follower cuts: the end of the largest epoch that both may know; below
    its own log start when nothing is shared. `epoch_end` is the follower's own cache."""
    own = epoch_end(diverging.leader_epoch)
    if own.leader_epoch == NO_EPOCH:
        return min(diverging.end_offset, log_start)
    if own.leader_epoch < diverging.leader_epoch:
        # The leader's epoch is unknown here: all after our older one goes, and the next
        # round asks about that.
        return min(own.end_offset, log_end)
    return min(diverging.end_offset, own.end_offset, log_end)
