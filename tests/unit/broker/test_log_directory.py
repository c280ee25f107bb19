import shutil
from pathlib import Path, PurePath

import pytest
from structlog.testing import capture_logs

from tidelog.model import TopicPartition
from tidelog_broker.log.disk import OsDisk
from tidelog_broker.log.errors import LogStorageError, OutOfServiceError
from tidelog_broker.log_directory import LogDirectory
from tidelog_broker.transport import ReplicaKey
from tidelog_runtime.topic_config import MAX_TOPIC_NAME_LENGTH, TopicConfig
from unit.broker.broker_parts import DATA, KEY
from unit.broker.fake_log import NAME, TOPIC_ID
from unit.log.builders import FakeClock, batch_at, encode_frame
from unit.log.memory_disk import MemoryDisk

CONFIG = TopicConfig()
OTHER = ReplicaKey(TOPIC_ID, 1)
OTHER_NAME = TopicPartition(NAME.topic, 1)


class Stored:
    """The logs of a broker in a directory, opened as a starting broker does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = FakeClock()
        self.logs = LogDirectory(OsDisk(), path, self.clock)
        self.damage = self.logs.open_all()

    def in_use(self) -> list[str]:
        return sorted(entry.name for entry in (self.path / "replicas").iterdir())

    def strays(self) -> list[str]:
        return sorted(entry.name for entry in (self.path / "strays").iterdir())

    def sweep(self, kept_ms: int) -> None:
        self.logs.delete_strays(self.logs.expired_strays(kept_ms))

    def with_records(self, number: int = 3, name: TopicPartition = NAME) -> None:
        key = ReplicaKey(TOPIC_ID, name.partition)
        log = self.logs.open_replica(name, key, CONFIG)
        log.append([batch_at(offset) for offset in range(number)])


def end_of(stored: Stored, key: ReplicaKey = KEY) -> int:
    log = stored.logs.log_of(key)
    assert log is not None
    return log.log_end_offset


# -- opening -----------------------------------------------------------------------------


def test_a_replica_is_created_where_it_is_not_there(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    assert stored.logs.open_replica(NAME, KEY, CONFIG).log_end_offset == 0
    assert stored.in_use() == [f"orders-0.{TOPIC_ID}"]


def test_a_replica_that_is_open_is_the_same_log(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    log = stored.logs.open_replica(NAME, KEY, CONFIG)
    assert stored.logs.open_replica(NAME, KEY, CONFIG) is log


def test_all_logs_are_found_again(tmp_path: Path) -> None:
    former = Stored(tmp_path)
    former.with_records(3)
    former.with_records(2, OTHER_NAME)
    former.logs.close()
    stored = Stored(tmp_path)
    assert (end_of(stored), end_of(stored, OTHER)) == (3, 2)
    assert stored.damage == []


def test_names_of_topics_may_look_like_those_of_directories(tmp_path: Path) -> None:
    name = TopicPartition("a-0.b-1", 7)
    Stored(tmp_path).logs.open_replica(name, ReplicaKey(TOPIC_ID, 7), CONFIG)
    assert list(Stored(tmp_path).logs.keys()) == [ReplicaKey(TOPIC_ID, 7)]


def test_directories_of_others_are_left_alone_and_said(tmp_path: Path) -> None:
    Stored(tmp_path)
    (tmp_path / "replicas" / "lost+found").mkdir()
    with capture_logs() as lines:
        stored = Stored(tmp_path)
    assert [line["name"] for line in lines if line["event"] == "unknown_directory"] == [
        "lost+found"
    ]
    assert stored.in_use() == ["lost+found"]


def test_a_torn_tail_is_no_damage(tmp_path: Path) -> None:
    former = Stored(tmp_path)
    former.with_records(3)
    (segment,) = tmp_path.glob("replicas/*/*.log")
    with segment.open("ab") as file:
        file.write(b"half a batch")
    stored = Stored(tmp_path)
    assert (stored.damage, end_of(stored)) == ([], 3)


def test_a_batch_that_went_bad_is_damage_and_names_its_partition(tmp_path: Path) -> None:
    former = Stored(tmp_path)
    former.with_records(3)
    (segment,) = tmp_path.glob("replicas/*/*.log")
    data = bytearray(segment.read_bytes())
    data[10] ^= 1
    segment.write_bytes(data)
    stored = Stored(tmp_path)
    (damaged,) = stored.damage
    assert (damaged.key, damaged.name, damaged.if_synced) == (KEY, NAME, False)


# -- checkpoints -------------------------------------------------------------------------


def test_high_watermarks_come_back(tmp_path: Path) -> None:
    former = Stored(tmp_path)
    former.with_records()
    former.logs.checkpoint({KEY: 2})
    assert Stored(tmp_path).logs.high_watermark(KEY) == 2


def test_a_log_that_nobody_has_claimed_yet_keeps_its_high_watermark(tmp_path: Path) -> None:
    """A checkpoint may be due before the controller has named the replicas."""
    former = Stored(tmp_path)
    former.with_records()
    former.logs.checkpoint({KEY: 2})
    Stored(tmp_path).logs.checkpoint({})
    assert Stored(tmp_path).logs.high_watermark(KEY) == 2


def test_a_replica_that_is_gone_leaves_the_checkpoint(tmp_path: Path) -> None:
    former = Stored(tmp_path)
    former.with_records()
    former.logs.checkpoint({KEY: 2})
    former.logs.delete(KEY)
    former.logs.checkpoint({})
    assert Stored(tmp_path).logs.high_watermark(KEY) == 0


def test_a_damaged_checkpoint_is_said_and_the_logs_open(tmp_path: Path) -> None:
    former = Stored(tmp_path)
    former.with_records()
    former.logs.checkpoint({KEY: 2})
    (tmp_path / "high-watermarks").write_bytes(b"nonsense")
    with capture_logs() as lines:
        stored = Stored(tmp_path)
    assert (stored.logs.high_watermark(KEY), end_of(stored)) == (0, 3)
    assert "checkpoint_damaged" in [line["event"] for line in lines]


# -- moving away -------------------------------------------------------------------------


def test_what_is_set_aside_is_kept_for_a_while(tmp_path: Path) -> None:
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


def test_what_is_deleted_goes_with_the_next_sweep(tmp_path: Path) -> None:
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
    stored.logs.checkpoint({KEY: 3})
    stored.logs.delete(KEY)
    assert stored.logs.open_replica(NAME, KEY, CONFIG).log_end_offset == 0


def test_deleting_what_is_not_there_does_nothing(tmp_path: Path) -> None:
    Stored(tmp_path).logs.delete(KEY)


def test_a_sweep_leaves_what_it_does_not_know(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    (tmp_path / "strays" / "notes").mkdir()
    stored.sweep(0)
    assert stored.strays() == ["notes"]


def test_a_log_that_is_set_aside_is_not_opened_at_the_next_start(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.with_records()
    stored.logs.set_aside(KEY)
    assert list(Stored(tmp_path).logs.keys()) == []


def test_a_move_that_fails_is_an_error_of_the_log(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.with_records()
    (tmp_path / "strays").rmdir()
    with pytest.raises(LogStorageError, match="move away"):
        stored.logs.set_aside(KEY)


# -- logs that come and go ---------------------------------------------------------------


def test_a_log_that_goes_while_they_are_walked_through_is_left_out(tmp_path: Path) -> None:
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


def test_a_clean_close_leaves_a_marker_beside_every_log() -> None:
    disk, logs = in_memory()
    assert logs.close() == []
    assert sum(path.name == "clean-shutdown" for path in disk.names) == 2


def test_a_close_that_cannot_sync_names_what_is_not_clean() -> None:
    disk, logs = in_memory()
    disk.fail_sync = True
    unclean = logs.close()
    assert [line.split(":")[0] for line in unclean] == ["orders/0", "orders/1"]
    assert not any(path.name == "clean-shutdown" for path in disk.names)


def test_a_log_that_failed_before_does_not_close_cleanly() -> None:
    disk, logs = in_memory()
    log = logs.log_of(KEY)
    assert log is not None
    disk.fail_sync = True
    with pytest.raises(LogStorageError):
        log.flush()
    disk.fail_sync = False
    assert [line.split(":")[0] for line in logs.close()] == ["orders/0"]


# -- damage that only the checkpoints tell -----------------------------------------------


def committed(stored: Stored, offset: int) -> None:
    stored.logs.checkpoint({KEY: offset})


def replica_path(tmp_path: Path) -> Path:
    return tmp_path / "replicas" / f"orders-0.{TOPIC_ID}"


def test_a_replica_that_is_missing_is_damage(tmp_path: Path) -> None:
    former = Stored(tmp_path)
    former.with_records(3)
    committed(former, 3)
    former.logs.close()
    shutil.rmtree(replica_path(tmp_path))
    (damaged,) = Stored(tmp_path).damage
    assert "its directory is missing" in damaged.reason
    assert (damaged.key, damaged.name) == (KEY, None)


def test_what_was_synced_counts_although_nothing_is_known_to_be_committed(tmp_path: Path) -> None:
    former = Stored(tmp_path)
    former.with_records(3)
    log = former.logs.log_of(KEY)
    assert log is not None
    log.flush()
    committed(former, 0)
    shutil.rmtree(replica_path(tmp_path))
    assert len(Stored(tmp_path).damage) == 1


def test_a_replica_that_was_deleted_is_not_missing(tmp_path: Path) -> None:
    former = Stored(tmp_path)
    former.with_records(3)
    committed(former, 3)
    former.logs.delete(KEY)
    assert Stored(tmp_path).damage == []


def test_an_empty_replica_that_is_missing_is_no_damage(tmp_path: Path) -> None:
    former = Stored(tmp_path)
    former.with_records(0)
    committed(former, 0)
    former.logs.close()
    shutil.rmtree(replica_path(tmp_path))
    assert Stored(tmp_path).damage == []


def test_a_log_that_ends_below_what_was_committed_is_damaged(tmp_path: Path) -> None:
    """By itself the cut looks like the torn tail of a write that never returned."""
    former = Stored(tmp_path)
    former.with_records(3)
    committed(former, 3)
    segment = next(replica_path(tmp_path).glob("*.log"))
    segment.write_bytes(segment.read_bytes()[:-1])
    (damaged,) = Stored(tmp_path).damage
    assert "ends at offset 2, and was committed to 3" in damaged.reason


def test_a_torn_tail_that_was_never_committed_is_no_damage(tmp_path: Path) -> None:
    former = Stored(tmp_path)
    former.with_records(3)
    committed(former, 2)
    segment = next(replica_path(tmp_path).glob("*.log"))
    segment.write_bytes(segment.read_bytes()[:-1])
    assert Stored(tmp_path).damage == []


@pytest.mark.parametrize(("whole", "damaged"), [(True, [KEY]), (False, [])])
def test_a_whole_batch_at_the_end_that_is_wrong_is_damage_unless_the_machine_crashed(
    tmp_path: Path, whole: bool, damaged: list[ReplicaKey]
) -> None:
    """A write that a killed process left half done is the beginning of a batch; what a
    power failure leaves may be anything."""
    former = Stored(tmp_path)
    former.with_records(3)
    segment = next(replica_path(tmp_path).glob("*.log"))
    content = segment.read_bytes()
    segment.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    logs = LogDirectory(OsDisk(), tmp_path, FakeClock())
    assert [replica.key for replica in logs.open_all(whole=whole)] == damaged


def test_after_a_crash_of_the_machine_a_shorter_log_is_damage_only_where_it_was_synced(
    tmp_path: Path,
) -> None:
    former = Stored(tmp_path)
    former.with_records(3)
    committed(former, 3)
    segment = next(replica_path(tmp_path).glob("*.log"))
    segment.write_bytes(segment.read_bytes()[:-1])
    logs = LogDirectory(OsDisk(), tmp_path, FakeClock())
    (damaged,) = logs.open_all(whole=False)
    assert damaged.if_synced
    assert not logs.is_out(KEY)
    assert list((tmp_path / "damaged").iterdir()) == []


def test_a_checkpoint_after_the_start_names_nothing_beyond_the_log(tmp_path: Path) -> None:
    former = Stored(tmp_path)
    former.with_records(3)
    committed(former, 3)
    segment = next(replica_path(tmp_path).glob("*.log"))
    segment.write_bytes(segment.read_bytes()[:-1])
    logs = LogDirectory(OsDisk(), tmp_path, FakeClock())
    logs.open_all(whole=False)
    logs.checkpoint({})
    assert Stored(tmp_path).damage == []


def test_a_log_that_cannot_be_opened_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = Stored(tmp_path)
    former.with_records(3)
    former.with_records(2, OTHER_NAME)
    whole = OsDisk.read_file

    def refuse(disk: OsDisk, path: PurePath) -> bytes:
        if path.is_relative_to(replica_path(tmp_path)):
            raise OSError(5, "Input/output error")
        return whole(disk, path)

    monkeypatch.setattr(OsDisk, "read_file", refuse)
    stored = Stored(tmp_path)
    assert [damaged.key for damaged in stored.damage] == [KEY]
    assert end_of(stored, OTHER) == 2
    with pytest.raises(OutOfServiceError, match="Input/output error"):
        stored.logs.open_replica(NAME, KEY, CONFIG)


def test_a_replica_under_repair_is_not_moved_away(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.with_records(3)
    stored.logs.take_out(KEY, "a bad checksum")
    reopening = stored.logs.begin_repair(KEY)
    assert reopening is not None
    with pytest.raises(LogStorageError, match="while it is repaired"):
        stored.logs.delete(KEY)
    reopening.run()
    assert stored.logs.end_repair(KEY).log_end_offset == 3
    stored.logs.delete(KEY)
    assert stored.in_use() == []


def test_what_a_refused_append_left_in_the_file_is_cut(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.with_records(3)
    segment = next(replica_path(tmp_path).glob("*.log"))
    with segment.open("ab") as file:
        file.write(encode_frame(batch_at(3)))
    stored.logs.take_out(KEY, "an append failed in its middle")
    reopening = stored.logs.begin_repair(KEY)
    assert reopening is not None
    reopening.run()
    assert stored.logs.end_repair(KEY).log_end_offset == 3


def test_a_damaged_replica_does_not_make_the_stop_of_the_others_unclean(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    stored.with_records(3)
    stored.logs.take_out(KEY, "a bad checksum")
    stored.logs.mark(KEY, "a bad checksum")
    assert stored.logs.close() == []
    (damaged,) = Stored(tmp_path).damage
    assert (damaged.key, damaged.reason) == (KEY, "a bad checksum")


def test_a_damaged_replica_that_could_not_be_marked_makes_the_stop_unclean(
    tmp_path: Path,
) -> None:
    stored = Stored(tmp_path)
    stored.with_records(3)
    stored.logs.take_out(KEY, "a bad checksum")
    assert stored.logs.close() == ["orders/0: a bad checksum"]


def test_the_longest_names_can_be_set_aside(tmp_path: Path) -> None:
    name = TopicPartition("x" * MAX_TOPIC_NAME_LENGTH, 999_999)
    key = ReplicaKey(TOPIC_ID, name.partition)
    stored = Stored(tmp_path)
    stored.clock.now_ms = 9_999_999_999_999
    stored.logs.open_replica(name, key, CONFIG).append([batch_at(0)])
    stored.logs.set_aside(key)
    assert len(stored.strays()) == 1
