"""Damage in the only copy of a partition costs the damaged batch and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from tidelog.errors import ErrorCode, RecordsDamagedError
from tidelog.model import NO_EPOCH
from tidelog.state_changes.event import Cause, Kind, Stage
from tidelog_broker.core.partition.exchange import FetchAnswer
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.damage.batch_quarantine import MAX_COMMIT_WAIT_S
from tidelog_broker.log.live_quarantine import LiveQuarantine
from tidelog_broker.log.log_errors import LogCorruptError, LogFailedError
from tidelog_broker.log.reopening import Reopening
from tidelog_broker.storage.damaged_batches import (
    EVIDENCE_RETENTION_MS,
    MAX_EVIDENCE_BYTES,
    DamagedBatches,
)
from tidelog_runtime.metadata.schema import NOT_WHOLE, LeaderAndIsr, Member
from unit.broker.broker_parts import DATA, KEY, append, until
from unit.broker.damage.test_replica_repair import (
    SEGMENT,
    Broker,
    append_segments,
    flip,
    three_records,
)
from unit.broker.fake_log import NAME, state
from unit.broker.log.builders import FakeClock
from unit.broker.log.memory_disk import MemoryDisk

ALONE = state(isr=(1,), replicas=(1,), min_isr=1)


async def three_alone(broker: Broker) -> Partition:
    partition = await broker.has(ALONE)
    append(partition, *[bytes(100)] * 3)
    return partition


async def damaged_alone() -> tuple[Broker, Partition]:
    """Damage the second of three records, and read it."""
    broker = Broker()
    partition = await three_alone(broker)
    flip(broker, len(broker.disk.names[SEGMENT].data) // 2)
    broker.read(partition)
    await asyncio.sleep(1)
    return broker, partition


def consume(partition: Partition, offset: int) -> list[int]:
    """The base offsets that a consumer gets."""
    answer = partition.read_for_consumer(offset, NO_EPOCH, 1 << 20)
    return [batch.header.base_offset for batch in answer.batches]


@pytest.mark.parametrize("eligible", [(), (Member(2, NOT_WHOLE),)])
async def test_a_leader_alone_in_its_isr_stays_leader(eligible: tuple[Member, ...]) -> None:
    """Its resignation would lose what it alone holds."""
    alone = replace(state(isr=(1,), replicas=(1, 2), min_isr=1), eligible=eligible)
    broker = Broker()
    partition = await broker.has(alone)
    append(partition, *[bytes(100)] * 3)
    flip(broker, len(broker.disk.names[SEGMENT].data) // 2)
    broker.read(partition)
    await asyncio.sleep(1)
    assert broker.stored() == alone
    assert consume(partition, 0) == [0]
    assert broker.replicas.logs.damaged_batches.of(KEY) == [(1, 2)]
    assert consume(partition, 2) == [2]
    await broker.stop()


async def test_a_leader_alone_in_its_isr_resigns_if_another_replica_is_eligible() -> None:
    eligible = (Member(2, 101),)
    broker = Broker()
    partition = await broker.has(replace(state(isr=(1,), replicas=(1, 2)), eligible=eligible))
    append(partition, *[bytes(100)] * 3)
    flip(broker, len(broker.disk.names[SEGMENT].data) // 2)
    broker.read(partition)
    await asyncio.sleep(1)
    assert broker.stored().isr == (Member(1, NOT_WHOLE),)
    await broker.stop()


@pytest.mark.parametrize(("replicas", "isr"), [((1,), (1,)), ((1, 2), (1,))])
async def test_damage_is_sealed_only_once_the_log_is_committed(
    replicas: tuple[int, ...], isr: tuple[int, ...]
) -> None:
    broker = Broker()
    partition = await broker.has(state(isr=isr, replicas=replicas, min_isr=1))
    append(partition, *[bytes(100)] * 3)
    committed, partition.high_watermark = partition.high_watermark, 1
    flip(broker, len(broker.disk.names[SEGMENT].data) // 2)
    broker.read(partition)
    await asyncio.sleep(1)
    assert broker.replicas.logs.damaged_batches.of(KEY) == []
    partition.high_watermark = committed
    await asyncio.sleep(1)
    assert broker.replicas.logs.damaged_batches.of(KEY) == [(1, 2)]
    assert partition.leading is not None
    await broker.stop()


async def test_a_leader_whose_log_does_not_get_committed_resigns_over_damage() -> None:
    broker = Broker()
    partition = await broker.has(state(isr=(1,), replicas=(1, 2), min_isr=1))
    append(partition, *[bytes(100)] * 3)
    partition.high_watermark = 1
    flip(broker, len(broker.disk.names[SEGMENT].data) // 2)
    broker.read(partition)
    await asyncio.sleep(MAX_COMMIT_WAIT_S + 2)
    assert broker.stored().isr == (Member(1, NOT_WHOLE),)
    await broker.stop()


@pytest.mark.rule("damage-costs-only-its-batch")
async def test_the_only_copy_stays_leader_and_keeps_all_but_the_damaged_batch() -> None:
    broker, partition = await damaged_alone()
    assert partition.leading is not None
    assert partition.log.log_end_offset == 3
    assert consume(partition, 0) == [0]
    with pytest.raises(RecordsDamagedError, match="offsets 1 to 1 were damaged") as damaged:
        consume(partition, 1)
    assert (damaged.value.first_offset, damaged.value.next_offset) == (1, 2)
    assert consume(partition, 2) == [2]
    append(partition, b"more")
    assert partition.log.log_end_offset == 4
    await broker.stop()


@pytest.mark.parametrize("order", [(0, 2, 1), (1, 0, 2), (0, 1, 1, 2)])
async def test_batches_in_a_wrong_order_are_put_in_order(order: tuple[int, ...]) -> None:
    broker = Broker()
    partition = await three_alone(broker)
    data = broker.disk.names[SEGMENT].data
    size = len(data) // 3
    frames = [bytes(data[n * size : (n + 1) * size]) for n in range(3)]
    data[:] = b"".join(frames[n] for n in order)
    broker.read(partition)
    await asyncio.sleep(5)
    again = await broker.has(replace(ALONE, leader_epoch=broker.stored().leader_epoch + 1))
    assert again.log.log_end_offset == 3
    assert consume(again, 0) == [0, 1, 2]
    assert broker.replicas.logs.damaged_batches.of(KEY) == []
    await broker.stop()


async def test_readers_of_the_damage_get_a_retriable_error_until_it_is_sealed() -> None:
    broker = Broker()
    partition = await three_alone(broker)
    flip(broker, len(broker.disk.names[SEGMENT].data) // 2)
    error = broker.read(partition)
    assert error is not None
    assert (error.code, error.retriable) == (ErrorCode.STORAGE_ERROR, True)
    await broker.stop()


async def test_the_only_copy_does_not_resign() -> None:
    broker, _ = await damaged_alone()
    assert broker.stored() == ALONE
    assert broker.replicas.events(Kind.RESIGNATION, Kind.REPLICA_DAMAGED) == []
    await broker.stop()


async def test_the_damage_is_reported_once_with_its_offsets() -> None:
    broker, partition = await damaged_alone()
    broker.read(partition)
    await asyncio.sleep(1)
    (event,) = broker.replicas.events(Kind.BATCH_DAMAGED)
    assert (event.name, event.cause, event.stage) == (NAME, Cause.CORRUPT, Stage.FAILED)
    assert (event.details["first_offset"], event.details["next_offset"]) == (1, 2)
    await broker.stop()


async def test_a_follower_copies_the_unreadable_batch_like_any_other() -> None:
    broker, partition = await damaged_alone()
    batches = partition.log.read(0, max_bytes=1 << 20, up_to=3)
    assert [batch.header.base_offset for batch in batches] == [0, 1, 2]
    await broker.stop()


async def test_the_next_incarnation_knows_the_unreadable_batches() -> None:
    broker, _ = await damaged_alone()
    again = await broker.restart()
    assert again.replicas.damaged == []
    assert again.replicas.logs.damaged_batches.of(KEY) == [(1, 2)]
    await again.stop()


async def test_a_start_that_finds_damage_in_the_only_copy_cuts_nothing() -> None:
    broker = Broker()
    await three_alone(broker)
    flip(broker, len(broker.disk.names[SEGMENT].data) // 2)
    again = await broker.restart()
    (damaged,) = again.replicas.damaged
    assert damaged.unless_sole
    again.repair.keep_only_copies([damaged])
    partition = await again.has(replace(ALONE, leader_epoch=ALONE.leader_epoch + 1))
    append(partition, b"more")
    assert consume(partition, 2) == [2, 3]
    assert not again.replicas.logs.is_out_of_service(KEY)
    await again.stop()


@pytest.mark.rule("damage-costs-only-its-batch")
async def test_damage_of_another_segment_found_during_a_quarantine_is_sealed_next() -> None:
    broker = Broker()
    segments = append_segments(broker, await broker.has(ALONE))
    for segment in segments[:2]:
        broker.disk.names[segment].data[-1] ^= 1
        # As the scrub does: it goes to the next segment after a fault.
        broker.replicas.manager.log_unreadable(KEY, LogCorruptError(segment, 0, "a flipped bit"))
    await asyncio.sleep(1)
    assert len(broker.replicas.logs.damaged_batches.of(KEY)) == 2
    assert len(broker.replicas.events(Kind.BATCH_DAMAGED)) == 2
    await broker.stop()


@pytest.mark.parametrize("is_out_of_service", [False, True])
async def test_damage_found_when_a_sync_fails_is_repaired_with_it(
    *, is_out_of_service: bool
) -> None:
    """The damage waits to be made unreadable when the log fails."""
    broker = Broker()
    partition = await broker.has(ALONE)
    append_segments(broker, partition)
    log = broker.replicas.logs.log_of(KEY)
    assert log is not None
    log.flush()
    flip(broker)
    broker.replicas.manager.log_unreadable(KEY, LogCorruptError(SEGMENT, 0, "a flipped bit"))
    log.failed = LogFailedError(SEGMENT, 5, "sync")
    if is_out_of_service:
        broker.replicas.manager.log_failed(KEY, log.failed)
    await asyncio.sleep(5)
    assert partition.in_service
    assert broker.replicas.logs.damaged_batches.of(KEY) == [(0, 1)]
    await broker.stop()


class SlowThreads(Broker):
    """Notes whether a reopening runs in a thread while a check does."""

    def __init__(self) -> None:
        super().__init__()
        self.checking = False
        self.overlapped = False

    async def _run_blocking(self, work: Callable[[], None]) -> None:
        owner = getattr(work, "__self__", None)
        if isinstance(owner, LiveQuarantine):
            self.checking = True
            await asyncio.sleep(1)
            work()
            self.checking = False
            return
        self.overlapped |= self.checking and isinstance(owner, Reopening)
        work()


async def test_a_repair_begins_after_the_check_of_damaged_batches() -> None:
    """Both may copy the same segment to the same name."""
    broker = SlowThreads()
    append_segments(broker, await broker.has(ALONE))
    log = broker.replicas.logs.log_of(KEY)
    assert log is not None
    log.flush()
    flip(broker)
    broker.replicas.manager.log_unreadable(KEY, LogCorruptError(SEGMENT, 0, "a flipped bit"))
    await until(lambda: broker.checking)
    log.failed = LogFailedError(SEGMENT, 5, "sync")
    broker.replicas.manager.log_failed(KEY, log.failed)
    await until(lambda: bool(broker.replicas.events(Kind.REPLICA_REPAIRED)))
    assert not broker.overlapped
    await broker.stop()


def led_by_another(before: LeaderAndIsr) -> LeaderAndIsr:
    return state(leader=2, epoch=before.leader_epoch + 1, replicas=(1, 2), isr=(1, 2))


@pytest.mark.rule("damage-costs-only-its-batch")
async def test_once_another_replica_leads_the_batch_is_copied_from_it() -> None:
    broker = Broker()
    partition = await three_alone(broker)
    sound = partition.log.read(0, max_bytes=1 << 20, up_to=3)
    flip(broker, len(broker.disk.names[SEGMENT].data) // 2)
    broker.read(partition)
    await until(lambda: bool(broker.replicas.logs.damaged_batches.of(KEY)))
    await broker.has(led_by_another(ALONE))
    asked = partition.fetch_position()
    assert (asked.fetch_offset, partition.log.log_end_offset) == (1, 3)
    assert partition.follow(asked, FetchAnswer(3, 0, asked.leader_epoch, sound[1:]))
    assert partition.fetch_position().fetch_offset == 3
    assert partition.log.read(0, max_bytes=1 << 20, up_to=3) == sound
    assert broker.replicas.logs.damaged_batches.of(KEY) == []
    (event,) = broker.replicas.events(Kind.REPLICA_REPAIRED)
    assert (event.details["first_offset"], event.details["other_broker"]) == (1, 2)
    await broker.stop()


async def test_with_other_copies_nothing_sound_is_cut_and_the_bytes_are_kept() -> None:
    broker = Broker()
    partition = await three_records(broker)
    sound = partition.log.read(0, max_bytes=1 << 20, up_to=3)
    flip(broker, len(broker.disk.names[SEGMENT].data) // 2)
    broker.read(partition)
    await asyncio.sleep(1)
    assert partition.log.log_end_offset == 3
    assert partition.log.read(2, max_bytes=1 << 20, up_to=3) == sound[2:]
    (evidence,) = broker.disk.list_names(DATA / "evidence")
    assert evidence.endswith(".unreadable")
    await broker.has(led_by_another(state()))
    asked = partition.fetch_position()
    partition.follow(asked, FetchAnswer(3, 0, asked.leader_epoch, sound[1:]))
    broker.replicas.logs.damaged_batches.sweep()
    (evidence,) = broker.disk.list_names(DATA / "evidence")
    assert evidence.endswith(".repaired")
    await broker.stop()


async def test_a_leader_that_cannot_read_the_batch_either_is_asked_once_per_epoch() -> None:
    broker, partition = await damaged_alone()
    unreadable = partition.log.read(1, max_bytes=1, up_to=3)
    await broker.has(led_by_another(ALONE))
    asked = partition.fetch_position()
    assert partition.follow(asked, FetchAnswer(3, 0, asked.leader_epoch, unreadable))
    assert partition.fetch_position().fetch_offset == 3
    await broker.has(replace(led_by_another(ALONE), isr=ALONE.isr))
    assert partition.fetch_position().fetch_offset == 3
    again = led_by_another(led_by_another(ALONE))
    await broker.has(again)
    assert partition.fetch_position().fetch_offset == 1
    await broker.stop()


def evidence(disk: MemoryDisk, *, state: str, found_ms: int, first: int, size: int = 10) -> None:
    name = f"{KEY.topic_id}.0@{first}-{first + 1}.{found_ms}.{state}"
    disk.write_atomically(DATA / "evidence" / name, bytes(size), sync=True)


async def test_the_bytes_of_a_cut_tail_are_kept() -> None:
    broker = Broker()
    await three_alone(broker)
    # The damage is in the header of the last batch, so that its offsets are not known.
    flip(broker, 2 * len(broker.disk.names[SEGMENT].data) // 3 + 20)
    again = await broker.restart()
    (evidence,) = broker.disk.list_names(DATA / "evidence")
    assert "@2-2." in evidence
    assert evidence.endswith(".cut")
    assert again.replicas.logs.damaged_batches.of(KEY) == []
    await again.stop()


def test_old_evidence_of_repaired_damage_is_deleted() -> None:
    disk, clock = MemoryDisk(), FakeClock()
    clock.now_ms += 2 * EVIDENCE_RETENTION_MS
    old_ms = clock.wall_ms() - EVIDENCE_RETENTION_MS - 1
    evidence(disk, state="repaired", found_ms=old_ms, first=0)
    evidence(disk, state="repaired", found_ms=clock.wall_ms(), first=1)
    DamagedBatches(disk, DATA / "evidence", clock).sweep()
    assert [name.split("@")[1][0] for name in disk.list_names(DATA / "evidence")] == ["1"]


def test_the_oldest_evidence_is_deleted_when_all_of_it_takes_too_much_space() -> None:
    disk, clock = MemoryDisk(), FakeClock()
    half = MAX_EVIDENCE_BYTES // 2
    for first in range(3):
        at_ms = clock.wall_ms() - 10 + first
        evidence(disk, state="repaired", found_ms=at_ms, first=first, size=half)
    DamagedBatches(disk, DATA / "evidence", clock).sweep()
    assert [name.split("@")[1][0] for name in disk.list_names(DATA / "evidence")] == ["1", "2"]
