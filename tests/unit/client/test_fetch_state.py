import random
from dataclasses import dataclass, field
from functools import partial

import pytest
import zstandard

from tidelog.batch import new_batch, new_fence, stamp
from tidelog.batch_slices import UNSTATED_EXPANSION, decoded_size
from tidelog.client.assigned_partition import Assigned
from tidelog.client.fetch_state import (
    Fetched,
    FetchPlan,
    FetchState,
    OnOutOfRange,
)
from tidelog.client.retry import Backoff, Leader
from tidelog.compression import compress
from tidelog.errors import ErrorCode, RecordsDamagedError, TidelogError
from tidelog.model import (
    FIRST_NAMED_PRODUCER_ID,
    Batch,
    Codec,
    OffsetPosition,
    OnDamage,
    TopicPartition,
)
from tidelog.record_batch import encode

P0, P1 = TopicPartition("sea", 0), TopicPartition("sea", 1)
OUT = TidelogError(ErrorCode.OFFSET_OUT_OF_RANGE, "out of range")


def batch(offset: int, epoch: int = 1, count: int = 2) -> Batch:
    plain = encode([b"x"] * count, timestamps_ms=1)
    return stamp(plain, base_offset=offset, leader_epoch=epoch, append_time_ms=1)


@dataclass
class Bench:
    policy: OnOutOfRange = OnOutOfRange.ERROR
    epoch: int = 1
    on_damage: OnDamage = OnDamage.RAISE
    prefetch_bytes: int = 1_000
    state: FetchState = field(init=False)

    def __post_init__(self) -> None:
        backoff = Backoff(random.Random(1), 50, 50)
        self.state = FetchState(
            backoff,
            prefetch_bytes=self.prefetch_bytes,
            on_out_of_range=self.policy,
            on_damage=self.on_damage,
        )
        self.state.assign([P0], OffsetPosition.EARLIEST)
        self.assigned.seek(15)

    @property
    def assigned(self) -> Assigned:
        return self.state.get(P0)

    def plan(self, now_ms: int = 0) -> FetchPlan:
        [plan] = self.state.plan(now_ms, self.leader)
        return plan

    def leader(self, _: TopicPartition) -> Leader:
        return Leader(1, self.epoch, "one:1", "id")

    def receive(self, plan: FetchPlan, *batches: Batch, epoch: int = 1) -> None:
        self.state.finish(plan)
        for want, leader in plan.wants:
            self.state.received(want, leader, Fetched(epoch, 99, 0, batches), 0)

    def damaged(self, plan: FetchPlan) -> None:
        """The leader cannot read offsets 15 to 19."""
        self.state.finish(plan)
        error = RecordsDamagedError(
            ErrorCode.RECORDS_DAMAGED, "damaged", first_offset=15, next_offset=20
        )
        for want, leader in plan.wants:
            self.state.failed(want, leader, error, 0, stale=False, answer=Fetched(1, 99, 0, ()))

    def out_of_range(self, plan: FetchPlan, *, epoch: int, now_ms: int = 0) -> None:
        self.state.finish(plan)
        for want, leader in plan.wants:
            answer = Fetched(epoch, 12, 0, ())
            self.state.failed(want, leader, OUT, now_ms, stale=False, answer=answer)


def test_a_partition_is_requested_once_at_a_time() -> None:
    bench = Bench()
    bench.plan()
    assert bench.state.plan(0, bench.leader) == []


def test_an_answer_to_a_request_before_a_seek_is_dropped() -> None:
    bench = Bench()
    plan = bench.plan()
    bench.assigned.seek(3)
    bench.receive(plan, batch(15))
    assert bench.state.take_records(10) == []
    assert bench.plan().wants[0][0].offset == 3


def test_a_batch_that_begins_below_the_offset_is_cut() -> None:
    bench = Bench()
    bench.receive(bench.plan(), batch(12), batch(14), batch(16))
    assert [r.offset for r in bench.state.take_records(10)] == [15, 16, 17]


