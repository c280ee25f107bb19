"""Messages from a producer to a leader: batches, in groups, in requests. Plain values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.client.delivery import Outcome
from tidelog.client.retry import Leader
from tidelog.compression import stated_size
from tidelog.model import Batch, TopicPartition
from tidelog.record_batch import EncodedRecords
from tidelog.request_bounds import MAX_PRODUCE_DECODED_BYTES, MAX_PRODUCE_REQUEST_BYTES
from tidelog.rpc.trace_context import Metadata

# Generous size of a batch in a request beside its records.
BATCH_OVERHEAD_BYTES = 128
# Maximum size of a request with several batches, which leaves room for the names of its topics.
MAX_SHARED_REQUEST_BYTES = MAX_PRODUCE_REQUEST_BYTES - (1 << 20)


@dataclass(slots=True, eq=False)
class SealedBatch:
    """A batch on its way. `number` orders it within its partition.

    `batch` is created, with its sequence, when it is first sent. It stays the same while any
    leader may still append it (rule `waiting-produce-ends-with-epoch`)."""

    partition: TopicPartition
    number: int
    encoded: EncodedRecords
    deadline_ms: int
    on_settled: Callable[[Outcome], None]
    trace_context: Metadata | None = None
    batch: Batch | None = None
    # Rejected together with others, and therefore sent alone, to learn which of them is at fault.
    suspect: bool = False
    # A try ended without a rejection: the batch may be in the log, or may still be appended.
    in_doubt: bool = False
    # Topic id of that try.
    doubt_topic_id: str = ""
    # It has an outcome. A batch that expires in flight stays in its group.
    settled: bool = False

    def failed_at(self, topic_id: str, *, maybe_appended: bool) -> None:
        """Records a failed try at a leader of this topic."""
        if maybe_appended and not self.in_doubt:
            self.in_doubt, self.doubt_topic_id = True, topic_id

    @property
    def alone(self) -> bool:
        """Whether the batch shares no group. A batch that may be in the log may have an offset
        already, which need not be next to that of its neighbours."""
        return self.suspect or self.in_doubt

    @property
    def wire_bytes(self) -> int:
        return len(self.encoded.records) + BATCH_OVERHEAD_BYTES

    @property
    def decoded_bytes(self) -> int:
        """The bytes of its records once they are decompressed."""
        records = self.encoded.records
        return max(stated_size(self.encoded.codec, records) or 0, len(records))


class Group(NamedTuple):
    """Batches of one partition in one request, which succeed or fail together. `first_in_line`:
    no earlier batch was without an outcome when they were sent."""

    partition: TopicPartition
    leader: Leader
    batches: Sequence[SealedBatch]
    first_in_line: bool = False


@dataclass(slots=True, eq=False)
class Request:
    leader: Leader
    groups: list[Group] = field(default_factory=list)
    wire_bytes: int = 0
    decoded_bytes: int = 0
    batch_count: int = 0

    def has_room(self, batch: SealedBatch, max_wire_bytes: int) -> bool:
        """Whether the bytes of the batch, compressed and not, fit into the request."""
        return (
            self.wire_bytes + batch.wire_bytes <= max_wire_bytes
            and self.decoded_bytes + batch.decoded_bytes <= MAX_PRODUCE_DECODED_BYTES
        )

    def count(self, batch: SealedBatch) -> None:
        self.wire_bytes += batch.wire_bytes
        self.decoded_bytes += batch.decoded_bytes

    @property
    def trace_context(self) -> Metadata | None:
        """Trace context of the request: that of the first batch that was sent within a span."""
        for group in self.groups:
            for batch in group.batches:
                if batch.trace_context is not None:
                    return batch.trace_context
        return None
