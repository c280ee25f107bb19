"""Attacks on a backup: damaged, exchanged and missing files, full disks, kills at every step."""

from __future__ import annotations

import asyncio
import json
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tidelog.backup import (
    BackupDirectory,
    BackupError,
    CreateOptions,
    Manifest,
    RestoreOptions,
    UnwritableBackupError,
    compare_backup,
    create_backup,
    restore_backup,
    verify_backup,
)
from tidelog.backup.directory import MANIFEST, OFFSETS, PLAN
from tidelog.backup.manifest import decode_manifest
from tidelog.backup.segments import DamagedSegmentError, read_partition, segment_path
from tidelog.backup.workers import TransferProgress
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_LEADER, TopicPartition
from unit.backup.written import batch, fence, written
from unit.client.fake_broker import FakeCluster

SEA0, SEA1 = TopicPartition("sea", 0), TopicPartition("sea", 1)
BATCHES = [batch(0), batch(2, 3), fence(5), batch(6, 40)]
SEGMENT0 = "topics/sea/0/00000000000000000000.log"
SEGMENT1 = "topics/sea/1/00000000000000000000.log"


class KilledError(Exception):
    """Ends a run as a kill does: nothing is cleaned up or committed afterwards."""


def killed_at(step: int) -> Callable[[TransferProgress], None]:
    steps = iter(range(step))

    def on_progress(_: TransferProgress) -> None:
        if next(steps, None) is None:
            raise KilledError

    return on_progress


@pytest.fixture(autouse=True)
def filled(cluster: FakeCluster) -> None:
    cluster.partition(*SEA0).batches = list(BATCHES)
    cluster.partition(*SEA1).batches = [batch(0), batch(2)]


@pytest.fixture
async def backup(cluster: FakeCluster, tmp_path: Path) -> Path:
    """A backup of "sea", which is then deleted."""
    path = tmp_path / "backup"
    await create_backup(cluster.bootstrap(), path)
    cluster.delete("sea")
    return path


# -- files that are not what they were -------------------------------------------------


def flip(path: Path, position: float) -> None:
    """Flips a bit at a part of the file, from 0 (its first byte) to 1 (its last)."""
    data = bytearray(path.read_bytes())
    data[round(position * (len(data) - 1))] ^= 1
    path.write_bytes(data)


def swap(backup: Path) -> None:
    first, second, aside = backup / SEGMENT0, backup / SEGMENT1, backup / "aside"
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def rewritten(backup: Path, **changed: object) -> None:
    path = backup / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def append(path: Path, data: bytes) -> None:
    path.write_bytes(path.read_bytes() + data)


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


ATTACKS: dict[str, Callable[[Path], object]] = {
    "first byte of a segment": lambda backup: flip(backup / SEGMENT0, 0),
    "records of a segment": lambda backup: flip(backup / SEGMENT0, 0.5),
    "last byte of a segment": lambda backup: flip(backup / SEGMENT1, 1),
    "segment without its last byte": lambda backup: cut(backup / SEGMENT1, -1),
    "empty segment": lambda backup: cut(backup / SEGMENT0, 0),
    "longer segment": lambda backup: append(backup / SEGMENT0, b"more"),
    "segment with a batch twice": lambda backup: append(
        backup / SEGMENT1, (backup / SEGMENT1).read_bytes()
    ),
    "missing segment": lambda backup: (backup / SEGMENT1).unlink(),
    "directory in place of a segment": lambda backup: as_directory(backup / SEGMENT0),
    "segments of two partitions exchanged": swap,
    "all files of a topic missing": lambda backup: shutil.rmtree(backup / "topics"),
    "manifest with a flipped bit": lambda backup: flip(backup / MANIFEST, 0.5),
    "half a manifest": lambda backup: cut(backup / MANIFEST, 400),
    "empty manifest": lambda backup: cut(backup / MANIFEST, 0),
    "manifest of another version": lambda backup: rewritten(backup, version=2),
    "manifest that claims to be incomplete": lambda backup: rewritten(backup, complete=False),
    "manifest of another program": lambda backup: rewritten(backup, format="tar"),
    "manifest missing": lambda backup: (backup / MANIFEST).unlink(),
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_nothing_is_created_from_a_damaged_backup(
    cluster: FakeCluster, backup: Path, attack: str
) -> None:
    ATTACKS[attack](backup)
    with pytest.raises(BackupError):
        await restore_backup(cluster.bootstrap(), backup)
    assert cluster.topics == {}


def test_every_flipped_byte_of_a_segment_is_found(tmp_path: Path) -> None:
    partition = written(tmp_path, BATCHES)
    path = segment_path(tmp_path, partition.segments[0])
    data = path.read_bytes()
    assert len(data) > 500
    unnoticed = []
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 0x40]) + data[position + 1 :])
        try:
            list(read_partition(tmp_path, partition))
        except DamagedSegmentError:
            continue
        unnoticed.append(position)
    assert unnoticed == []