def test_out_of_range_is_reported_the_second_time() -> None:
    bench = Bench()
    bench.out_of_range(bench.plan(), epoch=1)
    assert bench.state.take_records(1) == []
    assert bench.state.wants_metadata(bench.leader)
    bench.out_of_range(bench.plan(50), epoch=1, now_ms=50)
    with pytest.raises(TidelogError, match="offset 15 of sea/0 is out of range"):
        bench.state.take_records(1)


def test_out_of_range_without_an_epoch_has_that_of_the_request() -> None:
    bench = Bench(epoch=3)
    for now_ms in (0, 50):
        bench.out_of_range(bench.plan(now_ms), epoch=0, now_ms=now_ms)
    with pytest.raises(TidelogError, match="offset 15 of sea/0 is out of range"):
        bench.state.take_records(1)


@pytest.mark.rule("zombie-resets-no-client")
def test_out_of_range_from_a_zombie_is_ignored() -> None:
    bench = Bench(policy=OnOutOfRange.EARLIEST, epoch=6)
    for now_ms in range(0, 500, 50):
        bench.out_of_range(bench.plan(now_ms), epoch=5, now_ms=now_ms)
    assert bench.assigned.position == 15


def test_a_leader_older_than_the_records_read_is_not_queried() -> None:
    bench = Bench(epoch=6)
    bench.receive(bench.plan(), batch(15, epoch=6), epoch=6)
    bench.epoch = 5
    assert bench.state.plan(9999, bench.leader) == []
    assert bench.state.wants_metadata(bench.leader)


def test_out_of_range_resets_after_buffered_records_are_returned() -> None:
    bench = Bench(policy=OnOutOfRange.LATEST)
    bench.receive(bench.plan(), batch(15))
    for now_ms in (0, 50):
        bench.out_of_range(bench.plan(now_ms), epoch=1, now_ms=now_ms)
    assert bench.state.to_find() == {}
    assert len(bench.state.take_records(10)) == 2
    bench.out_of_range(bench.plan(100), epoch=1, now_ms=100)
    assert list(bench.state.to_find()) == [OffsetPosition.LATEST]


def test_an_error_waits_until_earlier_records_are_returned() -> None:
    bench = Bench()
    bench.receive(bench.plan(), batch(15))
    bench.assigned.error = OUT
    assert len(bench.state.take_records(10)) == 2
    with pytest.raises(TidelogError):
        bench.state.take_records(10)


DECODED_BYTES = 1 << 20


def bombs(count: int, codec: Codec = Codec.ZSTD) -> list[Batch]:
    """Each is a kilobyte or less, and DECODED_BYTES after decompression."""
    plain = encode([bytes(DECODED_BYTES)], timestamps_ms=1, codec=codec)
    return [
        stamp(plain, base_offset=15 + n, leader_epoch=1, append_time_ms=1) for n in range(count)
    ]


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.GZIP, Codec.LZ4])
def test_a_consumer_holds_no_more_than_its_share_after_decompression(codec: Codec) -> None:
    bench = Bench(prefetch_bytes=8 * DECODED_BYTES)
    held = bombs(1_024, codec)
    assert sum(len(batch.records) for batch in held) < 5 << 20
    bench.receive(bench.plan(), *held)
    assert len(bench.assigned.buffered) == 7
    assert bench.state.buffered_bytes < 8 * DECODED_BYTES
    assert bench.state.plan(0, bench.leader) == []
    assert len(bench.state.take_batches(4)) == 4
    plan = bench.plan()
    # Dropped batches are requested again, in about the amount that there is room for.
    assert plan.wants[0][0].offset == 22
    assert plan.wants[0][0].max_bytes <= 6 * len(held[0].records)
    bench.receive(plan, *held[7:])
    assert bench.state.buffered_bytes < 8 * DECODED_BYTES


def test_one_batch_of_each_answer_is_kept_whatever_its_size() -> None:
    bench = Bench()
    bench.receive(bench.plan(), batch(14))
    assert 0 < bench.state.buffered_bytes < 500
    bench.receive(bench.plan(), *bombs(4)[1:])
    assert len(bench.assigned.buffered) == 2


