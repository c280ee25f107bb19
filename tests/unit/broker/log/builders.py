"""Batches and logs for the tests of the log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import NamedTuple

from tidelog.batch import NO_SEQUENCE, new_batch, stamp
from tidelog.log_format import encode_frame_header
from tidelog.model import NO_EPOCH, NO_PRODUCER_ID, Batch, Codec
from tidelog_broker.log.clean_shutdown import CleanLog
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_config import LogConfig
from tidelog_broker.log.quarantine import Evidence, discard_evidence
from tidelog_broker.log.segment_files import SegmentFiles
from tidelog_broker.log.unsynced_writes import UnsyncedWrites

DIRECTORY = PurePath("/data/orders-0")
START_MS = 1_000_000


class Producer(NamedTuple):
    """The producer fields in the header of a batch."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_EPOCH, NO_SEQUENCE)


class FakeClock:
    def __init__(self) -> None:
        self.now_ms = START_MS

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


def batch_at(
    base_offset: int,
    *,
    count: int = 1,
    epoch: int = 1,
    size: int = 100,
    records: bytes | None = None,
    timestamp_ms: int = START_MS,
    append_time_ms: int = START_MS,
    producer: Producer = NO_PRODUCER,
) -> Batch:
    """A valid batch whose bytes differ from those at every other offset."""
    given = records
    records = base_offset.to_bytes(8, "little") * (size // 8 + 1)
    batch = new_batch(
        records[:size] if given is None else given,
        codec=Codec.NONE,
        record_count=count,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=producer.base_sequence,
    )
    return stamp(batch, base_offset=base_offset, leader_epoch=epoch, append_time_ms=append_time_ms)


def batches_from(base_offset: int, number: int, *, epoch: int = 1, size: int = 100) -> list[Batch]:
    """Batches of one record each."""
    return [batch_at(base_offset + i, epoch=epoch, size=size) for i in range(number)]


def encode_frame(batch: Batch) -> bytes:
    return encode_frame_header(batch) + batch.records


def open_log(
    disk: Disk,
    *,
    config: LogConfig | None = None,
    recovery_point: int | None = None,
    directory: PurePath = DIRECTORY,
    files: SegmentFiles | None = None,
    clean_state: CleanLog | None = None,
    evidence: Evidence = discard_evidence,
    unsynced: UnsyncedWrites = UnsyncedWrites.REWRITTEN,
    min_end_offset: int = 0,
) -> Log:
    """`clean_state` is the result of `ended`: everything up to its end counts as synced, unless a
    recovery point is given. Without either nothing counts as synced.
    """
    if recovery_point is None:
        recovery_point = 0 if clean_state is None else clean_state.end_offset
    return Log.open(
        disk,
        directory,
        config or LogConfig(),
        recovery_point=recovery_point,
        files=files,
        clean_state=clean_state,
        unsynced=unsynced,
        evidence=evidence,
        min_end_offset=min_end_offset,
    )


def ended(log: Log, max_producers: int = 1000) -> CleanLog:
    """Stop the log cleanly."""
    clean_state = log.close_cleanly(max_producers)
    assert clean_state is not None
    return clean_state


def log_of(disk: Disk, batches: Sequence[Batch], config: LogConfig | None = None) -> Log:
    """A new log with these batches, each appended by itself."""
    log = open_log(disk, config=config)
    for batch in batches:
        log.append([batch])
    return log


def read_clean_logs(log: Log) -> list[Batch]:
    batches: list[Batch] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        batches += log.read(offset, max_bytes=1 << 20, up_to=log.log_end_offset)
        offset = batches[-1].header.next_offset
    return batches
