"""Appending to a log and reading from it."""

from __future__ import annotations

import errno
import random
from pathlib import PurePath

import pytest

from tidelog.batch import new_batch
from tidelog.log_format import FRAME_HEADER_BYTES
from tidelog.model import NO_EPOCH, Codec, EpochEnd
from tidelog_broker.log import log as log_module
from tidelog_broker.log import segment as segment_module
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_config import LogConfig
from tidelog_broker.log.log_errors import (
    AppendOrderError,
    LogCorruptError,
    LogFailedError,
    LogStorageError,
    OffsetOutOfRangeError,
)
from tidelog_broker.log.segment_files import SegmentFiles
from unit.broker.log.builders import (
    DIRECTORY,
    START_MS,
    batch_at,
    batches_from,
    encode_frame,
    ended,
    log_of,
    open_log,
    read_clean_logs,
)
from unit.broker.log.memory_disk import MemoryDisk

SMALL_SEGMENTS = LogConfig(segment_bytes=500, index_interval_bytes=200)
FIRST_SEGMENT = DIRECTORY / "00000000000000000000.log"


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def read_offsets(log: Log, offset: int, max_bytes: int, up_to: int = 1 << 60) -> list[int]:
    batches = log.read(offset, max_bytes=max_bytes, up_to=up_to)
    return [batch.header.base_offset for batch in batches]


def test_a_new_log_is_empty(disk: MemoryDisk) -> None:
    log = open_log(disk)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (0, 0, 0)
    assert log.latest_epoch == NO_EPOCH
    assert log.recovery is None
    assert log.read(0, max_bytes=100, up_to=0) == []


def test_batches_are_read_as_they_were_appended(disk: MemoryDisk) -> None:
    batches = [batch_at(0, count=3), batch_at(3, size=0), batch_at(4, count=9, epoch=2)]
    log = log_of(disk, batches)
    assert log.log_end_offset == 13
    assert read_clean_logs(log) == batches


def test_the_file_holds_only_the_frames(disk: MemoryDisk) -> None:
    batches = batches_from(0, 3)
    log_of(disk, batches)
    assert disk.names[FIRST_SEGMENT].data == b"".join(map(encode_frame, batches))


@pytest.mark.parametrize("offset", [4, 6])
def test_batches_that_leave_a_gap_or_overlap_are_rejected(disk: MemoryDisk, offset: int) -> None:
    log = log_of(disk, batches_from(0, 5))
    with pytest.raises(AppendOrderError, match=r"next in .* is offset 5, in epoch 1 or later"):
        log.append([batch_at(offset)])
    assert log.log_end_offset == 5


def test_an_older_epoch_is_rejected(disk: MemoryDisk) -> None:
    log = log_of(disk, [batch_at(0, epoch=4)])
    with pytest.raises(AppendOrderError):
        log.append([batch_at(1, epoch=3)])


def test_a_batch_that_no_leader_stamped_is_rejected(disk: MemoryDisk) -> None:
    unstamped = new_batch(
        b"", codec=Codec.NONE, record_count=0, base_timestamp_ms=0, max_timestamp_ms=0
    )
    with pytest.raises(AppendOrderError):
        open_log(disk).append([unstamped])


def test_a_segment_that_would_grow_too_large_is_rolled(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 10), SMALL_SEGMENTS)
    assert log.segment_count == 5
    sizes = [len(inode.data) for path, inode in disk.names.items() if path.suffix == ".log"]
    assert max(sizes) <= 500
    assert sum(sizes) == log.size_bytes


def test_batches_appended_together_stay_together(disk: MemoryDisk) -> None:
    log = open_log(disk, config=SMALL_SEGMENTS)
    log.append(batches_from(0, 10))
    assert log.segment_count == 1


def test_a_segment_whose_first_batch_is_old_is_rolled(disk: MemoryDisk) -> None:
    log = open_log(disk, config=LogConfig(segment_ms=1000))
    log.append([batch_at(0, append_time_ms=START_MS)])
    log.append([batch_at(1, append_time_ms=START_MS + 1000)])
    assert log.segment_count == 1
    log.append([batch_at(2, append_time_ms=START_MS + 1001)])
    assert log.segment_count == 2


