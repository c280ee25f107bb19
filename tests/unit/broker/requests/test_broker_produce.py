import asyncio
import random
from collections.abc import Sequence

import pytest
import zstandard

from tidelog import record_batch
from tidelog.batch import is_intact, new_batch
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Acks, Batch, Codec, TopicPartition
from tidelog.record_batch import without_deltas
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.requests.batch_checks import BatchChecks
from tidelog_broker.requests.commit_wait import MAX_TIMEOUT_MS
from tidelog_broker.requests.produce import (
    WORK_OF_NEW_EPOCH,
    WORK_PER_TURN,
    Produce,
    ProduceEntry,
    ProduceOutcome,
)
from tidelog_runtime.clock import Clock
from unit.broker.broker_parts import (
    KEY,
    Replicas,
    broker_change,
    fetch_by,
    in_place,
    on,
    topic_change,
    until_idle,
)
from unit.broker.fake_log import NAME, TOPIC_ID, sent, state
from unit.broker.log.memory_disk import MemoryDisk
from unit.loop_turns import Turns

OTHER_ID = "other-id-other-id-othe"


def accept(batch: Batch) -> int:
    return len(batch.records)


def check_for_real(batch: Batch) -> int:
    return record_batch.check(batch, max_decompressed_bytes=1 << 20)


