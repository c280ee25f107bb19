"""One partition that a consumer reads: its position and its buffer. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.batch import is_fence
from tidelog.batch_slices import decoded_size
from tidelog.client.fetched_batch import FetchedBatch, OpenedBatch
from tidelog.client.log_continuity import Continuity
from tidelog.client.record_deserializer import RecordDeserializer
from tidelog.client.retry import Route
from tidelog.errors import TidelogError
from tidelog.model import NO_EPOCH, Batch, OffsetPosition, Record, TopicPartition


class GrowingTopic(NamedTuple):
    """A topic whose partitions are all assigned, including those that are added later.

    - `topic_id`: of the topic that is read. A later topic of the name replaces it once the caller
      has sought in that topic.
    - `partitions`: how many of the topic are assigned."""

    topic: str
    topic_id: str
    partitions: int


@dataclass(slots=True, eq=False)
class Assigned:
    """One partition.

    - `position`: the next offset for the user; None: to be found, as `reset` says.
    - `fetch_offset`: the next offset to fetch; all offsets between are in `buffered`.
    - `generation`: increases with every seek, and when a fetch is given up. An answer to an older
      generation is dropped.
    - `end_offset`: nothing is fetched from this offset on; None: no limit.
    - `buffered_bytes`: decompressed size of `buffered`.
    - `expansion`: decompressed size over wire size of the last answer.
    """

    partition: TopicPartition
    reset: OffsetPosition | None
    position: int | None = None
    fetch_offset: int = 0
    end_offset: int | None = None
    generation: int = 0
    buffered: deque[Batch] = field(default_factory=deque)
    buffered_bytes: int = 0
    expansion: float = 1.0
    # The first batch of `buffered`, once records of it have been requested.
    opened: OpenedBatch | None = None
    in_flight: bool = False
    # Number of the last fetch that included the partition, as `FetchState` counts them.
    fetch_turn: int = 0
    finding: bool = False
    topic_id: str = ""
    newest_epoch: int = NO_EPOCH
    continuity: Continuity = field(default_factory=Continuity)
    route: Route = field(default_factory=Route)
    failing_since_ms: int = 0
    corrupt: int = 0
    out_of_range: int = 0
    reported_truncation: bool = False
    error: TidelogError | None = None
    # `missing`: `error` says that the partition does not exist. `confirmed`: a broker was queried
    # when the error was due. `missing_reported`: a call has raised the error since the last answer
    # of a leader.
    missing: bool = False
    confirmed: bool = False
    missing_reported: bool = False

    def seek(self, offset: int | None, reset: OffsetPosition | None = None) -> None:
        self.position = offset
        self.reset = reset
        self.fetch_offset = offset or 0
        self.end_offset = None
        self.generation += 1
        self.continuity.forget()
        self.buffered.clear()
        self.buffered_bytes = 0
        self.opened = None
        self.in_flight = False
        self.finding = False
        self.corrupt = self.out_of_range = 0
        self.reported_truncation = False
        self.error = None
        self.missing = self.confirmed = False
        if self.missing_reported:
            # The caller seeks in the topic that has the name now.
            self.missing_reported = False
            self.reset_position("")

    def found(self, offset: int, topic_id: str) -> None:
        """Seeks to an offset that a leader of this topic id reported."""
        self.seek(offset)
        if offset and not self.topic_id:
            # The offset is valid for this topic id only; 0 is the beginning of any topic.
            self.topic_id = topic_id

    def resume(self, offset: int, topic_id: str, read_epoch: int, end_offset: int | None) -> None:
        """Continues where another consumer of this topic id has ended."""
        self.seek(offset)
        self.end_offset = end_offset
        self.topic_id = topic_id
        self.newest_epoch = max(self.newest_epoch, read_epoch)
        self.continuity.resume(read_epoch)

    def reset_position(self, topic_id: str) -> None:
        """Resets the state for another topic of the name, which has epochs of its own. Records and
        failures of the previous topic do not count."""
        self.topic_id = topic_id
        self.newest_epoch = NO_EPOCH
        self.continuity = Continuity()
        self.route = Route()

    def may_fetch(self, share: int) -> bool:
        """Returns whether to fetch more. `share`: bytes of the prefetch buffer for this
        partition."""
        return (
            self.position is not None
            and not self.in_flight
            and self.error is None
            and self.buffered_bytes <= share // 2
            and (self.end_offset is None or self.fetch_offset < self.end_offset)
        )

    @property
    def is_closed(self) -> bool:
        """Whether no batch of this partition is open."""
        return self.opened is None

    def to_open(self) -> FetchedBatch:
        """Returns the first batch of `buffered`, from `position` on."""
        assert self.position is not None, "what is buffered has a position"
        batch = self.buffered[0]
        skip = max(self.position - batch.header.base_offset, 0)
        return FetchedBatch(self.partition, batch, skip)

    def is_to_open(self, fetched: FetchedBatch) -> bool:
        """Returns whether this is still the next batch and is not open. While a thread opens a
        batch, other calls may seek, take it, or open it and take some of its records."""
        return (
            self.opened is None
            and bool(self.buffered)
            and self.buffered[0] is fetched.batch
            and self.to_open().skip == fetched.skip
        )

    def take(self) -> FetchedBatch:
        """Removes the first batch of `buffered`; returns it."""
        taken = self.to_open()
        self.buffered.popleft()
        self.buffered_bytes -= decoded_size(taken.batch)
        self.opened = None
        self.position = taken.next_offset
        return taken

    def give_back(self, offset: int, batches: Sequence[Batch], end: int | None) -> None:
        """Undoes a taking: `batches`, which were taken from `offset` on, are the next ones again.
        `end`: the position after the taking."""
        if self.position != end:
            # It was reset meanwhile: what is buffered does not continue these batches.
            self.position, self.reset, self.finding = end, None, False
            self.continuity.forget()
            self.close_buffered()
        for batch in reversed(batches):
            # The last one is still buffered if it was read in part.
            if not self.buffered or self.buffered[0] is not batch:
                self.buffered.appendleft(batch)
                self.buffered_bytes += decoded_size(batch)
        self.opened = None
        self.position = offset
        self.fetch_offset = max(self.fetch_offset, batches[-1].header.next_offset)

    def close_buffered(self) -> None:
        """Clears `buffered` and drops answers in flight, because the first batch cannot be
        opened."""
        assert self.position is not None, "what is buffered has a position"
        self.generation += 1
        self.in_flight = False
        self.buffered.clear()
        self.buffered_bytes = 0
        self.opened = None
        self.fetch_offset = self.position

    def take_records(
        self, max_records: int, deserializer: RecordDeserializer | None = None
    ) -> list[Record]:
        """Takes records of the first batch of `buffered`; none if it is a producer fence. Raises
        `TidelogError` (INVALID_BATCH), CostlyBatchError for a batch that is not open yet, and
        `DeserializationError` for its next record; the position then stays where it is."""
        batch = self.buffered[0]
        if is_fence(batch.header):
            self.take()
            return []
        if self.opened is None:
            self.opened = OpenedBatch(self.to_open(), cheap_only=True)
        records = self.opened.take(max_records)
        if deserializer is not None and records:
            count = len(records)
            records = deserializer.deserialize(records)
            if len(records) < count:
                # Opened again at the record that failed.
                self.opened = None
        if not records or records[-1].offset + 1 == batch.header.next_offset:
            self.take()
        else:
            self.position = records[-1].offset + 1
        return records
