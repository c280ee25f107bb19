"""What a log knows of its producers after a restart, a cut, retention and damage."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from structlog.testing import capture_logs

from tidelog.batch import is_fence
from tidelog.model import Batch
from tidelog_broker.log import producer_history
from tidelog_broker.log.clean_shutdown import CleanLog
from tidelog_broker.log.log_config import LogConfig
from tidelog_broker.log.log_errors import LogCorruptError, LogStorageError
from tidelog_broker.log.log_start import LOG_START_NAME
from tidelog_broker.log.producer_history import COPY_SUFFIX, SNAPSHOT_SUFFIX, snapshot_name
from tidelog_broker.log.unsynced_writes import UnsyncedWrites
from tidelog_broker.partition import producer_state
from tidelog_broker.partition.producer_state import NOBODY, CrowdedOut
from unit.broker.log.builders import (
    DIRECTORY,
    START_MS,
    Producer,
    batch_at,
    encode_frame,
    ended,
    log_of,
    open_log,
)
from unit.broker.log.memory_disk import MemoryDisk
from unit.broker.log.producer_logs import (
    BATCHES,
    FRAME,
    NAMED,
    SMALL_SEGMENTS,
    A,
    B,
    expected,
    expired,
    fence_at,
    known,
    reopen,
    segments_read,
    snapshots,
    spoil,
    states_of,
    written,
)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def test_after_a_clean_stop_producers_are_known_without_reading_data(
    disk: MemoryDisk,
) -> None:
    clean_state = ended(log_of(disk, BATCHES, SMALL_SEGMENTS))
    disk.reads.clear()
    assert known(reopen(disk, clean_state=clean_state)) == expected(BATCHES)
    assert sum(size for path, size in disk.reads if path.suffix == ".log") < FRAME


def test_after_a_crash_producers_are_known_again(disk: MemoryDisk) -> None:
    log_of(disk, BATCHES, SMALL_SEGMENTS)
    assert known(reopen(disk)) == expected(BATCHES)


def test_after_a_crash_only_the_active_segment_is_read_for_producers(disk: MemoryDisk) -> None:
    log_of(disk, BATCHES, SMALL_SEGMENTS)
    disk.reads.clear()
    assert known(reopen(disk, recovery_point=7)) == expected(BATCHES)
    assert segments_read(disk) == {6}


def test_a_torn_batch_does_not_count_for_its_producer(disk: MemoryDisk) -> None:
    log_of(disk, BATCHES, SMALL_SEGMENTS)
    del disk.names[DIRECTORY / "00000000000000000006.log"].data[-1:]
    assert known(reopen(disk)) == expected(BATCHES[:6])


@pytest.mark.rule("waiting-produce-ends-with-epoch")
@pytest.mark.parametrize("offset", range(8))
def test_a_cut_restores_the_states_at_its_offset(disk: MemoryDisk, offset: int) -> None:
    log = log_of(disk, BATCHES, SMALL_SEGMENTS)
    log.truncate_to(offset)
    assert known(log) == expected(BATCHES[:offset])
    assert known(reopen(disk)) == expected(BATCHES[:offset])
    assert all(snapshot <= offset for snapshot in snapshots(disk))


def flip_sequence(disk: MemoryDisk, batch: Batch) -> None:
    """Bits of a batch in its segment that only the checksum of its records covers."""
    flipped = batch._replace(header=batch.header._replace(base_sequence=77))
    (segment,) = [inode for path, inode in disk.names.items() if encode_frame(batch) in inode.data]
    segment.data[:] = segment.data.replace(encode_frame(batch), encode_frame(flipped))


def test_a_flipped_sequence_below_a_cut_is_damage_and_no_state(disk: MemoryDisk) -> None:
    log = log_of(disk, BATCHES)
    flip_sequence(disk, BATCHES[2])
    with pytest.raises(LogCorruptError):
        log.truncate_to(4)


def test_a_flipped_sequence_that_a_start_reads_is_damage_and_no_state(disk: MemoryDisk) -> None:
    clean_state = ended(log_of(disk, BATCHES))._replace(producers=None)
    flip_sequence(disk, BATCHES[2])
    with pytest.raises(LogCorruptError):
        open_log(disk, clean_state=clean_state)


def write_back(disk: MemoryDisk, suffix: str) -> None:
    """Flush as the kernel does by itself, file by file."""
    for path, inode in disk.names.items():
        if path.suffix == suffix:
            inode.sync()


def test_data_written_after_a_cut_is_not_taken_for_the_data_that_was_cut(disk: MemoryDisk) -> None:
    log = log_of(disk, BATCHES, SMALL_SEGMENTS)
    log.truncate_to(1)
    after = written(NAMED, NAMED, start=1)
    for batch in after:
        log.append([batch])
    assert known(reopen(disk)) == expected([*BATCHES[:1], *after])


def test_a_snapshot_that_a_cut_removed_does_not_come_back_after_a_power_failure(
    disk: MemoryDisk,
) -> None:
    log = log_of(disk, BATCHES[:2], LogConfig())
    log.producers.roll([0])
    write_back(disk, SNAPSHOT_SUFFIX)
    log.flush()
    disk.sync_directory(DIRECTORY)
    assert snapshots(disk) == [2]
    log.truncate_to(1)
    log.append(written(NAMED, start=1))
    write_back(disk, ".log")
    disk.power_failure()
    again = open_log(disk, recovery_point=1)
    assert known(again) == expected([*BATCHES[:1], *written(NAMED, start=1)])


def test_a_snapshot_that_a_start_removed_does_not_come_back_after_a_power_failure(
    disk: MemoryDisk,
) -> None:
    """The batches were lost, the snapshot was not."""
    log = log_of(disk, BATCHES[:4], LogConfig())
    log.flush()
    log.append(BATCHES[4:6])
    log.producers.roll([0])
    write_back(disk, SNAPSHOT_SUFFIX)
    disk.sync_directory(DIRECTORY)
    disk.power_failure()
    again = open_log(disk, recovery_point=4)
    assert (again.log_end_offset, snapshots(disk)) == (4, [])
    after = written(NAMED, NAMED, start=4)
    again.append(after)
    write_back(disk, ".log")
    disk.power_failure()
    assert known(open_log(disk, recovery_point=4)) == expected([*BATCHES[:4], *after])


def test_a_damaged_snapshot_is_logged_and_the_batches_are_read_instead(disk: MemoryDisk) -> None:
    clean_state = ended(log_of(disk, BATCHES, SMALL_SEGMENTS), max_producers=0)
    disk.names[DIRECTORY / snapshot_name(7)].data[-3] ^= 1
    with capture_logs() as lines:
        log = reopen(disk, clean_state=clean_state)
    assert [line["event"] for line in lines] == ["producer_snapshot_damaged"]
    assert known(log) == expected(BATCHES)


def test_a_lost_snapshot_only_costs_a_longer_read(disk: MemoryDisk) -> None:
    log_of(disk, BATCHES, SMALL_SEGMENTS)
    for offset in snapshots(disk):
        disk.remove(DIRECTORY / snapshot_name(offset))
    assert known(reopen(disk)) == expected(BATCHES)


def test_each_segment_has_a_snapshot_and_there_is_no_other(disk: MemoryDisk) -> None:
    clean_state = ended(log_of(disk, BATCHES, SMALL_SEGMENTS), max_producers=0)
    log = reopen(disk, clean_state=clean_state)
    for batch in written(*[B] * 3, start=7):
        log.append([batch])
    assert snapshots(disk) == [2, 4, 6, 8]


def test_a_long_segment_has_snapshots_within_it(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_history, "SNAPSHOT_INTERVAL_BYTES", 3 * FRAME)
    monkeypatch.setattr(producer_history, "SNAPSHOT_INTERVAL_BYTES_PER_PRODUCER", 0)
    config = LogConfig(index_interval_bytes=100)
    log_of(disk, BATCHES, config)
    assert snapshots(disk) == [3, 6]
    log = open_log(disk, config=config)
    log.truncate_to(5)
    assert known(log) == expected(BATCHES[:5])


def test_many_producers_make_snapshots_within_a_segment_rarer(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_history, "SNAPSHOT_INTERVAL_BYTES", 1)
    monkeypatch.setattr(producer_history, "SNAPSHOT_INTERVAL_BYTES_PER_PRODUCER", FRAME)
    log_of(disk, BATCHES, LogConfig())
    # One producer from offset 0 on, two from 1, three from 3.
    assert snapshots(disk) == [1, 3, 6]


def test_a_snapshot_without_disk_space_rejects_no_batch(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_history, "SNAPSHOT_INTERVAL_BYTES", FRAME)
    monkeypatch.setattr(producer_history, "SNAPSHOT_INTERVAL_BYTES_PER_PRODUCER", 0)
    log = open_log(disk)
    log.append(BATCHES[:1])
    disk.space = FRAME
    with capture_logs() as lines:
        log.append(BATCHES[1:2])
    assert [line["event"] for line in lines] == ["producer_snapshot_not_written"]
    assert known(log) == expected(BATCHES[:2])


def test_the_producer_of_an_unwritten_batch_is_not_known(disk: MemoryDisk) -> None:
    log = open_log(disk)
    log.append(BATCHES[:1])
    disk.space = 10
    with pytest.raises(LogStorageError, match="No space"):
        log.append(BATCHES[1:2])
    assert known(log) == expected(BATCHES[:1])


# -- retention ---------------------------------------------------------------------------


def test_a_producer_is_known_after_its_batches_are_deleted(disk: MemoryDisk) -> None:
    log = expired(disk, BATCHES, up_to=6)
    assert (log.log_start_offset, known(log)) == (6, expected(BATCHES))
    log.flush()
    disk.power_failure()
    again = reopen(disk, recovery_point=7)
    assert (again.log_start_offset, known(again)) == (6, expected(BATCHES))
    assert snapshots(disk) == [6]


def test_producers_below_the_start_are_sent_to_others(disk: MemoryDisk) -> None:
    log = expired(disk, BATCHES, up_to=6)
    assert log.producers.below_start().entries == expected(BATCHES[:6])


def test_a_deletion_without_a_snapshot_reads_the_batches_first(disk: MemoryDisk) -> None:
    log = log_of(disk, BATCHES, SMALL_SEGMENTS)
    disk.names[DIRECTORY / snapshot_name(6)].data[-3] ^= 1
    log.update_config(LogConfig(segment_bytes=2 * FRAME, retention_bytes=0))
    log.delete_old_segments(START_MS, up_to=7)
    assert log.producers.below_start().entries == expected(BATCHES[:6])


def test_a_fully_expired_log_keeps_its_producers_over_a_power_failure(
    disk: MemoryDisk,
) -> None:
    config = LogConfig(retention_ms=100)
    log = log_of(disk, BATCHES, config)
    log.delete_old_segments(START_MS + 101, up_to=7)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    clean_state = ended(log)
    disk.power_failure()
    again = open_log(disk, config=config, clean_state=clean_state)
    assert (again.log_start_offset, known(again)) == (7, expected(BATCHES))


# -- a log that is reset -----------------------------------------------------------------


def test_a_reset_log_lacks_its_producers_until_it_learns_them(
    disk: MemoryDisk,
) -> None:
    log = log_of(disk, BATCHES, SMALL_SEGMENTS)
    log.reset_to(40)
    assert (log.producers.lacking, known(log)) == (True, ())
    assert reopen(disk).producers.lacking
    log = reopen(disk)
    log.producers.adopt_below_start(states_of(BATCHES))
    disk.power_failure()
    again = reopen(disk)
    assert (again.producers.lacking, known(again)) == (False, expected(BATCHES))
    assert again.producers.below_start().entries == expected(BATCHES)


def test_a_clean_stop_does_not_hide_missing_producers(disk: MemoryDisk) -> None:
    log = open_log(disk)
    log.reset_to(40)
    assert reopen(disk, clean_state=ended(log)).producers.lacking


@pytest.mark.parametrize("damage", ["removed", "a bit flipped"])
def test_an_empty_log_that_lost_its_only_snapshot_lacks_its_producers(
    disk: MemoryDisk, damage: str
) -> None:
    """Otherwise it would look as if no producer had written below, and could become leader."""
    log = open_log(disk)
    log.reset_to(40)
    log.producers.adopt_below_start(states_of(BATCHES))
    for suffix in (SNAPSHOT_SUFFIX, COPY_SUFFIX):
        spoil(disk, 40, suffix, damage)
    clean_state = ended(reopen(disk))
    assert reopen(disk, clean_state=clean_state).producers.lacking


def test_a_log_that_begins_at_0_lacks_no_producers(disk: MemoryDisk) -> None:
    log = open_log(disk)
    log.reset_to(40)
    log.reset_to(0)
    assert not log.producers.lacking
    assert not reopen(disk).producers.lacking


@pytest.mark.parametrize("offset", [1, 4, 40])
def test_a_failed_reset_leaves_the_producers(disk: MemoryDisk, offset: int) -> None:
    """It stopped before the log's new start was written."""
    log = log_of(disk, BATCHES, SMALL_SEGMENTS)
    log.producers.begin_reset(offset)
    again = reopen(disk)
    assert (again.producers.lacking, known(again)) == (False, expected(BATCHES))


