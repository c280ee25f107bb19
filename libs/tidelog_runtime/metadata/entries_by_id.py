"""The values of keys that end with an id, kept up to date by changes. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from tidelog_runtime.metadata.store import KeyValue

_Entry = TypeVar("_Entry")


class EntriesById(Generic[_Entry]):
    """The values of the keys `prefix` + id.

    - `decode`: raises KeyError, TypeError or ValueError for a value that no service writes.
    """

    def __init__(self, prefix: str, decode: Callable[[bytes], _Entry]) -> None:
        self._prefix = prefix
        self._decode = decode
        self._entries: dict[int, _Entry] = {}

    def clear(self) -> None:
        self._entries.clear()

    def take(self, key: str, item: KeyValue | None) -> None:
        """Applies a change. Ignores keys of another form.

        A value that no service writes counts as absent.
        """
        number = key.removeprefix(self._prefix)
        if number == key or not number.isdecimal():
            return
        self._entries.pop(int(number), None)
        if item is not None:
            with suppress(KeyError, TypeError, ValueError):
                self._entries[int(number)] = self._decode(item.value)
