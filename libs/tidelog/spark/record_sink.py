"""Writes Arrow batches in an executor: acks=all, idempotent, and exactly once in a stream."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from tidelog.client.admin import Admin
from tidelog.client.connections import Connections
from tidelog.client.delivery import BatchReport
from tidelog.client.partitioner import partition_for_key
from tidelog.client.producer import Producer
from tidelog.client.producers_codec import ProducerPosition
from tidelog.client.sequences import Identity
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Codec, TopicPartition
from tidelog.record_batch import Headers
from tidelog.record_limits import HIGHEST_MAX_BATCH_BYTES
from tidelog.spark.sink_positions import (
    SinkTask,
    fewer_partitions,
    has_begun,
    not_repeated,
    position_of,
    superseded_task,
)

# Records without a key go to one partition for this many records, then to the next.
STICKY_RECORDS = 1_000
_Answer = TypeVar("_Answer")


class WriteCounts(NamedTuple):
    """The records of one task. `left_out`: records that an earlier attempt had written."""

    written: int
    left_out: int


class RecordSink:
    """Writes the records of one task. Belongs to one event loop. Raises only `TidelogError`.

    The partition of a record depends only on the task's earlier records. A repeated task thus
    chooses the same partitions, out of as many as the topic had at the first attempt.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        topic: str | None,
        codec: Codec,
        task: SinkTask | None,
        task_partition: int,
        connections: Connections | None = None,
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._codec = codec
        self._task = task
        self._turn = task_partition
        self._connections = connections
        self._admin = Admin(bootstrap, connections=connections)
        self._producer: Producer | None = None
        self._identity: Identity | None = None
        # By topic: the number of partitions now, and at the first attempt of the task. The latter
        # decides the partition of a record.
        self._counts: dict[str, int] = {}
        self._first_counts: dict[str, int] = {}
        self._keyless: defaultdict[str, int] = defaultdict(int)
        # Topics that were searched for partitions with records of an earlier attempt.
        self._searched: set[str] = set()
        # How many of the next records for a partition are already written.
        self._to_leave_out: dict[TopicPartition, int] = {}
        self._error: TidelogError | None = None
        self._written = self._left_out = 0

    async def write(self, rows: pa.RecordBatch) -> None:
        """Waits only for buffer space; a later call may raise the error of a record."""
        columns = _Columns.of(rows, self._topic)
        await self._count_partitions(columns.topics)
        of_partition: dict[TopicPartition, list[int]] = {}
        for index in range(rows.num_rows):
            of_partition.setdefault(self._partition_of(columns, index), []).append(index)
        await self._find_positions(of_partition)
        for partition, indexes in of_partition.items():
            await self._send(partition, columns, indexes)
        if self._error is not None:
            raise self._error

    async def finish(self) -> WriteCounts:
        """Waits until all records are committed."""
        if self._producer is not None:
            await self._producer.flush()
        if self._error is not None:
            raise self._error
        left = {partition: count for partition, count in self._to_leave_out.items() if count}
        if self._task is not None and left:
            raise not_repeated(self._task, left)
        return WriteCounts(self._written, self._left_out)

    async def close(self) -> None:
        if self._producer is not None:
            await self._producer.close(flush=False)
        await self._admin.close()

    def _partition_of(self, columns: _Columns, index: int) -> TopicPartition:
        topic, partition, key = (
            columns.topics[index],
            columns.partitions[index],
            columns.keys[index],
        )
        if topic is None:
            raise TidelogError(
                ErrorCode.INVALID_REQUEST,
                "a row has no topic: fill the column, or set the option topic for all rows",
            )
        count = self._counts[topic]
        if partition is None:
            return TopicPartition(topic, self._choose_partition(topic, key))
        if not 0 <= partition < count:
            raise TidelogError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"a row names partition {partition} of topic {topic!r}, which has {count} (0 to "
                f"{count - 1})",
            )
        return TopicPartition(topic, partition)

    def _choose_partition(self, topic: str, key: bytes | None) -> int:
        first_count = self._first_counts[topic]
        if self._task is not None and first_count > self._counts[topic]:
            raise fewer_partitions(self._task, topic, first_count, self._counts[topic])
        if key is not None:
            return partition_for_key(key, first_count)
        count_before = self._keyless[topic]
        self._keyless[topic] += 1
        return (self._turn + count_before // STICKY_RECORDS) % first_count

    async def _count_partitions(self, topics: Iterable[str | None]) -> None:
        """Counts the partitions of the topics that the task writes for the first time."""
        found: dict[str, int] = {}
        for topic in dict.fromkeys(topics):
            if topic is not None and topic not in self._counts:
                found[topic] = await (await self._get_producer()).partitions_of(topic)
        self._counts |= found
        task = self._task
        if task is not None and found:
            name, epoch = task.producer_name, task.batch_id
            found = dict(
                await self._unless_superseded(
                    task, self._admin.partition_counts(name, epoch, found)
                )
            )
        self._first_counts |= found

    async def _get_producer(self) -> Producer:
        if self._producer is None:
            if (task := self._task) is not None:
                request = self._admin.init_producer_id(task.producer_name, epoch=task.batch_id)
                self._identity = await self._unless_superseded(task, request)
            self._producer = Producer(
                self._bootstrap,
                identity=self._identity,
                codec=self._codec,
                # The topic's max_batch_bytes decides what is too large.
                max_request_bytes=HIGHEST_MAX_BATCH_BYTES,
                on_delivery=self._delivered,
                connections=self._connections,
            )
        return self._producer

    async def _unless_superseded(self, task: SinkTask, answer: Awaitable[_Answer]) -> _Answer:
        try:
            return await answer
        except TidelogError as error:
            if error.code is ErrorCode.FENCED_PRODUCER_EPOCH:
                raise superseded_task(task, error.message) from error
            raise

    async def _send(
        self, partition: TopicPartition, columns: _Columns, indexes: Sequence[int]
    ) -> None:
        leave_out = min(self._to_leave_out.get(partition, 0), len(indexes))
        if leave_out:
            self._to_leave_out[partition] -= leave_out
            self._left_out += leave_out
            indexes = indexes[leave_out:]
        producer = await self._get_producer()
        if columns.headers is None:
            await producer.send_many(
                partition.topic,
                [columns.values[i] for i in indexes],
                [columns.keys[i] for i in indexes],
                partition=partition.partition,
            )
            return
        for i in indexes:
            await producer.send(
                partition.topic,
                columns.values[i],
                columns.keys[i],
                partition=partition.partition,
                headers=columns.headers[i],
            )

    async def _find_positions(self, partitions: Iterable[TopicPartition]) -> None:
        """Finds where to continue in partitions that the task writes for the first time."""
        task, identity = self._task, self._identity
        if task is None or identity is None:
            return
        new: dict[str, list[int]] = {}
        for topic, number in partitions:
            if TopicPartition(topic, number) not in self._to_leave_out:
                new.setdefault(topic, []).append(number)
        for topic, numbers in new.items():
            written = await self._written_before(topic, task, identity)
            positions = await self._positions(topic, sorted({*numbers, *written}), identity)
            for number, at in positions.items():
                partition = TopicPartition(topic, number)
                found = position_of(partition, at, task)
                (await self._get_producer()).begin_at(topic, number, found.next_sequence)
                self._to_leave_out[partition] = found.written

    async def _written_before(
        self, topic: str, task: SinkTask, identity: Identity
    ) -> Iterable[int]:
        """Returns the partitions that an earlier attempt of the task has written to.

        All partitions of the topic are queried when the task first writes to it, without a fence,
        so that an attempt that chose other partitions is detected. Only the partitions that were
        or will be written are fenced.
        """
        if topic in self._searched:
            return ()
        self._searched.add(topic)
        positions = await self._admin.describe_producers(
            topic, range(self._counts[topic]), [identity.producer_id]
        )
        return [number for number, at in positions.items() if at and has_begun(at[0], task)]

    async def _positions(
        self, topic: str, numbers: Sequence[int], identity: Identity
    ) -> dict[int, ProducerPosition | None]:
        # A fence is answered after it is committed. So a deposed leader cannot answer, and all that
        # an earlier attempt appended is committed.
        positions = await self._admin.describe_producers(
            topic, numbers, [identity.producer_id], fence=identity
        )
        return {number: found[0] if found else None for number, found in positions.items()}

    def _delivered(self, report: BatchReport) -> None:
        if report.error is not None:
            self._error = self._error or report.error
        else:
            self._written += report.record_count


class _Columns(NamedTuple):
    """The columns of rows to write. `headers`: None if no row has headers."""

    keys: list[bytes | None]
    values: list[bytes | None]
    topics: list[str | None]
    partitions: list[int | None]
    headers: list[Headers] | None

    @classmethod
    def of(cls, rows: pa.RecordBatch, topic: str | None) -> _Columns:
        def column(name: str) -> pa.Array | None:
            return rows.column(name) if name in rows.schema.names else None

        nothing: list[None] = [None] * rows.num_rows
        topics, partitions = column("topic"), column("partition")
        named: list[str | None] = [topic] * rows.num_rows
        if topic is None and topics is not None:
            named = topics.to_pylist()
        return cls(
            _contents(column("key")) or list(nothing),
            _contents(column("value")) or list(nothing),
            named,
            list(nothing) if partitions is None else partitions.to_pylist(),
            _headers(column("headers")),
        )


def _contents(column: pa.Array | None) -> list[bytes | None]:
    found: list[bytes | None] = [] if column is None else column.cast(pa.binary()).to_pylist()
    return found


def _headers(column: pa.Array | None) -> list[Headers] | None:
    if column is None or column.null_count == len(column):
        return None
    return [tuple(map(_header, of_row or ())) for of_row in column.to_pylist()]


def _header(header: Mapping[str, Any] | None) -> tuple[str, bytes]:
    if header is None or header["key"] is None:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            "a header of a row has no key: give it one, or leave it out by filter(headers, h -> "
            "h.key is not null)",
        )
    return header["key"], header["value"] or b""