def test_an_interrupted_reset_is_finished_by_the_next_start(disk: MemoryDisk) -> None:
    log = log_of(disk, BATCHES, SMALL_SEGMENTS)
    log.flush()
    files = dict(disk.names)
    log.reset_to(40)
    kept_names = (LOG_START_NAME, snapshot_name(40), snapshot_name(40, COPY_SUFFIX))
    disk.names = {
        **files,
        **{DIRECTORY / name: disk.names[DIRECTORY / name] for name in kept_names},
    }
    again = reopen(disk)
    assert (again.log_start_offset, again.producers.lacking, known(again)) == (40, True, ())


# -- random histories --------------------------------------------------------------------

MODEL_CONFIG = LogConfig(
    segment_bytes=600, segment_ms=1 << 40, retention_bytes=800, index_interval_bytes=150
)


class ProducerModel(RuleBasedStateMachine):
    """Every batch ever appended and not cut, compared with what the log knows."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.ever: list[Batch] = []
        self.flushed = 0
        self.epoch = 0
        self.reopen(0)

    def reopen(
        self,
        recovery_point: int,
        clean_state: CleanLog | None = None,
        unsynced: UnsyncedWrites = UnsyncedWrites.REWRITTEN,
    ) -> None:
        self.log = open_log(
            self.disk,
            config=MODEL_CONFIG,
            recovery_point=recovery_point,
            clean_state=clean_state,
            unsynced=unsynced,
        )

    @property
    def end(self) -> int:
        return self.ever[-1].header.next_offset if self.ever else 0

    def cut(self, offset: int) -> None:
        self.ever = [batch for batch in self.ever if batch.header.next_offset <= offset]

    @rule(
        producer=st.sampled_from([A, B, NAMED]), count=st.integers(1, 3), size=st.integers(0, 200)
    )
    def append(self, producer: int, count: int, size: int) -> None:
        entry = self.log.producers.states.entry(producer)
        sequence = entry.last_sequence + 1 if entry else 0
        epoch = self.epoch if producer == NAMED else 0
        batch = batch_at(
            self.end, count=count, size=size, producer=Producer(producer, epoch, sequence)
        )
        assert self.log.producers.states.check(batch.header) is None
        self.log.append([batch])
        self.ever.append(batch)

    @rule()
    def fence(self) -> None:
        self.epoch += 1
        fence = fence_at(self.end, self.epoch)
        assert is_fence(fence.header)
        self.log.append([fence])
        self.ever.append(fence)

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        offset = max(self.log.log_start_offset, self.end - back)
        self.log.truncate_to(offset)
        self.cut(offset)
        self.flushed = min(self.flushed, self.end)

    @rule(back=st.integers(0, 8))
    def delete_old(self, back: int) -> None:
        self.log.delete_old_segments(START_MS, up_to=self.end - back)
        self.flushed = max(self.flushed, self.log.log_start_offset)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.end

    @rule(max_producers=st.sampled_from([0, 1000]))
    def stop_cleanly(self, max_producers: int) -> None:
        clean_state = self.log.close_cleanly(max_producers=max_producers)
        self.flushed = self.end
        self.reopen(self.flushed, clean_state)
        assert self.log.recovery is None

    @rule()
    def crash(self) -> None:
        self.reopen(self.flushed)

    @rule(rng=st.none() | st.randoms(use_true_random=False))
    def lose_power(self, rng: random.Random | None) -> None:
        self.disk.power_failure(rng)
        self.reopen(self.flushed, unsynced=UnsyncedWrites.LOST_CUT)
        self.cut(self.log.log_end_offset)

    @invariant()
    def the_log_knows_its_producers(self) -> None:
        assert self.log.log_end_offset == self.end
        assert known(self.log) == expected(self.ever)

    @invariant()
    def it_knows_producers_below_its_start(self) -> None:
        start = self.log.log_start_offset
        below = [batch for batch in self.ever if batch.header.next_offset <= start]
        assert self.log.producers.below_start().entries == expected(below)


TestProducerModel = pytest.mark.timeout(120)(ProducerModel.TestCase)
TestProducerModel.settings = settings(max_examples=60, stateful_step_count=25)


def test_an_evicted_producer_is_reported_once_however_often_the_log_is_read(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_state, "MAX_UNNAMED_PRODUCERS", 2)
    monkeypatch.setattr(producer_state, "MAX_RECENT_UNNAMED_PRODUCERS", 2)
    log = log_of(disk, written(*range(1, 6)))
    assert [log.producers.take_crowded_out() for _ in range(2)] == [CrowdedOut(recent=3), NOBODY]
    again = reopen(disk)
    assert len(again.producers.states) == 2
    again.append([batch_at(5, producer=Producer(6, 0, 0))])
    again.truncate_to(5)
    assert again.producers.take_crowded_out() == CrowdedOut(recent=1)
