"""Counts the entries of JSON, which determine the cost of parsing. Pure.

An entry is a list, an object or an element of one. It can be as short as two bytes.
"""

from __future__ import annotations

import re
from collections.abc import Generator

# Size of the pieces in which a long text is counted.
_PIECE_BYTES = 64 << 10

# A string, or the beginning of one that continues beyond the text.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\Z)', re.DOTALL)
# Appended to a piece: if the piece ends inside a string, the quote closes it and `_LEFT` remains.
_PROBE, _LEFT = b'"$', b"$"


class EntryCounter:
    """Counts entries of a text that arrives in pieces.

    Each list and object counts as one entry, and each element after its first as one more.
    """

    def __init__(self) -> None:
        self.count = 0
        # A quote if the previous piece ended inside a string, and a backslash if the next piece
        # begins with the character that it escapes.
        self._carried = b""

    def feed(self, piece: bytes) -> None:
        """Counts the next piece of a UTF-8 text."""
        text = self._carried + piece
        escape = b"\\" * ((len(text) - len(text.rstrip(b"\\"))) % 2)
        bare = _STRING.sub(b"", text[: len(text) - len(escape)] + _PROBE)
        self._carried = (b'"' if bare.endswith(_LEFT) else b"") + escape
        self.count += _most_entries(bare)


def counting_entries(data: bytes, most: int) -> Generator[None, None, int]:
    """Returns the number of entries of a JSON text. Yields after each piece of a long text.

    A result above `most` is only a lower bound. A result of at most `most` may include
    separators inside of strings.

    >>> from tidelog_runtime.cooperative import finished
    >>> finished(counting_entries(b'{"a": [1, "2,[3"]}', 3))
    3
    """
    counted = _most_entries(data)
    if counted <= most:
        return counted
    counter = EntryCounter()
    for at in range(0, len(data), _PIECE_BYTES):
        counter.feed(data[at : at + _PIECE_BYTES])
        if counter.count > most:
            break
        yield
    return counter.count


def _most_entries(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")
