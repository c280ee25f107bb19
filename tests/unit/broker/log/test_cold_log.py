"""What a log answers while only a part of it is in memory."""

from __future__ import annotations

from pathlib import PurePath

import pytest

from simulation.disk import PAGE_BYTES
from tidelog.log_format import FRAME_HEADER_BYTES
from tidelog.model import Batch
from tidelog_broker.core.partition.replica_log import ColdDataError, ColdRange
from tidelog_broker.log import index_rebuild
from tidelog_broker.log.indexes import INDEX_SUFFIX
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_config import LogConfig
from tidelog_broker.log.log_errors import LogCorruptError
from tidelog_broker.log.segment_files import SegmentFiles
from unit.broker.log.builders import START_MS, batch_at, ended, open_log
from unit.broker.log.memory_disk import MemoryDisk

# Each batch fills a page.
RECORDS_BYTES = PAGE_BYTES - FRAME_HEADER_BYTES
THREE_A_SEGMENT = LogConfig(segment_bytes=3 * PAGE_BYTES, index_interval_bytes=PAGE_BYTES)
ALL = 1 << 20


def page_batch(offset: int) -> Batch:
    return batch_at(offset, size=RECORDS_BYTES, timestamp_ms=START_MS + offset)


def log_of(disk: MemoryDisk, batches: int, config: LogConfig | None = None) -> Log:
    log = open_log(disk, config=config) if config else open_log(disk)
    for offset in range(batches):
        log.append([page_batch(offset)])
    return log


def offsets(batches: list[Batch]) -> list[int]:
    return [batch.header.base_offset for batch in batches]


def read(log: Log, offset: int = 0, max_bytes: int = ALL) -> tuple[list[int], ColdRange | None]:
    batches, cold = log.read_cached(offset, max_bytes=max_bytes, up_to=log.log_end_offset)
    return offsets(batches), cold


def load(disk: MemoryDisk, cold: ColdRange) -> None:
    """Load as a thread does."""
    if cold.work is not None:
        cold.work()
        return
    file = disk.open(cold.path)
    file.read_at(cold.size, cold.position)
    file.close()


def read_clean_logs(disk: MemoryDisk, log: Log) -> list[int]:
    """Load cold parts until everything has been read."""
    found: list[int] = []
    for _ in range(1000):
        if len(found) == log.log_end_offset:
            break
        more, cold = read(log, len(found))
        found += more
        if cold is not None:
            load(disk, cold)
    return found


def test_data_in_memory_is_read_as_usual() -> None:
    disk = MemoryDisk()
    log = log_of(disk, 10, THREE_A_SEGMENT)
    assert read(log) == (list(range(10)), None)


def test_of_a_partly_cached_range_complete_batches_and_their_end_are_answered() -> None:
    disk = MemoryDisk()
    log = log_of(disk, 5)
    disk.evict()
    (path,) = (path for path in disk.paths() if path.suffix == ".log")
    load(disk, ColdRange(path, 0, 2 * PAGE_BYTES + 1))
    batches, cold = read(log)
    assert batches == [0, 1, 2]
    assert cold == ColdRange(path, 3 * PAGE_BYTES, 2 * PAGE_BYTES)


def test_of_a_partly_cached_batch_nothing_is_answered() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    log.append([batch_at(0, size=4 * PAGE_BYTES)])
    disk.evict()
    (path,) = (path for path in disk.paths() if path.suffix == ".log")
    load(disk, ColdRange(path, 0, 1))
    batches, cold = read(log, max_bytes=100)
    assert batches == []
    assert cold is not None
    assert (cold.position, cold.end) == (PAGE_BYTES, 4 * PAGE_BYTES + FRAME_HEADER_BYTES)
    load(disk, cold)
    assert read(log, max_bytes=100) == ([0], None)


def test_cold_data_beyond_the_requested_range_makes_no_difference() -> None:
    disk = MemoryDisk()
    log = log_of(disk, 5)
    disk.evict()
    (path,) = (path for path in disk.paths() if path.suffix == ".log")
    load(disk, ColdRange(path, 0, 2 * PAGE_BYTES))
    assert read(log, max_bytes=2 * PAGE_BYTES) == ([0, 1], None)
    batches, cold = log.read_cached(0, max_bytes=ALL, up_to=2)
    assert (offsets(batches), cold) == ([0, 1], None)


@pytest.mark.parametrize("lost", [False, True])
def test_a_log_is_read_across_segments_without_waiting(*, lost: bool) -> None:
    """Lost indexes are rebuilt without waiting, too."""
    disk = MemoryDisk()
    log = log_of(disk, 20, THREE_A_SEGMENT)
    log = open_log(disk, config=THREE_A_SEGMENT, clean_state=ended(log))
    if lost:
        for path in disk.paths():
            if path.suffix == INDEX_SUFFIX:
                disk.remove(path)
    disk.evict()
    waits = disk.waits
    assert log.read_cached(4, max_bytes=ALL, up_to=20).batches == []
    assert disk.waits == waits
    assert read_clean_logs(disk, log) == list(range(20))


