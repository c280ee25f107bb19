"""Batches that are unreadable here and valid in another replica are restored."""

from __future__ import annotations

import pytest

from tidelog.model import Batch
from tidelog_broker.core.partition.producer_state import ProducerStates
from tidelog_broker.core.partition.replica_log import ColdDataError
from tidelog_broker.log.index_rebuild import IndexRebuild
from tidelog_broker.log.indexes import (
    INDEX_SUFFIX,
    NO_TIMESTAMP,
    SegmentIndexes,
    SegmentSummary,
)
from tidelog_broker.log.leader_epochs import EpochEntry, LeaderEpochs
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_errors import LogCorruptError
from tidelog_broker.log.quarantine import discard_evidence
from tidelog_broker.log.segment_files import SegmentFiles
from unit.broker.log.builders import (
    START_MS,
    Producer,
    batch_at,
    batches_from,
    log_of,
    open_log,
    read_clean_logs,
)
from unit.broker.log.memory_disk import MemoryDisk
from unit.broker.log.test_live_quarantine import (
    CONFIG,
    FIRST_SEGMENT,
    FRAME,
    flip,
    seal,
    unreadable,
)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def with_unreadable(disk: MemoryDisk, count: int = 5, *damaged: int) -> Log:
    log = log_of(disk, batches_from(0, count), CONFIG)
    for batch in damaged or (2,):
        flip(disk, batch * FRAME + 10)
    seal(log)
    return log


@pytest.mark.parametrize("count", [5, 12])  # in the active segment, in a closed one
def test_a_restored_batch_is_readable_again(disk: MemoryDisk, count: int) -> None:
    log = with_unreadable(disk, count)
    assert log.restore([batch_at(2)])
    assert read_clean_logs(log) == batches_from(0, count)
    assert unreadable(log) == []
    log.append([batch_at(count)])
    assert read_clean_logs(open_log(disk, config=CONFIG))[:count] == batches_from(0, count)


@pytest.mark.parametrize("count", [5, 12])
def test_batches_merged_into_one_are_two_again(disk: MemoryDisk, count: int) -> None:
    log = with_unreadable(disk, count, 2, 3)
    assert unreadable(log) == [2, 3]
    assert log.restore([batch_at(2), batch_at(3)])
    for offset in range(count):
        assert log.read(offset, max_bytes=1, up_to=count) == [batch_at(offset)]


def test_restores_in_a_closed_segment_keep_its_index(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = with_unreadable(disk, 12, 1, 4)  # without the files of the index
    walks = 0
    read_piece = IndexRebuild.read_piece

    def counted(rebuild: IndexRebuild) -> None:
        nonlocal walks
        walks += 1
        read_piece(rebuild)

    monkeypatch.setattr(IndexRebuild, "read_piece", counted)
    for restored in (1, 4):
        log.share_files(SegmentFiles(disk))  # as when its file is evicted
        assert log.restore([batch_at(restored)])
        # The thread that synced it wrote them again.
        assert disk.read_file(FIRST_SEGMENT.with_suffix(INDEX_SUFFIX))
    log.share_files(SegmentFiles(disk))
    assert log.read_cached(4, max_bytes=1, up_to=12).batches == [batch_at(4)]
    assert walks == 1
    assert read_clean_logs(log) == batches_from(0, 12)


@pytest.mark.parametrize("count", [5, 12])  # in the active segment, in a closed one
@pytest.mark.parametrize("restored", range(5))
def test_a_restored_batch_is_found_by_its_time(disk: MemoryDisk, count: int, restored: int) -> None:
    times = [START_MS + 10 * ms for ms in (1, 5, 3, 9, 7, 8, 2, 10, 4, 6, 11, 12)]
    batches = [batch_at(offset, timestamp_ms=times[offset]) for offset in range(count)]
    log = log_of(disk, batches, CONFIG)
    flip(disk, restored * FRAME + 10)
    seal(log)
    log.offset_for_timestamp(START_MS, up_to=count)  # loads the index
    assert log.restore([batches[restored]])
    for _ in ("in memory", "in the file"):
        for asked in range(START_MS, START_MS + 130, 5):
            expected = next((b for b in batches if b.header.max_timestamp_ms >= asked), None)
            assert log.offset_for_timestamp(asked, up_to=count) == expected
        log.share_files(SegmentFiles(disk))


@pytest.mark.rule("damage-costs-only-its-batch")
@pytest.mark.parametrize(
    "others",
    [
        [batch_at(2, epoch=2)],
        [batch_at(2, size=101)],
        [batch_at(2, count=2)],
        [batch_at(2), batch_at(3)],
        [batch_at(2)._replace(records=bytes(100))],
        [batch_at(1)],
        [batch_at(9)],
    ],
)
def test_nothing_else_is_written(disk: MemoryDisk, others: list[Batch]) -> None:
    log = with_unreadable(disk, 10)
    assert not log.restore(others)
    assert unreadable(log) == [2]


def test_a_batch_that_is_unreadable_in_the_other_replica_too_is_not_taken(disk: MemoryDisk) -> None:
    log = with_unreadable(disk)
    assert not log.restore(log.read(2, max_bytes=1, up_to=3))


def test_a_readable_batch_is_not_overwritten(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 3), CONFIG)
    assert not log.restore([batch_at(1, records=b"x" * 100)])
    assert read_clean_logs(log) == batches_from(0, 3)


