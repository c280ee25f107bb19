"""Positions and times between which `consume` reads. Pure functions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from tidelog.model import OffsetPosition
from tidelog.units import parse_duration_ms

# An age has a unit. `time:` and `--since` also accept it without the sign.
_AGE = re.compile(r"-?\d.*[a-z]", re.ASCII)
# Milliseconds since 1970 have this many digits from 1973 to 33658. Fewer are more likely an age
# whose unit was forgotten, or seconds since 1970.
_EPOCH_MS = re.compile(r"\d{12,15}", re.ASCII)
# More digits than any valid offset has.
_MAX_DIGITS = 18
_TIME_PREFIX = "time:"


@dataclass(frozen=True, slots=True)
class AtOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time, in milliseconds since 1970 (UTC)."""

    timestamp_ms: int


Position = OffsetPosition | AtOffset | AtTime


def parse_position(text: str, now_ms: int) -> Position:
    """Parses a position. A time without a zone is local time, as in ISO 8601. Raises ValueError.

    >>> parse_position("17", now_ms=0)
    AtOffset(offset=17)
    >>> parse_position("-5m", now_ms=1_000_000)
    AtTime(timestamp_ms=700000)
    >>> parse_position("time:1970-01-01T00:00:02Z", now_ms=0)
    AtTime(timestamp_ms=2000)
    """
    if text == "beginning":
        return OffsetPosition.EARLIEST
    if text == "end":
        return OffsetPosition.LATEST
    if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS:
        return AtOffset(int(text))
    time = text.removeprefix(_TIME_PREFIX)
    if time.startswith("-") and (age_ms := _age_ms(time)) is not None:
        return AtTime(max(0, now_ms - age_ms))
    if text.startswith(_TIME_PREFIX):
        time_ms = _iso_ms(time)
        if time_ms is None:
            raise ValueError(
                f"{time!r} is not a time; write it as in time:2026-01-31T08:30:00Z or time:-5m"
            )
        return AtTime(time_ms)
    raise ValueError(
        f"{text!r} is not a position; it is beginning, end, an offset such as 17, "
        "time:2026-01-31T08:30:00Z, or an age such as -5m (ms, s, m, h, d)"
    )


def parse_moment(text: str, now_ms: int) -> int:
    """Returns milliseconds since 1970 of an age, an ISO 8601 time, or such a number. A time without
    a zone is local time. Raises ValueError.

    >>> parse_moment("10m", now_ms=1_000_000), parse_moment("1970-01-01T00:00:02Z", now_ms=0)
    (400000, 2000)
    >>> parse_moment("1767225600000", now_ms=0)
    1767225600000
    """
    if _EPOCH_MS.fullmatch(text):
        return int(text)
    age_ms = _age_ms(text)
    if age_ms is not None:
        return max(0, now_ms - age_ms)
    # Python reads "20260131" as a date, which may as well be an age without its unit.
    time_ms = None if text.isdecimal() else _iso_ms(text)
    if time_ms is None:
        raise ValueError(
            f"{text!r} is neither an age, as 10m or 2h, nor a time, as 2026-01-31T08:30:00Z or "
            "1767225600000 (milliseconds since 1970)"
        )
    return time_ms


def _age_ms(text: str) -> int | None:
    if not _AGE.fullmatch(text):
        return None
    try:
        return parse_duration_ms(text.removeprefix("-"))
    except ValueError:
        return None


def _iso_ms(text: str) -> int | None:
    try:
        return max(0, round(datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        return None
