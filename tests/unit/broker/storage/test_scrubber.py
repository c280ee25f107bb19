"""The scrub checks everything on the disk at its rate, and finds damage that no reader meets."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import PurePath

import pytest

from tidelog.model import Batch
from tidelog_broker.core.partition.range_digest import RangeDigest
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.indexes import INDEX_SUFFIX
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_errors import LogCorruptError, LogError, LogUnreadableError
from tidelog_broker.log.segment_files import SegmentFiles
from tidelog_broker.storage.cold_reads import ColdReads
from tidelog_broker.storage.scrub_pace import BY_CPU, MIN_BYTES_PER_SECOND, ScrubPace
from tidelog_broker.storage.scrub_state import ScrubState, ScrubStateFile
from tidelog_broker.storage.scrubber import (
    CHUNK_BYTES,
    Scrubber,
)
from tidelog_runtime.topic_config import TopicConfig
from unit.broker.broker_parts import DATA, KEY, Replicas, at_work, in_place, on
from unit.broker.fake_log import NAME, TOPIC_ID
from unit.broker.log.builders import batch_at

PERIOD_MS = 1_000_000
OTHER = ReplicaKey(TOPIC_ID, 1)
BATCH_BYTES = 64 << 10
STATE = DATA / "scrub-state"


class World:
    """Two replicas with 20 batches of 64 KiB each."""

    def __init__(self, replicas: Replicas | None = None) -> None:
        self.replicas = replicas or Replicas()
        self.found: list[tuple[ReplicaKey, LogError]] = []
        self.digests: list[tuple[ReplicaKey, RangeDigest]] = []
        self.cpu_s = 0.0
        self.cold_reads = ColdReads(self.replicas.disk, self._read_cold)
        self.cold_pieces = 0
        self.scrubber = self.new_scrubber()

    def new_scrubber(
        self, *, period_ms: int = PERIOD_MS, most: int = 1 << 30, cpu_percent: float = 1.0
    ) -> Scrubber:
        return Scrubber(
            self.replicas.disk,
            self.replicas.logs,
            ScrubStateFile(self.replicas.disk, STATE),
            self.replicas.clock,
            self.cold_reads,
            in_place,
            lambda key, error: self.found.append((key, error)),
            pace=ScrubPace(period_ms=period_ms, max_bytes_per_second=most, cpu_percent=cpu_percent),
            cpu_seconds=self._cpu_seconds,
            digest_found=lambda key, found: self.digests.append((key, found)),
        )

    async def _read_cold(self, piece: Callable[[], None]) -> None:
        self.cold_pieces += 1
        piece()

    def _cpu_seconds(self) -> float:
        """Each check takes ten milliseconds of CPU time."""
        self.cpu_s += 0.005
        return self.cpu_s

    def write(self, count: int = 20) -> World:
        for name, key in ((NAME, KEY), (on(1), OTHER)):
            log = self.replicas.logs.open_replica(name, key, TopicConfig())
            first = log.log_end_offset
            log.append([batch_at(first + i, size=BATCH_BYTES) for i in range(count)])
            log.flush()
        return self

    def write_segments(self) -> World:
        """One replica of four segments with 15 batches each."""
        log = self.replicas.logs.open_replica(NAME, KEY, TopicConfig(segment_bytes=1 << 20))
        for offset in range(60):
            log.append([batch_at(offset, size=BATCH_BYTES)])
        log.flush()
        return self

    def segment(self, key: ReplicaKey, base_offset: int = 0) -> PurePath:
        log = self.replicas.logs.log_of(key)
        assert log is not None
        return log.directory / f"{base_offset:020d}.log"

    def flip(self, key: ReplicaKey, position: int, base_offset: int = 0) -> None:
        self.replicas.memory.names[self.segment(key, base_offset)].data[position] ^= 1

    @property
    def state(self) -> ScrubState:
        return self.scrubber.progress()

    def held(self, key: ReplicaKey) -> RangeDigest:
        """The digest in its log, which was appended to in this process."""
        log = self.replicas.logs.log_of(key)
        assert log is not None
        found = log.digests.of(0, log.log_end_offset)
        assert found is not None
        return found

    async def passes(self, count: int = 1, at_most_s: float = 10_000) -> None:
        async with asyncio.timeout(at_most_s):
            while self.state.passes < count:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(1)


async def test_a_scrub_computes_the_digests_of_the_data_on_disk() -> None:
    world = World().write()
    async with at_work(world.scrubber.run()):
        await world.passes()
    assert world.digests == [(KEY, world.held(KEY)), (OTHER, world.held(OTHER))]


async def test_a_range_that_is_cut_while_it_is_checked_has_no_digest() -> None:
    world = World().write()
    log = world.replicas.logs.log_of(KEY)
    assert log is not None
    async with at_work(world.scrubber.run()):
        while world.state.offset < 10:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.1)
        log.truncate_to(12)
        log.append([batch_at(12, size=BATCH_BYTES, epoch=2)])
        log.flush()
        await world.passes()
    assert [key for key, _ in world.digests] == [OTHER]


async def test_a_pass_checks_every_batch_of_every_replica() -> None:
    world = World().write()
    async with at_work(world.scrubber.run()):
        await world.passes()
    total = sum(log.size_bytes for log in world.replicas.logs.logs())
    assert (world.state.last_pass_bytes, world.state.damage_found) == (total, 0)
    assert world.found == []


@pytest.mark.rule("scrub-checks-every-batch")
async def test_a_flipped_bit_is_found_and_passed_to_the_repair() -> None:
    world = World().write()
    world.flip(OTHER, 15 * BATCH_BYTES)
    async with at_work(world.scrubber.run()):
        await world.passes()
    ((key, error),) = world.found
    assert key == OTHER
    assert isinstance(error, LogCorruptError)
    assert world.state.damage_found == 1


async def test_unsynced_data_is_left_to_the_next_pass() -> None:
    world = World().write(2)
    log = world.replicas.logs.log_of(KEY)
    assert log is not None
    log.append([batch_at(2, size=BATCH_BYTES)])
    world.flip(KEY, -1)
    async with at_work(world.scrubber.run()):
        await world.passes()
    assert world.found == []
    assert world.state.last_pass_bytes == 4 * (log.size_bytes // 3)


async def test_a_pass_is_spread_over_its_period_down_to_a_minimal_rate() -> None:
    world = World().write()
    total = sum(log.size_bytes for log in world.replicas.logs.logs())
    began = world.replicas.clock.monotonic_ms()
    async with at_work(world.scrubber.run()):
        await world.passes()
    took_s = (world.replicas.clock.monotonic_ms() - began) / 1000
    assert took_s == pytest.approx(total / MIN_BYTES_PER_SECOND, rel=0.1)


async def test_the_next_pass_begins_when_the_period_is_over() -> None:
    world = World().write(1)
    began = world.replicas.clock.monotonic_ms()
    async with at_work(world.scrubber.run()):
        await world.passes(2)
    took_ms = world.replicas.clock.monotonic_ms() - began
    assert PERIOD_MS < took_ms < 1.1 * PERIOD_MS


@pytest.mark.rule("scrub-checks-every-batch")
async def test_a_scrub_takes_no_more_than_its_share_of_a_processor() -> None:
    world = World().write()
    world.scrubber = world.new_scrubber(period_ms=1)
    began = world.replicas.clock.monotonic_ms()
    async with at_work(world.scrubber.run()):
        await world.passes()
    total = sum(log.size_bytes for log in world.replicas.logs.logs())
    took_s = (world.replicas.clock.monotonic_ms() - began) / 1000
    assert took_s >= total // CHUNK_BYTES * 0.005 / 0.005


@pytest.mark.parametrize(("cpu_percent", "reasons"), [(0.02, [BY_CPU]), (50.0, [])])
async def test_a_pass_that_its_share_of_a_processor_delays_is_reported(
    cpu_percent: float, reasons: list[str]
) -> None:
    world = World().write(400)
    world.scrubber = world.new_scrubber(period_ms=800_000, cpu_percent=cpu_percent)
    async with at_work(world.scrubber.run()):
        await asyncio.sleep(700)
        assert [pressure.detail for pressure in world.scrubber.pressures()] == reasons


async def test_at_full_rate_a_scrub_does_not_pause() -> None:
    world = World().write()
    world.scrubber = world.new_scrubber(period_ms=0)
    async with at_work(world.scrubber.run()):
        await asyncio.sleep(100)
        assert world.state.passes == 0
        world.scrubber.begin_pass(full_rate=True)
        await asyncio.sleep(1)
        assert world.state.passes == 1
        assert not world.scrubber.status().full_rate


@pytest.mark.rule("scrub-checks-every-batch")
async def test_after_a_restart_a_pass_continues_where_it_was() -> None:
    world = World().write(100)
    total = sum(log.size_bytes for log in world.replicas.logs.logs())
    async with at_work(world.scrubber.run()):
        await asyncio.sleep(60)
    checked = world.state.bytes_checked
    assert 0 < checked < total
    again = World(world.replicas)
    async with at_work(again.scrubber.run()):
        await again.passes()
    # Since the position was last written.
    repeated = again.state.bytes_checked - total
    assert repeated <= 12 * MIN_BYTES_PER_SECOND + CHUNK_BYTES
    assert again.state.pass_began_ms == world.state.pass_began_ms


@pytest.mark.rule("disk-reads-off-event-loop")
async def test_a_thread_rebuilds_a_lost_index_before_the_log_reads_a_fault_again() -> None:
    world = World().write_segments()
    world.flip(KEY, 5 * BATCH_BYTES)
    world.replicas.disk.remove(world.segment(KEY).with_suffix(INDEX_SUFFIX))
    log = world.replicas.logs.log_of(KEY)
    assert log is not None
    log.share_files(SegmentFiles(world.replicas.disk))  # as when its file is evicted
    async with at_work(world.scrubber.run()), at_work(world.cold_reads.run()):
        await world.passes()
    assert world.cold_pieces == 1
    assert len(world.found) == 1


async def test_a_damaged_state_begins_a_new_pass() -> None:
    world = World().write(1)
    world.replicas.disk.write_atomically(PurePath(STATE), b"nonsense", sync=True)
    async with at_work(world.scrubber.run()):
        await world.passes()
    assert world.state.passes == 1


async def test_a_replica_out_of_service_is_left_to_its_repair() -> None:
    world = World().write(1)
    world.replicas.logs.take_out_of_service(KEY, "damaged")
    world.flip(KEY, -1)
    async with at_work(world.scrubber.run()):
        await world.passes()
    assert world.found == []


async def test_an_unreadable_sector_is_found_and_the_pass_continues() -> None:
    world = World().write()
    world.replicas.memory.spoil(world.segment(KEY), 15 * BATCH_BYTES)
    async with at_work(world.scrubber.run()):
        await world.passes()
    ((key, error),) = world.found
    assert (key, type(error)) == (KEY, LogUnreadableError)
    assert world.state.damage_found == 1


async def test_a_missing_segment_is_found() -> None:
    world = World().write_segments()
    world.replicas.disk.remove(world.segment(KEY, 15))
    async with at_work(world.scrubber.run()):
        await world.passes()
    ((key, error),) = world.found
    assert (key, type(error)) == (KEY, LogUnreadableError)
    assert str(world.segment(KEY, 15)) in str(error)
    # The three others have been checked.
    assert world.state.last_pass_bytes > 44 * BATCH_BYTES


async def test_a_segment_deleted_during_its_check_is_no_damage() -> None:
    world = World().write_segments()
    log = world.replicas.logs.log_of(KEY)
    assert log is not None
    async with at_work(world.scrubber.run()):
        while world.state.offset < 14:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.1)
        log.delete_below(30)
        await world.passes()
    assert world.found == []
    assert world.state.last_pass_bytes > 40 * BATCH_BYTES


async def test_all_segments_are_checked_behind_a_damaged_one() -> None:
    world = World().write_segments()
    world.flip(KEY, 5 * BATCH_BYTES, base_offset=0)
    world.flip(KEY, 5 * BATCH_BYTES, base_offset=30)
    async with at_work(world.scrubber.run()):
        await world.passes()
    assert len(world.found) == world.state.damage_found == 2


async def test_damage_that_only_the_scrub_finds_does_not_end_the_check_of_its_replica(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World().write_segments()
    log = world.replicas.logs.log_of(KEY)
    assert log is not None
    world.flip(KEY, 5 * BATCH_BYTES)
    world.flip(KEY, 5 * BATCH_BYTES, base_offset=30)
    read = log.read

    def read_first_segment(offset: int, *, max_bytes: int, up_to: int) -> list[Batch]:
        """Memory still holds the batches that are damaged on the disk."""
        if offset >= 15:
            return read(offset, max_bytes=max_bytes, up_to=up_to)
        return [batch_at(offset, size=BATCH_BYTES)]

    monkeypatch.setattr(log, "read", read_first_segment)
    async with at_work(world.scrubber.run()):
        await world.passes()
    ((_, error),) = world.found
    assert str(world.segment(KEY, 30)) in str(error)
    assert world.state.last_pass_bytes > 40 * BATCH_BYTES


def without_an_index(world: World) -> Log:
    """Its first segment has lost its index, so that each search in it needs a thread."""
    world.replicas.disk.remove(world.segment(KEY).with_suffix(INDEX_SUFFIX))
    log = world.replicas.logs.log_of(KEY)
    assert log is not None
    log.share_files(SegmentFiles(world.replicas.disk))  # as when its file is evicted
    return log


async def test_a_log_that_is_closed_while_the_scrub_waits_is_left_to_its_repair() -> None:
    world = World().write_segments()
    world.flip(KEY, 5 * BATCH_BYTES)
    log = without_an_index(world)

    async def close(_: Callable[[], None]) -> None:
        world.replicas.logs.take_out_of_service(KEY, "a failed sync")
        log.close()

    cold_reads = world.cold_reads = ColdReads(world.replicas.disk, close)
    scrubber = world.scrubber = world.new_scrubber()
    async with at_work(scrubber.run()), at_work(cold_reads.run()):
        await world.passes()
    assert log.closed
    assert world.found == []
    assert world.replicas.memory.open_files == 0


@pytest.mark.parametrize("offset", [0, 3], ids=["to confirm a fault", "to continue a pass"])
async def test_a_lack_of_descriptors_pauses_the_scrub_and_is_no_damage(offset: int) -> None:
    world = World().write_segments()
    world.flip(KEY, 5 * BATCH_BYTES)
    without_an_index(world)
    lacks = 2

    async def read(piece: Callable[[], None]) -> None:
        nonlocal lacks
        lacks -= 1
        if lacks >= 0:
            raise OSError(errno.EMFILE, "too many open files")
        piece()

    ScrubStateFile(world.replicas.disk, STATE).write(ScrubState(*KEY, offset))
    cold_reads = world.cold_reads = ColdReads(world.replicas.disk, read)
    scrubber = world.scrubber = world.new_scrubber()
    async with at_work(scrubber.run()), at_work(cold_reads.run()):
        await world.passes()
    assert lacks < 0
    ((_, error),) = world.found
    assert isinstance(error, LogCorruptError)
