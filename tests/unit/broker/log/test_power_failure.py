"""A log after a power failure, which may leave gaps in unsynced data. If other replicas have the
records, the log ends at the first gap. The only copy loses nothing but the gaps.
"""

from __future__ import annotations

import random
from pathlib import PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.batch import is_damaged
from tidelog.log_format import dump_frames
from tidelog_broker.log import quarantine
from tidelog_broker.log.log_config import LogConfig
from tidelog_broker.log.log_errors import UndecidedDamageError
from tidelog_broker.log.unsynced_writes import UnsyncedWrites
from unit.broker.log.builders import DIRECTORY, batch_at, encode_frame, open_log, read_clean_logs
from unit.broker.log.memory_disk import MemoryDisk

BATCHES = [batch_at(offset, size=300) for offset in range(12)]
FRAME = len(encode_frame(BATCHES[0]))
CONFIG = LogConfig(segment_bytes=2_000)
FLUSHED = 3
SEGMENT = DIRECTORY / "00000000000000000000.log"


def written(flushed: int = FLUSHED, config: LogConfig = CONFIG) -> MemoryDisk:
    disk = MemoryDisk()
    log = open_log(disk, config=config)
    log.append(BATCHES[:flushed])
    log.flush()
    for batch in BATCHES[flushed:]:
        log.append([batch])
    log.close()
    return disk


def frames(disk: MemoryDisk) -> dict[int, tuple[PurePath, int, bytes]]:
    """The place and the bytes of each batch, by base offset."""
    found = {}
    for path, inode in disk.names.items():
        if path.suffix == ".log":
            file = disk.open(path)
            for info in dump_frames(file.read_at, len(inode.data)):
                assert info.header is not None
                end = info.position + info.size
                data = bytes(inode.data[info.position : end])
                found[info.header.base_offset] = (path, info.position, data)
    return found


def intact(disk: MemoryDisk, before: dict[int, tuple[PurePath, int, bytes]]) -> set[int]:
    """The batches of which every byte is on the disk."""
    return {
        offset
        for offset, (path, position, data) in before.items()
        if path in disk.names
        and bytes(disk.names[path].data[position : position + len(data)]) == data
    }


@given(
    rng=st.randoms(use_true_random=False),
    flushed=st.integers(0, len(BATCHES)),
    checkpoint_age=st.integers(0, len(BATCHES)),
    segment_bytes=st.sampled_from([700, 2_000, 1 << 20]),
)
def test_the_only_copy_keeps_every_batch_that_is_on_the_disk(
    rng: random.Random, flushed: int, checkpoint_age: int, segment_bytes: int
) -> None:
    config = LogConfig(segment_bytes=segment_bytes)
    disk = written(flushed, config)
    before = frames(disk)
    disk.power_failure(rng)
    kept = intact(disk, before)
    point = max(0, flushed - checkpoint_age)

    log = open_log(
        disk, config=config, recovery_point=point, unsynced=UnsyncedWrites.LOST_ONLY_COPY
    )

    found = {batch.header.base_offset: batch for batch in read_clean_logs(log)}
    sound = {offset for offset, batch in found.items() if not is_damaged(batch.header)}
    assert sound == kept
    assert all(found[offset] == BATCHES[offset] for offset in sound)
    assert log.recovery is None or not log.recovery.lost_by_cut
    log.close()
    again = open_log(
        disk, config=config, recovery_point=point, unsynced=UnsyncedWrites.LOST_ONLY_COPY
    )
    assert {batch.header.base_offset: batch for batch in read_clean_logs(again)} == found


@given(rng=st.randoms(use_true_random=False), flushed=st.integers(0, len(BATCHES)))
def test_with_other_copies_the_log_ends_at_the_first_gap(rng: random.Random, flushed: int) -> None:
    """An unreadable gap would count as held, and no replica would copy its records there."""
    disk = written(flushed)
    before = frames(disk)
    disk.power_failure(rng)
    kept = intact(disk, before)

    log = open_log(disk, config=CONFIG, recovery_point=flushed, unsynced=UnsyncedWrites.LOST_CUT)

    first_gap = next(o for o in range(len(BATCHES) + 1) if o not in kept)
    assert read_clean_logs(log) == BATCHES[:first_gap]


@given(rng=st.randoms(use_true_random=False), flushed=st.integers(0, len(BATCHES)))
def test_while_other_copies_are_unknown_nothing_is_changed(
    rng: random.Random, flushed: int
) -> None:
    disk = written(flushed)
    written_frames = frames(disk)
    disk.power_failure(rng)
    kept = intact(disk, written_frames)
    before = {
        path: bytes(inode.data) for path, inode in disk.names.items() if path.suffix == ".log"
    }

    try:
        log = open_log(disk, config=CONFIG, recovery_point=flushed, unsynced=UnsyncedWrites.LOST)
    except UndecidedDamageError:
        after = {path: bytes(disk.names[path].data) for path in before}
        assert after == before
    else:
        assert read_clean_logs(log) == [BATCHES[offset] for offset in sorted(kept)]


@pytest.mark.parametrize(
    ("unsynced", "end"), [(UnsyncedWrites.LOST_CUT, 5), (UnsyncedWrites.LOST_ONLY_COPY, 12)]
)
def test_a_gap_and_a_torn_tail_are_handled_separately(unsynced: UnsyncedWrites, end: int) -> None:
    disk = written(config=LogConfig())
    data = disk.names[SEGMENT].data
    data[5 * FRAME : 6 * FRAME] = bytes(FRAME)
    data += encode_frame(batch_at(12, size=300))[:-7]

    log = open_log(disk, recovery_point=FLUSHED, unsynced=unsynced)

    assert log.log_end_offset == end
    assert log.recovery is not None
    assert log.recovery.lost_data
    assert not log.recovery.lost_by_cut
    damaged = [(found.first_offset, found.next_offset) for found in log.recovery.damaged]
    assert damaged == ([(5, 6)] if unsynced is UnsyncedWrites.LOST_ONLY_COPY else [])


@pytest.mark.parametrize("frame_bytes", [FRAME + 1, 2 * FRAME - 1, 3 * FRAME])
def test_a_gap_that_is_longer_than_a_frame_may_be_is_sealed_in_parts(
    frame_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = written(config=LogConfig())
    disk.names[SEGMENT].data[4 * FRAME : 9 * FRAME] = bytes(5 * FRAME)
    monkeypatch.setattr(quarantine, "MAX_FRAME_BYTES", frame_bytes)

    log = open_log(disk, recovery_point=FLUSHED, unsynced=UnsyncedWrites.LOST_ONLY_COPY)

    batches = read_clean_logs(log)
    assert [b for b in batches if not is_damaged(b.header)] == BATCHES[:4] + BATCHES[9:]
    damaged = [b.header for b in batches if is_damaged(b.header)]
    assert (damaged[0].base_offset, damaged[-1].next_offset) == (4, 9)
    assert len(damaged) == -(-5 * FRAME // frame_bytes)


def test_damage_in_synced_data_is_unreadable_with_and_without_other_replicas() -> None:
    for unsynced in (UnsyncedWrites.LOST_CUT, UnsyncedWrites.LOST_ONLY_COPY):
        disk = written(config=LogConfig())
        disk.names[SEGMENT].data[2 * FRAME - 1] ^= 1

        log = open_log(disk, recovery_point=FLUSHED, unsynced=unsynced)

        assert [is_damaged(batch.header) for batch in read_clean_logs(log)].index(True) == 1
        assert log.log_end_offset == 12
