"""What travels from a producer to a leader: batches, in groups, in requests. Plain values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.client.delivery import Outcome
from tidelog.client.retry import Leader
from tidelog.model import Batch, TopicPartition
from tidelog.record_batch import EncodedRecords
from tidelog.request_bounds import MAX_PRODUCE_REQUEST_BYTES
from tidelog.rpc.trace_context import Metadata

# What one batch takes in a request beside its records, generously.
BATCH_OVERHEAD_BYTES = 128
# Batches share a request up to here, with room for the names of its topics.
MAX_SHARED_REQUEST_BYTES = MAX_PRODUCE_REQUEST_BYTES - (1 << 20)


@dataclass(slots=True, eq=False)
class SealedBatch:
    """A batch on its way. `number` orders it within its partition. `batch` is made when it
    is first sent, with whatever sequence it then gets, and stays as it is while anybody
    may still append it (interleaving 8 of docs/internals/interleavings.md)."""

    partition: TopicPartition
    number: int
    encoded: EncodedRecords
    deadline_ms: int
    on_settled: Callable[[Outcome], None]
    trace_context: Metadata | None = None
    batch: Batch | None = None
    # Refused together with others: sent by itself, to learn which of them is at fault.
    suspect: bool = False
    # A try ended without a refusal: the batch may be in the log, or yet come to be.
    in_doubt: bool = False
    # Of the topic that this try was sent to.
    doubt_topic_id: str = ""

    def failed_at(self, topic_id: str, *, maybe_appended: bool) -> None:
        """A try at a leader of this topic has failed."""
        if maybe_appended and not self.in_doubt:
            self.in_doubt, self.doubt_topic_id = True, topic_id

    @property
    def alone(self) -> bool:
        """It shares no group. One that may be in the log has an offset of its own already,
        which need not be next to its neighbours'."""
        return self.suspect or self.in_doubt

    @property
    def wire_bytes(self) -> int:
        return len(self.encoded.records) + BATCH_OVERHEAD_BYTES


class Group(NamedTuple):
    """Batches of one partition that travel in one request and succeed or fail together.
    `first_in_line`: when they were sent, no earlier batch was without an outcome."""

    partition: TopicPartition
    leader: Leader
    batches: Sequence[SealedBatch]
    first_in_line: bool = False


@dataclass(slots=True, eq=False)
class Request:
    leader: Leader
    groups: list[Group] = field(default_factory=list)
    wire_bytes: int = 0
    batch_count: int = 0

    @property
    def trace_context(self) -> Metadata | None:
        """A request has one: that of the first batch that was sent within a span."""
        for group in self.groups:
            for batch in group.batches:
                if batch.trace_context is not None:
                    return batch.trace_context
        return None
