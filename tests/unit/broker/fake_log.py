"""A log in memory, and a partition around it whose listener records calls."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.batch import new_batch, stamp
from tidelog.model import NO_EPOCH, Batch, Codec, EpochEnd, TopicPartition
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.producer_state import NOBODY, CrowdedOut, ProducerStates
from tidelog_broker.core.partition.replica_log import CachedBatches
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member

NAME = TopicPartition("orders", 0)
TOPIC_ID = "topic-id-topic-id-topi"


class FakeProducers:
    def __init__(self) -> None:
        self.states = ProducerStates()
        self.lacking = False
        self.lost = False
        self.below = ProducerStates()

    def below_start(self) -> ProducerStates:
        return ProducerStates(self.below.entries)

    def take_crowded_out(self) -> CrowdedOut:
        return NOBODY

    def adopt_below_start(self, states: ProducerStates) -> None:
        self.states = ProducerStates(states.entries)
        self.below = states
        self.lacking = False

    def note(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            self.states.note(batch.header)


class FakeLog:
    def __init__(self, epochs: Sequence[int] = (), start: int = 0) -> None:
        """A log of one record for each given leader epoch."""
        self.log_start_offset = start
        self.batches: list[Batch] = []
        self.synced_to = start
        self.producers = FakeProducers()
        for epoch in epochs:
            self.append([stamped(self.log_end_offset, epoch)])

    @property
    def log_end_offset(self) -> int:
        return self.batches[-1].header.next_offset if self.batches else self.log_start_offset

    @property
    def flushed_offset(self) -> int:
        return max(self.log_start_offset, min(self.synced_to, self.log_end_offset))

    @property
    def latest_epoch(self) -> int:
        return self.batches[-1].header.leader_epoch if self.batches else NO_EPOCH

    @property
    def leader_epochs(self) -> list[tuple[int, int]]:
        starts: dict[int, int] = {}
        for batch in self.batches:
            starts.setdefault(batch.header.leader_epoch, batch.header.base_offset)
        return list(starts.items())

    @property
    def size_bytes(self) -> int:
        return self.bytes_from(self.log_start_offset)

    @property
    def segment_count(self) -> int:
        return 1

    def bytes_from(self, offset: int) -> int:
        """Every record counts 100 bytes."""
        return 100 * (self.log_end_offset - max(offset, self.log_start_offset))

    def append_time_of(self, offset: int) -> int | None:
        held = (b.header for b in self.batches if b.header.next_offset > offset)
        return next((header.append_time_ms for header in held), None)

    def epoch_end(self, epoch: int) -> EpochEnd:
        known = [b.header for b in self.batches if b.header.leader_epoch <= epoch]
        if not known:
            return EpochEnd(NO_EPOCH, NO_EPOCH)
        return EpochEnd(known[-1].leader_epoch, known[-1].next_offset)

    def append(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            assert batch.header.base_offset == self.log_end_offset
            self.batches.append(batch)
        self.producers.note(batches)

    def read(self, offset: int, *, max_bytes: int, up_to: int) -> list[Batch]:
        found: list[Batch] = []
        size = 0
        for batch in self.batches:
            if batch.header.next_offset <= offset or batch.header.next_offset > up_to:
                continue
            size += len(batch.records)
            if found and size > max_bytes:
                break
            found.append(batch)
        return found

    def read_cached(self, offset: int, *, max_bytes: int, up_to: int) -> CachedBatches:
        return CachedBatches(self.read(offset, max_bytes=max_bytes, up_to=up_to), None)

    def restore(self, batches: Sequence[Batch]) -> bool:
        raise NotImplementedError("nothing of it is unreadable")

    def truncate_to(self, offset: int) -> None:
        self.batches = [b for b in self.batches if b.header.next_offset <= offset]
        self.producers.states = self.producers.below_start()
        self.producers.note(self.batches)

    def reset_to(self, offset: int) -> None:
        self.batches = []
        self.log_start_offset = offset
        self.producers = FakeProducers()
        self.producers.lacking = offset > 0

    def offset_for_timestamp(
        self,
        timestamp_ms: int,
        up_to: int,
        *,
        waits: bool = True,  # noqa: ARG002
    ) -> Batch | None:
        return next(
            (
                b
                for b in self.batches
                if b.header.max_timestamp_ms >= timestamp_ms and b.header.next_offset <= up_to
            ),
            None,
        )

    @property
    def epochs(self) -> list[int]:
        return [batch.header.leader_epoch for batch in self.batches]


def sent(records: bytes = b"r", timestamp_ms: int = 1) -> Batch:
    """A batch of one record as a producer sends it."""
    return new_batch(
        records,
        codec=Codec.NONE,
        record_count=1,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
    )


def sent_by(
    producer_id: int, sequence: int, *, epoch: int = 0, count: int = 1, records: bytes = b"r"
) -> Batch:
    """The same batch from an idempotent producer."""
    return new_batch(
        records,
        codec=Codec.NONE,
        record_count=count,
        base_timestamp_ms=1,
        max_timestamp_ms=1,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def stamped(offset: int, epoch: int) -> Batch:
    return stamp(sent(), base_offset=offset, leader_epoch=epoch, append_time_ms=1)


class Notes:
    """A listener that records its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def log_grew(self, partition: Partition) -> None:
        self.calls.append(f"grew to {partition.log.log_end_offset}")

    def sync_needed(self, partition: Partition) -> None:
        self.calls.append(f"sync from {partition.counted_end}")

    def high_watermark_moved(self, partition: Partition) -> None:
        self.calls.append(f"committed {partition.high_watermark}")

    def log_start_moved(self, partition: Partition) -> None:
        self.calls.append(f"log starts at {partition.log.log_start_offset}")

    def leadership_ended(self, partition: Partition) -> None:  # noqa: ARG002
        self.calls.append("leadership ended")

    def followers_forgotten(self, partition: Partition) -> None:  # noqa: ARG002
        self.calls.append("followers forgotten")

    def isr_needs_evaluation(self, partition: Partition) -> None:  # noqa: ARG002
        self.calls.append("judge")


def epoch_of(broker_id: int) -> int:
    """Broker 1 has the broker epoch 101, broker 2 has 102, and so on."""
    return 100 + broker_id


def state(
    leader: int = 1,
    epoch: int = 5,
    isr: Sequence[int] = (1, 2, 3),
    *,
    min_isr: int = 2,
    eligible: Sequence[int] = (),
    replicas: Sequence[int] = (1, 2, 3),
) -> LeaderAndIsr:
    return LeaderAndIsr(
        topic_id=TOPIC_ID,
        replicas=tuple(replicas),
        controller_epoch=1,
        leader=leader,
        leader_epoch=epoch,
        isr=tuple(Member(b, epoch_of(b)) for b in isr),
        eligible=tuple(Member(b, epoch_of(b)) for b in eligible),
        min_isr=min_isr,
    )


def new_partition(log: FakeLog, broker_id: int = 1, high_watermark: int = 0) -> Partition:
    return Partition(
        NAME, TOPIC_ID, broker_id, log, high_watermark=high_watermark, listener=Notes()
    )


def leader(log: FakeLog, of: LeaderAndIsr | None = None, high_watermark: int = 0) -> Partition:
    """Broker 1 leads by a command of revision 10 at time 1000."""
    partition = new_partition(log, high_watermark=high_watermark)
    partition.take(of or state(), 10, broker_epoch=epoch_of(1), now_ms=1000)
    return partition


def notes(partition: Partition) -> list[str]:
    listener = partition._listener
    assert isinstance(listener, Notes)
    return listener.calls
