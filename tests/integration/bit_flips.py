"""Flips a bit on a disk."""

from __future__ import annotations

from pathlib import Path

from tidelog.log_dump import dump_log


def flip_a_bit(replica: Path, batch: int | None = None) -> int:
    """Flips a bit in the records of the batch of this number, or of one in the middle; returns its
    base offset."""
    frames = [(segment, info) for segment, info in dump_log(replica) if info.header is not None]
    segment, info = frames[len(frames) // 2 if batch is None else batch]
    assert info.header is not None
    with segment.open("r+b") as file:
        file.seek(info.position + info.size - 5)
        [byte] = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte ^ 4]))
    return info.header.base_offset
