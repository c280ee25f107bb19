from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tidelog.model import TopicPartition
from tidelog.request_bounds import MAX_TOPIC_NAME_LENGTH
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.clean_shutdown import read_clean_logs
from tidelog_broker.log.log_check import LogCheck
from tidelog_broker.log.log_errors import LogInterruptedError, LogStorageError
from tidelog_broker.storage.log_directory import LogDirectory
from unit.broker.broker_parts import DATA, KEY
from unit.broker.fake_log import NAME, TOPIC_ID
from unit.broker.log.builders import FakeClock, batch_at
from unit.broker.log.memory_disk import MemoryDisk
from unit.broker.stored_logs import (
    CONFIG,
    OTHER,
    OTHER_NAME,
    Stored,
    checkpoint,
    end_of,
    replica_path,
)

# -- opening -----------------------------------------------------------------------------


@pytest.mark.rule("missing-replica-is-created")
def test_a_missing_replica_is_created(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    assert stored.logs.open_replica(NAME, KEY, CONFIG).log_end_offset == 0
    assert stored.in_use() == [f"orders-0.{TOPIC_ID}"]


def test_an_open_replica_has_the_same_log(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    log = stored.logs.open_replica(NAME, KEY, CONFIG)
    assert stored.logs.open_replica(NAME, KEY, CONFIG) is log


def test_all_logs_are_found_again(tmp_path: Path) -> None:
    previous = Stored(tmp_path)
    previous.with_records(3)
    previous.with_records(2, OTHER_NAME)
    previous.logs.close()
    stored = Stored(tmp_path)
    assert (end_of(stored), end_of(stored, OTHER)) == (3, 2)
    assert stored.damage == []


def test_topic_names_may_look_like_directory_names(tmp_path: Path) -> None:
    name = TopicPartition("a-0.b-1", 7)
    Stored(tmp_path).logs.open_replica(name, ReplicaKey(TOPIC_ID, 7), CONFIG)
    assert list(Stored(tmp_path).logs.keys()) == [ReplicaKey(TOPIC_ID, 7)]


@pytest.mark.parametrize("name", ["lost+found", f"orders-03.{TOPIC_ID}", f"orders-٣.{TOPIC_ID}"])
def test_unknown_directories_are_left_alone_and_logged(tmp_path: Path, name: str) -> None:
    Stored(tmp_path)
    (tmp_path / "replicas" / name).mkdir()
    with capture_logs() as lines:
        stored = Stored(tmp_path)
    assert [line["name"] for line in lines if line["event"] == "unknown_directory"] == [name]
    assert stored.in_use() == [name]
    assert stored.damage == []


@pytest.mark.parametrize(
    "name",
    ["copy of segment.log", "60.log", "00000000000000000060.log.bak.log", "60.producers", "٣.log"],
)
def test_unknown_files_of_a_replica_are_left_alone_and_cost_nothing(
    tmp_path: Path, name: str
) -> None:
    Stored(tmp_path).with_records(3)
    stray = replica_path(tmp_path) / name
    stray.write_bytes(b"x")
    with capture_logs() as lines:
        stored = Stored(tmp_path)
    assert (end_of(stored), stored.damage) == (3, [])
    named = [line["path"] for line in lines if line["event"] == "unknown_file"]
    assert named == ([str(stray)] if name.endswith(".log") else [])
    stored.logs.take_out_of_service(KEY, "a flipped bit")
    reopening = stored.logs.begin_repair(KEY)
    assert reopening is not None
    reopening.run()
    assert stored.logs.end_repair(KEY).log_end_offset == 3
    assert stray.read_bytes() == b"x"


def test_an_unexpected_error_costs_only_its_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    previous = Stored(tmp_path)
    previous.with_records(3)
    previous.with_records(2, OTHER_NAME)
    load = LogCheck.run

    def fails(check: LogCheck, *args: Any) -> Any:
        if check.directory == replica_path(tmp_path):
            raise ValueError("a planted fault")
        return load(check, *args)

    with monkeypatch.context() as planted:
        planted.setattr(LogCheck, "run", fails)
        stored = Stored(tmp_path)
        assert [damaged.key for damaged in stored.damage] == [KEY]
        assert "ValueError: a planted fault" in stored.damage[0].reason
        assert end_of(stored, OTHER) == 2
        repair(stored, "a planted fault")
    repair(stored, "")
    assert end_of(stored) == 3


def repair(stored: Stored, error: str) -> None:
    """`error`: a part of what the repair fails with."""
    reopening = stored.logs.begin_repair(KEY)
    assert reopening is not None
    reopening.run()
    if error:
        with pytest.raises(LogInterruptedError, match=error):
            stored.logs.end_repair(KEY)
    else:
        stored.logs.end_repair(KEY)


def test_a_directory_in_the_place_of_a_segment_is_named(tmp_path: Path) -> None:
    Stored(tmp_path).with_records(3)
    (segment,) = replica_path(tmp_path).glob("*.log")
    segment.unlink()
    segment.mkdir()
    (damaged,) = Stored(tmp_path).damage
    assert f"{segment}: Is a directory; a directory is in the place" in damaged.reason


def test_a_torn_tail_is_no_damage(tmp_path: Path) -> None:
    previous = Stored(tmp_path)
    previous.with_records(3)
    (segment,) = tmp_path.glob("replicas/*/*.log")
    with segment.open("ab") as file:
        file.write(b"half a batch")
    stored = Stored(tmp_path)
    assert (stored.damage, end_of(stored)) == ([], 3)


def test_a_batch_damaged_on_disk_is_damage_and_names_its_partition(tmp_path: Path) -> None:
    previous = Stored(tmp_path)
    previous.with_records(3)
    (segment,) = tmp_path.glob("replicas/*/*.log")
    data = bytearray(segment.read_bytes())
    data[10] ^= 1
    segment.write_bytes(data)
    stored = Stored(tmp_path)
    (damaged,) = stored.damage
    assert (damaged.key, damaged.name, damaged.if_synced) == (KEY, NAME, False)


# -- checkpoints -------------------------------------------------------------------------


def test_high_watermarks_are_restored(tmp_path: Path) -> None:
    previous = Stored(tmp_path)
    previous.with_records()
    checkpoint(previous.logs, {KEY: 2})
    assert Stored(tmp_path).logs.high_watermark(KEY) == 2


def test_a_log_not_claimed_yet_keeps_its_high_watermark(tmp_path: Path) -> None:
    """A checkpoint may be due before the controller has named the replicas."""
    previous = Stored(tmp_path)
    previous.with_records()
    checkpoint(previous.logs, {KEY: 2})
    checkpoint(Stored(tmp_path).logs, {})
    assert Stored(tmp_path).logs.high_watermark(KEY) == 2


def test_a_removed_replica_leaves_the_checkpoint(tmp_path: Path) -> None:
    previous = Stored(tmp_path)
    previous.with_records()
    checkpoint(previous.logs, {KEY: 2})
    previous.logs.delete(KEY)
    checkpoint(previous.logs, {})
    assert Stored(tmp_path).logs.high_watermark(KEY) == 0


def test_a_damaged_checkpoint_is_logged_and_the_logs_open(tmp_path: Path) -> None:
    previous = Stored(tmp_path)
    previous.with_records()
    checkpoint(previous.logs, {KEY: 2})
    (tmp_path / "high-watermarks").write_bytes(b"nonsense")
    with capture_logs() as lines:
        stored = Stored(tmp_path)
    assert (stored.logs.high_watermark(KEY), end_of(stored)) == (0, 3)
    assert "checkpoint_damaged" in [line["event"] for line in lines]


# -- setting aside -----------------------------------------------------------------------


def test_replicas_set_aside_are_kept_for_a_while(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.with_records()
    stored.logs.set_aside(KEY)
    stray = f"orders-0.{TOPIC_ID}@{stored.clock.now_ms}"
    assert (stored.in_use(), stored.strays()) == ([], [stray])
    stored.clock.now_ms += 999
    stored.sweep(1000)
    assert stored.strays() == [stray]
    stored.clock.now_ms += 1
    stored.sweep(1000)
    assert stored.strays() == []


def test_deleted_replicas_are_removed_by_the_next_sweep(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.with_records()
    stored.logs.delete(KEY)
    assert stored.logs.log_of(KEY) is None
    stored.sweep(0)
    assert (stored.in_use(), stored.strays()) == ([], [])


def test_a_replica_that_is_deleted_twice_before_a_sweep_is_gone(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    for _ in range(2):
        stored.with_records()
        stored.logs.delete(KEY)
    assert stored.in_use() == []


def test_a_replica_that_comes_back_starts_empty(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.with_records()
    checkpoint(stored.logs, {KEY: 3})
    stored.logs.delete(KEY)
    assert stored.logs.open_replica(NAME, KEY, CONFIG).log_end_offset == 0


def test_deleting_a_missing_replica_has_no_effect(tmp_path: Path) -> None:
    Stored(tmp_path).logs.delete(KEY)


def test_a_sweep_leaves_unknown_files(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    (tmp_path / "strays" / "notes").mkdir()
    stored.sweep(0)
    assert stored.strays() == ["notes"]


def test_a_log_that_is_set_aside_is_not_opened_at_the_next_start(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.with_records()
    stored.logs.set_aside(KEY)
    assert list(Stored(tmp_path).logs.keys()) == []


def test_strays_of_a_previous_incarnation_are_distinguished_from_those_of_this_one(
    tmp_path: Path,
) -> None:
    previous = Stored(tmp_path)
    previous.with_records()
    previous.logs.delete(KEY)
    stored = Stored(tmp_path)
    stored.with_records(name=OTHER_NAME)
    stored.logs.delete(OTHER)
    found = {stray.key: stray.by_previous_incarnation for stray in stored.logs.strays.expired(0)}
    assert found == {KEY: True, OTHER: False}


def test_a_failed_rename_is_an_error_of_the_log(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.with_records()
    (tmp_path / "strays").rmdir()
    with pytest.raises(LogStorageError, match="move away"):
        stored.logs.set_aside(KEY)


def test_a_failed_rename_is_repeated_at_the_next_request(tmp_path: Path) -> None:
    """Otherwise the caller would be informed that the replica is gone, while its files stay."""
    stored = Stored(tmp_path)
    stored.with_records()
    stored.logs.take_out_of_service(KEY, "damaged")
    (tmp_path / "strays").rmdir()
    with pytest.raises(LogStorageError):
        stored.logs.delete(KEY)
    assert (stored.in_use(), stored.logs.is_out_of_service(KEY)) == ([f"orders-0.{TOPIC_ID}"], True)
    (tmp_path / "strays").mkdir()
    stored.logs.delete(KEY)
    assert stored.in_use() == []
    assert stored.logs.open_replica(NAME, KEY, CONFIG).log_end_offset == 0


def test_a_replica_assigned_again_after_a_failed_rename_continues(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.with_records()
    (tmp_path / "strays").rmdir()
    with pytest.raises(LogStorageError):
        stored.logs.set_aside(KEY)
    log = stored.logs.open_replica(NAME, KEY, CONFIG)
    log.append([batch_at(3)])
    assert log.log_end_offset == 4


def test_a_replica_out_of_service_without_a_directory_may_come_back_after_its_deletion(
    tmp_path: Path,
) -> None:
    stored = Stored(tmp_path)
    stored.logs.take_out_of_service(KEY, "its directory is missing")
    stored.logs.delete(KEY)
    assert stored.logs.open_replica(NAME, KEY, CONFIG).log_end_offset == 0


# -- logs that come and go ---------------------------------------------------------------


def test_a_log_removed_during_an_iteration_is_left_out(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.with_records()
    stored.with_records(2, OTHER_NAME)
    walk = stored.logs.logs()
    first = next(walk)
    stored.logs.delete(OTHER)
    assert (first.log_end_offset, list(walk)) == (3, [])


# -- the end -----------------------------------------------------------------------------


def in_memory() -> tuple[MemoryDisk, LogDirectory]:
    disk = MemoryDisk()
    logs = LogDirectory(disk, DATA, FakeClock())
    for name, key in ((NAME, KEY), (OTHER_NAME, OTHER)):
        logs.open_replica(name, key, CONFIG).append([batch_at(0)])
    return disk, logs


def test_a_clean_close_writes_one_file_for_all_logs() -> None:
    disk, logs = in_memory()
    before = set(disk.names)
    assert logs.close() == []
    assert {path.name for path in disk.names.keys() - before} == {"clean-logs"}


def test_a_close_that_cannot_sync_names_the_unclean_logs() -> None:
    disk, logs = in_memory()
    disk.fail_sync = True
    unclean = logs.close()
    assert [line.split(":")[0] for line in unclean] == ["orders/0", "orders/1"]
    assert list(read_clean_logs(disk, DATA / "clean-logs")) == []


def test_a_log_that_failed_before_does_not_close_cleanly() -> None:
    disk, logs = in_memory()
    log = logs.log_of(KEY)
    assert log is not None
    disk.fail_sync = True
    with pytest.raises(LogStorageError):
        log.flush()
    disk.fail_sync = False
    assert [line.split(":")[0] for line in logs.close()] == ["orders/0"]


def test_the_longest_names_can_be_set_aside(tmp_path: Path) -> None:
    name = TopicPartition("x" * MAX_TOPIC_NAME_LENGTH, 999_999)
    key = ReplicaKey(TOPIC_ID, name.partition)
    stored = Stored(tmp_path)
    stored.clock.now_ms = 9_999_999_999_999
    stored.logs.open_replica(name, key, CONFIG).append([batch_at(0)])
    stored.logs.set_aside(key)
    assert len(stored.strays()) == 1
