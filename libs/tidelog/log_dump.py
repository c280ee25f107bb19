"""Reads segment files for `tidelog dump-log`, from the disk of a running broker or from a copy.
Writes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tidelog.log_format import FrameInfo, dump_frames, segment_base, segment_name


def segment_paths(path: Path) -> list[Path]:
    """Returns the segment file itself, or the segments of a partition's directory, oldest first.

    Like the broker, it ignores files of a directory that have no segment's name. Raises
    `FileNotFoundError` if there is none."""
    if path.is_dir():
        segments = sorted(file for file in path.iterdir() if segment_base(file.name) is not None)
        if not segments:
            raise FileNotFoundError(
                f"{path} has no segment ({segment_name(0)}, for instance); name a partition's "
                f"directory or one of its segments"
            )
        return segments
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is no file; name a partition's directory or one of its segments"
        )
    return [path]


def dump_segment(path: Path) -> Iterator[FrameInfo]:
    """Yields the frames of one segment file, damaged ranges included."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield from dump_frames(
            lambda size, position: os.pread(descriptor, size, position),
            os.fstat(descriptor).st_size,
        )
    finally:
        os.close(descriptor)


def dump_log(path: Path) -> Iterator[tuple[Path, FrameInfo]]:
    """Yields the frames of a segment or of a partition, each with its file."""
    for segment in segment_paths(path):
        for info in dump_segment(segment):
            yield segment, info
