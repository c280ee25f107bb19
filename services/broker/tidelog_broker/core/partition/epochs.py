"""Fencing and reconciliation by leader epoch (rules `fetches-fenced-by-epoch` and
`logs-reconciled-by-epoch`; KIP-101, KIP-279, KIP-320)."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.errors import ErrorCode
from tidelog.model import NO_EPOCH, EpochEnd


def fence(known_epoch: int, leader_epoch: int) -> ErrorCode | None:
    """Returns the error of a leader of `leader_epoch` for a request that knows `known_epoch`.

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
    """Returns where a follower's log diverges from the leader's; None: they agree up to
    `fetch_offset`.

    `epoch_end` is that of the leader's log. The follower truncates there and fetches again until
    the epochs agree."""
    if last_fetched_epoch == NO_EPOCH:
        return None
    end = epoch_end(last_fetched_epoch)
    if end.leader_epoch == NO_EPOCH:
        # Nothing this old is left here: the follower's log ends in an epoch before ours.
        return EpochEnd(NO_EPOCH, log_start)
    if end.leader_epoch < last_fetched_epoch or end.end_offset < fetch_offset:
        return end
    return None


def restarts_from_scratch(diverging: EpochEnd) -> bool:
    """Returns whether the follower's log ends before the leader's begins, at
    `diverging.end_offset`.

    Then it is reset to that offset in one step. If a member of the ISR were first cut to its own
    start, it would hold less than is committed for a while."""
    return diverging.leader_epoch == NO_EPOCH


def truncation_point(
    diverging: EpochEnd, *, log_start: int, log_end: int, epoch_end: Callable[[int], EpochEnd]
) -> int:
    """Returns where the follower cuts: the end of the largest epoch that both may know, or below
    its own log start if they share nothing.

    `epoch_end` is that of the follower's own log."""
    own = epoch_end(diverging.leader_epoch)
    if own.leader_epoch == NO_EPOCH:
        return min(diverging.end_offset, log_start)
    if own.leader_epoch < diverging.leader_epoch:
        # The leader's epoch is unknown here. All after our older epoch is cut, and the next fetch
        # compares that one.
        return min(own.end_offset, log_end)
    return min(diverging.end_offset, own.end_offset, log_end)
