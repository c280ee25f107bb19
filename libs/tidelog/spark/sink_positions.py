"""Where a repeated task of a micro-batch continues in a partition, so that each record is written
once. Pure functions.

Each task of a query is a named producer, and its producer epoch is the number of the micro-batch.
Its sequences continue from one micro-batch to the next. A partition reports the sequence with which
an epoch began (rule `client-names-producer-epoch`). An earlier attempt of the same task has
written as many records as follow from there, and the task leaves out that many of its records for
the partition. This requires that a repeated task has the same records in the same order. Their
partitions do not change with the topic: brokers store, with the producer name, the number of
partitions at the first attempt of its epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.client.producers_codec import ProducerPosition
from tidelog.client.sequences import SEQUENCES, sequence_after
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition

# Local properties of a task's context with which Spark identifies what a sink writes.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


class SinkTask(NamedTuple):
    """A task that writes. `partition`: its partition of the plan that writes."""

    query_id: str
    batch_id: int
    partition: int

    @property
    def producer_name(self) -> str:
        return f"spark.{self.query_id}.{self.partition}"


class SinkPosition(NamedTuple):
    """Where a task continues. `written`: records of the task that the partition already holds."""

    next_sequence: int
    written: int


def has_begun(committed: ProducerPosition, task: SinkTask) -> bool:
    """Whether an earlier attempt of the task may have written to the partition."""
    return committed.producer_epoch == task.batch_id


def position_of(
    partition: TopicPartition, committed: ProducerPosition | None, task: SinkTask
) -> SinkPosition:
    """Raises `TidelogError`: FENCED_PRODUCER_EPOCH if a later micro-batch has written."""
    if committed is None:
        return SinkPosition(0, 0)
    next_sequence = 0 if committed.last_sequence < 0 else sequence_after(committed.last_sequence, 1)
    if committed.producer_epoch < task.batch_id:
        return SinkPosition(next_sequence, 0)
    if committed.producer_epoch > task.batch_id:
        raise superseded_task(task, f"batch {committed.producer_epoch} has written to {partition}")
    if committed.epoch_start_sequence is None:
        raise TidelogError(
            ErrorCode.UNKNOWN_PRODUCER_ID,
            f"the leader of {partition} runs an older release and cannot report how much of batch "
            f"{task.batch_id} of query {task.query_id} it has: upgrade the brokers first",
        )
    written = (next_sequence - committed.epoch_start_sequence) % SEQUENCES
    return SinkPosition(next_sequence, written)


def superseded_task(task: SinkTask, why: str) -> TidelogError:
    return TidelogError(
        ErrorCode.FENCED_PRODUCER_EPOCH,
        f"query {task.query_id} has begun a later batch than {task.batch_id}: its checkpoint is "
        "older than its records, or this task was replaced; if the checkpoint was restored, "
        f"begin with a new checkpointLocation ({why})",
    )


def fewer_partitions(task: SinkTask, topic: str, first_count: int, count: int) -> TidelogError:
    return TidelogError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"topic {topic!r} has {count} partitions, and had {first_count} at the first attempt of "
        f"batch {task.batch_id} of query {task.query_id}: the queried broker is behind, or "
        "partitions were removed with their records; in that case begin with a new "
        "checkpointLocation",
    )


def not_repeated(task: SinkTask, left: Mapping[TopicPartition, int]) -> TidelogError:
    """`left`: how many records of an earlier attempt the task did not produce again."""
    missing = ", ".join(f"{count} in {partition}" for partition, count in sorted(left.items()))
    return TidelogError(
        ErrorCode.INVALID_REQUEST,
        f"task {task.partition} of batch {task.batch_id} of query {task.query_id} was repeated and "
        f"did not produce all records of its earlier attempt; missing: {missing}. Its rows depend "
        "on more than its input, so exactly-once writes are impossible. Make them deterministic, "
        "for instance with sortWithinPartitions after a shuffle, and begin with a new "
        "checkpointLocation",
    )
