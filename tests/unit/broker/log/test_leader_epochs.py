"""The leader epoch cache: rules first, then its file."""

from __future__ import annotations

import pytest

from tidelog.model import NO_EPOCH, EpochEnd
from tidelog_broker.log.epoch_file import EPOCHS_NAME, EpochFile
from tidelog_broker.log.leader_epochs import EpochEntry, LeaderEpochs
from unit.broker.log.builders import DIRECTORY
from unit.broker.log.memory_disk import MemoryDisk

THREE = (EpochEntry(1, 0), EpochEntry(3, 10), EpochEntry(4, 20))


def test_the_end_of_the_latest_epoch_is_the_end_of_the_log() -> None:
    assert LeaderEpochs(THREE).epoch_end(4, 25) == EpochEnd(4, 25)


def test_an_epoch_ends_where_the_next_one_begins() -> None:
    assert LeaderEpochs(THREE).epoch_end(1, 25) == EpochEnd(1, 10)


@pytest.mark.rule("reconciliation-repeats-until-epochs-agree")
def test_a_missing_epoch_is_answered_with_the_largest_below_it() -> None:
    assert LeaderEpochs(THREE).epoch_end(2, 25) == EpochEnd(1, 10)
    assert LeaderEpochs(THREE).epoch_end(9, 25) == EpochEnd(4, 25)


def test_an_epoch_older_than_all_has_no_answer() -> None:
    assert LeaderEpochs(THREE).epoch_end(0, 25) == EpochEnd(NO_EPOCH, 0)
    assert LeaderEpochs().epoch_end(5, 25) == EpochEnd(NO_EPOCH, 25)


def test_epoch_start_is_exact() -> None:
    epochs = LeaderEpochs(THREE)
    assert [epochs.epoch_start(epoch) for epoch in (1, 2, 3, 9)] == [0, None, 10, None]


def test_assigning_the_same_epoch_again_changes_nothing() -> None:
    epochs = LeaderEpochs(THREE)
    assert not epochs.assign(4, 23)
    assert epochs.entries == THREE


def test_an_epoch_cannot_go_back() -> None:
    with pytest.raises(ValueError, match="cannot follow"):
        LeaderEpochs(THREE).assign(3, 30)


def test_truncating_from_the_end_forgets_epochs_that_begin_there() -> None:
    epochs = LeaderEpochs(THREE)
    epochs.truncate_from_end(10)
    assert epochs.entries == THREE[:1]


def test_truncating_from_the_start_moves_the_epoch_that_holds_the_new_start() -> None:
    epochs = LeaderEpochs(THREE)
    epochs.truncate_from_start(12)
    assert epochs.entries == (EpochEntry(3, 12), EpochEntry(4, 20))


def test_the_latest_epoch_stays_when_everything_has_expired() -> None:
    epochs = LeaderEpochs(THREE)
    epochs.truncate_from_start(25)
    assert epochs.entries == (EpochEntry(4, 25),)
    epochs.clip(25, 25)
    assert epochs.entries == (EpochEntry(4, 25),)


def test_an_entry_whose_batch_was_never_written_is_cut() -> None:
    epochs = LeaderEpochs((*THREE, EpochEntry(5, 25)))
    epochs.clip(0, 25)
    assert epochs.entries == THREE
    after_expiry = LeaderEpochs((EpochEntry(4, 25), EpochEntry(5, 25)))
    after_expiry.clip(25, 25)
    assert after_expiry.entries == (EpochEntry(4, 25),)
    never_written = LeaderEpochs((EpochEntry(5, 0),))
    never_written.clip(0, 0)
    assert never_written.entries == ()


def test_the_file_returns_the_written_epochs() -> None:
    disk = MemoryDisk()
    file = EpochFile(disk, DIRECTORY)
    for count in (1, 3, 2):
        file.write(THREE[:count])
        assert EpochFile(disk, DIRECTORY).read() == THREE[:count]


def test_a_new_epoch_is_appended_to_the_same_file() -> None:
    disk = MemoryDisk()
    file = EpochFile(disk, DIRECTORY)
    assert file.write(THREE[:1])
    inode = disk.names[DIRECTORY / EPOCHS_NAME]
    assert not file.write(THREE)
    assert disk.names[DIRECTORY / EPOCHS_NAME] is inode


def test_any_damage_to_the_file_is_found() -> None:
    disk = MemoryDisk()
    EpochFile(disk, DIRECTORY).write(THREE)
    data = disk.names[DIRECTORY / EPOCHS_NAME].data
    for bit in range(len(data) * 8):
        data[bit // 8] ^= 1 << bit % 8
        assert EpochFile(disk, DIRECTORY).read() is None
        data[bit // 8] ^= 1 << bit % 8
    del data[-1:]
    assert EpochFile(disk, DIRECTORY).read() is None


def test_a_missing_file_has_no_epochs() -> None:
    assert EpochFile(MemoryDisk(), DIRECTORY).read() is None
