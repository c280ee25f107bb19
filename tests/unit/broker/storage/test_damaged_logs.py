"""Damage that a start finds, and logs that are out of service."""

import shutil
from pathlib import Path, PurePath

import pytest

from tidelog.batch import is_damaged
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log import producer_history
from tidelog_broker.log.disk import OsDisk
from tidelog_broker.log.log_errors import (
    OutOfServiceError,
)
from tidelog_broker.storage.log_directory import LogDirectory
from unit.broker.broker_parts import KEY
from unit.broker.fake_log import NAME
from unit.broker.log.builders import FakeClock, batch_at, encode_frame, read_clean_logs
from unit.broker.stored_logs import (
    CONFIG,
    OTHER,
    OTHER_NAME,
    Stored,
    checkpoint,
    end_of,
    replica_path,
)


def committed(stored: Stored, offset: int) -> None:
    checkpoint(stored.logs, {KEY: offset})


def test_a_missing_replica_is_damage(tmp_path: Path) -> None:
    previous = Stored(tmp_path)
    previous.with_records(3)
    committed(previous, 3)
    previous.logs.close()
    shutil.rmtree(replica_path(tmp_path))
    (damaged,) = Stored(tmp_path).damage
    assert "its directory is missing" in damaged.reason
    assert (damaged.key, damaged.name) == (KEY, None)


def test_synced_offsets_count_although_nothing_is_known_to_be_committed(tmp_path: Path) -> None:
    previous = Stored(tmp_path)
    previous.with_records(3)
    log = previous.logs.log_of(KEY)
    assert log is not None
    log.flush()
    committed(previous, 0)
    shutil.rmtree(replica_path(tmp_path))
    assert len(Stored(tmp_path).damage) == 1


def test_a_replica_that_was_deleted_is_not_missing(tmp_path: Path) -> None:
    previous = Stored(tmp_path)
    previous.with_records(3)
    committed(previous, 3)
    previous.logs.delete(KEY)
    assert Stored(tmp_path).damage == []


def test_a_missing_replica_without_records_is_no_damage(tmp_path: Path) -> None:
    previous = Stored(tmp_path)
    previous.with_records(0)
    committed(previous, 0)
    previous.logs.close()
    shutil.rmtree(replica_path(tmp_path))
    assert Stored(tmp_path).damage == []


def test_a_log_that_ends_below_its_committed_end_is_damaged(tmp_path: Path) -> None:
    """The cut itself looks like the torn tail of a write that never returned."""
    previous = Stored(tmp_path)
    previous.with_records(3)
    committed(previous, 3)
    segment = next(replica_path(tmp_path).glob("*.log"))
    segment.write_bytes(segment.read_bytes()[:-1])
    stored = Stored(tmp_path)
    (damaged,) = stored.damage
    assert damaged.unless_sole
    assert stored.logs.damaged_batches.of(KEY) == [(2, 3)]
    assert end_of(stored) == 3


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("cut_bytes", [1, len(encode_frame(batch_at(0)))])
def test_the_only_copy_does_not_reuse_committed_offsets(
    tmp_path: Path, cut_bytes: int, whole: bool
) -> None:
    previous = Stored(tmp_path)
    previous.with_records(3)
    committed(previous, 3)
    segment = next(replica_path(tmp_path).glob("*.log"))
    segment.write_bytes(segment.read_bytes()[:-cut_bytes])
    logs = LogDirectory(OsDisk(), tmp_path, FakeClock())
    (damaged,) = [*logs.open_all(intact=whole), *logs.open_undecided({KEY})]
    assert damaged.unless_sole
    assert logs.damaged_batches.of(KEY) == [(2, 3)]
    log = logs.log_of(KEY)
    assert log is not None
    log.append([batch_at(3)])
    assert [b.header.base_offset for b in read_clean_logs(log) if is_damaged(b.header)] == [2]


def test_an_uncommitted_torn_tail_is_no_damage(tmp_path: Path) -> None:
    previous = Stored(tmp_path)
    previous.with_records(3)
    committed(previous, 2)
    segment = next(replica_path(tmp_path).glob("*.log"))
    segment.write_bytes(segment.read_bytes()[:-1])
    assert Stored(tmp_path).damage == []


