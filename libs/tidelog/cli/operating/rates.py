"""Parses rates in bytes per second. Pure functions."""

from __future__ import annotations

import re
from decimal import Decimal

from tidelog.cli.exit_status import UsageError

NONE = "none"
MAX_RATE = 2**63 - 1
_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}
_RATE = re.compile(r"(\d{1,19}(?:\.\d{1,9})?)\s*([a-z]*)(?:/s)?", re.ASCII)


def parse_rate(text: str) -> int | None:
    """Returns bytes per second, or None for no bound. Raises `UsageError`.

    >>> parse_rate("50MB"), parse_rate("1.5 MiB/s"), parse_rate("65536"), parse_rate("none")
    (50000000, 1572864, 65536, None)
    """
    stated = text.strip().lower()
    if stated == NONE:
        return None
    match = _RATE.fullmatch(stated)
    rate = round(Decimal(match[1]) * _UNITS[match[2]]) if match and match[2] in _UNITS else -1
    if not 0 <= rate <= MAX_RATE:
        raise UsageError(
            f"{text!r} is no number of bytes per second; give one as 65536, 500kB, 50MB or 64MiB, "
            f"or {NONE} for no bound"
        )
    return rate
