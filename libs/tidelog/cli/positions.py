"""Positions at which `--from` can begin to read. Pure functions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from tidelog.model import OffsetPosition

_UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_RELATIVE = re.compile(r"-(\d+)([smhd])")
# More digits than any valid offset or age in milliseconds has.
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
    relative = _RELATIVE.fullmatch(time)
    if relative and len(relative[1]) <= _MAX_DIGITS:
        return AtTime(max(0, now_ms - int(relative[1]) * _UNIT_MS[relative[2]]))
    if text.startswith(_TIME_PREFIX):
        try:
            return AtTime(max(0, round(datetime.fromisoformat(time).timestamp() * 1000)))
        except (ValueError, OverflowError, OSError):
            raise ValueError(
                f"{time!r} is not a time; write it as in time:2026-01-31T08:30:00Z or time:-5m"
            ) from None
    raise ValueError(
        f"{text!r} is not a position; it is beginning, end, an offset such as 17, "
        "time:2026-01-31T08:30:00Z, or an age such as -5m (s, m, h, d)"
    )
