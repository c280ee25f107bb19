"""The errors with which a replica rejects a request. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.batch import is_damaged
from tidelog.errors import ErrorCode, RecordsDamagedError, TidelogError
from tidelog.model import NO_LEADER, Batch, BatchHeader, TopicPartition
from tidelog_runtime.metadata.schema import LeaderAndIsr


def not_leading(name: TopicPartition, state: LeaderAndIsr | None, broker_id: int) -> TidelogError:
    if state is None or state.leader in (NO_LEADER, broker_id):
        return TidelogError(
            ErrorCode.LEADER_NOT_AVAILABLE,
            f"{name} has no leader now; try again with fresh metadata",
        )
    return TidelogError(
        ErrorCode.NOT_LEADER,
        f"broker {broker_id} does not lead {name}; broker {state.leader} does in epoch "
        f"{state.leader_epoch}",
    )


def not_enough_replicas(name: TopicPartition, state: LeaderAndIsr) -> TidelogError:
    return TidelogError(
        ErrorCode.NOT_ENOUGH_REPLICAS,
        f"{name} has {len(state.isr)} replica(s) in sync {sorted(state.isr_ids)}, acks=all "
        f"needs {state.min_isr}",
    )


def no_replica(name: TopicPartition, follower: int) -> TidelogError:
    return TidelogError(
        ErrorCode.INVALID_REQUEST,
        f"broker {follower} has no replica of {name}, and may not fetch it as one",
    )


def former_life(name: TopicPartition, follower: int, asked: int, seen: int) -> TidelogError:
    return TidelogError(
        ErrorCode.STALE_BROKER_EPOCH,
        f"broker {follower} has fetched {name} in broker epoch {seen}; this request is from "
        f"its previous incarnation {asked}",
    )


def end_not_known(name: TopicPartition, epoch: int, committed: int, start: int) -> TidelogError:
    return TidelogError(
        ErrorCode.OFFSET_NOT_AVAILABLE,
        f"{name}: the leader of epoch {epoch} does not know the committed end yet (high "
        f"watermark {committed}, epoch start {start})",
    )


def out_of_range(name: TopicPartition, start: int, end: int, asked: int) -> TidelogError:
    return TidelogError(
        ErrorCode.OFFSET_OUT_OF_RANGE, f"{name} has offsets {start} to {end}, not {asked}"
    )


def producers_not_known(name: TopicPartition, start: int, asked: int) -> TidelogError:
    return TidelogError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{name} knows the producers below offset {start}, not below {asked}",
    )


def readable(name: TopicPartition, batches: Sequence[Batch]) -> Sequence[Batch]:
    """Returns the batches before the first damaged one. Raises RECORDS_DAMAGED if that is the
    first."""
    for position, batch in enumerate(batches):
        if is_damaged(batch.header):
            if position == 0:
                raise records_damaged(name, batch.header)
            return batches[:position]
    return batches


def records_damaged(name: TopicPartition, header: BatchHeader) -> RecordsDamagedError:
    return RecordsDamagedError(
        ErrorCode.RECORDS_DAMAGED,
        f"the records of {name} at offsets {header.base_offset} to {header.next_offset - 1} were "
        "damaged on the last disk that held them, and cannot be read; continue at offset "
        f"{header.next_offset} (on_damage=skip), or restore them from a backup",
        first_offset=header.base_offset,
        next_offset=header.next_offset,
    )
