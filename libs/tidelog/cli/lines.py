"""Splits input into lines, and lines into records. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

# The largest batch that a topic can allow. A longer line is not kept in memory.
MAX_LINE_BYTES = 16 << 20
_ESCAPES = {"\\t": "\t", "\\0": "\0", "\\n": "\n", "\\r": "\r", "\\\\": "\\"}


class Line(NamedTuple):
    """A line without its newline, numbered from 1. `data` is None if it is too long."""

    number: int
    data: bytes | None


class LineRecord(NamedTuple):
    """A record to produce. Without a partition the key chooses one; without a timestamp it has the
    time at which it is sent."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class LineError(Exception):
    """A line cannot become a record; the message has the reason."""


class LineSplitter:
    """Splits chunks at newlines. Holds at most `max_line_bytes` and one chunk."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._rest: list[bytes] = []
        self._rest_bytes = 0
        self._too_long = False
        self._number = 0

    def feed(self, chunk: bytes) -> Iterator[Line]:
        first, *others = chunk.split(b"\n")
        self._keep(first)
        for piece in others:
            yield self._finish()
            self._keep(piece)

    def end(self) -> Iterator[Line]:
        """Yields the last line if it does not end with a newline."""
        if self._rest_bytes or self._too_long:
            yield self._finish()

    def _keep(self, piece: bytes) -> None:
        self._rest_bytes += len(piece)
        if self._rest_bytes > self._max_line_bytes:
            self._too_long = True
            self._rest.clear()
        elif piece and not self._too_long:
            self._rest.append(piece)

    def _finish(self) -> Line:
        self._number += 1
        line = Line(self._number, None if self._too_long else b"".join(self._rest))
        self._rest.clear()
        self._rest_bytes = 0
        self._too_long = False
        return line


def parse_separator(text: str) -> bytes:
    r"""Returns the separator of key and value. \t, \0, \n, \r and \\ may be given as shells pass
    them. Raises ValueError.

    >>> parse_separator(":"), parse_separator("\\t")
    (b':', b'\t')
    """
    separator = _ESCAPES.get(text, text).encode("utf-8", "surrogateescape")
    if not separator:
        raise ValueError("it is empty; give at least one character, as ':' or '\\t'")
    return separator


def to_record(line: Line, separator: bytes | None) -> LineRecord:
    """Splits a line into key and value. Raises `LineError`."""
    if line.data is None:
        raise LineError(f"longer than {MAX_LINE_BYTES:,} bytes, which no batch can hold")
    if separator is None:
        return LineRecord(None, line.data)
    key, found, value = line.data.partition(separator)
    if not found:
        raise LineError(
            f"has no {separator.decode('utf-8', 'replace')!r} between key and value; "
            "add it, or leave out --key-separator"
        )
    return LineRecord(key, value)