def test_a_follower_that_copies_old_batches_rolls_by_their_own_times(disk: MemoryDisk) -> None:
    log = open_log(disk, config=LogConfig(segment_ms=1000))
    for offset in range(10):
        log.append([batch_at(offset, append_time_ms=START_MS - 1_000_000 + 200 * offset)])
    assert log.segment_count == 2


def test_a_read_starts_with_the_batch_that_holds_the_offset(disk: MemoryDisk) -> None:
    log = log_of(disk, [batch_at(0, count=10), batch_at(10, count=10), batch_at(20, count=10)])
    assert read_offsets(log, 15, max_bytes=10_000) == [10, 20]


def test_a_read_ends_below_the_given_limit(disk: MemoryDisk) -> None:
    log = log_of(disk, [batch_at(0, count=10), batch_at(10, count=10), batch_at(20, count=10)])
    assert read_offsets(log, 0, max_bytes=10_000, up_to=20) == [0, 10]
    assert read_offsets(log, 0, max_bytes=10_000, up_to=19) == [0]
    assert read_offsets(log, 0, max_bytes=10_000, up_to=5) == []


def test_a_read_respects_its_byte_limit_but_returns_at_least_one_batch(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 10))
    frame = len(encode_frame(batch_at(0)))
    assert read_offsets(log, 2, max_bytes=3 * frame) == [2, 3, 4]
    assert read_offsets(log, 2, max_bytes=4 * frame - 1) == [2, 3, 4]
    assert read_offsets(log, 2, max_bytes=0) == [2]


def test_a_read_continues_in_the_next_segment(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 20), SMALL_SEGMENTS)
    assert read_offsets(log, 3, max_bytes=10_000) == list(range(3, 20))
    frame = len(encode_frame(batch_at(0)))
    assert read_offsets(log, 3, max_bytes=5 * frame) == [3, 4, 5, 6, 7]


def test_a_read_at_the_end_is_empty_and_beyond_out_of_range(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 3))
    assert read_offsets(log, 3, max_bytes=100) == []
    for offset in (-1, 4):
        with pytest.raises(OffsetOutOfRangeError, match="has 0 to 3"):
            log.read(offset, max_bytes=100, up_to=3)


def test_many_batches_cost_one_read(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 32, size=1000))
    disk.reads.clear()
    assert len(log.read(16, max_bytes=1 << 20, up_to=32)) == 16
    assert len(disk.reads) == 1


def test_continuing_from_the_last_read_needs_no_search(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 1000))
    offset = log.read(0, max_bytes=2000, up_to=1000)[-1].header.next_offset
    disk.reads.clear()
    log.read(offset, max_bytes=2000, up_to=1000)
    assert len(disk.reads) == 1


def test_a_read_touches_nothing_beyond_its_end(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 100, size=1000))
    disk.reads.clear()
    log.read(90, max_bytes=1 << 20, up_to=92)
    assert [size for _, size in disk.reads] == [2 * len(encode_frame(batch_at(0, size=1000)))]


def test_any_offset_is_found_through_the_index(disk: MemoryDisk) -> None:
    log = log_of(disk, [batch_at(i * 3, count=3) for i in range(100)], SMALL_SEGMENTS)
    for offset in random.Random(2).sample(range(300), 100):
        assert read_offsets(log, offset, max_bytes=1) == [offset - offset % 3]


def test_epochs_are_known_from_the_batches(disk: MemoryDisk) -> None:
    log = log_of(disk, [batch_at(0, epoch=1), batch_at(1, epoch=1), batch_at(2, epoch=5)])
    assert log.latest_epoch == 5
    assert log.epoch_start(5) == 2
    assert log.epoch_end(3) == EpochEnd(1, 2)
    assert log.epoch_end(5) == EpochEnd(5, 3)


def flip(disk: MemoryDisk, path: PurePath, position: int) -> None:
    disk.names[path].data[position] ^= 1


