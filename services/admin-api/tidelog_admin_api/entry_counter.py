"""Counts the entries of JSON: what parsing costs lies in their number, and two bytes make one.
Pure."""

from __future__ import annotations

import re

# Counted in one piece.
_PIECE_BYTES = 64 << 10

# A string, or the beginning of one that goes on to the end.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\Z)', re.DOTALL)
# Put behind a piece: what follows the quote is left where the quote has closed a string.
_PROBE, _LEFT = b'"$', b"$"


class EntryCounter:
    """Each list and object counts as one, and each of its entries after the first as one more."""

    def __init__(self) -> None:
        self.count = 0
        # A quote where a piece ended within a string, and a backslash of which the next piece has
        # what it escapes.
        self._carried = b""

    def feed(self, piece: bytes) -> None:
        """The pieces of a text, one after the other. In UTF-8."""
        text = self._carried + piece
        escape = b"\\" * ((len(text) - len(text.rstrip(b"\\"))) % 2)
        bare = _STRING.sub(b"", text[: len(text) - len(escape)] + _PROBE)
        self._carried = (b'"' if bare.endswith(_LEFT) else b"") + escape
        self.count += _most_entries(bare)


def entries_in(data: bytes, most: int) -> int:
    """As JSON; where there are more than `most` some number beyond it, and otherwise perhaps with
    what strings hold.

    >>> entries_in(b'{"a": [1, "2,[3"]}', 3)
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
    return counter.count


def _most_entries(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")
