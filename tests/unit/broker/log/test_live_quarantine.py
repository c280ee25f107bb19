"""Damaged batches of a log in use become unreadable; everything else stays as it is."""

from __future__ import annotations

import pytest

from tidelog.batch import is_damaged
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_config import LogConfig
from tidelog_broker.log.log_errors import LogCorruptError
from tidelog_broker.log.quarantine import discard_evidence
from tidelog_broker.log.unsynced_writes import UnsyncedWrites
from unit.broker.log.builders import (
    DIRECTORY,
    START_MS,
    batch_at,
    batches_from,
    encode_frame,
    log_of,
    open_log,
    read_clean_logs,
)
from unit.broker.log.memory_disk import MemoryDisk

FRAME = len(encode_frame(batch_at(0)))
FIRST_SEGMENT = DIRECTORY / "00000000000000000000.log"
CONFIG = LogConfig(segment_bytes=6 * FRAME, index_interval_bytes=1)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def flip(disk: MemoryDisk, position: int) -> None:
    disk.names[FIRST_SEGMENT].data[position] ^= 1


def seal(log: Log, *, meanwhile: int = 0) -> list[tuple[int, int]]:
    """The offsets that became unreadable. `meanwhile` batches are appended during the seal."""
    with pytest.raises(LogCorruptError) as found:
        read_clean_logs(log)
    check = log.begin_quarantine(found.value.path, discard_evidence, copies=False)
    assert check is not None
    check.run()
    log.append(batches_from(log.log_end_offset, meanwhile))
    log.finish_quarantine(check)
    return [(damaged.first_offset, damaged.next_offset) for damaged in check.damaged]


def unreadable(log: Log) -> list[int]:
    return [o for o in range(log.log_end_offset) if is_damaged(log.header_at(o))]


@pytest.mark.rule("damage-costs-only-its-batch")
@pytest.mark.parametrize("count", [5, 12])  # in the active segment, in a closed one
def test_only_the_damaged_batch_becomes_unreadable(disk: MemoryDisk, count: int) -> None:
    log = log_of(disk, batches_from(0, count), CONFIG)
    flip(disk, 3 * FRAME - 1)
    assert seal(log) == [(2, 3)]
    batches = read_clean_logs(log)
    assert batches[:2] + batches[3:] == [*batches_from(0, 2), *batches_from(3, count - 3)]
    assert unreadable(log) == [2]
    assert unreadable(open_log(disk, config=CONFIG)) == [2]


@pytest.mark.parametrize("count", [5, 12])
def test_batches_with_damaged_headers_become_one(disk: MemoryDisk, count: int) -> None:
    """The index has an entry for each of them."""
    log = log_of(disk, batches_from(0, count), CONFIG)
    assert log.read(4, max_bytes=1, up_to=5) == batches_from(4, 1)
    for batch in (2, 3):
        flip(disk, batch * FRAME + 10)
    assert seal(log) == [(2, 4)]
    assert unreadable(log) == [2, 3]
    assert log.read(4, max_bytes=1, up_to=5) == batches_from(4, 1)


def test_batches_appended_during_a_seal_stay(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 3), CONFIG)
    flip(disk, 2 * FRAME - 1)
    assert seal(log, meanwhile=2) == [(1, 2)]
    assert read_clean_logs(log)[2:] == batches_from(2, 3)
    log.append(batches_from(5, 1))
    assert log.log_end_offset == 6


def test_a_damaged_last_batch_keeps_its_offsets(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 3), CONFIG)
    flip(disk, -1)
    assert seal(log) == [(2, 3)]
    assert log.log_end_offset == 3
    clean_state = log.close_cleanly(max_producers=10)
    assert clean_state is not None
    assert open_log(disk, config=CONFIG, clean_state=clean_state).recovery is None


def test_a_search_by_time_finds_the_remaining_batches(disk: MemoryDisk) -> None:
    times = [START_MS, START_MS + 50, START_MS + 10]
    batches = [batch_at(i, timestamp_ms=ms) for i, ms in enumerate(times)]
    log = log_of(disk, batches, CONFIG)
    flip(disk, 2 * FRAME - 1)
    seal(log)
    assert log.offset_for_timestamp(START_MS + 5, up_to=3) == batches[2]
    assert log.offset_for_timestamp(START_MS + 20, up_to=3) is None


