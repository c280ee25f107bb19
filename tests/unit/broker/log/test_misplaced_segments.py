"""Segment files that were removed, copied, renamed, cut or written behind their end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import PurePath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.inode import Inode
from tidelog.batch import is_damaged
from tidelog.log_format import (
    FRAME_HEADER_BYTES,
    ReadAt,
    dump_frames,
    find_frame,
    segment_base,
    walk_frames,
)
from tidelog.model import Batch
from tidelog_broker.log import quarantine
from tidelog_broker.log.epoch_file import EPOCHS_NAME
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_config import LogConfig
from tidelog_broker.log.log_errors import LogStorageError, UndecidedDamageError
from tidelog_broker.log.quarantine import DamagedRange
from tidelog_broker.log.segment import segment_path
from tidelog_broker.log.unsynced_writes import UnsyncedWrites
from unit.broker.log.builders import (
    DIRECTORY,
    batch_at,
    encode_frame,
    log_of,
    read_clean_logs,
)
from unit.broker.log.memory_disk import MemoryDisk

SMALL_SEGMENTS = LogConfig(segment_bytes=500, index_interval_bytes=200)
BATCHES = [batch_at(2 * n, count=2, epoch=1 if n < 5 else 3, size=60) for n in range(16)]
END = BATCHES[-1].header.next_offset
ONLY_COPY = [unsynced for unsynced in UnsyncedWrites if unsynced.is_only_copy]
# Base offsets of the segments, offsets inside of them, and offsets that the log never had.
BASES = [0, 3, 5, 8, 10, 11, 16, 24, 27, END, END + 1000]


Operation = tuple[str, int, int]
OPERATIONS = st.tuples(
    st.sampled_from(
        [
            "remove",
            "copy",
            "rename",
            "truncate",
            "zeros",
            "noise",
            "frames",
            "part",
            "empty",
            "swap",
            "lack",
        ]
    ),
    st.integers(0, 9),
    st.integers(0, 600),
)


def reader(data: bytes) -> ReadAt:
    return lambda size, position: data[position : position + size]


class World:
    """A log of four segments, each of four batches of two records."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        log_of(self.disk, BATCHES, SMALL_SEGMENTS).close()
        self.cut: list[tuple[PurePath, DamagedRange]] = []
        self.is_marked = False

    @property
    def segments(self) -> list[PurePath]:
        return sorted(path for path in self.disk.names if segment_base(path.name) is not None)

    def bytes_of(self, path: PurePath) -> bytes:
        return bytes(self.disk.names[path].data)

    def put(self, path: PurePath, data: bytes) -> None:
        self.disk.names = {**self.disk.names, path: Inode(data, synced=True)}

    def change(self, operation: Operation) -> None:
        kind, which, number = operation
        if not self.segments:
            return
        path = self.segments[which % len(self.segments)]
        other = self.segments[number % len(self.segments)]
        target = segment_path(DIRECTORY, BASES[number % len(BASES)])
        data, others = self.bytes_of(path), self.bytes_of(other)
        frames = [info for info in dump_frames(reader(others), len(others)) if info.header]
        first = frames[number % len(frames)].position if frames else 0
        match kind:
            case "remove":
                self.disk.remove(path)
            case "copy":
                self.put(target, data)
            case "rename":
                self.disk.rename(path, target)
            case "truncate":
                self.put(path, data[: number % (len(data) + 1)])
            case "zeros" | "noise":
                noise = random.Random(number).randbytes(number)
                self.put(path, data + (noise if kind == "noise" else bytes(number)))
            case "frames":
                self.put(path, data + others[first:])
            case "part":
                self.put(path, data + others[first : first + number])
            case "empty":
                self.put(target, b"")
            case "lack":
                start, size = number % (len(data) + 1), 1 + 37 * which
                self.put(path, data[:start] + data[start + size :])
            case "swap":
                self.put(path, others)
                self.put(other, data)

    def valid_offsets(self) -> set[int]:
        """The base offsets of all batches of the log that are in any file."""
        found = set()
        for path in self.segments:
            data = self.bytes_of(path)
            start = 0
            while (at := find_frame(reader(data), start, len(data))) is not None:
                start = at + 1
                first = next(walk_frames(reader(data), len(data), start=at, verify=True))
                if first.fault is None and first.header is not None:
                    found.add(first.header.base_offset)
        return found

    def reopen(
        self, unsynced: UnsyncedWrites, recovery_point: int = 0, min_end_offset: int = END
    ) -> Log:
        def keep(path: PurePath, damaged: DamagedRange, _: bytes) -> None:
            self.cut.append((path, damaged))

        def mark() -> None:
            self.is_marked = True

        return Log.open(
            self.disk,
            DIRECTORY,
            SMALL_SEGMENTS,
            recovery_point=recovery_point,
            min_end_offset=min_end_offset,
            unsynced=unsynced,
            evidence=keep,
            before_loss=mark,
        )