class Front:
    """Produces to the replicas of broker 1."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.replicas = Replicas(disk)
        self.check = accept
        self.latest: Clock | None = None
        self.entries: Sequence[ProduceEntry] = [ProduceEntry(NAME, "", [sent()])]

    async def send(
        self,
        *entries: ProduceEntry,
        acks: Acks = Acks.ALL,
        timeout_ms: int = 1000,
    ) -> list[ProduceOutcome]:
        replicas = self.replicas
        checks = BatchChecks(self.check, without_deltas, in_place)
        produce = Produce(replicas.manager, replicas.purgatory, replicas.clock, checks, self.latest)
        return await produce.handle(entries or self.entries, acks, timeout_ms)

    def sending(self, *entries: ProduceEntry) -> asyncio.Task[list[ProduceOutcome]]:
        return asyncio.create_task(self.send(*entries))


def code_of(outcome: ProduceOutcome) -> ErrorCode:
    assert outcome.error is not None
    assert outcome.appended is None
    return outcome.error.code


def message_of(outcome: ProduceOutcome) -> str:
    assert outcome.error is not None
    return outcome.error.message


async def test_acks_1_to_a_synced_topic_is_answered_when_the_leader_has_synced() -> None:
    front = Front()
    (partition,) = await front.replicas.take(config={"durability": "synced"})
    log = front.replicas.logs.log_of(KEY)
    assert log is not None
    sending = asyncio.create_task(front.send(acks=Acks.LEADER))
    await until_idle()
    assert not sending.done()
    log.flush()
    front.replicas.purgatory.log_synced(partition)
    (outcome,) = await sending
    assert outcome.appended is not None
    assert partition.high_watermark == 0


async def test_acks_1_without_an_answer_of_the_disk_times_out_with_an_unknown_outcome() -> None:
    front = Front()
    await front.replicas.take(config={"durability": "synced"})
    (outcome,) = await front.send(acks=Acks.LEADER, timeout_ms=250)
    assert code_of(outcome) is ErrorCode.REQUEST_TIMED_OUT
    assert "the leader's disk did not have the batch within 250 ms" in message_of(outcome)
    assert len(front.replicas.purgatory) == 0


async def test_appends_that_begin_a_leader_epoch_yield_more_than_later_ones() -> None:
    """Each replaces a file."""
    front, count = Front(), 4 * WORK_PER_TURN
    entries = [ProduceEntry(on(number), "", [sent()]) for number in range(count)]
    for number in range(count):
        await front.replicas.lead(number)
    async with Turns() as turns:
        await front.send(*entries, acks=Acks.LEADER)
        beginning = turns.taken()
        await front.send(*entries, acks=Acks.LEADER)
        following = turns.taken()
    assert count // WORK_PER_TURN <= following + 1
    assert beginning >= following + count * (WORK_OF_NEW_EPOCH - 1) // WORK_PER_TURN - 1


# -- acks=all ----------------------------------------------------------------------------


@pytest.mark.rule("advanced-hw-completes-produces", "acks-all-waits-for-isr")
async def test_acks_all_is_answered_when_the_high_watermark_has_passed_the_batch() -> None:
    front = Front()
    partition = await front.replicas.lead()
    sending = front.sending()
    await until_idle()
    fetch_by(partition, 2)
    await until_idle()
    assert not sending.done()
    fetch_by(partition, 3)
    (outcome,) = await sending
    assert outcome.appended is not None
    assert (outcome.appended.base_offset, outcome.appended.leader_epoch) == (0, 5)


async def test_acks_all_ends_as_leader_changed_when_the_leadership_ends() -> None:
    front = Front()
    await front.replicas.lead()
    sending = front.sending()
    await until_idle()
    await front.replicas.take(state(leader=2, epoch=6), revision=11)
    (outcome,) = await sending
    assert code_of(outcome) is ErrorCode.LEADER_CHANGED


async def test_acks_all_ends_as_leader_changed_when_the_same_broker_is_elected_again() -> None:
    front = Front()
    await front.replicas.lead()
    sending = front.sending()
    await until_idle()
    await front.replicas.take(state(epoch=6), revision=11)
    (outcome,) = await sending
    assert code_of(outcome) is ErrorCode.LEADER_CHANGED


async def test_acks_all_times_out_with_an_unknown_outcome() -> None:
    front = Front()
    partition = await front.replicas.lead()
    (outcome,) = await front.send(timeout_ms=250)
    assert code_of(outcome) is ErrorCode.REQUEST_TIMED_OUT
    assert outcome.error is not None
    assert outcome.error.outcome_unknown
    assert "250 ms" in outcome.error.message
    assert partition.log.log_end_offset == 1
    assert front.replicas.clock.monotonic_ms() == 250


async def test_a_timed_out_produce_leaves_nothing_behind() -> None:
    front = Front()
    await front.replicas.lead()
    await front.send(timeout_ms=10)
    assert len(front.replicas.purgatory) == 0


async def test_a_client_that_hangs_up_leaves_nothing_behind() -> None:
    front = Front()
    await front.replicas.lead()
    sending = front.sending()
    await until_idle()
    sending.cancel()
    await asyncio.wait([sending])
    assert len(front.replicas.purgatory) == 0


async def test_a_partition_that_times_out_does_not_fail_the_other() -> None:
    front = Front()
    first, second = await front.replicas.take(numbers=(0, 1))
    sending = front.sending(
        ProduceEntry(first.name, "", [sent()]), ProduceEntry(second.name, "", [sent()])
    )
    await until_idle()
    fetch_by(first, 2)
    fetch_by(first, 3)
    done, timed_out = await sending
    assert done.appended is not None
    assert code_of(timed_out) is ErrorCode.REQUEST_TIMED_OUT


async def test_acks_all_below_min_isr_is_rejected_and_nothing_is_written() -> None:
    front = Front()
    partition = await front.replicas.lead(new_state=state(isr=(1,), eligible=(2,)))
    (outcome,) = await front.send()
    assert code_of(outcome) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log.log_end_offset == 0


# -- other acks --------------------------------------------------------------------------


@pytest.mark.rule("acks-all-waits-for-isr")
@pytest.mark.parametrize("acks", [Acks.NONE, Acks.LEADER])
async def test_without_acks_all_a_produce_does_not_wait_for_replicas(acks: Acks) -> None:
    front = Front()
    partition = await front.replicas.lead()
    (outcome,) = await front.send(acks=acks)
    assert outcome.appended is not None
    assert partition.high_watermark == 0


async def test_batches_of_one_entry_get_consecutive_offsets() -> None:
    front = Front()
    partition = await front.replicas.lead()
    await front.send(ProduceEntry(NAME, TOPIC_ID, [sent(), sent()]), acks=Acks.LEADER)
    (outcome,) = await front.send(ProduceEntry(NAME, TOPIC_ID, [sent(), sent()]), acks=Acks.LEADER)
    assert outcome.appended is not None
    assert (outcome.appended.base_offset, outcome.appended.next_offset) == (2, 4)
    assert partition.log.log_end_offset == 4


# -- requests that are invalid as a whole ------------------------------------------------


async def rejection_of(sending: asyncio.Task[list[ProduceOutcome]]) -> TidelogError:
    with pytest.raises(TidelogError) as raised:
        await sending
    assert raised.value.code is ErrorCode.INVALID_REQUEST
    return raised.value


async def test_a_partition_may_appear_once() -> None:
    front = Front()
    partition = await front.replicas.lead()
    entry = ProduceEntry(NAME, "", [sent()])
    rejection = await rejection_of(front.sending(entry, entry))
    assert "twice" in rejection.message
    assert partition.log.log_end_offset == 0


async def test_an_entry_needs_a_batch() -> None:
    front = Front()
    rejection = await rejection_of(front.sending(ProduceEntry(NAME, "", [])))
    assert "no batch for orders/0" in rejection.message


@pytest.mark.parametrize("timeout_ms", [0, -1, MAX_TIMEOUT_MS + 1])
async def test_a_timeout_has_bounds(timeout_ms: int) -> None:
    front = Front()
    with pytest.raises(TidelogError, match=f"timeout_ms is {timeout_ms}") as raised:
        await front.send(timeout_ms=timeout_ms)
    assert raised.value.code is ErrorCode.INVALID_REQUEST


# -- partitions that cannot be served ----------------------------------------------------


async def test_a_missing_topic_is_named_in_the_error() -> None:
    (outcome,) = await Front().send(ProduceEntry(TopicPartition("nowhere", 0), "", [sent()]))
    assert code_of(outcome) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "'nowhere' does not exist; create it" in message_of(outcome)


@pytest.mark.parametrize("number", [3, -1])
async def test_a_missing_partition_is_answered_with_the_existing_ones(number: int) -> None:
    front = Front()
    front.replicas.cache.apply([topic_change(partitions=3)])
    (outcome,) = await front.send(ProduceEntry(on(number), "", [sent()]))
    assert code_of(outcome) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert f"partition {number} of topic" in message_of(outcome)
    assert "its partitions are 0 to 2" in message_of(outcome)


async def test_the_error_names_another_leader_with_its_address() -> None:
    front = Front()
    front.replicas.cache.apply([topic_change(), broker_change(2)])
    front.replicas.knows(state(leader=2), 10)
    await front.replicas.take(state(leader=2))
    (outcome,) = await front.send()
    assert code_of(outcome) is ErrorCode.NOT_LEADER
    assert outcome.error is not None
    assert outcome.error.leader == (2, 5, "10.0.0.2:7500")
    assert "10.0.0.2:7500" in message_of(outcome)


async def test_a_recreated_topic_is_not_the_requested_one() -> None:
    front = Front()
    await front.replicas.lead()
    (outcome,) = await front.send(ProduceEntry(NAME, OTHER_ID, [sent()]))
    assert code_of(outcome) is ErrorCode.UNKNOWN_TOPIC_ID


# -- invalid batches ---------------------------------------------------------------------


async def test_a_batch_that_is_too_large_is_rejected_with_the_limit() -> None:
    front = Front()
    (partition,) = await front.replicas.take(config={"max_batch_bytes": "1024"})
    large = ProduceEntry(NAME, "", [sent(bytes(1024)), sent(bytes(1025))])
    (outcome,) = await front.send(large)
    assert code_of(outcome) is ErrorCode.BATCH_TOO_LARGE
    assert "1025 bytes" in message_of(outcome)
    assert "1024" in message_of(outcome)
    assert partition.log.log_end_offset == 0


HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("config", "ahead_ms", "is_rejected"),
    [
        ({}, HOUR_MS, False),
        ({}, HOUR_MS + 1, True),
        ({"timestamp_max_ahead_ms": "0"}, 1, True),
        ({"timestamp_max_ahead_ms": "-1"}, 10**15, False),
        ({"timestamp_type": "append"}, 10**15, False),
    ],
)
async def test_a_timestamp_far_ahead_of_the_leaders_clock_is_rejected(
    config: dict[str, str], ahead_ms: int, is_rejected: bool
) -> None:
    front = Front()
    front.check = check_for_real
    (partition,) = await front.replicas.take(config=config)
    now_ms = front.replicas.clock.wall_ms()
    batch = record_batch.encode([b"a", b"b"], timestamps_ms=[now_ms, now_ms + ahead_ms])
    (outcome,) = await front.send(ProduceEntry(NAME, "", [batch]), acks=Acks.LEADER)
    assert partition.log.log_end_offset == (0 if is_rejected else 2)
    if is_rejected:
        assert code_of(outcome) is ErrorCode.INVALID_TIMESTAMP
        assert "timestamp_max_ahead_ms" in message_of(outcome)


class LaterClock:
    """The latest time of other brokers, an hour and a minute ahead."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()

    def wall_ms(self) -> int:
        return self._clock.wall_ms() + HOUR_MS + 60_000