def test_a_segment_that_cannot_be_sealed_reports_it(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 3), CONFIG)
    flip(disk, 2 * FRAME - 1)
    check = log.begin_quarantine(FIRST_SEGMENT, discard_evidence, copies=False)
    assert check is not None
    disk.fail_sync = True
    check.run()
    with pytest.raises(Exception, match="cannot check the segment"):
        log.finish_quarantine(check)


def test_a_batch_without_a_header_gets_the_epoch_that_the_log_has_there(disk: MemoryDisk) -> None:
    log = log_of(disk, [batch_at(i, epoch=epoch) for i, epoch in enumerate((1, 1, 2))], CONFIG)
    flip(disk, FRAME + 10)
    assert seal(log) == [(1, 2)]
    assert log.header_at(1).leader_epoch == 1
    assert open_log(disk, config=CONFIG).leader_epochs == log.leader_epochs


@pytest.mark.rule("damage-costs-only-its-batch")
@pytest.mark.parametrize("count", [5, 12])
@pytest.mark.parametrize(
    ("start", "end", "added", "damaged"),
    [
        (2 * FRAME + 9, None, b"", range(2, 5)),
        (5 * FRAME - 1, None, b"", range(4, 5)),
        (3 * FRAME, None, b"", range(3, 5)),
        (2 * FRAME + 9, 2 * FRAME + 10, b"", range(2, 3)),
        (2 * FRAME + 9, 4 * FRAME, b"", range(2, 4)),
        (2 * FRAME + 9, 2 * FRAME + 9, b"x", range(2, 3)),
        (2 * FRAME + 9, 2 * FRAME + 9, bytes(3 * FRAME), range(2, 3)),
        (0, None, b"", range(5)),
    ],
)
def test_bytes_missing_from_a_segment_or_added_cost_only_their_batches(
    disk: MemoryDisk, count: int, start: int, end: int | None, added: bytes, damaged: range
) -> None:
    config = LogConfig(segment_bytes=5 * FRAME, index_interval_bytes=1)
    log = log_of(disk, batches_from(0, count), config)
    data = disk.names[FIRST_SEGMENT].data
    data[start : len(data) if end is None else end] = added
    check = log.begin_quarantine(FIRST_SEGMENT, discard_evidence, copies=False)
    assert check is not None
    check.run()
    log.finish_quarantine(check)
    assert unreadable(log) == list(damaged)
    batches = read_clean_logs(log)
    sound = [batch for batch in batches if not is_damaged(batch.header)]
    assert sound == [b for b in batches_from(0, count) if b.header.base_offset not in damaged]
    log.append(batches_from(count, 1))
    clean_state = log.close_cleanly(max_producers=10)
    again = open_log(disk, config=config, clean_state=clean_state)
    assert (again.recovery, again.log_end_offset) == (None, count + 1)
    assert unreadable(again) == list(damaged)
    assert unreadable(open_log(disk, config=config)) == list(damaged)


@pytest.mark.rule("damage-costs-only-its-batch")
@pytest.mark.parametrize("count", [6, 12])
@pytest.mark.parametrize(
    "order",
    [
        [0, 1, 3, 2, 4, 5],  # two batches are swapped
        [3, 4, 5, 0, 1, 2],  # and two halves
        [0, 1, 2, 2, 3, 4, 5],  # one batch is written twice
        [2, 0, 1, 3, 4, 5],
    ],
)
def test_valid_batches_of_a_wrong_order_are_not_made_unreadable(
    disk: MemoryDisk, count: int, order: list[int]
) -> None:
    """The log is opened again, which puts them in order."""
    log = log_of(disk, batches_from(0, count), CONFIG)
    data = b"".join(encode_frame(batch_at(offset)) for offset in order)
    disk.names[FIRST_SEGMENT].data[:] = data
    check = log.begin_quarantine(FIRST_SEGMENT, discard_evidence, copies=False)
    assert check is not None
    check.run()
    with pytest.raises(LogCorruptError):
        log.finish_quarantine(check)
    assert disk.names[FIRST_SEGMENT].data == data
    log.close()
    again = open_log(disk, config=CONFIG, unsynced=UnsyncedWrites.KEPT_ONLY_COPY)
    assert read_clean_logs(again) == batches_from(0, count)
