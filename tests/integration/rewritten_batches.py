"""Replaces a batch on a disk by another one with valid checksums."""

from __future__ import annotations

from pathlib import Path

from tidelog.batch import producer_crc32c, stamp
from tidelog.log_dump import dump_log
from tidelog.log_format import FRAME_HEADER_BYTES, encode_frame_header
from tidelog.model import Batch


def rewrite_a_batch(replica: Path, value: bytes, other: bytes) -> int:
    """Replaces `value` by `other`, which has the same length, in a batch in the middle of the log;
    returns its base offset."""
    assert len(value) == len(other)
    frames = [(segment, info) for segment, info in dump_log(replica) if info.header is not None]
    segment, info = frames[len(frames) // 2]
    header = info.header
    assert header is not None
    with segment.open("r+b") as file:
        file.seek(info.position + FRAME_HEADER_BYTES)
        records = file.read(info.size - FRAME_HEADER_BYTES)
        assert value in records
        changed = records.replace(value, other, 1)
        unstamped = Batch(header._replace(crc32c=producer_crc32c(header, changed)), changed)
        batch = stamp(
            unstamped,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            append_time_ms=header.append_time_ms,
        )
        file.seek(info.position)
        file.write(encode_frame_header(batch) + changed)
    assert all(info.fault is None for _, info in dump_log(replica))
    return header.base_offset
