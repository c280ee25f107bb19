"""How many entries a body of JSON has, counted while it arrives: what parsing costs lies in their
number, and two bytes make one. Pure."""

from __future__ import annotations

import re

from tidelog_admin_api.problems import ProblemError, invalid, malformed

# Of all lists and objects of one request together: what is parsed and checked in one turn of the
# event loop.
MAX_JSON_ENTRIES = 50_000

# Of the values of all records of one page together: those beyond are shown as text.
MAX_PAGE_ENTRIES = 50_000
# Counted in one piece.
_PIECE_BYTES = 64 << 10

# A string, or the beginning of one that goes on to the end.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\Z)', re.DOTALL)
# Put behind a piece: what follows the quote is left where the quote has closed a string.
_PROBE, _LEFT = b'"$', b"$"


class JsonEntries:
    """Each list and object counts as one, and each of its entries after the first as one more."""

    def __init__(self) -> None:
        self.count = 0
        # A quote where a piece ended within a string, and a backslash of which the next piece has
        # what it escapes.
        self._carried = b""

    def add(self, piece: bytes) -> None:
        """Raises `ProblemError` once there are more than MAX_JSON_ENTRIES, and for what is no
        UTF-8: a parser would guess UTF-16, in which entries were counted wrongly."""
        if b"\0" in piece:
            raise malformed("the body holds a NUL byte, which no JSON in UTF-8 has")
        self._count(piece)
        if self.count > MAX_JSON_ENTRIES:
            raise too_many_entries(self.count)

    def count_up_to(self, data: bytes, most: int) -> int:
        """Of data that is there in full; it stops once there are more than `most`."""
        for at in range(0, len(data), _PIECE_BYTES):
            if self.count > most:
                break
            self._count(data[at : at + _PIECE_BYTES])
        return self.count

    def _count(self, piece: bytes) -> None:
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
    return counted if counted <= most else JsonEntries().count_up_to(data, most)


def _most_entries(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def too_many_entries(count: int) -> ProblemError:
    return invalid(
        f"the body has {count} entries or more in all its lists and objects together; a request "
        f"has at most {MAX_JSON_ENTRIES}: send several"
    )
