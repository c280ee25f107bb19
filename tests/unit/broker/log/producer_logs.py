"""Logs of batches by producers, and the producer states that they hold."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tidelog.batch import new_fence, stamp
from tidelog.log_format import FRAME_HEADER_BYTES
from tidelog.model import FIRST_NAMED_PRODUCER_ID, Batch
from tidelog_broker.core.partition.producer_state import ProducerStates
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_config import LogConfig
from tidelog_broker.log.producer_history import SNAPSHOT_SUFFIX, snapshot_name
from unit.broker.log.builders import (
    DIRECTORY,
    START_MS,
    Producer,
    batch_at,
    encode_frame,
    log_of,
    open_log,
)
from unit.broker.log.memory_disk import MemoryDisk

A, B, NAMED = 1, 2, FIRST_NAMED_PRODUCER_ID + 1
FRAME = len(encode_frame(batch_at(0)))
# Two batches each.
SMALL_SEGMENTS = LogConfig(segment_bytes=2 * FRAME, index_interval_bytes=100)


def written(*producers: int, start: int = 0) -> list[Batch]:
    """Append a batch of one record by each producer in turn."""
    sequences: dict[int, int] = {}
    batches = []
    for offset, producer in enumerate(producers, start):
        sequence = sequences.get(producer, 0)
        sequences[producer] = sequence + 1
        batches.append(batch_at(offset, producer=Producer(producer, 0, sequence)))
    return batches


def fence_at(offset: int, epoch: int) -> Batch:
    fence = new_fence(NAMED, epoch, START_MS)
    return stamp(fence, base_offset=offset, leader_epoch=1, append_time_ms=START_MS)


def states_of(batches: Sequence[Batch]) -> ProducerStates:
    states = ProducerStates()
    for batch in batches:
        states.note(batch.header)
    return states


def known(log: Log) -> object:
    return log.producers.states.entries


def expected(batches: Sequence[Batch]) -> object:
    return states_of(batches).entries


def snapshots(disk: MemoryDisk) -> list[int]:
    names = [path.name for path in disk.names if path.suffix == SNAPSHOT_SUFFIX]
    return sorted(int(name.removesuffix(SNAPSHOT_SUFFIX)) for name in names)


def segments_read(disk: MemoryDisk) -> set[int]:
    """The segments of which more than a header was read."""
    return {
        int(path.stem)
        for path, size in disk.reads
        if path.suffix == ".log" and size > FRAME_HEADER_BYTES
    }


reopen = partial(open_log, config=SMALL_SEGMENTS)

BATCHES = written(A, B, A, NAMED, A, B, A)


def expired(disk: MemoryDisk, batches: Sequence[Batch], up_to: int) -> Log:
    config = LogConfig(segment_bytes=2 * FRAME, index_interval_bytes=100, retention_bytes=0)
    log = log_of(disk, batches, config)
    log.delete_old_segments(START_MS, up_to)
    return log


def spoil(disk: MemoryDisk, offset: int, suffix: str, damage: str = "a bit flipped") -> None:
    path = DIRECTORY / snapshot_name(offset, suffix)
    if damage == "removed":
        disk.remove(path)
    else:
        disk.names[path].data[-3] ^= 1