@pytest.mark.parametrize("timestamp_type", ["create", "append"])
async def test_a_leader_that_is_behind_accepts_and_dates_by_the_latest_time(
    timestamp_type: str,
) -> None:
    front = Front()
    front.latest = LaterClock(front.replicas.clock)
    front.check = check_for_real
    (partition,) = await front.replicas.take(config={"timestamp_type": timestamp_type})
    now_ms, right_ms = front.replicas.clock.wall_ms(), front.latest.wall_ms()
    batch = record_batch.encode([b"a"], timestamps_ms=right_ms)
    (outcome,) = await front.send(ProduceEntry(NAME, "", [batch]), acks=Acks.LEADER)
    assert outcome.error is None
    (stored,) = partition.log.read(0, max_bytes=1 << 20, up_to=1)
    assert stored.header.append_time_ms == right_ms
    expected_ms = right_ms if timestamp_type == "create" else now_ms
    assert stored.header.max_timestamp_ms == expected_ms


async def test_a_batch_that_outgrows_the_limit_when_it_is_recompressed_is_rejected() -> None:
    """Its producer compresses with a larger window than the broker does."""
    block = random.Random(1).randbytes(4 << 20)
    front = Front()
    front.check = record_batch.check
    config = {"timestamp_type": "append", "max_batch_bytes": str(6 << 20)}
    (partition,) = await front.replicas.take(config=config)
    window = zstandard.ZstdCompressionParameters.from_level(1, window_log=24, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=window)
    for times, is_rejected in (([1, 2], True), ([1, 1], False)):
        plain = record_batch.encode([block, block], timestamps_ms=times)
        batch = new_batch(
            compressor.compress(plain.records),
            codec=Codec.ZSTD,
            record_count=2,
            base_timestamp_ms=times[0],
            max_timestamp_ms=times[1],
        )
        (outcome,) = await front.send(ProduceEntry(NAME, "", [batch]), acks=Acks.LEADER)
        if is_rejected:
            assert code_of(outcome) is ErrorCode.BATCH_TOO_LARGE
            assert "compressed again" in message_of(outcome)
        else:
            assert outcome.error is None
    assert partition.log.log_end_offset == 2