def without_first_index(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> tuple[Log, PurePath, bytes]:
    """A log after a clean start, whose first index has been lost: in pieces of two pages it is
    rebuilt in four. Also returns the lost file and its content."""
    monkeypatch.setattr(index_rebuild, "REBUILD_PIECE_BYTES", 2 * PAGE_BYTES)
    config = LogConfig(segment_bytes=8 * PAGE_BYTES, index_interval_bytes=PAGE_BYTES)
    log = log_of(disk, 10, config)
    log = open_log(disk, config=config, clean_state=ended(log))
    lost = min(path for path in disk.paths() if path.suffix == INDEX_SUFFIX)
    content = disk.read_file(lost)
    disk.remove(lost)
    return log, lost, content


@pytest.mark.rule("disk-reads-off-event-loop")
def test_a_lost_index_is_rebuilt_once_in_bounded_pieces_outside_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    log, lost, content = without_first_index(disk, monkeypatch)
    pieces = 0
    while (found := read(log, 7))[1] is not None:
        assert found[0] == []
        load(disk, found[1])
        pieces += 1
    assert (found, pieces) == (([7, 8, 9], None), 4)
    assert disk.read_file(lost) == content


def test_a_rebuild_continues_although_its_file_is_closed_between_the_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    log, *_ = without_first_index(disk, monkeypatch)
    for _ in range(4):
        _, cold = read(log, 7)
        assert cold is not None
        log.share_files(SegmentFiles(disk))  # as when its file is evicted
        load(disk, cold)
    assert read(log, 7) == ([7, 8, 9], None)


def test_a_thread_writes_no_index_of_content_that_has_changed_meanwhile() -> None:
    disk = MemoryDisk()
    log = log_of(disk, 5, THREE_A_SEGMENT)
    log = open_log(disk, config=THREE_A_SEGMENT, clean_state=ended(log))
    lost = min(path for path in disk.paths() if path.suffix == INDEX_SUFFIX)
    disk.remove(lost)
    _, cold = read(log, 2)
    assert cold is not None
    log.close()  # its repair may change the segments
    load(disk, cold)
    assert lost not in disk.paths()


def test_damage_that_a_rebuild_of_an_index_finds_is_reported() -> None:
    disk = MemoryDisk()
    log = log_of(disk, 5, THREE_A_SEGMENT)
    log = open_log(disk, config=THREE_A_SEGMENT, clean_state=ended(log))
    lost, segment = (
        min(path for path in disk.paths() if path.suffix == suffix)
        for suffix in (INDEX_SUFFIX, ".log")
    )
    disk.remove(lost)
    disk.flip_bit(segment, PAGE_BYTES + 4, 0)
    _, cold = read(log, 2)
    assert cold is not None
    load(disk, cold)
    with pytest.raises(LogCorruptError, match=f"damaged at byte {PAGE_BYTES}"):
        read(log, 2)


def test_an_index_that_cannot_be_written_again_serves_its_readers() -> None:
    disk = MemoryDisk()
    log = log_of(disk, 5, THREE_A_SEGMENT)
    log = open_log(disk, config=THREE_A_SEGMENT, clean_state=ended(log))
    lost = min(path for path in disk.paths() if path.suffix == INDEX_SUFFIX)
    disk.remove(lost)
    disk.space = 0
    _, cold = read(log, 2)
    assert cold is not None
    load(disk, cold)
    assert read(log, 2) == ([2, 3, 4], None)
    assert lost not in disk.paths()


def test_a_search_by_time_does_not_wait_either() -> None:
    disk = MemoryDisk()
    clean_state = ended(log_of(disk, 20, THREE_A_SEGMENT))
    log = open_log(disk, config=THREE_A_SEGMENT, clean_state=clean_state)
    disk.evict()
    waits, found, loads = disk.waits, None, 0
    while found is None and loads < 100:
        try:
            found = log.offset_for_timestamp(START_MS + 7, up_to=20, waits=False)
        except ColdDataError as error:
            assert disk.waits == waits
            load(disk, error.cold)
            waits, loads = disk.waits, loads + 1
    assert loads > 1
    assert found == page_batch(7)


def test_a_file_that_is_too_short_is_found_once_it_is_waited_for() -> None:
    disk = MemoryDisk()
    log = log_of(disk, 2)
    (path,) = (path for path in disk.paths() if path.suffix == ".log")
    disk.open(path).truncate(PAGE_BYTES)
    batches, cold = read(log, 1)
    assert (batches, cold) == ([], ColdRange(path, PAGE_BYTES, PAGE_BYTES))
    with pytest.raises(LogCorruptError):
        log.read(1, max_bytes=ALL, up_to=2)