def test_a_batch_with_a_damaged_header_is_never_read(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 3))
    frame = len(encode_frame(batch_at(0)))
    flip(disk, FIRST_SEGMENT, frame + 8)
    assert read_offsets(log, 0, max_bytes=0) == [0]
    with pytest.raises(LogCorruptError, match=r"base offset|CRC32C") as caught:
        log.read(0, max_bytes=10_000, up_to=3)
    assert (caught.value.path, caught.value.position) == (FIRST_SEGMENT, frame)


def test_a_wrong_length_of_the_last_batch_is_found_without_its_crc(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 3))
    flip(disk, FIRST_SEGMENT, 2 * len(encode_frame(batch_at(0))))
    with pytest.raises(LogCorruptError, match="the frame ends at byte"):
        log.read(2, max_bytes=10_000, up_to=3)


@pytest.mark.rule("no-wrong-crc-served")
def test_a_batch_with_damaged_records_is_never_read(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 3))
    flip(disk, FIRST_SEGMENT, -1)
    assert read_offsets(log, 0, max_bytes=0) == [0]
    with pytest.raises(LogCorruptError, match="CRC32C of the batch"):
        log.read(0, max_bytes=10_000, up_to=3)


@pytest.mark.rule("second-crc-covers-broker-fields")
def test_a_read_of_a_batch_with_any_flipped_header_bit_is_rejected() -> None:
    frame = len(encode_frame(batch_at(0)))
    for bit in range(8 * FRAME_HEADER_BYTES):
        disk = MemoryDisk()
        log = log_of(disk, batches_from(0, 3))
        disk.names[FIRST_SEGMENT].data[frame + bit // 8] ^= 1 << bit % 8
        with pytest.raises(LogCorruptError):
            log.read(1, max_bytes=10_000, up_to=2)


def test_a_file_that_became_shorter_is_damage(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 3))
    del disk.names[FIRST_SEGMENT].data[-1:]
    with pytest.raises(LogCorruptError, match="1 bytes too early"):
        log.read(0, max_bytes=10_000, up_to=3)


def test_a_full_disk_rejects_the_append_and_changes_nothing() -> None:
    """The free space ends at each byte of the append in turn."""
    added = [batch_at(3, epoch=2), batch_at(4, epoch=2)]
    room_needed = sum(len(encode_frame(batch)) for batch in added) + len("2 3 00000000\n")
    for space in range(room_needed):
        disk = MemoryDisk()
        log = log_of(disk, batches_from(0, 3))
        before = bytes(disk.names[FIRST_SEGMENT].data)
        disk.space = space
        with pytest.raises(LogStorageError, match="No space left on device; free space") as caught:
            log.append(added)
        assert caught.value.errno == errno.ENOSPC
        assert disk.names[FIRST_SEGMENT].data == before
        assert (log.log_end_offset, log.latest_epoch, log.failed) == (3, 1, None)
        disk.space = None
        log.append(added)
        assert read_clean_logs(log) == [*batches_from(0, 3), *added]
        assert read_clean_logs(open_log(disk)) == [*batches_from(0, 3), *added]


def test_a_roll_on_a_full_disk_rejects_the_append_and_changes_nothing() -> None:
    plenty = 10_000
    disk = MemoryDisk()
    log = log_of(disk, batches_from(0, 2), SMALL_SEGMENTS)
    disk.space = plenty
    log.append([batch_at(2, epoch=2)])
    for space in range(plenty - disk.space):
        disk = MemoryDisk()
        log = log_of(disk, batches_from(0, 2), SMALL_SEGMENTS)
        disk.space = space
        with pytest.raises(LogStorageError, match="free space"):
            log.append([batch_at(2, epoch=2)])
        assert (log.log_end_offset, log.latest_epoch) == (2, 1)
        disk.space = None
        log.append([batch_at(2, epoch=2)])
        assert read_clean_logs(log) == [*batches_from(0, 2), batch_at(2, epoch=2)]