async def test_a_partition_removed_during_its_check_does_not_fail_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    front = Front()
    config = {"timestamp_type": "append"}
    moved, other = await front.replicas.take(numbers=(0, 1), config=config)
    manager = front.replicas.manager
    find = manager.partition

    def partition(name: TopicPartition, topic_id: str) -> Partition:
        if name == moved.name:
            raise TidelogError(ErrorCode.NOT_LEADER, "moved")
        return find(name, topic_id)

    def check(batch: Batch) -> int:
        monkeypatch.setattr(manager, "partition", partition)
        return record_batch.check(batch)

    front.check = check
    batch = record_batch.encode([b"v"], timestamps_ms=1)
    entries = [ProduceEntry(name, "", [batch]) for name in (moved.name, other.name)]
    outcomes = await front.send(*entries, acks=Acks.LEADER)
    assert code_of(outcomes[0]) is ErrorCode.NOT_LEADER
    assert outcomes[1].error is None


@pytest.mark.parametrize("codec", Codec)
async def test_records_get_their_append_time_where_the_topic_says_so(codec: Codec) -> None:
    front = Front()
    front.check = check_for_real
    (partition,) = await front.replicas.take(config={"timestamp_type": "append"})
    batch = record_batch.encode(
        [b"a", None, b"c"],
        [None, b"k", None],
        timestamps_ms=[5, 9, 1],
        headers={1: [("h", b"x")]},
        codec=codec,
    )
    await front.send(ProduceEntry(NAME, "", [batch]), acks=Acks.LEADER)
    (stored,) = partition.log.read(0, max_bytes=1 << 20, up_to=3)
    assert is_intact(stored)
    record_batch.check(stored)
    columns, sent_ms = record_batch.decode(stored), stored.header.append_time_ms
    assert columns.timestamps_ms == [sent_ms] * 3
    assert stored.header.max_timestamp_ms == sent_ms
    assert (columns.values, columns.keys) == ([b"a", None, b"c"], [None, b"k", None])
    assert columns.headers == {1: (("h", b"x"),)}


async def test_a_batch_with_a_wrong_crc_is_rejected_and_its_neighbours_are_not_written() -> None:
    front = Front()
    front.check = check_for_real
    partition = await front.replicas.lead()
    sound = record_batch.encode([b"v"], timestamps_ms=1)
    damaged = sound._replace(records=sound.records[:-1] + b"\xff")
    (outcome,) = await front.send(ProduceEntry(NAME, "", [sound, damaged]))
    assert code_of(outcome) is ErrorCode.CORRUPT_BATCH
    assert partition.log.log_end_offset == 0


async def test_one_bad_partition_does_not_keep_the_others_from_being_written() -> None:
    front = Front()
    (good,) = await front.replicas.take(state(isr=(1,), replicas=(1,), min_isr=1))
    bad = ProduceEntry(TopicPartition("nowhere", 0), "", [sent()])
    rejected, done = await front.send(bad, ProduceEntry(good.name, "", [sent()]))
    assert code_of(rejected) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert done.appended is not None


async def test_a_full_disk_is_reported_and_leaves_no_partial_record() -> None:
    disk = MemoryDisk()
    front = Front(disk)
    partition = await front.replicas.lead()
    disk.space = 10
    (outcome,) = await front.send()
    assert code_of(outcome) is ErrorCode.STORAGE_ERROR
    assert "No space left" in message_of(outcome)
    assert partition.log.log_end_offset == 0
    disk.space = None
    (outcome,) = await front.send(acks=Acks.LEADER)
    assert outcome.appended is not None
    assert outcome.appended.base_offset == 0
