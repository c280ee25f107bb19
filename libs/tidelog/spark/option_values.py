"""Parses the values of options. No I/O.

Every error names the option, its value, and what would be valid.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from tidelog.errors import ErrorCode, InvalidRequestError
from tidelog.model import MAX_INT32

_TRUTH = {"true": True, "false": False}


class OptionError(InvalidRequestError):
    """The user gave an option that does not exist, or an invalid value."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


class OptionTexts:
    """Options by case-insensitive names, as Spark passes them. Raises `OptionError` for an option
    that is neither known nor one of Spark's own (`ignored`)."""

    def __init__(
        self, given: Mapping[str, str], known: Iterable[str], ignored: Iterable[str] = ()
    ) -> None:
        names = {name.lower(): name for name in known}
        ignored_names = {name.lower() for name in ignored}
        for name in given:
            if name.lower() not in names and name.lower() not in ignored_names:
                raise _unknown(name, sorted(names.values()))
        self._texts = {name.lower(): text for name, text in given.items()}

    def text(self, name: str) -> str | None:
        return self._texts.get(name.lower())

    def given(self, *names: str) -> list[str]:
        """Returns those of the names that have a value."""
        return [name for name in names if name.lower() in self._texts]

    def required(self, name: str, example: str) -> str:
        text = (self.text(name) or "").strip()
        if not text:
            raise OptionError(
                f'option {name} is missing; set it, as in .option("{name}", "{example}")'
            )
        return text

    def truth(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.strip().lower() not in _TRUTH:
            raise rejected(name, text, "true or false")
        return _TRUTH[text.strip().lower()]

    def count(self, name: str, smallest: int = 1) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not re.fullmatch(r"\d{1,18}", text.strip()) or int(text) < smallest:
            raise rejected(name, text, f"a whole number, at least {smallest}")
        return int(text)

    def time_ms(self, name: str) -> int | None:
        """Returns milliseconds since 1970 (UTC)."""
        text = self.text(name)
        if text is None:
            return None
        if not re.fullmatch(r"\d{1,18}", text.strip()):
            raise rejected(
                name, text, "a time in milliseconds since 1970 (UTC), such as 1700000000000"
            )
        return int(text)

    def names(self, name: str) -> tuple[str, ...] | None:
        """Returns names separated by commas. Each may occur once."""
        text = self.text(name)
        if text is None:
            return None
        found = [part.strip() for part in text.split(",") if part.strip()]
        if not found:
            raise rejected(name, text, "names, separated by commas")
        twice = sorted({part for part in found if found.count(part) > 1})
        if twice:
            raise rejected(name, text, f"each name once; {', '.join(twice)} occurs twice")
        return tuple(found)

    def pattern(self, name: str) -> str | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            re.compile(text)
        except re.error as error:
            raise rejected(name, text, f"a regular expression of Python's re ({error})") from error
        return text

    def numbers_by_partition(
        self, name: str, smallest: int, expected: str
    ) -> dict[tuple[str, int], int] | None:
        """Parses {"topic": {"0": number}}."""
        text = self.text(name)
        if text is None:
            return None
        found: dict[tuple[str, int], int] = {}
        for topic, of_topic in _json_object(name, text, expected).items():
            if not isinstance(of_topic, dict) or not of_topic:
                raise rejected(name, text, expected)
            for partition, number in of_topic.items():
                if type(number) is not int or number < smallest:
                    raise rejected(name, text, expected)
                found[topic, partition_number(name, text, partition, expected)] = number
        if not found:
            raise rejected(name, text, expected)
        return found

    def partitions_by_topic(self, name: str) -> dict[str, tuple[int, ...]] | None:
        """Parses {"topic": [0, 1]}."""
        text = self.text(name)
        if text is None:
            return None
        expected = 'JSON such as {"sea": [0, 1]}: each topic with its partitions'
        found: dict[str, tuple[int, ...]] = {}
        for topic, partitions in _json_object(name, text, expected).items():
            if not isinstance(partitions, list) or not partitions:
                raise rejected(name, text, expected)
            if any(type(p) is not int or not 0 <= p <= MAX_INT32 for p in partitions):
                raise rejected(name, text, expected)
            found[topic] = tuple(sorted(set(partitions)))
        if not found:
            raise rejected(name, text, expected)
        return found


def partition_number(name: str, text: str, partition: str, expected: str) -> int:
    if not re.fullmatch(r"\d{1,10}", partition) or int(partition) > MAX_INT32:
        raise rejected(name, text, expected)
    return int(partition)


def rejected(name: str, text: str, expected: str) -> OptionError:
    return OptionError(f"option {name} is {text!r}; it must be {expected}")


def _json_object(name: str, text: str, expected: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        raise rejected(name, text, expected) from None
    if not isinstance(value, dict):
        raise rejected(name, text, expected)
    return value


def _unknown(name: str, known: list[str]) -> OptionError:
    kafka = name.lower().removeprefix("kafka.")
    lower = {one.lower(): one for one in known}
    if kafka in lower:
        return OptionError(f"option {name} does not exist; use {lower[kafka]} instead")
    near = difflib.get_close_matches(name.lower(), lower, 1)
    meant = f"did you mean {lower[near[0]]}?" if near else f"there are {', '.join(known)}"
    return OptionError(f"option {name} does not exist; {meant}")