async def test_a_flipped_byte_of_the_manifest_is_found_or_changes_nothing(backup: Path) -> None:
    data = (backup / MANIFEST).read_bytes()
    intact = decode_manifest(data, MANIFEST)
    changed = []
    for position in range(len(data)):
        flipped = data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]
        try:
            found = decode_manifest(flipped, MANIFEST)
        except BackupError:
            continue
        if found != intact:
            changed.append(position)
    assert changed == []


async def test_damage_of_other_topics_does_not_keep_a_topic_from_being_restored(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    cluster.create("bay", [0])
    cluster.partition("bay").batches = [batch(0)]
    await create_backup(cluster.bootstrap(), tmp_path)
    cluster.delete("sea")
    flip(tmp_path / "topics/bay/0/00000000000000000000.log", 0.5)
    assert verify_backup(tmp_path, topics=["sea"]).fault_count == 0
    assert verify_backup(tmp_path).fault_count == 1


@pytest.mark.parametrize("name", [OFFSETS, "topics/sea/0/letter.txt", "letter.txt"])
async def test_other_files_beside_a_backup_change_nothing(
    cluster: FakeCluster, backup: Path, name: str
) -> None:
    (backup / name).write_text("{}")
    await restore_backup(cluster.bootstrap(), backup)
    assert (await compare_backup(cluster.bootstrap(), backup)).difference_count == 0


# -- runs that end in the middle -------------------------------------------------------


@pytest.mark.parametrize("segment_bytes", [1, 1 << 20], ids=["small segments", "one segment"])
@pytest.mark.parametrize("step", range(3))
async def test_a_run_that_is_killed_at_any_step_is_continued(
    cluster: FakeCluster, tmp_path: Path, step: int, segment_bytes: int
) -> None:
    options = CreateOptions(segment_bytes=segment_bytes, parallelism=1)
    path, complete = tmp_path / "killed", tmp_path / "complete"
    try:
        await create_backup(cluster.bootstrap(), path, options, on_progress=killed_at(step))
    except KilledError:
        cluster.partition(*SEA0).batches.append(batch(46))
    found = await create_again(cluster, path, options)
    cluster.partition(*SEA0).batches = list(BATCHES)
    expected = await create_backup(cluster.bootstrap(), complete, options)
    assert ranges(found) == ranges(expected)
    assert verify_backup(path).faults == []
    assert not list(path.rglob("*.partial"))


async def create_again(cluster: FakeCluster, path: Path, options: CreateOptions) -> Manifest:
    found = BackupDirectory(path).find_manifest()
    return found or await create_backup(cluster.bootstrap(), path, options)


def ranges(manifest: Manifest) -> list[tuple[TopicPartition, int, int, tuple[int, ...]]]:
    return [
        (name, found.start_offset, found.next_offset, found.fences)
        for name, found in manifest.partitions()
    ]


@pytest.mark.parametrize("leftover", [MANIFEST + ".tmp", OFFSETS + ".tmp", PLAN + ".tmp"])
async def test_a_half_written_file_of_a_killed_run_does_not_keep_it_from_being_continued(
    cluster: FakeCluster, tmp_path: Path, leftover: str
) -> None:
    with pytest.raises(KilledError):
        await create_backup(cluster.bootstrap(), tmp_path, on_progress=killed_at(0))
    (tmp_path / leftover).write_text('{"format')
    assert (await create_backup(cluster.bootstrap(), tmp_path)).is_complete
    assert verify_backup(tmp_path).faults == []


async def test_a_damaged_plan_of_a_killed_run_is_named(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    with pytest.raises(KilledError):
        await create_backup(cluster.bootstrap(), tmp_path, on_progress=killed_at(0))
    flip(tmp_path / PLAN, 0.5)
    with pytest.raises(BackupError, match=PLAN):
        await create_backup(cluster.bootstrap(), tmp_path)


@pytest.mark.parametrize("step", range(3))
async def test_a_restore_that_is_killed_at_any_step_is_continued(
    cluster: FakeCluster, backup: Path, step: int
) -> None:
    with suppress(KilledError):
        await restore_backup(cluster.bootstrap(), backup, on_progress=killed_at(step))
    result = await restore_backup(cluster.bootstrap(), backup)
    assert [topic.records for topic in result.topics] == [49]
    ends = [cluster.partition(*name).end for name in (SEA0, SEA1)]
    assert ends == [45, 4]
    assert (await compare_backup(cluster.bootstrap(), backup)).difference_count == 0


# -- disks that are full ---------------------------------------------------------------


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The kernel rejects larger files (EFBIG, as Python ignores SIGXFSZ)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# No file at all; the plan alone; and segments up to somewhere in the middle.
@pytest.mark.parametrize("size", [0, 2_500, 20_000])
async def test_a_full_disk_is_named_and_the_run_continued_afterwards(
    cluster: FakeCluster, tmp_path: Path, size: int
) -> None:
    cluster.partition(*SEA0).batches = [batch(100 * n, 100) for n in range(30)]
    path = tmp_path / "backup"
    with (
        files_of_at_most(size),
        pytest.raises(UnwritableBackupError, match=r"backup.*repeat the command"),
    ):
        await create_backup(cluster.bootstrap(), path)
    with pytest.raises(BackupError):
        BackupDirectory(path).read()
    assert (await create_backup(cluster.bootstrap(), path)).is_complete
    assert verify_backup(path).faults == []
    assert verify_backup(path).records == 3_004


async def test_a_full_disk_leaves_the_previous_backup_valid(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    path = tmp_path / "backup"
    first = await create_backup(cluster.bootstrap(), path)
    cluster.partition(*SEA0).batches += [batch(46 + 100 * n, 100) for n in range(30)]
    update = CreateOptions(incremental=True)
    with files_of_at_most(5_000), pytest.raises(UnwritableBackupError):
        await create_backup(cluster.bootstrap(), path, update)
    assert BackupDirectory(path).read() == first
    assert verify_backup(path).faults == []
    assert (await create_backup(cluster.bootstrap(), path, update)).is_complete
    assert verify_backup(path).faults == []


# -- partitions without a leader -------------------------------------------------------

IMPATIENT = CreateOptions(leader_timeout_ms=200)
INCOMPLETE = CreateOptions(leader_timeout_ms=200, allow_incomplete=True)


def without_leader(cluster: FakeCluster, *names: TopicPartition) -> None:
    for name in names:
        cluster.partition(*name).leader = NO_LEADER


async def test_a_partition_without_a_leader_ends_the_run_by_name(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    without_leader(cluster, SEA1)
    with pytest.raises(TidelogError, match=r"sea/1; nothing was copied.*--allow-incomplete") as no:
        await create_backup(cluster.bootstrap(), tmp_path, IMPATIENT)
    assert no.value.code is ErrorCode.LEADER_NOT_AVAILABLE
    assert not (tmp_path / PLAN).exists()
    cluster.partition(*SEA1).leader = 1
    assert (await create_backup(cluster.bootstrap(), tmp_path, IMPATIENT)).is_complete


async def test_a_leader_that_returns_in_time_is_waited_for(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    without_leader(cluster, SEA1)
    asyncio.get_running_loop().call_later(0.2, cluster.elect, *SEA1, 1)
    assert (await create_backup(cluster.bootstrap(), tmp_path)).is_complete


async def test_an_incomplete_backup_has_the_other_partitions_and_says_so(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    without_leader(cluster, SEA1)
    manifest = await create_backup(cluster.bootstrap(), tmp_path, INCOMPLETE)
    assert manifest.failures == [(SEA1, "no leader answered when the backup began")]
    assert not manifest.is_complete
    assert json.loads((tmp_path / MANIFEST).read_text())["complete"] is False
    assert verify_backup(tmp_path).faults == []
    cluster.delete("sea")
    with pytest.raises(BackupError, match=r"1 partition \(sea/1 .*--allow-incomplete"):
        await restore_backup(cluster.bootstrap(), tmp_path)
    assert cluster.topics == {}


async def test_an_incomplete_backup_is_completed_by_an_update(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    partition = cluster.partition(*SEA1)
    without_leader(cluster, SEA1)
    await create_backup(cluster.bootstrap(), tmp_path, INCOMPLETE)
    partition.leader, partition.log_start, partition.batches = 1, 2, [batch(2)]
    manifest = await create_backup(cluster.bootstrap(), tmp_path, CreateOptions(incremental=True))
    # What was removed before its first backup is no gap.
    assert (manifest.is_complete, manifest.gaps) == (True, [])
    assert ranges(manifest)[1] == (SEA1, 2, 4, ())
    assert verify_backup(tmp_path).faults == []


async def test_a_partition_that_lost_its_leader_keeps_what_its_backup_has(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    first = await create_backup(cluster.bootstrap(), tmp_path)
    without_leader(cluster, SEA0)
    options = CreateOptions(incremental=True, leader_timeout_ms=200, allow_incomplete=True)
    second = await create_backup(cluster.bootstrap(), tmp_path, options)
    assert ranges(second) == ranges(first)
    assert [name for name, _ in second.failures] == [SEA0]
    cluster.partition(*SEA0).leader = 0
    third = await create_backup(cluster.bootstrap(), tmp_path, CreateOptions(incremental=True))
    assert (third.is_complete, ranges(third)) == (True, ranges(first))


async def test_without_any_leader_there_is_no_backup(cluster: FakeCluster, tmp_path: Path) -> None:
    without_leader(cluster, SEA0, SEA1)
    with pytest.raises(TidelogError, match="nothing can be copied"):
        await create_backup(cluster.bootstrap(), tmp_path, INCOMPLETE)


async def test_a_restored_incomplete_backup_warns_of_what_it_lacks(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    without_leader(cluster, SEA1)
    await create_backup(cluster.bootstrap(), tmp_path, INCOMPLETE)
    cluster.delete("sea")
    options = RestoreOptions(allow_incomplete=True)
    result = await restore_backup(cluster.bootstrap(), tmp_path, options)
    assert result.warnings[-1] == (
        "sea/1 is not complete: no leader answered when the backup began"
    )
    assert [cluster.partition(*name).end for name in (SEA0, SEA1)] == [45, 0]
