"""How long a fetcher leaves out what fails. Pure."""

from __future__ import annotations

from typing import NamedTuple

FIRST_RETRY_DELAY_S = 0.02
MAX_RETRY_DELAY_S = 0.5


def retry_delay_s(failures: int) -> float:
    """After the first failure 20 ms, then twice as long each time, up to a bound."""
    return min(MAX_RETRY_DELAY_S, FIRST_RETRY_DELAY_S * 2.0 ** min(failures - 1, 10))


class HeldBack(NamedTuple):
    """A partition that fails on its own is left out until `release` (loop time), so that
    it does not turn the long poll of all others into a busy loop. `why` it failed last, and
    `since` when it does. `is_rejected`: the leader answered, and its data cannot follow here."""

    release: float
    failures: int
    why: str
    since: float
    is_rejected: bool = False
