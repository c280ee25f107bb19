"""Damage at the end of a log that was not synced. An interrupted write leaves less than a frame,
so a complete frame that is wrong was acknowledged.
"""

from __future__ import annotations

from pathlib import PurePath

import pytest

from tidelog.batch import is_damaged
from tidelog.log_format import FRAME_HEADER_BYTES
from tidelog.record_limits import HIGHEST_MAX_BATCH_RECORDS
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_errors import UndecidedDamageError
from tidelog_broker.log.quarantine import DamagedRange
from tidelog_broker.log.unsynced_writes import UnsyncedWrites
from unit.broker.log.builders import (
    DIRECTORY,
    batch_at,
    batches_from,
    encode_frame,
    log_of,
    open_log,
    read_clean_logs,
)
from unit.broker.log.memory_disk import MemoryDisk

SEGMENT = DIRECTORY / "00000000000000000000.log"
FRAME = len(encode_frame(batch_at(0)))
RECORD_COUNT_AT = 37  # in a frame
KEPT = [unsynced for unsynced in UnsyncedWrites if unsynced.is_kept]


class World:
    """A log of ten batches, of which the first five were synced."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        log_of(self.disk, batches_from(0, 10)).close()
        self.kept: list[tuple[DamagedRange, bytes]] = []

    @property
    def data(self) -> bytearray:
        return self.disk.names[SEGMENT].data

    def reopen(self, unsynced: UnsyncedWrites, min_end_offset: int = 0) -> Log:
        def keep(_: PurePath, damaged: DamagedRange, data: bytes) -> None:
            self.kept.append((damaged, data))

        return open_log(
            self.disk,
            recovery_point=5,
            unsynced=unsynced,
            evidence=keep,
            min_end_offset=min_end_offset,
        )


@pytest.mark.parametrize("unsynced", KEPT)
def test_the_last_batch_becomes_unreadable_and_keeps_its_offset(unsynced: UnsyncedWrites) -> None:
    world = World()
    world.data[-1] ^= 1
    damaged = bytes(world.data[-FRAME:])
    log = world.reopen(unsynced)
    assert log.log_end_offset == 10
    assert [b.header.base_offset for b in read_clean_logs(log) if is_damaged(b.header)] == [9]
    assert [data for _, data in world.kept] == [damaged]
    assert log.recovery is not None
    assert (log.recovery.lost_data, log.recovery.lost_by_cut) == (True, False)


@pytest.mark.parametrize("unsynced", KEPT)
def test_without_a_valid_header_the_last_batch_is_cut_and_its_bytes_are_kept(
    unsynced: UnsyncedWrites,
) -> None:
    world = World()
    world.data[-FRAME + 20] ^= 1
    damaged = bytes(world.data[-FRAME:])
    log = world.reopen(unsynced)
    assert log.log_end_offset == 9
    ((found, data),) = world.kept
    assert (found.first_offset, found.next_offset, data) == (9, 9, damaged)
    assert log.recovery is not None
    assert log.recovery.lost_data


@pytest.mark.rule("damage-costs-only-its-batch")
@pytest.mark.parametrize("unsynced", UnsyncedWrites)
@pytest.mark.parametrize("batch", [4, 9])
def test_a_damaged_header_of_an_acknowledged_batch_costs_only_its_batch(
    unsynced: UnsyncedWrites, batch: int
) -> None:
    """This also holds right below the recovery point and at the end of the log."""
    world = World()
    world.data[batch * FRAME + 20] ^= 1
    try:
        log = world.reopen(unsynced, min_end_offset=10)
    except UndecidedDamageError:
        assert unsynced is UnsyncedWrites.LOST
        return
    if unsynced is UnsyncedWrites.LOST_CUT and batch == 9:
        assert log.log_end_offset == 9
        return
    assert log.log_end_offset == 10
    found = [b.header for b in read_clean_logs(log) if is_damaged(b.header)]
    assert [(header.base_offset, header.next_offset) for header in found] == [(batch, batch + 1)]
    log.append([batch_at(10)])


def test_a_flipped_bit_of_the_last_header_does_not_move_the_log_end() -> None:
    for bit in range(8 * FRAME_HEADER_BYTES):
        world = World()
        world.data[9 * FRAME + bit // 8] ^= 1 << bit % 8
        log = world.reopen(UnsyncedWrites.KEPT, min_end_offset=10)
        assert log.log_end_offset == 10, bit
        assert is_damaged(log.header_at(9)), bit


def test_no_more_records_count_as_lost_than_a_batch_may_have() -> None:
    for bit in range(32):
        world = World()
        world.data[9 * FRAME + RECORD_COUNT_AT + bit // 8] ^= 1 << bit % 8
        assert world.reopen(UnsyncedWrites.KEPT).log_end_offset <= 10 + HIGHEST_MAX_BATCH_RECORDS


@pytest.mark.parametrize("epoch", [1, 3])
def test_a_valid_header_has_the_epoch_that_the_log_is_known_to_have_there(epoch: int) -> None:
    world = World()
    disk = world.disk = MemoryDisk()
    epochs = [1] * 9 + [3] if epoch == 3 else [1] * 9 + [3, 3]
    log_of(disk, [batch_at(n, epoch=e) for n, e in enumerate(epochs)]).close()
    damaged = 9 if epoch == 3 else 8
    world.data[damaged * FRAME + 20] ^= 1
    log = world.reopen(UnsyncedWrites.KEPT, min_end_offset=len(epochs))
    assert log.header_at(damaged).leader_epoch == epoch
    assert log.leader_epochs == ((1, 0), (3, 9))


@pytest.mark.parametrize("unsynced", KEPT)
def test_an_interrupted_write_is_cut_without_evidence(unsynced: UnsyncedWrites) -> None:
    world = World()
    del world.data[-1]
    log = world.reopen(unsynced)
    assert log.log_end_offset == 9
    assert world.kept == []
    assert log.recovery is not None
    assert not log.recovery.lost_data
