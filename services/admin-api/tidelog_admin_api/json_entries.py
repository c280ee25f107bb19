"""How many entries a body of JSON has, counted while it arrives: what parsing costs lies in their
number, and two bytes make one. Pure."""

from __future__ import annotations

import re

from tidelog_admin_api.problems import ProblemError, invalid, malformed

# Of all lists and objects of one request together: what is parsed and checked in one turn of the
# event loop.
MAX_JSON_ENTRIES = 50_000

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
        text = self._carried + piece
        escape = b"\\" * ((len(text) - len(text.rstrip(b"\\"))) % 2)
        bare = _STRING.sub(b"", text[: len(text) - len(escape)] + _PROBE)
        self._carried = (b'"' if bare.endswith(_LEFT) else b"") + escape
        self.count += bare.count(b",") + bare.count(b"[") + bare.count(b"{")
        if self.count > MAX_JSON_ENTRIES:
            raise too_many_entries(self.count)


def too_many_entries(count: int) -> ProblemError:
    return invalid(
        f"the body has {count} entries or more in all its lists and objects together; a request "
        f"has at most {MAX_JSON_ENTRIES}: send several"
    )
