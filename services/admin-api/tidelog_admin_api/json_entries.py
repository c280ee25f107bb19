"""Bounds the JSON entries of a body while it arrives. Pure."""

from __future__ import annotations

from tidelog_admin_api.entry_counter import EntryCounter
from tidelog_admin_api.problems import ProblemError, invalid, malformed

# Entries of all lists and objects of one request, which are parsed and checked in one turn of the
# event loop.
MAX_JSON_ENTRIES = 50_000


class JsonEntries:
    """Counts the entries of one body as `EntryCounter` does."""

    def __init__(self) -> None:
        self._counter = EntryCounter()

    @property
    def count(self) -> int:
        return self._counter.count

    def add(self, piece: bytes) -> None:
        """Counts the next piece.

        Raises `ProblemError` for more than MAX_JSON_ENTRIES, and for a NUL byte: a parser would
        guess UTF-16, whose entries this does not count.
        """
        if b"\0" in piece:
            raise malformed("the body holds a NUL byte, which no JSON in UTF-8 has")
        self._counter.feed(piece)
        if self.count > MAX_JSON_ENTRIES:
            raise too_many_entries(self.count)


def too_many_entries(count: int) -> ProblemError:
    return invalid(
        f"the body has {count} entries or more in all its lists and objects together; a request "
        f"has at most {MAX_JSON_ENTRIES}: send several"
    )