def test_a_producer_with_no_other_batch_is_known_again(disk: MemoryDisk) -> None:
    batches = batches_from(0, 5)
    batches[2] = batch_at(2, producer=Producer(7, 0, 0))
    log = log_of(disk, batches, CONFIG)
    flip(disk, 2 * FRAME + 10)
    with pytest.raises(LogCorruptError) as found:
        read_clean_logs(log)
    check = log.begin_quarantine(found.value.path, discard_evidence, copies=False)
    assert check is not None
    check.run()
    log.finish_quarantine(check)
    log.producers.states = ProducerStates()  # as after a start that reads the log now
    assert log.restore([batches[2]])
    entry = log.producers.states.entry(7)
    assert entry is not None
    assert entry.end_offset == 3


def test_an_offset_belongs_to_the_epoch_that_began_last() -> None:
    epochs = LeaderEpochs([EpochEntry(1, 0), EpochEntry(4, 5)])
    assert [epochs.epoch_at(offset) for offset in (0, 4, 5, 9)] == [1, 1, 4, 4]
    assert LeaderEpochs().epoch_at(0) == -1


def test_a_restore_that_waits_for_the_disk_has_changed_nothing(disk: MemoryDisk) -> None:
    log = with_unreadable(disk, 12)  # without the files of the index
    log.read(0, max_bytes=2 * FRAME, up_to=12)
    log.share_files(SegmentFiles(disk))  # as when its file is evicted
    with pytest.raises(ColdDataError):
        log.begin_restore([batch_at(2)], waits=False)
    # Memory still knows where the batch is.
    assert len(log.read_cached(2, max_bytes=1, up_to=12).batches) == 1


def test_a_log_that_stops_before_a_restored_batch_is_synced_is_not_clean(
    disk: MemoryDisk,
) -> None:
    log = with_unreadable(disk, 12)
    log.flush()
    sync = log.begin_restore([batch_at(2)], waits=True)
    assert sync is not None
    assert log.close_cleanly(1000) is None


def test_a_log_that_stops_after_a_restored_batch_was_synced_is_clean(disk: MemoryDisk) -> None:
    log = with_unreadable(disk, 12)
    assert log.restore([batch_at(2)])
    assert log.close_cleanly(1000) is not None


def test_a_timestamp_that_earlier_batches_reach_gets_no_second_entry() -> None:
    indexes = SegmentIndexes(10)
    summary = SegmentSummary(40, 4, 9, 1)
    for offset, largest_before in enumerate((NO_TIMESTAMP, 5, 5, 9)):
        indexes.note(offset, 10 * offset, largest_before)
    before = indexes.encode(summary)
    indexes.note_restored(2, 5)
    assert indexes.encode(summary) == before
