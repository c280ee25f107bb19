"""Delays after fetches that fail. Pure."""

from __future__ import annotations

from typing import NamedTuple

FIRST_RETRY_DELAY_S = 0.02
MAX_RETRY_DELAY_S = 0.5


def retry_delay_s(failures: int) -> float:
    """Returns 20 ms after the first failure, then twice as long each time, up to a bound."""
    return min(MAX_RETRY_DELAY_S, FIRST_RETRY_DELAY_S * 2.0 ** min(failures - 1, 10))


class HeldBack(NamedTuple):
    """A partition that is left out because it fails on its own.

    Otherwise it would turn the long poll of all others into a busy loop.

    - `release`: loop time at which it is fetched again.
    - `why`: the reason of the last failure.
    - `since`: loop time since when it fails.
    - `is_rejected`: the leader answered, and its data does not fit this log.
    """

    release: float
    failures: int
    why: str
    since: float
    is_rejected: bool = False
