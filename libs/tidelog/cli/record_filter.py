"""Which records `consume` shows. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tidelog.model import Record


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Accepts records that match every condition that is given.

    - `key`: exactly these bytes.
    - `pattern`: found in the key, in the value or in a header as `name=value`, each as text. Bytes
      that are not UTF-8 count as U+FFFD.
    - `value_text`: the text of a value that `pattern` searches.
    """

    key: bytes | None = None
    pattern: re.Pattern[str] | None = None
    value_text: Callable[[bytes], str] | None = None

    @property
    def is_set(self) -> bool:
        return self.key is not None or self.pattern is not None

    def accepts(self, record: Record) -> bool:
        if self.key is not None and record.key != self.key:
            return False
        return self.pattern is None or self._finds(self.pattern, record)

    def _finds(self, pattern: re.Pattern[str], record: Record) -> bool:
        if record.key is not None and pattern.search(_text(record.key)):
            return True
        if record.value is not None:
            text = (self.value_text or _text)(record.value)
            if pattern.search(text):
                return True
        return any(pattern.search(f"{name}={_text(value)}") for name, value in record.headers)


def parse_pattern(text: str) -> re.Pattern[str]:
    """Returns a compiled pattern in Python's syntax. Raises ValueError."""
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(
            f"{text!r} is not a regular expression ({error}); put \\ before a character such as "
            "( or * to search for it, as in 'tide \\(ebb\\)'"
        ) from None


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
