"""Describes one replica as in `inspect.proto`.

Pure. A leader describes each follower, a follower describes its leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from tidelog.inspection.state_reports import (
    NOT_KNOWN,
    DamagedOffsets,
    DivergedOffsets,
    FollowerProgress,
    FollowerState,
    LeaderState,
    ReplicaState,
    WaitingConsumer,
)
from tidelog.model import NO_EPOCH, NO_LEADER, NO_OFFSET
from tidelog_broker.core.disk_rejections import Unopened
from tidelog_broker.core.partition import isr
from tidelog_broker.core.partition.lag import lag_of, least_lag_of, unreported_end
from tidelog_broker.core.partition.leader_state import LeaderState as CoreLeaderState
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.core.partition.write_rate import write_rate
from tidelog_runtime.metadata.schema import LeaderAndIsr


class Clocks(NamedTuple):
    """Both clocks at one moment."""

    monotonic_ms: int
    wall_ms: int


class Failure(NamedTuple):
    """Why a replica accepts no records.

    - `failure`: "disk_full", "disk_error", "corrupt" or "rejects_leader".
    - `since_ms`: monotonic time.
    - `leader_epoch`: the last epoch in which the replica led while it failed.
    - `hang_over_in_ms`: of a disk that hung, the time until it counts as recovered; 0: it hangs.
    """

    failure: str
    message: str
    since_ms: int
    leader_epoch: int = NO_EPOCH
    hang_over_in_ms: int = NOT_KNOWN


class ReplicaContext(Protocol):
    """What a replica does not know about itself."""

    def session_of(self, partition: Partition, follower: int) -> int:
        """Returns the session to which the follower's progress refers; 0: none."""

    def hw_stalled_ms(self, partition: Partition) -> int:
        """Returns NOT_KNOWN if no record waits."""

    def waiting_consumers(self, partition: Partition) -> Sequence[WaitingConsumer]: ...

    def following(self, partition: Partition) -> FollowerState: ...

    def failure_of(self, key: ReplicaKey) -> Failure | None: ...

    def damaged_offsets(self, key: ReplicaKey) -> Sequence[DamagedOffsets]: ...

    def diverged_offsets(self, key: ReplicaKey) -> Sequence[DivergedOffsets]: ...


def failure_fields(failure: Failure | None, now: Clocks) -> dict[str, Any]:
    """Returns the fields of a `ReplicaState` that describe the failure."""
    if failure is None:
        return {}
    return {
        "failure": failure.failure,
        "failure_message": failure.message,
        "failure_ms": now.monotonic_ms - failure.since_ms,
        "failed_leader_epoch": failure.leader_epoch,
        "hang_over_in_ms": failure.hang_over_in_ms,
    }


def role_of(partition: Partition) -> str:
    if not partition.in_service:
        return "damaged"
    if partition.leading is not None:
        return "leader"
    return "none" if partition.leader_to_follow == NO_LEADER else "follower"


def replica_state(partition: Partition, context: ReplicaContext, now: Clocks) -> ReplicaState:
    log = partition.log
    leading = partition.leading
    return ReplicaState(
        topic=partition.name.topic,
        topic_id=partition.topic_id,
        partition=partition.name.partition,
        role=role_of(partition),
        leader_epoch=partition.leader_epoch,
        revision=partition.revision,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=partition.high_watermark,
        flushed_offset=log.flushed_offset,
        size_bytes=log.bytes_from(log.log_start_offset),
        synced=partition.synced,
        leader=leader_state(partition, leading, context, now) if leading else None,
        follower=context.following(partition) if leading is None else None,
        moving=_moving(partition),
        damaged=context.damaged_offsets(partition.key),
        diverged=context.diverged_offsets(partition.key),
        **failure_fields(context.failure_of(partition.key), now),
    )


def unopened_replica(unopened: Unopened, key: ReplicaKey, now: Clocks) -> ReplicaState:
    failure = Failure(unopened.cause.value, unopened.message, unopened.since_ms)
    return ReplicaState(
        topic=unopened.name.topic,
        topic_id=key.topic_id,
        partition=unopened.name.partition,
        role="none",
        leader_epoch=NO_EPOCH,
        revision=0,
        **failure_fields(failure, now),
    )


def _moving(partition: Partition) -> str:
    state = partition.state
    if state is None:
        return ""
    if partition.broker_id in state.adding:
        return "adding"
    return "leaving" if partition.broker_id in state.leaving else ""


def leader_state(
    partition: Partition, leading: CoreLeaderState, context: ReplicaContext, now: Clocks
) -> LeaderState:
    assert partition.state is not None
    written = write_rate(partition.log, now.wall_ms) if partition.state.adding else None
    return LeaderState(
        min_isr=partition.state.min_isr,
        hw_stalled_ms=context.hw_stalled_ms(partition),
        maximal_isr=sorted(isr.maximal(partition.state, leading.proposed)),
        followers=[
            follower_progress(partition, leading.epoch_start, follower, progress, context, now)
            for follower, progress in sorted(leading.followers.items())
        ],
        refused_below_min_isr=leading.rejected_below_min_isr,
        last_refused_ms=(
            max(0, now.wall_ms - leading.last_rejected_ms)
            if leading.rejected_below_min_isr
            else NOT_KNOWN
        ),
        waiting_consumers=context.waiting_consumers(partition),
        written_bytes_per_second=None if written is None else written.usual,
        most_written_bytes_per_second=None if written is None else written.most,
    )


def follower_progress(
    partition: Partition,
    epoch_start: int,
    follower: int,
    known: isr.FollowerProgress,
    context: ReplicaContext,
    now: Clocks,
) -> FollowerProgress:
    progress = isr.apply_session_heartbeat(known, partition.log.log_end_offset)
    in_isr = partition.is_in_sync(follower)
    # Each follower is granted a lag time at the start of an epoch; that is not a fetch.
    fetched = progress.log_end_offset != NO_OFFSET
    if fetched:
        lag = lag_of(partition.log, progress.log_end_offset, now.wall_ms)
    else:
        first_lacking = unreported_end(epoch_start, partition.high_watermark, in_isr=in_isr)
        lag = least_lag_of(partition.log, first_lacking, now.wall_ms)
    return FollowerProgress(
        broker_id=follower,
        broker_epoch=progress.broker_epoch,
        in_isr=in_isr,
        log_end_offset=progress.log_end_offset if fetched else NOT_KNOWN,
        lag_records=lag.records,
        lag_bytes=lag.bytes,
        lag_ms=lag.ms,
        last_fetch_ms=now.monotonic_ms - progress.last_fetch_ms if fetched else NOT_KNOWN,
        last_caught_up_ms=now.monotonic_ms - progress.last_caught_up_ms if fetched else NOT_KNOWN,
        session_id=context.session_of(partition, follower),
    )


def is_healthy(replica: ReplicaState, key: LeaderAndIsr | None) -> bool:
    """Whether the replica and its partition have no problem.

    The ISR is complete, no move is running, the partition has a leader that commits, and no
    consumer waits. `key`: the partition's state as this broker last read it; None: there is none.
    """
    if replica.failure or replica.damaged or replica.diverged:
        return False
    if replica.role in ("damaged", "none"):
        return False
    if key is None or key.leader == NO_LEADER or len(key.isr) < len(key.replicas):
        return False
    if key.moving is not None:
        return False
    if replica.leader is not None:
        leader = replica.leader
        return leader.hw_stalled_ms == NOT_KNOWN and not leader.waiting_consumers
    return replica.follower is not None and not replica.follower.problem