def test_a_frame_that_states_more_than_any_reader_opens_counts_as_that_limit() -> None:
    plain = compress(Codec.ZSTD, bytes(1 << 30))
    bomb = new_batch(
        plain, codec=Codec.ZSTD, record_count=1, base_timestamp_ms=1, max_timestamp_ms=1
    )
    bench = Bench(prefetch_bytes=2 << 30)
    bench.receive(
        bench.plan(), stamp(bomb, base_offset=15, leader_epoch=1, append_time_ms=1), *bombs(1)
    )
    assert bench.state.buffered_bytes < 66 << 20
    with pytest.raises(TidelogError) as caught:
        bench.state.take_batches(1)[0].records()
    assert caught.value.code is ErrorCode.INVALID_BATCH


def test_an_unstated_size_counts_as_a_multiple_and_an_unknown_codec_as_its_bytes() -> None:
    streamed = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1_000))
    of_codec = partial(new_batch, record_count=1, base_timestamp_ms=1, max_timestamp_ms=1)
    unstated = of_codec(streamed, codec=Codec.ZSTD)
    assert decoded_size(unstated) == UNSTATED_EXPANSION * len(streamed)
    assert decoded_size(of_codec(b"123", codec=Codec.NONE)) == 3


def test_a_partition_with_half_its_share_buffered_requests_no_more() -> None:
    bench = Bench()
    bench.receive(bench.plan(), batch(15, count=300))
    assert bench.assigned.buffered_bytes > 500
    assert bench.state.plan(0, bench.leader) == []
    bench.state.take_batches(1)
    assert bench.plan().wants[0][0].max_bytes == 1000


def test_assigning_again_keeps_the_state_of_remaining_partitions() -> None:
    bench = Bench()
    bench.receive(bench.plan(), batch(15))
    bench.state.assign([P0, P1], OffsetPosition.EARLIEST)
    assert bench.assigned.position == 15
    assert len(bench.state.take_records(10)) == 2
    assert [a.partition for a, _ in bench.state.to_find()[OffsetPosition.EARLIEST]] == [P1]


def fence(offset: int) -> Batch:
    plain = new_fence(FIRST_NAMED_PRODUCER_ID, 3, now_ms=1)
    return stamp(plain, base_offset=offset, leader_epoch=1, append_time_ms=1)


def test_a_producer_fence_is_no_record_and_is_skipped() -> None:
    bench = Bench()
    bench.receive(bench.plan(), fence(15), batch(16), fence(18))
    assert [record.offset for record in bench.state.take_records(10)] == [16, 17]
    assert bench.assigned.position == 19


def test_a_producer_fence_is_no_batch_either() -> None:
    bench = Bench()
    bench.receive(bench.plan(), fence(15), batch(16), fence(18))
    assert [taken.first_offset for taken in bench.state.take_batches(10)] == [16]
    assert bench.assigned.position == 19


def test_damaged_records_are_an_error_with_their_offsets_until_the_consumer_seeks() -> None:
    bench = Bench()
    bench.damaged(bench.plan())
    with pytest.raises(RecordsDamagedError) as damaged:
        bench.state.take_records(10)
    assert (damaged.value.first_offset, damaged.value.next_offset) == (15, 20)
    assert bench.state.plan(0, bench.leader) == []
    bench.assigned.seek(damaged.value.next_offset)
    bench.receive(bench.plan(), batch(20))
    assert [r.offset for r in bench.state.take_records(10)] == [20, 21]


@pytest.mark.rule("damage-costs-only-its-batch")
def test_damaged_records_are_skipped_if_configured() -> None:
    bench = Bench(on_damage=OnDamage.SKIP)
    bench.damaged(bench.plan())
    assert bench.state.take_records(10) == []
    assert bench.assigned.position == 20
    bench.receive(bench.plan(), batch(20))
    assert [r.offset for r in bench.state.take_records(10)] == [20, 21]
    assert [error.next_offset for error in bench.state.take_skipped()] == [20]
    assert bench.state.take_skipped() == []


def test_records_before_the_damaged_ones_are_returned_first() -> None:
    bench = Bench()
    bench.assigned.seek(13)
    bench.receive(bench.plan(), batch(13))
    bench.damaged(bench.plan())
    assert [r.offset for r in bench.state.take_records(10)] == [13, 14]
    with pytest.raises(RecordsDamagedError):
        bench.state.take_records(10)