def check_content(log: Log, valid: set[int]) -> None:
    """Every valid batch can be read at its offset, and all other offsets are unreadable."""
    read = read_clean_logs(log)
    sound = [batch for batch in read if not is_damaged(batch.header)]
    assert sound == [batch for batch in BATCHES if batch.header.base_offset in valid]
    offset = log.log_start_offset
    assert offset == 0
    for batch in read:
        assert batch.header.base_offset == offset
        offset = batch.header.next_offset
    assert offset == log.log_end_offset


@pytest.mark.rule("damage-costs-only-its-batch")
@given(
    st.lists(OPERATIONS, min_size=1, max_size=4),
    st.sampled_from(ONLY_COPY),
    st.sampled_from([0, 8, 14, END]),
    st.sampled_from([0, 14, END]),
)
@settings(max_examples=150, deadline=None)
def test_an_only_copy_keeps_each_valid_batch_wherever_it_lies(
    operations: Sequence[Operation],
    unsynced: UnsyncedWrites,
    recovery_point: int,
    min_end_offset: int,
) -> None:
    world = World()
    for operation in operations:
        world.change(operation)
    valid = world.valid_offsets()
    log = world.reopen(unsynced, recovery_point, min_end_offset)
    check_content(log, valid)
    least = max(recovery_point, min_end_offset, max(valid, default=-2) + 2)
    assert least <= log.log_end_offset <= END
    made = [d for _, d in world.cut if d.next_offset > d.first_offset]
    if set(range(0, least, 2)) - valid:
        assert made
        assert log.recovery is not None
        assert log.recovery.damaged
        assert log.recovery.lost_data
    log.append([batch_at(log.log_end_offset, epoch=4)])
    end = log.log_end_offset
    log.close()
    again = world.reopen(unsynced, recovery_point, end)
    assert again.log_end_offset == end
    assert [b for b in read_clean_logs(again) if not is_damaged(b.header)][:-1] == [
        batch for batch in BATCHES if batch.header.base_offset in valid
    ]
    assert not [path for path in world.disk.names if path.suffix in (".aside", ".tmp")]


@given(
    st.lists(OPERATIONS, min_size=1, max_size=4),
    st.sampled_from([unsynced for unsynced in UnsyncedWrites if not unsynced.is_only_copy]),
    st.sampled_from([0, 8, 14, END]),
)
@settings(max_examples=100, deadline=None)
def test_a_replica_with_others_has_no_wrong_batch(
    operations: Sequence[Operation], unsynced: UnsyncedWrites, recovery_point: int
) -> None:
    world = World()
    for operation in operations:
        world.change(operation)
    try:
        log = world.reopen(unsynced, recovery_point)
    except UndecidedDamageError:
        log = world.reopen(unsynced.decided(is_only_copy=False), recovery_point)
    read: list[Batch] = read_clean_logs(log)
    by_offset = {batch.header.base_offset: batch for batch in BATCHES}
    sound = [batch for batch in read if not is_damaged(batch.header)]
    assert all(by_offset[batch.header.base_offset] == batch for batch in sound)
    if {batch.header.base_offset for batch in sound} != set(by_offset):
        is_reported = log.recovery is not None and log.recovery.lost_data
        assert log.log_end_offset < END or is_reported or world.is_marked


@given(st.lists(OPERATIONS, min_size=1, max_size=3), st.integers(1, 30))
@settings(max_examples=80, deadline=None)
def test_an_interrupted_arrangement_loses_no_valid_batch(
    operations: Sequence[Operation], changes: int
) -> None:
    world = World()
    for operation in operations:
        world.change(operation)
    valid = world.valid_offsets()

    class StoppedError(Exception):
        pass

    left = changes

    def count() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise StoppedError

    disk = world.disk
    rename, remove = disk.rename, disk.remove

    def counted_rename(source: PurePath, target: PurePath) -> None:
        count()
        rename(source, target)

    def counted_remove(path: PurePath) -> None:
        count()
        remove(path)

    disk.rename, disk.remove = counted_rename, counted_remove  # type: ignore[method-assign]
    try:
        log = world.reopen(UnsyncedWrites.KEPT_ONLY_COPY)
    except StoppedError:
        disk.rename, disk.remove = rename, remove  # type: ignore[method-assign]
        log = world.reopen(UnsyncedWrites.KEPT_ONLY_COPY)
    check_content(log, valid)


