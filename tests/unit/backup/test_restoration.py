"""Restores into a cluster in memory, and the comparison of a backup with a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.backup import (
    BackupDirectory,
    BackupError,
    ClusterSettings,
    CreateOptions,
    RestoreOptions,
    RestoreResult,
    compare_backup,
    create_backup,
    restore_backup,
)
from tidelog.backup.restoring_topics import RESTORING_CONFIG
from tidelog.backup.workers import TransferProgress
from tidelog.batch import stamp
from tidelog.errors import TopicAlreadyExistsError
from tidelog.model import Batch, Codec
from tidelog.record_batch import encode
from tidelog.v1 import admin_pb2
from unit.backup.controllers import ConfiguringController
from unit.backup.written import batch, fence
from unit.client.fake_broker import FakeCluster

TOPIC_CONFIG = {"retention_ms": "1000", "timestamp_type": "append"}


def rich_batch(offset: int) -> Batch:
    """With keys, nulls, headers, different timestamps and compression."""
    encoded = encode(
        [b"a" * 500, None],
        [b"key", None],
        timestamps_ms=[5_000, 4_000],
        headers={0: [("h", b"1"), ("h", b"2")]},
        codec=Codec.ZSTD,
    )
    return stamp(encoded, base_offset=offset, leader_epoch=1, append_time_ms=2_000)


@pytest.fixture
async def backup(cluster: FakeCluster, tmp_path: Path) -> Path:
    """A backup of topic "sea", which is then deleted."""
    cluster.partition("sea", 0).batches = [batch(0), rich_batch(2), batch(4)]
    cluster.partition("sea", 1).batches = [batch(0)]
    path = tmp_path / "backup"
    await create_backup(cluster.bootstrap(), path)
    cluster.delete("sea")
    return path


async def restore(cluster: FakeCluster, path: Path, **options: object) -> RestoreResult:
    chosen = RestoreOptions(**options)  # type: ignore[arg-type]
    return await restore_backup(cluster.bootstrap(), path, chosen)


async def differences(cluster: FakeCluster, path: Path, **options: object) -> list[str]:
    found = await compare_backup(cluster.bootstrap(), path, **options)  # type: ignore[arg-type]
    assert found.difference_count >= len(found.differences)
    return found.differences


class RunEndedError(Exception):
    """Ends a run."""


def interrupt(_: TransferProgress) -> None:
    raise RunEndedError


async def test_a_restored_topic_has_the_same_batches(cluster: FakeCluster, backup: Path) -> None:
    result = await restore(cluster, backup)
    restored = cluster.partition("sea", 0).batches
    expected = [batch(0), rich_batch(2), batch(4)]
    assert [b.records for b in restored] == [b.records for b in expected]
    assert [b.header.base_offset for b in restored] == [0, 2, 4]
    assert [b.header.max_timestamp_ms for b in restored] == [1_001, 5_000, 1_001]
    assert [(t.topic, t.records, t.written, t.keeps_offsets) for t in result.topics] == [
        ("sea", 8, 8, True)
    ]
    assert await differences(cluster, backup) == []


async def test_a_restored_topic_has_the_configuration_of_the_backup(
    cluster: FakeCluster, backup: Path
) -> None:
    await restore(cluster, backup)
    assert cluster.topics["sea"].config == TOPIC_CONFIG


async def test_retention_stays_off_on_request(cluster: FakeCluster, backup: Path) -> None:
    await restore(cluster, backup, keeps_all=True)
    config = cluster.topics["sea"].config
    assert config == TOPIC_CONFIG | {"retention_ms": "-1", "retention_bytes": "-1"}


LIMIT = admin_pb2.Throttle(bytes_per_second=5_000_000)


def controller_of(cluster: FakeCluster) -> ConfiguringController:
    assert isinstance(cluster.controller, ConfiguringController)
    return cluster.controller


async def test_the_limit_on_moves_is_set_on_request(cluster: FakeCluster, tmp_path: Path) -> None:
    controller = controller_of(cluster)
    controller.throttle = LIMIT
    path = tmp_path / "backup"
    manifest = await create_backup(cluster.bootstrap(), path)
    assert manifest.settings == ClusterSettings(5_000_000)
    assert (await restore(cluster, path, renamed={"sea": "a"})).warnings == []
    controller.throttle = admin_pb2.Throttle(bytes_per_second=7)
    (warning,) = (await restore(cluster, path, renamed={"sea": "b"})).warnings
    assert (
        "this one limits them to 7 B; to set the same limit: tidelog throttle set 5000000"
        in warning
    )
    assert controller.throttle.bytes_per_second == 7
    assert (await restore(cluster, path, renamed={"sea": "c"}, sets_throttle=True)).warnings == []
    assert controller.throttle == LIMIT


async def test_a_limit_that_the_backup_had_not_is_removed_on_request(
    cluster: FakeCluster, backup: Path
) -> None:
    controller_of(cluster).throttle = LIMIT
    assert (await restore(cluster, backup)).warnings == []
    assert controller_of(cluster).throttle == LIMIT
    await restore(cluster, backup, sets_throttle=True)
    assert not controller_of(cluster).throttle.HasField("bytes_per_second")


async def test_records_are_backed_up_while_no_controller_answers(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.backup.creation.SETTINGS_TIMEOUT_SECONDS", 0.2)
    cluster.partition("sea", 0).batches = [batch(0)]
    controller = controller_of(cluster)
    await controller.close()
    path = tmp_path / "backup"
    manifest = await create_backup(cluster.bootstrap(), path)
    assert (manifest.is_complete, manifest.settings) == (True, None)
    with pytest.raises(BackupError, match="lacks the limit on moves"):
        await restore(cluster, path, renamed={"sea": "bay"}, sets_throttle=True)
    assert "bay" not in cluster.topics


async def test_a_topic_is_restored_under_another_name(cluster: FakeCluster, backup: Path) -> None:
    await restore(cluster, backup, renamed={"sea": "bay"})
    assert list(cluster.topics) == ["bay"]
    assert await differences(cluster, backup, renamed={"sea": "bay"}) == []


async def test_an_interrupted_restore_continues_without_a_duplicate(
    cluster: FakeCluster, backup: Path
) -> None:
    with pytest.raises(RunEndedError):
        await restore_backup(cluster.bootstrap(), backup, on_progress=interrupt)
    interrupted = cluster.topics["sea"]
    assert interrupted.config == TOPIC_CONFIG | dict(RESTORING_CONFIG)
    # Of partition 0, only the first batch was acknowledged.
    interrupted.partitions[0].batches = interrupted.partitions[0].batches[:1]
    result = await restore(cluster, backup)
    assert [b.header.base_offset for b in interrupted.partitions[0].batches] in ([0, 2, 4], [])
    assert result.topics[0].records == 8
    assert await differences(cluster, backup) == []
    assert interrupted.config == TOPIC_CONFIG


async def test_a_repeated_restore_writes_nothing(cluster: FakeCluster, backup: Path) -> None:
    await restore(cluster, backup)
    result = await restore(cluster, backup)
    assert (result.topics[0].written, result.size_bytes) == (0, 0)
    assert len(cluster.partition("sea", 0).batches) == 3


async def test_an_updated_backup_is_added_to_a_restored_topic(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    path = tmp_path / "backup"
    cluster.partition("sea", 0).batches = [batch(0)]
    await create_backup(cluster.bootstrap(), path)
    await restore(cluster, path, renamed={"sea": "bay"}, topics=["sea"])
    cluster.partition("sea", 0).batches.append(batch(2))
    await create_backup(cluster.bootstrap(), path, CreateOptions(["sea"], incremental=True))
    result = await restore(cluster, path, renamed={"sea": "bay"}, topics=["sea"])
    assert result.topics[0].written == 2
    assert await differences(cluster, path, topics=["sea"], renamed={"sea": "bay"}) == []


async def test_fences_shift_the_offsets_behind_them(cluster: FakeCluster, tmp_path: Path) -> None:
    path = tmp_path / "backup"
    cluster.partition("sea", 0).batches = [batch(0), fence(2), batch(3)]
    await create_backup(cluster.bootstrap(), path)
    cluster.delete("sea")
    result = await restore(cluster, path)
    assert [b.header.base_offset for b in cluster.partition("sea", 0).batches] == [0, 2]
    assert not result.topics[0].keeps_offsets
    assert await differences(cluster, path) == []


async def test_a_backup_equals_the_cluster_that_it_was_made_of(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    path = tmp_path / "backup"
    cluster.partition("sea", 0).batches = [batch(0), fence(2), batch(3)]
    await create_backup(cluster.bootstrap(), path)
    cluster.partition("sea", 0).batches.append(batch(5))
    assert await differences(cluster, path) == []


@pytest.mark.parametrize("partitions", [[0], [0, 1]], ids=["other partitions", "not restored"])
async def test_an_existing_topic_is_rejected_and_left_alone(
    cluster: FakeCluster, backup: Path, partitions: list[int]
) -> None:
    cluster.create("sea", partitions, retention_ms="7")
    with pytest.raises(TopicAlreadyExistsError, match="--rename"):
        await restore(cluster, backup)
    assert cluster.topics["sea"].config == {"retention_ms": "7"}
    assert cluster.partition("sea").batches == []


async def test_a_topic_with_other_records_is_rejected(cluster: FakeCluster, backup: Path) -> None:
    await restore(cluster, backup)
    cluster.partition("sea", 0).batches.append(batch(6))
    with pytest.raises(TopicAlreadyExistsError, match="sea/0 has records"):
        await restore(cluster, backup)


async def test_a_smaller_cluster_gets_fewer_replicas_with_a_warning(
    cluster: FakeCluster, backup: Path
) -> None:
    result = await restore(cluster, backup, replication_factor=3)
    assert result.warnings[0].startswith("sea: replication factor 2 instead of 3")


async def test_an_incomplete_backup_is_restored_on_request_only(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    path = tmp_path / "backup"
    cluster.partition("sea", 0).batches = [batch(0), batch(2)]
    await create_backup(cluster.bootstrap(), path)
    cluster.elect_uncleanly("sea", 0, leader=1, end=2)
    await create_backup(cluster.bootstrap(), path, CreateOptions(incremental=True))
    cluster.delete("sea")
    with pytest.raises(BackupError, match="--allow-incomplete"):
        await restore(cluster, path)
    await restore(cluster, path, allow_incomplete=True)
    assert await differences(cluster, path) == []


def replaced(original: Batch, value: bytes) -> Batch:
    header = original.header
    changed = encode([value, b"value 1"], timestamps_ms=[1_000, 1_001])
    return stamp(changed, base_offset=header.base_offset, leader_epoch=1, append_time_ms=2_000)


async def test_a_record_that_differs_is_named(cluster: FakeCluster, backup: Path) -> None:
    await restore(cluster, backup)
    batches = cluster.partition("sea", 0).batches
    batches[0] = replaced(batches[0], b"other")
    (difference,) = await differences(cluster, backup)
    assert "sea/0 offset 0 differs" in difference
    assert "other" in difference


async def test_records_in_other_batches_are_equal(cluster: FakeCluster, backup: Path) -> None:
    await restore(cluster, backup)
    partition = cluster.partition("sea", 1)
    halves = [encode([b"value %d" % number], timestamps_ms=[1_000 + number]) for number in range(2)]
    partition.batches = [
        stamp(half, base_offset=offset, leader_epoch=1, append_time_ms=1)
        for offset, half in enumerate(halves)
    ]
    assert await differences(cluster, backup) == []


async def test_missing_records_are_counted(cluster: FakeCluster, backup: Path) -> None:
    await restore(cluster, backup)
    partition = cluster.partition("sea", 0)
    partition.batches = partition.batches[1:2]
    partition.log_start = 2
    found = await compare_backup(cluster.bootstrap(), backup)
    assert found.difference_count == 4
    assert "offsets 0 to 1" in found.differences[0]
    assert "lacks offset 4" in found.differences[1]


async def test_an_empty_backup_of_a_topic_is_restored(cluster: FakeCluster, tmp_path: Path) -> None:
    path = tmp_path / "backup"
    await create_backup(cluster.bootstrap(), path)
    cluster.delete("sea")
    await restore(cluster, path)
    assert len(cluster.topics["sea"].partitions) == 2
    assert BackupDirectory(path).read().topics[0].config == TOPIC_CONFIG