@pytest.mark.parametrize(("whole", "damaged"), [(True, [KEY]), (False, [])])
def test_a_complete_wrong_batch_at_the_end_is_damage_unless_the_machine_crashed(
    tmp_path: Path, whole: bool, damaged: list[ReplicaKey]
) -> None:
    """A killed process leaves the beginning of a batch; a power failure may leave anything."""
    previous = Stored(tmp_path)
    previous.with_records(3)
    segment = next(replica_path(tmp_path).glob("*.log"))
    content = segment.read_bytes()
    segment.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    logs = LogDirectory(OsDisk(), tmp_path, FakeClock())
    assert [replica.key for replica in logs.open_all(intact=whole)] == damaged


@pytest.mark.parametrize(("only_copies", "end"), [({KEY}, 3), (set(), 1)])
def test_a_gap_after_a_power_failure_waits_until_other_copies_are_known(
    tmp_path: Path, only_copies: set[ReplicaKey], end: int
) -> None:
    previous = Stored(tmp_path)
    previous.with_records(3)
    segment = next(replica_path(tmp_path).glob("*.log"))
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    logs = LogDirectory(OsDisk(), tmp_path, FakeClock())
    assert logs.open_all(intact=False) == []
    assert logs.undecided() == [(KEY, NAME)]
    assert logs.is_out_of_service(KEY)
    assert segment.read_bytes() == content

    (damaged,) = logs.open_undecided(only_copies)

    assert damaged.unless_sole is bool(only_copies)
    log = logs.log_of(KEY)
    assert log is not None
    assert log.log_end_offset == end
    assert logs.undecided() == []
    assert bool(logs.damaged_batches.of(KEY)) is bool(only_copies)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(("only_copies", "end"), [({KEY}, 3), (set(), 0)])
def test_a_missing_first_segment_waits_until_other_copies_are_known(
    tmp_path: Path, only_copies: set[ReplicaKey], end: int, whole: bool
) -> None:
    previous = Stored(tmp_path)
    previous.with_records(3)
    path = replica_path(tmp_path)
    frames = len(encode_frame(batch_at(0)))
    (segment,) = path.glob("*.log")
    behind = segment.read_bytes()[frames:]
    segment.unlink()
    (path / "00000000000000000001.log").write_bytes(behind)
    logs = LogDirectory(OsDisk(), tmp_path, FakeClock())
    assert logs.open_all(intact=whole) == []
    assert logs.undecided() == [(KEY, NAME)]
    assert [file.name for file in path.glob("*.log")] == ["00000000000000000001.log"]

    (damaged,) = logs.open_undecided(only_copies)

    assert damaged.unless_sole is bool(only_copies)
    log = logs.log_of(KEY)
    assert log is not None
    assert log.log_end_offset == end
    assert [(d.first_offset, d.next_offset) for d in logs.damaged_batches.of(KEY)] == (
        [(0, 1)] if only_copies else []
    )


def test_after_a_machine_crash_a_shorter_log_is_damage_only_in_synced_data(
    tmp_path: Path,
) -> None:
    previous = Stored(tmp_path)
    previous.with_records(3)
    committed(previous, 3)
    segment = next(replica_path(tmp_path).glob("*.log"))
    segment.write_bytes(segment.read_bytes()[:-1])
    logs = LogDirectory(OsDisk(), tmp_path, FakeClock())
    assert logs.open_all(intact=False) == []
    (damaged,) = logs.open_undecided(())
    assert damaged.if_synced
    assert not logs.is_out_of_service(KEY)
    assert list((tmp_path / "damaged").iterdir()) == []


def test_a_checkpoint_after_the_start_has_no_offset_beyond_the_log(tmp_path: Path) -> None:
    previous = Stored(tmp_path)
    previous.with_records(3)
    committed(previous, 3)
    segment = next(replica_path(tmp_path).glob("*.log"))
    segment.write_bytes(segment.read_bytes()[:-1])
    logs = LogDirectory(OsDisk(), tmp_path, FakeClock())
    logs.open_all(intact=False)
    logs.open_undecided(())
    checkpoint(logs, {})
    assert Stored(tmp_path).damage == []


