"""Reads one range of offsets in an executor: from the partition's current leader, in bounded
memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidelog.client.clock import Clock, SystemClock
from tidelog.client.consumer import Consumer
from tidelog.client.fetched_batch import FetchedBatch
from tidelog.client.log_continuity import LogTruncatedError
from tidelog.client.metadata_cache import KnownTopic
from tidelog.client.sync import SyncConsumer
from tidelog.errors import (
    FINAL_ANSWERS,
    ErrorCode,
    InvalidBatchError,
    RecordsDamagedError,
    TidelogError,
)
from tidelog.model import NO_EPOCH, OffsetPosition
from tidelog.record_limits import invalid_batch
from tidelog.spark import cluster_lookups
from tidelog.spark.arrow_batches import ArrowBatches
from tidelog.spark.data_loss import DataLossError
from tidelog.spark.options import ReadOptions
from tidelog.spark.planning import OffsetRange
from tidelog.spark.stream_offsets import ReadTo

MAX_FETCH_BYTES = 8 << 20
# Time of an empty poll, after which the reader checks whether the rest of the range has no records.
POLL_MS = 200
# A task fails after this time without progress.
NO_PROGRESS_MS = 120_000
SKIP_HINT = "to continue behind them, set the option onDamage to skip"

_log = logging.getLogger(__name__)


class RangeReader:
    """Reads one range.

    - Raises `DataLossError` if a part of the range is gone. Without `fail_on_data_loss` it logs a
      warning and continues with what exists.
    - Raises `RecordsDamagedError` at damaged records and `InvalidBatchError` at a batch that cannot
      be decoded. With `skip_damaged` it logs a warning with their offsets and continues behind
      them.
    """

    def __init__(
        self,
        consumer: SyncConsumer,
        offset_range: OffsetRange,
        schema: pa.Schema,
        *,
        fail_on_data_loss: bool,
        skip_damaged: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._consumer = consumer
        self._range = offset_range
        self._end = offset_range.end.offset
        self._arrow = ArrowBatches(schema, offset_range.partition)
        self._fail_on_data_loss = fail_on_data_loss
        self._skip_damaged = skip_damaged
        self._clock = clock or SystemClock()
        # Where the consumer has to be positioned before the next poll.
        self._continues_at: ReadTo | None = offset_range.start
        self._denied_since_ms: int | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        position = self._range.start.offset
        since_ms = self._clock.monotonic_ms()
        while position < self._end:
            for fetched in self._poll(position):
                self._check_end(fetched)
                yield from self._decode(fetched)
            reached = self._reached()
            now_ms = self._clock.monotonic_ms()
            if reached > position:
                position, since_ms = reached, now_ms
            elif now_ms - since_ms >= NO_PROGRESS_MS and position < self._end:
                raise TidelogError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"no leader of {self._range.partition} returned a record from offset "
                    f"{position} on for {NO_PROGRESS_MS} ms; run `tidelog explain`",
                )
        yield from self._collected()

    def _decode(self, fetched: FetchedBatch) -> Iterator[pa.RecordBatch]:
        try:
            for _ in self._arrow.add(fetched, self._end):
                if self._arrow.is_full:
                    yield from self._collected()
        except InvalidBatchError as error:
            # It arrived intact, so a retry cannot help.
            if not self._skip_damaged:
                raise invalid_batch(f"{error.message}; {SKIP_HINT}") from error
            _log.warning("skipped: %s", error)

    def _collected(self) -> Iterator[pa.RecordBatch]:
        batch = self._arrow.take()
        if batch is not None:
            yield batch

    def _reached(self) -> int:
        if self._continues_at is not None:
            return self._continues_at.offset
        return self._consumer.position(self._range.partition) or 0

    def _poll(self, position: int) -> list[FetchedBatch]:
        try:
            self._resume()
            fetched = self._consumer.poll_batches(POLL_MS)
        except TidelogError as error:
            self._continue(max(position, self._reached()), error)
            return []
        if fetched:
            self._denied_since_ms = None
        return fetched

    def _resume(self) -> None:
        if (at := self._continues_at) is None:
            return
        offset_range = self._range
        self._consumer.ask(
            lambda consumer: consumer.resume(
                offset_range.partition,
                at.offset,
                topic_id=offset_range.topic_id,
                read_epoch=at.leader_epoch,
                end_offset=self._end,
            )
        )
        self._continues_at = None

    def _continue(self, position: int, error: TidelogError) -> None:
        """Handles an error of the consumer. Raises it unless it is a loss that may be ignored or an
        answer that may be retried."""
        if isinstance(error, RecordsDamagedError):
            self._damaged(error)
            return
        try:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise error
            if isinstance(error, LogTruncatedError):
                self._truncated(position, error)
            else:
                self._out_of_range(position)
        except TidelogError as rejection:
            if rejection.code not in FINAL_ANSWERS:
                raise
            self._denied(position, rejection)

    def _damaged(self, error: RecordsDamagedError) -> None:
        if not self._skip_damaged:
            raise RecordsDamagedError(
                error.code,
                f"{error.message}; {SKIP_HINT}",
                first_offset=error.first_offset,
                next_offset=error.next_offset,
            )
        _log.warning("skipped: %s", error)
        self._continues_at = ReadTo(min(error.next_offset, self._end))

    def _denied(self, position: int, rejection: TidelogError) -> None:
        """Handles an answer that the partition does not exist.

        A broker that is behind may not know it yet, or may know the topic's predecessor. Other
        brokers are queried until it is certain that the partition is gone.
        """
        if self._denied_since_ms is None:
            self._denied_since_ms = self._clock.monotonic_ms()
        why = self._removal_reason(rejection, self._check_again())
        if why is None:
            start = self._range.start
            self._continues_at = start if position == start.offset else ReadTo(position)
            return
        self._lost(f"{why} (offsets {position} to {self._end - 1} were still to be read)")
        self._end = position

    def _removal_reason(self, rejection: TidelogError, known: KnownTopic | None) -> str | None:
        """Returns why the partition is gone, or None if it may exist."""
        offset_range, since_ms = self._range, self._denied_since_ms
        if known is not None and known.topic_id != offset_range.topic_id:
            if known.create_revision < offset_range.create_revision:
                return None
            return (
                f"topic {offset_range.partition.topic!r} was deleted and created again (its id was "
                f"{offset_range.topic_id}, and is {known.topic_id}) before "
                f"{offset_range.partition} was read"
            )
        denied_ms = self._clock.monotonic_ms() - (since_ms or 0)
        if (
            rejection.code is ErrorCode.UNKNOWN_TOPIC_ID
            or denied_ms < cluster_lookups.GONE_AFTER_MS
        ):
            return None
        return f"{offset_range.partition} was deleted, as brokers have reported for {denied_ms} ms"

    def _check_again(self) -> KnownTopic | None:
        """Requests the topic from another broker. None if it is unknown there, and no broker has
        described it."""

        async def request(consumer: Consumer) -> KnownTopic | None:
            await asyncio.sleep(cluster_lookups.POLL_PAUSE_MS / 1000)
            try:
                return await consumer.known_topic(self._range.partition.topic, fresh=True)
            except TidelogError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    return None
                raise

        return self._consumer.ask(request)

    def _truncated(self, position: int, error: LogTruncatedError) -> None:
        """The log no longer has what was read before `position`. Continues with what it has from
        there to the planned end."""
        self._lost(
            f"the log of {error.partition} was truncated below offset {error.offset} by an unclean "
            "election while it was read, or the partition was removed and added again: the record "
            f"before it was read in leader epoch {error.read_epoch}, and is not in the log of the "
            f"leader of epoch {error.leader_epoch}"
        )
        self._end = min(self._end, self._offset_at(OffsetPosition.LATEST))
        if position < self._end:
            self._continues_at = ReadTo(position)

    def _out_of_range(self, position: int) -> None:
        start, end = (
            self._offset_at(OffsetPosition.EARLIEST),
            self._offset_at(OffsetPosition.LATEST),
        )
        name, last = self._range.partition, self._end - 1
        if start > position:
            self._lost(
                f"offsets {position} to {min(start - 1, last)} of {name} were deleted before they "
                f"were read (by its retention): its log starts at {start}"
            )
            self._continues_at = ReadTo(min(start, self._end))
        elif end < self._end:
            self._lost(
                f"offsets {max(end, position)} to {last} of {name} are gone: its log ends at {end} "
                "after an unclean election, or the partition was removed and added again"
            )
            self._end = max(end, position)
        else:
            # The broker that answered was behind; the leader has all of it.
            self._continues_at = ReadTo(position)

    def _offset_at(self, position: OffsetPosition) -> int:
        partition = self._range.partition
        found = self._consumer.ask(lambda c: c.offsets_with_epochs(position, [partition]))[
            partition
        ]
        if found.topic_id != self._range.topic_id:
            raise TidelogError(
                ErrorCode.UNKNOWN_TOPIC_ID, f"another topic has the name {partition.topic!r}"
            )
        return found.offset

    def _check_end(self, fetched: FetchedBatch) -> None:
        """Checks that the last record has the epoch with which it was planned."""
        header, planned = fetched.header, self._range.end
        is_last = header.base_offset < planned.offset <= header.next_offset
        if is_last and planned.leader_epoch not in (NO_EPOCH, header.leader_epoch):
            self._lost(
                f"the log of {self._range.partition} was truncated by an unclean election, or the "
                "partition was removed and added again, before offsets up to "
                f"{planned.offset - 1} were read: the record there was of leader epoch "
                f"{planned.leader_epoch}, and is of epoch {header.leader_epoch}"
            )

    def _lost(self, what: str) -> None:
        if self._fail_on_data_loss:
            raise DataLossError([what])
        _log.warning("%s", what)


def read_range(
    bootstrap: str,
    offset_range: OffsetRange,
    schema: pa.Schema,
    *,
    buffer_bytes: int,
    fail_on_data_loss: bool,
    skip_damaged: bool = False,
    new_consumer: Callable[..., SyncConsumer] = SyncConsumer,
) -> Iterator[pa.RecordBatch]:
    """Yields record batches of a few megabytes. About `buffer_bytes` are fetched ahead."""
    with new_consumer(
        bootstrap, prefetch_bytes=buffer_bytes, max_bytes=min(MAX_FETCH_BYTES, buffer_bytes)
    ) as consumer:
        reader = RangeReader(
            consumer,
            offset_range,
            schema,
            fail_on_data_loss=fail_on_data_loss,
            skip_damaged=skip_damaged,
        )
        yield from reader.batches()


class RangePartition(InputPartition):
    """A task's range of offsets. It is None if a batch is empty: Spark has a task read that,
    too."""

    value: OffsetRange | None


def range_partitions(ranges: Iterable[OffsetRange]) -> list[InputPartition]:
    return [RangePartition(one) for one in ranges]


def read_partition(
    partition: InputPartition, options: ReadOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    offset_range: OffsetRange | None = partition.value
    if offset_range is None:
        return
    yield from read_range(
        options.bootstrap,
        offset_range,
        to_arrow_schema(schema, timezone="UTC"),
        buffer_bytes=options.buffer_bytes,
        fail_on_data_loss=options.fail_on_data_loss,
        skip_damaged=options.skip_damaged,
    )
