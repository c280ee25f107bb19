"""When a record was appended, known without reading its batch."""

import pytest

from tidelog_broker.log.log import Log
from tidelog_broker.log.log_config import LogConfig
from unit.broker.log.builders import DIRECTORY, START_MS, batch_at, ended, open_log
from unit.broker.log.memory_disk import MemoryDisk

SMALL_SEGMENTS = LogConfig(segment_bytes=500, index_interval_bytes=200)


def log_of_twenty(disk: MemoryDisk) -> Log:
    log = open_log(disk, config=SMALL_SEGMENTS)
    for offset in range(0, 20, 2):
        log.append([batch_at(offset, count=2, append_time_ms=START_MS + offset)])
    return log


@pytest.mark.parametrize("offset", [0, 1, 6, 13, 19])
def test_an_append_time_is_that_of_the_batch_that_holds_the_offset(offset: int) -> None:
    log = log_of_twenty(MemoryDisk())
    assert log.segment_count > 2
    assert log.append_time_of(offset) == START_MS + offset // 2 * 2


@pytest.mark.parametrize("offset", [-1, 20, 21])
def test_outside_the_log_there_is_no_append_time(offset: int) -> None:
    assert log_of_twenty(MemoryDisk()).append_time_of(offset) is None


def test_append_times_are_known_after_the_log_is_reopened() -> None:
    disk = MemoryDisk()
    clean_state = ended(log_of_twenty(disk))
    assert (
        open_log(disk, config=SMALL_SEGMENTS, clean_state=clean_state).append_time_of(7)
        == START_MS + 6
    )


def test_without_file_times_there_is_no_append_time() -> None:
    disk = MemoryDisk()
    log = log_of_twenty(disk)
    log._segments.reader._positions.clear()
    disk.names[DIRECTORY / "00000000000000000000.log"].data[0:40] = bytes(40)
    assert log.append_time_of(0) is None