def test_a_log_that_cannot_be_opened_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    previous = Stored(tmp_path)
    previous.with_records(3)
    previous.with_records(2, OTHER_NAME)
    whole = OsDisk.read_file

    def reject(disk: OsDisk, path: PurePath) -> bytes:
        if path.is_relative_to(replica_path(tmp_path)):
            raise PermissionError(13, "Permission denied")
        return whole(disk, path)

    monkeypatch.setattr(OsDisk, "read_file", reject)
    stored = Stored(tmp_path)
    assert [damaged.key for damaged in stored.damage] == [KEY]
    assert end_of(stored, OTHER) == 2
    with pytest.raises(OutOfServiceError, match="Permission denied"):
        stored.logs.open_replica(NAME, KEY, CONFIG)


def test_damage_in_batches_read_for_producers_is_found_after_a_clean_stop_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that does not know all producers would append twice."""
    monkeypatch.setattr(producer_history, "MAX_PRODUCERS_IN_SHARED_FILE", -1)
    previous = Stored(tmp_path)
    previous.with_records(3)
    previous.logs.close()
    for snapshot in replica_path(tmp_path).glob("*.producers"):
        snapshot.unlink()
    segment = next(replica_path(tmp_path).glob("*.log"))
    content = bytearray(segment.read_bytes())
    content[len(encode_frame(batch_at(0))) + 8] ^= 1
    segment.write_bytes(content)
    stored = Stored(tmp_path)
    assert [damaged.key for damaged in stored.damage] == [KEY]
    reopening = stored.logs.begin_repair(KEY)
    assert reopening is not None
    reopening.run()
    assert stored.logs.end_repair(KEY).log_end_offset == 3
    assert stored.logs.damaged_batches.of(KEY) == [(1, 2)]


def test_a_damaged_replica_that_could_not_be_marked_makes_the_stop_unclean(
    tmp_path: Path,
) -> None:
    stored = Stored(tmp_path)
    stored.with_records(3)
    stored.logs.take_out_of_service(KEY, "a bad checksum")
    assert stored.logs.close() == ["orders/0: a bad checksum"]


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_misplaced_segment_of_an_only_copy_is_damage_only_if_batches_are_missing(
    tmp_path: Path, *, is_lost: bool
) -> None:
    Stored(tmp_path).with_records(3)
    (segment,) = replica_path(tmp_path).glob("*.log")
    frame = len(encode_frame(batch_at(0)))
    segment.rename(segment.with_name(f"{7:020}.log"))
    if is_lost:
        (renamed,) = replica_path(tmp_path).glob("*.log")
        data = bytearray(renamed.read_bytes())
        data[2 * frame - 1] ^= 1
        renamed.write_bytes(data)
    stored = Stored(tmp_path)
    assert (stored.damage, stored.logs.undecided()) == ([], [(KEY, NAME)])
    damaged = stored.logs.open_undecided({KEY})
    assert end_of(stored) == 3
    assert [(found.key, found.unless_sole) for found in damaged] == [(KEY, True)] * is_lost
    assert stored.logs.damaged_batches.of(KEY) == [(1, 2)] * is_lost
    assert stored.logs.is_out_of_service(KEY) == is_lost


def test_damage_found_before_a_start_is_undecided_is_reported_by_the_second_attempt(
    tmp_path: Path,
) -> None:
    """The first attempt makes a batch unreadable, which is valid for the second one."""
    Stored(tmp_path).with_records(3)
    (segment,) = replica_path(tmp_path).glob("*.log")
    frame = len(encode_frame(batch_at(0)))
    data = bytearray(segment.read_bytes())
    data[2 * frame - 1] ^= 1
    segment.write_bytes(data + encode_frame(batch_at(0)))
    stored = Stored(tmp_path)
    assert stored.logs.undecided() == [(KEY, NAME)]
    (damaged,) = stored.logs.open_undecided({KEY})
    assert damaged.unless_sole
    assert stored.logs.damaged_batches.of(KEY) == [(1, 2)]
    assert end_of(stored) == 3


def test_without_its_segments_an_only_copy_uses_no_acknowledged_offset_again(
    tmp_path: Path,
) -> None:
    previous = Stored(tmp_path)
    previous.with_records(3)
    committed(previous, 3)
    for segment in replica_path(tmp_path).glob("*.log"):
        segment.unlink()
    stored = Stored(tmp_path)
    (damaged,) = stored.logs.open_undecided({KEY})
    assert (damaged.unless_sole, end_of(stored)) == (True, 3)
    assert stored.logs.damaged_batches.of(KEY) == [(0, 3)]
