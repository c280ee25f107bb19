"""What a clean stop records of all logs, and which logs the next start recognizes by it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.model import Batch, TopicPartition
from tidelog_broker.core.partition.producer_state import ProducerStates
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log import producer_history
from tidelog_broker.log.checked_file import write_checked
from tidelog_broker.log.clean_shutdown import CleanLog, read_clean_logs
from tidelog_broker.log.disk import OsDisk
from tidelog_broker.log.log import Log
from tidelog_broker.storage import closed_logs
from tidelog_runtime.topic_config import TopicConfig
from unit.broker.broker_parts import KEY
from unit.broker.fake_log import NAME, TOPIC_ID
from unit.broker.log.builders import Producer, batch_at
from unit.broker.stored_logs import CONFIG, OTHER_NAME, Stored, checkpoint, end_of

WRITER = 7


def stopped(path: Path, batches: list[Batch], config: TopicConfig = CONFIG) -> None:
    stored = Stored(path)
    log = stored.logs.open_replica(NAME, KEY, config)
    for batch in batches:
        log.append([batch])
    stop(stored)


def stop(stored: Stored) -> None:
    """Stop as a broker does: its synced ends are written before."""
    for log in stored.logs.logs():
        log.flush()
    checkpoint(stored.logs, dict.fromkeys(stored.logs.keys(), 0))
    assert stored.logs.close() == []


def log_in(stored: Stored) -> Log:
    log = stored.logs.log_of(KEY)
    assert log is not None
    return log


def is_clean(stored: Stored) -> bool:
    return log_in(stored).recovery is None


def left(path: Path) -> CleanLog:
    return read_clean_logs(OsDisk(), path / "clean-logs")[KEY]


def written(number: int, *, epoch: int = 1, first: int = 0) -> list[Batch]:
    return [
        batch_at(offset, epoch=epoch, producer=Producer(WRITER, 0, offset))
        for offset in range(first, first + number)
    ]


@pytest.mark.parametrize("number", [0, 1, 5, 400])
def test_an_unchanged_log_is_recognized_with_its_producers(tmp_path: Path, number: int) -> None:
    stopped(tmp_path, written(number), TopicConfig(segment_bytes=64 << 10))
    stored = Stored(tmp_path)
    assert is_clean(stored)
    assert end_of(stored) == number
    entry = log_in(stored).producers.states.entry(WRITER)
    assert (None if entry is None else entry.last_sequence) == (number - 1 if number else None)
    more = written(3, first=number)
    log_in(stored).append(more)
    assert log_in(stored).read(0, max_bytes=1 << 20, up_to=number + 3)[-3:] == more


def test_many_producers_have_a_file_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_history, "MAX_PRODUCERS_IN_SHARED_FILE", 0)
    stopped(tmp_path, written(3))
    assert left(tmp_path).producers is None
    entry = log_in(Stored(tmp_path)).producers.states.entry(WRITER)
    assert entry is not None
    assert entry.last_sequence == 2


def grow(log: Log) -> None:
    log.append(written(1, first=log.log_end_offset))


def regrow(log: Log) -> None:
    """Written by another leader to the very same sizes."""
    end = log.log_end_offset
    log.truncate_to(1)
    for batch in written(end - 1, epoch=2, first=1):
        log.append([batch])


def copy_again(log: Log) -> None:
    """Copied from the same leader: the log is the same, but not on the disk yet."""
    end = log.log_end_offset
    log.truncate_to(1)
    for batch in written(end - 1, first=1):
        log.append([batch])


def begin_from_scratch(log: Log) -> None:
    end = log.log_end_offset
    log.reset_to(0)
    for batch in written(end, epoch=2):
        log.append([batch])


@pytest.mark.parametrize("change", [grow, regrow, copy_again, begin_from_scratch])
@pytest.mark.parametrize("rolls", [False, True])
def test_a_log_changed_since_the_stop_is_not_recognized(
    tmp_path: Path, change: Callable[[Log], None], rolls: bool
) -> None:
    config = TopicConfig(segment_bytes=64 << 10) if rolls else CONFIG
    stopped(tmp_path, written(700 if rolls else 4), config)
    stored = Stored(tmp_path)
    log = stored.logs.open_replica(NAME, KEY, config)
    assert log.recovery is None
    change(log)
    epochs = list(log.leader_epochs)
    # It dies here.
    again = Stored(tmp_path)
    assert not is_clean(again)
    assert (end_of(again), list(log_in(again).leader_epochs)) == (log.log_end_offset, epochs)


def test_unchanged_logs_are_recognized_after_a_crash_too(tmp_path: Path) -> None:
    stopped(tmp_path, written(3))
    stored = Stored(tmp_path)
    stored.with_records(2, OTHER_NAME)
    assert is_clean(Stored(tmp_path))


def test_a_log_unchanged_until_the_next_stop_keeps_its_record(tmp_path: Path) -> None:
    stopped(tmp_path, written(3))
    before = left(tmp_path)
    stored = Stored(tmp_path)
    stop(stored)
    assert left(tmp_path) == before
    assert is_clean(Stored(tmp_path))


def test_without_the_file_or_with_a_torn_one_logs_are_checked(tmp_path: Path) -> None:
    stopped(tmp_path, written(3))
    path = tmp_path / "clean-logs"
    path.write_bytes(path.read_bytes()[:-5])
    assert not is_clean(Stored(tmp_path))
    path.unlink()
    stored = Stored(tmp_path)
    assert not is_clean(stored)
    assert end_of(stored) == 3


def test_a_log_that_had_been_synced_beyond_its_recorded_end_is_checked(
    tmp_path: Path,
) -> None:
    """The data behind it was lost since, however valid the rest looks."""
    stopped(tmp_path, written(3))
    (segment,) = tmp_path.glob("replicas/*/*.log")
    content = segment.read_bytes()
    stored = Stored(tmp_path)
    grow(log_in(stored))
    log_in(stored).flush()
    checkpoint(stored.logs, {KEY: 3})
    segment.write_bytes(content)
    assert [damaged.key for damaged in Stored(tmp_path).damage] == [KEY]


def test_a_newer_producer_snapshot_takes_precedence_over_the_recorded_one(tmp_path: Path) -> None:
    stopped(tmp_path, written(3))
    stored = Stored(tmp_path)
    history = log_in(stored).producers
    other = ProducerStates()
    other.note(batch_at(2, producer=Producer(8, 0, 0)).header)
    history._write(3, other)
    states = log_in(Stored(tmp_path)).producers.states
    assert (states.entry(WRITER), states.entry(8) is None) == (None, False)


def test_of_very_many_producers_some_logs_keep_their_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closed_logs, "MAX_TOTAL_PRODUCERS", 1)
    stored = Stored(tmp_path)
    for number in range(3):
        name = TopicPartition(NAME.topic, number)
        log = stored.logs.open_replica(name, ReplicaKey(TOPIC_ID, number), CONFIG)
        log.append(written(1))
    stop(stored)
    kept = read_clean_logs(OsDisk(), tmp_path / "clean-logs")
    assert sum(log.producers is not None for log in kept.values()) == 1
    again = Stored(tmp_path)
    entries = [log.producers.states.entry(WRITER) for log in again.logs.logs()]
    assert len(entries) == 3
    assert None not in entries


def test_a_file_of_another_format_is_ignored(tmp_path: Path) -> None:
    stopped(tmp_path, written(3))
    write_checked(OsDisk(), tmp_path / "clean-logs", "clean-logs", [["a", 1]], sync=False)
    stored = Stored(tmp_path)
    assert (stored.damage, end_of(stored), is_clean(stored)) == ([], 3, False)
