"""Segment files of a backup: written, continued after an interruption, and checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tidelog.backup.directory import BackupDirectory
from tidelog.backup.manifest import BackupError, Gap, GapReason, PartitionBackup
from tidelog.backup.segments import (
    PARTIAL_SUFFIX,
    DamagedSegmentError,
    SegmentWriter,
    read_partition,
    segment_path,
)
from tidelog.backup.verification import verify_backup
from tidelog.batch import new_damaged_batch
from tidelog.log_dump import dump_log
from tidelog.log_format import segment_name
from tidelog.model import TopicPartition
from unit.backup.written import EMPTY, batch, fence, manifest_of, written

BATCHES = [batch(0), batch(2, 3), fence(5), batch(6)]


def read_offsets(directory: Path, partition: PartitionBackup, first: int = 0) -> list[int]:
    return [b.header.base_offset for b in read_partition(directory, partition, first)]


def test_batches_are_read_as_they_were_written(tmp_path: Path) -> None:
    partition = written(tmp_path, BATCHES)
    assert list(read_partition(tmp_path, partition)) == BATCHES
    assert (partition.start_offset, partition.next_offset) == (0, 8)
    assert (partition.fences, partition.records) == ((5,), 7)


def test_dump_log_reads_the_segments(tmp_path: Path) -> None:
    written(tmp_path, BATCHES)
    assert [(info.fault, info.header) for _, info in dump_log(tmp_path)] == [
        (None, b.header) for b in BATCHES
    ]


def test_a_full_segment_is_closed(tmp_path: Path) -> None:
    partition = written(tmp_path, BATCHES, segment_bytes=1)
    assert [s.base_offset for s in partition.segments] == [0, 2, 5, 6]
    assert read_offsets(tmp_path, partition, 3) == [2, 5, 6]


def test_an_update_adds_a_segment_and_leaves_the_others(tmp_path: Path) -> None:
    first = written(tmp_path, BATCHES)
    content = segment_path(tmp_path, first.segments[0]).read_bytes()
    second = written(tmp_path, [batch(8)], first)
    assert [s.base_offset for s in second.segments] == [0, 8]
    assert segment_path(tmp_path, first.segments[0]).read_bytes() == content
    assert read_offsets(tmp_path, first) == [0, 2, 5, 6]


def test_a_log_that_begins_within_a_batch_keeps_the_batch(tmp_path: Path) -> None:
    begun = replace(EMPTY, start_offset=61, next_offset=61)
    assert written(tmp_path, [batch(60)], begun).start_offset == 60


def test_a_batch_that_does_not_continue_the_partition_is_rejected(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, EMPTY)
    with pytest.raises(BackupError, match="offset 5 where 2 follows"):
        writer.append([batch(0), fence(5)])
    writer.abandon()


def test_a_damaged_range_is_a_gap_with_a_placeholder(tmp_path: Path) -> None:
    lost = new_damaged_batch(b"", first_offset=2, next_offset=6, leader_epoch=1, append_time_ms=0)
    partition = written(tmp_path, [batch(0), lost, batch(6)])
    assert partition.gaps == (Gap(2, 6, GapReason.DAMAGED),)
    assert partition.records == 4


def test_removed_records_are_a_gap_between_segments(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, EMPTY)
    writer.append([batch(0)])
    writer.skip_to(60)
    writer.append([batch(60)])
    writer.close()
    partition = writer.tally.result()
    assert partition.gaps == (Gap(2, 60, GapReason.REMOVED),)
    assert [s.base_offset for s in partition.segments] == [0, 60]


def test_records_removed_before_the_first_copy_are_a_gap(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, EMPTY)
    writer.skip_to(60)
    assert writer.tally.result().gaps == (Gap(0, 60, GapReason.REMOVED),)


@pytest.mark.parametrize("torn_bytes", [1, 90, 200])
def test_an_interrupted_run_is_continued_behind_its_last_intact_batch(
    tmp_path: Path, torn_bytes: int
) -> None:
    interrupted = SegmentWriter(tmp_path, EMPTY)
    interrupted.append(BATCHES)
    interrupted.abandon()
    partial = tmp_path / (segment_name(0) + PARTIAL_SUFFIX)
    partial.write_bytes(partial.read_bytes()[:-torn_bytes])

    writer = SegmentWriter(tmp_path, EMPTY)
    writer.adopt()
    reached = writer.tally.next_offset
    writer.append([b for b in BATCHES if b.header.base_offset >= reached])
    writer.close()

    assert 0 < reached < 8
    assert list(read_partition(tmp_path, writer.tally.result())) == BATCHES
    assert not list(tmp_path.glob(f"*{PARTIAL_SUFFIX}"))


def test_an_interrupted_run_without_an_intact_batch_begins_again(tmp_path: Path) -> None:
    (tmp_path / (segment_name(0) + PARTIAL_SUFFIX)).write_bytes(b"torn")
    writer = SegmentWriter(tmp_path, EMPTY)
    writer.adopt()
    assert writer.tally.next_offset == 0
    assert not list(tmp_path.iterdir())


def test_an_interrupted_run_keeps_the_gap_that_retention_left(tmp_path: Path) -> None:
    interrupted = SegmentWriter(tmp_path, EMPTY)
    interrupted.append([batch(0)])
    interrupted.skip_to(60)
    interrupted.append([batch(60)])
    interrupted.abandon()
    writer = SegmentWriter(tmp_path, EMPTY)
    writer.adopt()
    assert writer.tally.result().gaps == (Gap(2, 60, GapReason.REMOVED),)
    assert writer.tally.next_offset == 62


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        flip,
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data + b"more",
        lambda _: b"",
    ],
    ids=["flipped bit", "last byte lost", "half", "longer", "empty"],
)
def test_damage_of_a_segment_is_found(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    partition = written(tmp_path, BATCHES)
    path = segment_path(tmp_path, partition.segments[0])
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DamagedSegmentError, match=path.name):
        list(read_partition(tmp_path, partition))


def test_another_intact_segment_of_the_same_size_is_found(tmp_path: Path) -> None:
    mine = written(tmp_path / "a", [batch(0, epoch=1)])
    others = written(tmp_path / "b", [batch(0, epoch=2)])
    replaced = segment_path(tmp_path / "b", others.segments[0])
    replaced.rename(segment_path(tmp_path / "a", mine.segments[0]))
    with pytest.raises(DamagedSegmentError, match="another file"):
        list(read_partition(tmp_path / "a", mine))


def backup_of(path: Path, partition: PartitionBackup) -> None:
    BackupDirectory(path).commit(manifest_of(partition))


@pytest.fixture
def partition_path(tmp_path: Path) -> Path:
    return BackupDirectory(tmp_path).partition_path(TopicPartition("sea", 0))


def test_a_sound_backup_has_no_faults(tmp_path: Path, partition_path: Path) -> None:
    partition = written(partition_path, BATCHES, segment_bytes=300)
    backup_of(tmp_path, partition)
    found = verify_backup(tmp_path)
    assert (found.faults, found.batches, found.records) == ([], 4, 8)


def test_verification_names_each_damaged_segment(tmp_path: Path, partition_path: Path) -> None:
    partition = written(partition_path, BATCHES, segment_bytes=1)
    backup_of(tmp_path, partition)
    for segment in (partition.segments[0], partition.segments[3]):
        path = segment_path(partition_path, segment)
        path.write_bytes(flip(path.read_bytes()))
    found = verify_backup(tmp_path)
    assert found.fault_count == 2
    assert [segment_name(0) in found.faults[0], segment_name(6) in found.faults[1]] == [True] * 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"next_offset": 9}, "ends at offset 8"),
        ({"start_offset": 1}, "offset 0 where 1 follows"),
        ({"high_watermark": 10}, "below its high watermark"),
        ({"fences": ()}, "other producer fences"),
        ({"gaps": (Gap(0, 2, GapReason.DAMAGED),)}, "other damaged ranges"),
    ],
)
def test_a_manifest_that_does_not_fit_its_segments_is_found(
    tmp_path: Path, partition_path: Path, changed: dict[str, object], message: str
) -> None:
    partition = replace(written(partition_path, BATCHES), **changed)  # type: ignore[arg-type]
    backup_of(tmp_path, partition)
    assert message in verify_backup(tmp_path).faults[0]


def test_two_processes_cannot_write_one_backup(tmp_path: Path) -> None:
    directory = BackupDirectory(tmp_path / "backup")
    with (
        directory.locked(),
        pytest.raises(BackupError, match="another process"),
        directory.locked(),
    ):
        pass


def test_a_directory_with_other_files_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").touch()
    with pytest.raises(BackupError, match=r"letter\.txt"), BackupDirectory(tmp_path).locked():
        pass