@pytest.mark.rule("damage-costs-only-its-batch")
@pytest.mark.parametrize("unsynced", ONLY_COPY)
@pytest.mark.parametrize("left", [1, 40, FRAME_HEADER_BYTES - 1, FRAME_HEADER_BYTES])
@pytest.mark.parametrize("segment", [1, 3])
@pytest.mark.parametrize("first", [0, 1])
def test_an_only_copy_keeps_what_lies_behind_a_rest_shorter_than_a_header(
    unsynced: UnsyncedWrites, left: int, segment: int, first: int
) -> None:
    world = World()
    path = world.segments[segment]
    data = world.bytes_of(path)
    frame = len(encode_frame(BATCHES[0]))
    world.put(path, data[: first * frame + left] + data[(first + 1) * frame :])
    valid = world.valid_offsets()
    assert len(valid) == len(BATCHES) - 1
    check_content(world.reopen(unsynced, END), valid)


@pytest.mark.rule("damage-costs-only-its-batch")
@pytest.mark.parametrize("first", [0, 1])
def test_an_only_copy_keeps_what_lies_behind_more_noise_than_its_offsets_can_cover(
    monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    monkeypatch.setattr(quarantine, "MAX_FRAME_BYTES", 400)
    world = World()
    path = world.segments[1]
    data = world.bytes_of(path)
    frame = len(encode_frame(BATCHES[0]))
    noise = bytes(1000)  # three unreadable batches, and two offsets
    world.put(path, data[: first * frame] + noise + data[(first + 1) * frame :])
    valid = world.valid_offsets()
    assert len(valid) == len(BATCHES) - 1
    check_content(world.reopen(UnsyncedWrites.KEPT_ONLY_COPY, END), valid)


def foreign_segment(base: int, number: int, epoch: int) -> bytes:
    """A segment of another partition: `number` batches of two records."""
    batches = [batch_at(base + 2 * n, count=2, epoch=epoch, size=50) for n in range(number)]
    return b"".join(map(encode_frame, batches))


@pytest.mark.rule("damage-costs-only-its-batch")
@pytest.mark.parametrize("unsynced", ONLY_COPY)
@pytest.mark.parametrize("epoch", [2, 3, 9])
@pytest.mark.parametrize("number", [1, 3, 4])
@pytest.mark.parametrize("segment", range(3))
@pytest.mark.parametrize("swapped", [(), (2,), (2, 4)])
def test_a_segment_of_another_partition_displaces_no_batch_of_the_log(
    unsynced: UnsyncedWrites, epoch: int, number: int, segment: int, swapped: Sequence[int]
) -> None:
    world = World()
    path = world.segments[segment]
    base = segment_base(path.name)
    assert base is not None
    world.put(path, foreign_segment(base, number, epoch))
    for first in swapped:
        world.change(("swap", first, first + 1))
    log = world.reopen(unsynced, END)
    sound = [batch for batch in read_clean_logs(log) if not is_damaged(batch.header)]
    # The epoch does not distinguish batches of the same one.
    lost = range(base, base + (8 if epoch == 3 and segment > 0 else 6))
    others = [batch for batch in BATCHES if batch.header.base_offset not in lost]
    assert [batch for batch in sound if batch in others] == others
    assert log.log_end_offset == END


@pytest.mark.rule("damage-costs-only-its-batch")
@pytest.mark.parametrize("unsynced", ONLY_COPY)
@pytest.mark.parametrize("has_epochs", [True, False])
@pytest.mark.parametrize("segment", [0, 2])
@pytest.mark.parametrize("number", [4, 6, 9])
def test_the_end_of_an_older_file_displaces_no_later_segment(
    unsynced: UnsyncedWrites, has_epochs: bool, segment: int, number: int
) -> None:
    """The file was restored from a backup: its batches were cut, and others written."""
    world = World()
    path, first = world.segments[segment], BATCHES[3 * segment]
    epoch, base = first.header.leader_epoch, first.header.base_offset
    stale = foreign_segment(base + 6, number - 3, epoch)
    world.put(path, world.bytes_of(path) + stale)
    if not has_epochs:
        world.disk.remove(DIRECTORY / EPOCHS_NAME)
    log = world.reopen(unsynced, END)
    assert read_clean_logs(log) == BATCHES


@pytest.mark.rule("damage-costs-only-its-batch")
def test_batches_of_an_epoch_that_the_file_of_epochs_lacks_stay() -> None:
    world = World()
    latest = batch_at(END, count=2, epoch=7, size=60)
    log = world.reopen(UnsyncedWrites.KEPT_ONLY_COPY)
    epochs = world.bytes_of(DIRECTORY / EPOCHS_NAME)
    log.append([latest])
    log.close()
    world.put(DIRECTORY / EPOCHS_NAME, epochs)
    world.change(("swap", 1, 2))
    log = world.reopen(UnsyncedWrites.KEPT_ONLY_COPY)
    assert read_clean_logs(log) == [*BATCHES, latest]


def world_to_copy(*segments: int) -> World:
    """Each of these segments lies behind a copy of the first batch in another file."""
    world = World()
    for path in [world.segments[segment] for segment in segments]:
        base = segment_base(path.name)
        assert base is not None
        data = encode_frame(BATCHES[0]) + world.bytes_of(path)
        world.disk.remove(path)
        world.put(segment_path(DIRECTORY, 1000 + base), data)
    return world


def test_a_copy_that_does_not_fit_leaves_the_space_free() -> None:
    world = world_to_copy(1)
    world.disk.space = 300
    for _ in range(3):
        with pytest.raises(LogStorageError, match="No space"):
            world.reopen(UnsyncedWrites.KEPT_ONLY_COPY)
        assert not [path for path in world.disk.names if path.suffix == ".tmp"]
    world.disk.space = None
    assert read_clean_logs(world.reopen(UnsyncedWrites.KEPT_ONLY_COPY)) == BATCHES


def test_the_arrangement_needs_space_for_one_file_only() -> None:
    world = world_to_copy(1, 2, 3)
    world.disk.space = 700
    assert read_clean_logs(world.reopen(UnsyncedWrites.KEPT_ONLY_COPY)) == BATCHES
    assert not world.cut


def test_copies_of_the_arranged_batches_free_their_space_first() -> None:
    world = world_to_copy(1)
    world.put(segment_path(DIRECTORY, 5000), world.bytes_of(world.segments[2]))
    world.disk.space = 300
    assert read_clean_logs(world.reopen(UnsyncedWrites.KEPT_ONLY_COPY)) == BATCHES
    assert not world.cut


@pytest.mark.parametrize("unsynced", ONLY_COPY)
@pytest.mark.parametrize("segment", [0, 1, 3])
def test_damage_between_a_later_epoch_and_batches_of_the_log_costs_none_of_them(
    unsynced: UnsyncedWrites, segment: int
) -> None:
    world = World()
    path, base = world.segments[segment], 6 * segment
    frame = len(encode_frame(BATCHES[0]))
    world.put(path, foreign_segment(base, 1, 9) + bytes(100) + world.bytes_of(path)[2 * frame :])
    log = world.reopen(unsynced, END)
    sound = [batch for batch in read_clean_logs(log) if not is_damaged(batch.header)]
    assert sound == [b for b in BATCHES if b.header.base_offset not in (base, base + 2)]


def test_valid_batches_that_are_not_in_the_log_stay_in_their_file() -> None:
    world = World()
    foreign = foreign_segment(0, 3, 9)
    world.put(world.segments[0], foreign)
    world.put(world.segments[2], bytes(300))
    log = world.reopen(UnsyncedWrites.KEPT_ONLY_COPY)
    left = world.segments[0].name + ".0.leftover"
    assert world.bytes_of(DIRECTORY / left) == foreign
    log.close()
    before = set(world.disk.names)
    again = world.reopen(UnsyncedWrites.KEPT_ONLY_COPY)
    assert again.log_end_offset == END
    assert set(world.disk.names) == before
    world.put(world.segments[0], foreign_segment(0, 2, 9))
    world.reopen(UnsyncedWrites.KEPT_ONLY_COPY)
    assert world.bytes_of(DIRECTORY / left) == foreign
    assert DIRECTORY / (world.segments[0].name + ".1.leftover") in world.disk.names


@pytest.mark.parametrize("unsynced", [UnsyncedWrites.KEPT, UnsyncedWrites.LOST])
def test_misplaced_segments_stay_unchanged_until_other_copies_are_known(
    unsynced: UnsyncedWrites,
) -> None:
    world = World()
    world.change(("swap", 1, 2))
    before = {path: bytes(inode.data) for path, inode in world.disk.names.items()}
    with pytest.raises(UndecidedDamageError):
        world.reopen(unsynced)
    assert {path: bytes(inode.data) for path, inode in world.disk.names.items()} == before


@pytest.mark.parametrize(
    "name", ["copy of segment.log", "60.log", f"{10**20 - 1}.log", "a.log.bak.log"]
)
@pytest.mark.parametrize("unsynced", UnsyncedWrites)
def test_files_with_other_names_are_ignored(name: str, unsynced: UnsyncedWrites) -> None:
    world = World()
    world.put(DIRECTORY / name, world.bytes_of(world.segments[0]))
    log = world.reopen(unsynced)
    assert read_clean_logs(log) == BATCHES
    assert log.recovery is not None
    assert not log.recovery.lost_data
    assert DIRECTORY / name in world.disk.names
