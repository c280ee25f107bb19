"""The pure rules by which a leader changes its ISR ("ISR" in docs/internals/protocol.md)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from tidelog.model import NO_OFFSET
from tidelog.state_changes.event import NO_CHANGE, Cause, Change
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member


class SessionTime:
    """The time of the last request of a follower's fetch session.

    All partitions of the session share it, so that those that a request leaves out cost nothing. An
    ended session has no more requests."""

    __slots__ = ("last_request_ms",)

    def __init__(self, last_request_ms: int) -> None:
        self.last_request_ms = last_request_ms


class FollowerProgress(NamedTuple):
    """What a leader knows about a follower in its present epoch.

    - `log_end_offset`: as far as it counts (`high_watermark.counted_end`). It comes only from
      fetches in the leader's epoch and from one incarnation of the follower's broker (rule
      `fetch-counts-in-current-epoch`); NO_OFFSET: none yet.
    - `session`: the session that reported this. Its later requests confirm it.
    """

    broker_epoch: int
    log_end_offset: int
    last_caught_up_ms: int
    last_fetch_ms: int
    leader_end_at_last_fetch: int
    session: SessionTime | None = None


def granted(now_ms: int) -> FollowerProgress:
    """Returns a follower's progress at the start of an epoch: nothing is known, and it has a full
    lag time to fetch."""
    return FollowerProgress(0, NO_OFFSET, now_ms, now_ms, NO_OFFSET)


def forgotten(progress: FollowerProgress) -> FollowerProgress:
    """Returns the progress with an unknown log position. The follower's lag time continues."""
    return progress._replace(
        log_end_offset=NO_OFFSET, leader_end_at_last_fetch=NO_OFFSET, session=None
    )


def fetched(
    progress: FollowerProgress,
    *,
    broker_epoch: int,
    fetch_offset: int,
    leader_end: int,
    now_ms: int,
    session: SessionTime | None = None,
) -> FollowerProgress:
    """Returns the progress after a fetch that agrees with the leader's log and epoch.

    `fetch_offset` is the follower's counted end. A follower is caught up when it requests the
    leader's end. If it reaches the end that the leader had at the fetch before, it was caught up
    then, however fast the leader grows. A newer incarnation of the broker starts from scratch."""
    if broker_epoch != progress.broker_epoch:
        progress = progress._replace(leader_end_at_last_fetch=NO_OFFSET)
    caught_up = progress.last_caught_up_ms
    if fetch_offset >= leader_end:
        caught_up = now_ms
    elif NO_OFFSET < progress.leader_end_at_last_fetch <= fetch_offset:
        caught_up = max(caught_up, progress.last_fetch_ms)
    return FollowerProgress(broker_epoch, fetch_offset, caught_up, now_ms, leader_end, session)


def apply_session_heartbeat(progress: FollowerProgress, leader_end: int) -> FollowerProgress:
    """Returns the progress after the session's later requests, which left the partition out.

    Each counts like a fetch at the last reported position. It has to be applied before the leader's
    log grows: they prove a follower caught up only if it was last recorded at the leader's end, in
    the leader's present epoch (rule `fetch-session-bound-to-incarnations`)."""
    session = progress.session
    if session is None or progress.log_end_offset < leader_end:
        return progress
    if session.last_request_ms <= progress.last_fetch_ms:
        return progress
    return progress._replace(
        last_caught_up_ms=max(progress.last_caught_up_ms, session.last_request_ms),
        last_fetch_ms=session.last_request_ms,
    )


def detach_session(
    progress: FollowerProgress, session: SessionTime, leader_end: int
) -> FollowerProgress:
    """Returns the progress detached from this session, whose later requests do not count for it."""
    if progress.session is not session:
        return progress
    return apply_session_heartbeat(progress, leader_end)._replace(session=None)


def is_lagging(progress: FollowerProgress, *, now_ms: int, lag_time_max_ms: int) -> bool:
    return now_ms - progress.last_caught_up_ms > lag_time_max_ms


def lags_in_bytes(
    followers: Mapping[int, FollowerProgress], bytes_from: Callable[[int], int]
) -> dict[int, int]:
    """Returns how many bytes of the leader's log each follower lacks.

    A follower that has not fetched yet in this epoch is left out, and evaluated by its time
    only."""
    return {
        broker_id: bytes_from(progress.log_end_offset)
        for broker_id, progress in followers.items()
        if progress.log_end_offset != NO_OFFSET
    }


def may_join(progress: FollowerProgress, *, high_watermark: int, epoch_start: int) -> bool:
    """Returns whether the follower has all committed records and the start of the leader's epoch.

    So it has cut records that no leader knows (KAFKA-7128)."""
    return progress.log_end_offset >= max(high_watermark, epoch_start)


class IsrChange(NamedTuple):
    """`by_bytes`: the leaving ones that lack too many bytes."""

    joining: tuple[Member, ...]
    leaving: frozenset[int]
    by_bytes: frozenset[int] = frozenset()

    @property
    def cause(self) -> Cause:
        if not self.leaving:
            return Cause.CAUGHT_UP
        return Cause.LAG_BYTES if self.by_bytes else Cause.LAG_TIME


def evaluate_isr(
    state: LeaderAndIsr,
    followers: Mapping[int, FollowerProgress],
    running: Mapping[int, int],
    *,
    high_watermark: int,
    epoch_start: int,
    now_ms: int,
    lag_time_max_ms: int,
    too_far_behind: Collection[int] = (),
) -> IsrChange | None:
    """Returns the change that the ISR needs now, or None.

    - `running`: broker epoch of every broker that is registered as running. A follower joins only
      in the incarnation in which it fetched.
    - `too_far_behind`: followers that lag by more bytes than allowed, however fast they are.
    """
    in_sync = state.isr_ids

    def lags(broker_id: int, progress: FollowerProgress) -> bool:
        return broker_id in too_far_behind or is_lagging(
            progress, now_ms=now_ms, lag_time_max_ms=lag_time_max_ms
        )

    joining = tuple(
        Member(broker_id, progress.broker_epoch)
        for broker_id, progress in sorted(followers.items())
        if broker_id not in in_sync
        and running.get(broker_id) == progress.broker_epoch
        and not lags(broker_id, progress)
        and may_join(progress, high_watermark=high_watermark, epoch_start=epoch_start)
    )
    leaving = frozenset(
        broker_id
        for broker_id, progress in followers.items()
        if broker_id in in_sync and lags(broker_id, progress)
    )
    if not joining and not leaving:
        return None
    return IsrChange(joining, leaving, leaving & frozenset(too_far_behind))


def changed(state: LeaderAndIsr, change: IsrChange, origin: Change = NO_CHANGE) -> LeaderAndIsr:
    """Returns the value that a leader proposes. Only ISR, eligible set and `change` differ."""
    stay = (member for member in state.isr if member.broker_id not in change.leaving)
    return replace(state.with_isr((*stay, *change.joining)), change=origin)


def maximal(state: LeaderAndIsr, proposed: LeaderAndIsr | None) -> frozenset[int]:
    """Returns committed and proposed members.

    A joiner counts as soon as it is proposed, a leaver until the store has accepted its removal
    (KIP-497)."""
    return state.isr_ids if proposed is None else state.isr_ids | proposed.isr_ids
