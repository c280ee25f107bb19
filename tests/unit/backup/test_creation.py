"""Backups of a cluster in memory: what is copied, continued, added, and reported as missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tidelog.backup import (
    BackupDirectory,
    BackupError,
    CreateOptions,
    Gap,
    GapReason,
    Manifest,
    create_backup,
    verify_backup,
)
from tidelog.backup.segments import read_partition
from tidelog.backup.workers import TransferProgress
from tidelog.errors import TidelogError
from tidelog.model import TopicPartition
from unit.backup.written import batch, fence
from unit.client.fake_broker import FakeCluster

SEA0, SEA1 = TopicPartition("sea", 0), TopicPartition("sea", 1)
BATCHES = [batch(0), batch(2, 3), fence(5), batch(6)]


@pytest.fixture(autouse=True)
def filled(cluster: FakeCluster) -> None:
    cluster.partition(*SEA0).batches = list(BATCHES)
    cluster.partition(*SEA1).batches = [batch(0)]


async def create(
    cluster: FakeCluster,
    path: Path,
    *topics: str,
    incremental: bool = False,
    on_plan: Callable[[int], None] = lambda _: None,
    on_progress: Callable[[TransferProgress], None] = lambda _: None,
) -> Manifest:
    options = CreateOptions(topics or ("*",), incremental=incremental)
    return await create_backup(
        cluster.bootstrap(), path, options, on_plan=on_plan, on_progress=on_progress
    )


def offsets(path: Path, manifest: Manifest, name: TopicPartition = SEA0) -> list[int]:
    found = dict(manifest.partitions())[name]
    directory = BackupDirectory(path).partition_path(name)
    return [b.header.base_offset for b in read_partition(directory, found)]


class RunEndedError(Exception):
    """Ends a run."""


def interrupt(_: TransferProgress) -> None:
    raise RunEndedError


async def test_a_backup_has_every_batch_as_the_leader_has_it(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    manifest = await create(cluster, tmp_path)
    sea0 = dict(manifest.partitions())[SEA0]
    directory = BackupDirectory(tmp_path).partition_path(SEA0)
    assert list(read_partition(directory, sea0)) == BATCHES
    assert (sea0.high_watermark, sea0.leader_epoch, sea0.fences) == (8, 1, (5,))
    (topic,) = manifest.topics
    assert (topic.topic, topic.topic_id, topic.partition_count) == ("sea", "id-of-sea", 2)
    assert topic.config == {"retention_ms": "1000", "timestamp_type": "append"}
    assert (manifest.failures, manifest.gaps) == ([], [])
    assert BackupDirectory(tmp_path).read() == manifest
    assert verify_backup(tmp_path).faults == []


async def test_records_behind_the_first_high_watermark_are_not_copied(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    def write_more(planned: int) -> None:
        assert planned == 10
        cluster.partition(*SEA0).batches.append(batch(8))

    manifest = await create(cluster, tmp_path, on_plan=write_more)
    assert offsets(tmp_path, manifest) == [0, 2, 5, 6]


async def test_damaged_records_are_reported_and_the_others_copied(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    cluster.partition(*SEA0).damaged = [(2, 5)]
    manifest = await create(cluster, tmp_path)
    assert manifest.gaps == [(SEA0, Gap(2, 5, GapReason.DAMAGED))]
    assert manifest.failures == []
    assert offsets(tmp_path, manifest) == [0, 2, 5, 6]
    assert verify_backup(tmp_path).faults == []


async def test_records_that_retention_removes_meanwhile_are_reported(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    def remove(_: int) -> None:
        partition = cluster.partition(*SEA0)
        partition.log_start = 5
        partition.batches = partition.batches[2:]

    manifest = await create(cluster, tmp_path, on_plan=remove)
    assert manifest.gaps == [(SEA0, Gap(0, 5, GapReason.REMOVED))]
    assert offsets(tmp_path, manifest) == [5, 6]
    assert verify_backup(tmp_path).faults == []


async def test_an_interrupted_run_is_continued_to_the_same_high_watermark(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    with pytest.raises(RunEndedError):
        await create(cluster, tmp_path, on_progress=interrupt)
    cluster.partition(*SEA0).batches.append(batch(8))
    with pytest.raises(BackupError, match="has not ended"):
        BackupDirectory(tmp_path).read()
    manifest = await create(cluster, tmp_path)
    assert offsets(tmp_path, manifest) == [0, 2, 5, 6]
    assert verify_backup(tmp_path).faults == []


async def test_a_run_for_other_topics_does_not_continue_one(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    with pytest.raises(RunEndedError):
        await create(cluster, tmp_path, on_progress=interrupt)
    with pytest.raises(BackupError, match=r"continue it with --topics '\*'"):
        await create(cluster, tmp_path, "sea")


async def test_an_update_copies_what_is_new(cluster: FakeCluster, tmp_path: Path) -> None:
    first = await create(cluster, tmp_path)
    cluster.partition(*SEA0).batches.append(batch(8))
    cluster.create("bay", [0])
    copied: list[TransferProgress] = []
    second = await create(cluster, tmp_path, incremental=True, on_progress=copied.append)
    assert sum(progress.records for progress in copied) == 2
    assert [topic.topic for topic in second.topics] == ["bay", "sea"]
    assert offsets(tmp_path, second) == [0, 2, 5, 6, 8]
    assert second.backup_id == first.backup_id
    assert verify_backup(tmp_path).faults == []


async def test_the_previous_backup_is_valid_while_an_update_is_interrupted(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    first = await create(cluster, tmp_path)
    cluster.partition(*SEA0).batches.append(batch(8))
    with pytest.raises(RunEndedError):
        await create(cluster, tmp_path, incremental=True, on_progress=interrupt)
    assert BackupDirectory(tmp_path).read() == first
    assert verify_backup(tmp_path).faults == []


async def test_a_complete_backup_is_not_changed_without_a_request(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    await create(cluster, tmp_path)
    with pytest.raises(BackupError, match="--incremental"):
        await create(cluster, tmp_path)


async def test_a_topic_that_was_created_again_does_not_continue_a_backup(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    await create(cluster, tmp_path)
    cluster.create("sea", [0, 1])
    with pytest.raises(BackupError, match="deleted and created again"):
        await create(cluster, tmp_path, incremental=True)


async def test_a_deleted_topic_stays_in_the_backup(cluster: FakeCluster, tmp_path: Path) -> None:
    await create(cluster, tmp_path)
    cluster.delete("sea")
    cluster.create("bay", [0])
    manifest = await create(cluster, tmp_path, incremental=True)
    assert offsets(tmp_path, manifest) == [0, 2, 5, 6]


@pytest.mark.parametrize("regrown", [0, 4], ids=["shorter", "grown again"])
async def test_records_that_an_unclean_election_lost_fail_the_partition(
    cluster: FakeCluster, tmp_path: Path, regrown: int
) -> None:
    await create(cluster, tmp_path)
    cluster.elect_uncleanly(*SEA0, leader=1, end=5)
    for _ in range(regrown):
        partition = cluster.partition(*SEA0)
        partition.batches.append(batch(partition.end, epoch=2))
    manifest = await create(cluster, tmp_path, incremental=True)
    ((name, error),) = manifest.failures
    assert name == SEA0
    assert "unclean election" in error
    assert offsets(tmp_path, manifest) == [0, 2, 5, 6]


async def test_a_pattern_without_a_topic_is_rejected(cluster: FakeCluster, tmp_path: Path) -> None:
    with pytest.raises(TidelogError, match="no topic matches 'bay'"):
        await create(cluster, tmp_path / "backup", "sea", "bay")


async def test_a_backup_of_another_cluster_is_rejected(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    directory = BackupDirectory(tmp_path)
    manifest = await create(cluster, tmp_path)
    directory.commit(replace(manifest, cluster_id="other"))
    with pytest.raises(BackupError, match="cluster other"):
        await create(cluster, tmp_path, incremental=True)