def test_an_append_that_cannot_be_undone_fails_the_log(disk: MemoryDisk) -> None:
    log = log_of(disk, batches_from(0, 3))
    disk.space = 50
    disk.fail_truncate = True
    with pytest.raises(LogFailedError, match="undo a failed append"):
        log.append([batch_at(3)])
    disk.space, disk.fail_truncate = None, False
    with pytest.raises(LogFailedError):
        log.append([batch_at(3)])
    assert log.failed is not None
    assert read_clean_logs(log) == batches_from(0, 3)


def test_no_more_files_are_open_than_allowed(disk: MemoryDisk) -> None:
    files = SegmentFiles(disk, max_open=3)
    logs = [open_log(disk, directory=PurePath(f"/data/p{i}"), files=files) for i in range(10)]
    for offset in range(3):
        for log in logs:
            log.append([batch_at(offset)])
    for log in logs:
        assert read_clean_logs(log) == batches_from(0, 3)
        assert disk.open_files <= 3
    for log in logs:
        ended(log)
    assert disk.open_files == 0


def test_the_first_batch_at_or_after_a_time_is_found(disk: MemoryDisk) -> None:
    times = [START_MS + t for t in (0, 5, 3, 9, 9, 20, 11, 30)]
    batches = [batch_at(i, timestamp_ms=time) for i, time in enumerate(times)]
    log = log_of(disk, batches, SMALL_SEGMENTS)
    for asked in range(START_MS - 1, START_MS + 32):
        expected = next((b for b in batches if b.header.max_timestamp_ms >= asked), None)
        assert log.offset_for_timestamp(asked, up_to=8) == expected


def test_the_first_batch_at_a_time_is_found_among_many() -> None:
    rng = random.Random(3)
    for _ in range(20):
        batches = [batch_at(i, timestamp_ms=rng.choice([5, 6, i, 2 * i])) for i in range(60)]
        log = log_of(MemoryDisk(), batches, LogConfig(segment_bytes=3000, index_interval_bytes=200))
        for asked in range(0, 125, 3):
            expected = next((b for b in batches if b.header.max_timestamp_ms >= asked), None)
            assert log.offset_for_timestamp(asked, up_to=60) == expected


def test_a_batch_by_time_beyond_the_limit_is_not_returned(disk: MemoryDisk) -> None:
    log = log_of(disk, [batch_at(0), batch_at(1, timestamp_ms=START_MS + 9)])
    assert log.offset_for_timestamp(START_MS + 1, up_to=1) is None


def test_the_bytes_from_an_offset_on_are_known_without_reading_the_disk(
    disk: MemoryDisk,
) -> None:
    config = LogConfig(segment_bytes=1000, index_interval_bytes=1)
    log = log_of(disk, batches_from(0, 20), config)
    frame = len(encode_frame(batch_at(0)))
    disk.reads.clear()
    assert [log.bytes_from(offset) for offset in range(21)] == [
        frame * (20 - offset) for offset in range(21)
    ]
    assert disk.reads == []


def test_below_the_start_of_a_log_all_its_bytes_count(disk: MemoryDisk) -> None:
    log = log_of(disk, [])
    log.reset_to(100)
    log.append([batch_at(100)])
    assert log.bytes_from(0) == log.size_bytes


@pytest.mark.parametrize(
    "place", ["extend_summary", "appended", "encode_frame_header", "is_roll_due"]
)
def test_an_interrupted_append_fails_the_log_until_it_is_reopened(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Memory runs out at each place in turn. No later append continues from the state in memory."""
    log = log_of(disk, batches_from(0, 3))

    def runs_out(*_: object, **__: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        owner = {"appended": log.producers, "is_roll_due": log_module}.get(place, segment_module)
        patched.setattr(owner, place, runs_out)
        with pytest.raises(LogFailedError, match="MemoryError; the log is opened again"):
            log.append([batch_at(3)])
    with pytest.raises(LogFailedError):
        log.append([batch_at(3)])
    again = open_log(disk)
    assert read_clean_logs(again) in (batches_from(0, 3), batches_from(0, 4))
    again.append([batch_at(again.log_end_offset)])
