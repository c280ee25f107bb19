"""A history in a file, or in the files of a directory ordered by name, and its lines by range.

Every executor must be able to read the files: a path, or a URI that Arrow supports.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple, cast

from pyarrow import fs

from tidelog.history import HistoryError
from tidelog.history.history_file import MAX_LINE_BYTES
from tidelog.history.history_format import check_header
from tidelog_pipeline.job_command import JobError

RANGE_BYTES = 32 << 20
_CHUNK_BYTES = 1 << 20
# Names of files that Spark and Hadoop leave beside their own.
_HIDDEN = ("_", ".")


class HistoryNotFoundError(JobError):
    """There is no such history; the message says what is expected."""


class HistoryFile(NamedTuple):
    uri: str
    size_bytes: int


class ByteRange(NamedTuple):
    """A range of a file. It contains the lines that begin in it."""

    uri: str
    start: int
    end: int


def find_files(location: str) -> list[HistoryFile]:
    """Returns the files that are not empty.

    Raises `HistoryNotFoundError`, and `HistoryError` if the first file does not begin as a
    history.
    """
    uri = location if "://" in location else str(Path(location).absolute())
    system, path = _open_system(uri)
    found = system.get_file_info(path)
    if found.type == fs.FileType.NotFound:
        raise HistoryNotFoundError(
            f"there is no history {location}; give a file, or a directory whose files are one "
            "history in the order of their names"
        )
    if found.type == fs.FileType.File:
        infos = [found]
    else:
        listed = system.get_file_info(fs.FileSelector(path))
        infos = [one for one in listed if _is_part(one)]
    base = uri.removesuffix(path) if "://" in uri else ""
    files = [
        HistoryFile(base + one.path, one.size)
        for one in sorted(infos, key=lambda one: one.path)
        if one.size
    ]
    if not files:
        raise HistoryError(f"{location} is empty; a history has at least its first line")
    _check_first_line(location, files[0])
    return files


def _is_part(info: fs.FileInfo) -> bool:
    name = PurePosixPath(info.path).name
    return info.type == fs.FileType.File and not name.startswith(_HIDDEN)


def _check_first_line(location: str, file: HistoryFile) -> None:
    line = next(lines_of(ByteRange(file.uri, 0, 1)))
    try:
        check_header(line)
    except HistoryError as error:
        raise HistoryError(f"{location}, line 1: {error}") from error


def ranges_of(files: list[HistoryFile], range_bytes: int = RANGE_BYTES) -> list[ByteRange]:
    """Returns ranges in the order of the history.

    >>> [one[1:] for one in ranges_of([HistoryFile("h", 25)], 10)]
    [(0, 10), (10, 20), (20, 25)]
    """
    return [
        ByteRange(file.uri, start, min(start + range_bytes, file.size_bytes))
        for file in files
        for start in range(0, file.size_bytes, range_bytes)
    ]


def count_lines(span: ByteRange) -> int:
    """Returns the number of lines that begin in the range: at the start or after a newline."""
    begin = max(0, span.start - 1)
    count, left = int(span.start == 0), span.end - 1 - begin
    with _open(span.uri) as file:
        file.seek(begin)
        while left > 0 and (chunk := file.read(min(left, _CHUNK_BYTES))):
            count += chunk.count(b"\n")
            left -= len(chunk)
    return count


def lines_of(span: ByteRange) -> Iterator[bytes]:
    """Yields lines with their newlines.

    The last line of a file may lack one. A line that is longer than allowed comes in parts of
    at most `MAX_LINE_BYTES`.
    """
    with _open(span.uri) as file:
        at = span.start
        if at:
            # A line may begin exactly here, after the end of the previous one.
            file.seek(at - 1)
            at = at - 1 + _skip_line(file)
        while at < span.end and (line := file.readline(MAX_LINE_BYTES)):
            at += len(line)
            yield line


def _skip_line(file: BinaryIO) -> int:
    skipped = 0
    while part := file.readline(_CHUNK_BYTES):
        skipped += len(part)
        if part.endswith(b"\n"):
            break
    return skipped


def _open_system(uri: str) -> tuple[fs.FileSystem, str]:
    if "://" not in uri:
        return fs.LocalFileSystem(), uri
    try:
        system, path = fs.FileSystem.from_uri(uri)
    except (OSError, ValueError) as error:
        raise HistoryNotFoundError(f"{uri} cannot be opened: {error}") from error
    return system, path


def _open(uri: str) -> BinaryIO:
    system, path = _open_system(uri)
    if isinstance(system, fs.LocalFileSystem):
        return Path(path).open("rb")
    return io.BufferedReader(cast(io.RawIOBase, system.open_input_file(path)), _CHUNK_BYTES)
