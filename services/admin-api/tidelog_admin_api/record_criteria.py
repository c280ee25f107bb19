"""What a search looks for in records. Pure.

Text is compared as UTF-8 with the bytes of keys, values and headers. Case matters.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Generator
from typing import Any, NamedTuple

from pydantic_core import from_json

from tidelog.model import Record
from tidelog_admin_api.entry_counter import counting_entries

# Values above this size, or with more entries of JSON, are not examined.
MAX_EXAMINED_BYTES = 2 << 20
MAX_EXAMINED_ENTRIES = 20_000
MAX_PATH_STEPS = 20

Path = tuple[str | int, ...]

_STEP = re.compile(
    r"""
    (?:^|\.)(?P<name>[^.\[\]"]+)        # a name, after a dot unless it is the first
    | \[(?P<index>[0-9]{1,9})\]         # the index of an element
    | \[(?P<quoted>"(?:[^"\\]|\\.)*")\] # any name, as a JSON string
    """,
    re.VERBOSE,
)
_ABSENT = object()


class WrongPathError(ValueError):
    """The text is not a JSON path; the message says what is valid."""


class Verdict(enum.Enum):
    MATCH = enum.auto()
    NO_MATCH = enum.auto()
    # The value is too large.
    NOT_EXAMINED = enum.auto()


def parse_path(text: str) -> Path:
    """Returns the steps of a path: names of fields and indexes of elements.

    Raises `WrongPathError`.

    >>> parse_path('order.items[0]["net.price"]')
    ('order', 'items', 0, 'net.price')
    >>> parse_path('$.order')
    ('order',)
    """
    # A name may begin with "$".
    rest = text[1:].removeprefix(".") if text[:2] in ("$", "$.", "$[") else text
    steps: list[str | int] = []
    at = 0
    while at < len(rest):
        step = _STEP.match(rest, at)
        if step is None:
            raise WrongPathError(
                f"it has no name and no [index] at character {len(text) - len(rest) + at}; a path "
                'is such as order.items[0].id or order["net.price"]'
            )
        steps.append(_step(step))
        at = step.end()
    if not 0 < len(steps) <= MAX_PATH_STEPS:
        raise WrongPathError(f"it has {len(steps)} steps; a path has 1 to {MAX_PATH_STEPS}")
    return tuple(steps)


def _step(step: re.Match[str]) -> str | int:
    if step["index"] is not None:
        return int(step["index"])
    if step["quoted"] is None:
        return step["name"]
    try:
        name: str = json.loads(step["quoted"])
    except ValueError as error:
        raise WrongPathError(f"{step['quoted']} is not a JSON string: {error}") from error
    return name


class Criteria(NamedTuple):
    """What a record has to have; a criterion that is None is met by every record.

    - `key`: exactly this key; `key_has`, `value_has`: these bytes within the key or value
    - `header`: a header with this name; `header_value`: whose value is exactly this
    - `path`: the value is JSON and has an element there
    - `equals`: text, or the JSON of a string, number, true, false or null, that the element equals
    """

    key: bytes | None = None
    key_has: bytes | None = None
    value_has: bytes | None = None
    header: str | None = None
    header_value: bytes | None = None
    path: Path | None = None
    equals: str | None = None

    def examining(self, record: Record) -> Generator[None, None, Verdict]:
        """Examines a record. Yields between steps that take long for a large value."""
        if not self._key_and_headers_match(record):
            return Verdict.NO_MATCH
        if self.value_has is None and self.path is None:
            return Verdict.MATCH
        value = record.value
        if value is None:
            return Verdict.NO_MATCH
        if len(value) > MAX_EXAMINED_BYTES:
            return Verdict.NOT_EXAMINED
        if self.value_has is not None and self.value_has not in value:
            return Verdict.NO_MATCH
        if self.path is None:
            return Verdict.MATCH
        yield
        return (yield from self._examining_json(value, self.path))

    def _key_and_headers_match(self, record: Record) -> bool:
        if self.key is not None and record.key != self.key:
            return False
        if self.key_has is not None and self.key_has not in (record.key or b""):
            return False
        return self.header is None or any(
            name == self.header and self.header_value in (None, value)
            for name, value in record.headers
        )

    def _examining_json(self, value: bytes, path: Path) -> Generator[None, None, Verdict]:
        entries = yield from counting_entries(value, MAX_EXAMINED_ENTRIES)
        if entries > MAX_EXAMINED_ENTRIES:
            return Verdict.NOT_EXAMINED
        yield
        try:
            found = from_json(value, allow_inf_nan=False, cache_strings=False)
        except ValueError:
            return Verdict.NO_MATCH
        for step in path:
            found = _element(found, step)
        if found is _ABSENT:
            return Verdict.NO_MATCH
        is_match = self.equals is None or _equals(found, self.equals)
        return Verdict.MATCH if is_match else Verdict.NO_MATCH


def _element(value: Any, step: str | int) -> Any:
    if isinstance(step, str):
        return value.get(step, _ABSENT) if isinstance(value, dict) else _ABSENT
    return value[step] if isinstance(value, list) and step < len(value) else _ABSENT


def _equals(found: Any, text: str) -> bool:
    if found == text:
        return True
    try:
        sought = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if isinstance(found, dict | list) or isinstance(sought, dict | list):
        return False
    # In Python, True equals 1.
    return isinstance(found, bool) is isinstance(sought, bool) and found == sought
