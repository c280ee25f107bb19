"""The state of a fetcher's requests: limits, the fetch in flight, failures and retry delays."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import NamedTuple

from tidelog_broker.replication.transport import ReplicaFetchRequest

FIRST_RETRY_DELAY_S = 0.02
MAX_RETRY_DELAY_S = 0.5


def retry_delay_s(failures: int) -> float:
    """Returns 20 ms after the first failure, then twice as long each time, up to a bound."""
    return min(MAX_RETRY_DELAY_S, FIRST_RETRY_DELAY_S * 2.0 ** min(failures - 1, 10))


class PartitionBackoff(NamedTuple):
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


class UnansweredFetch(NamedTuple):
    """The first of the fetches that one incarnation of a leader has left without an answer.
    `since`: when it was sent (loop time)."""

    broker_epoch: int
    since: float


@dataclass(slots=True)
class InFlightFetch:
    """A fetch that has no answer yet. `abort_timeout`: the timeout that ends it."""

    address: str
    request: ReplicaFetchRequest
    abort_timeout: asyncio.Timeout
    is_completed_early: bool = False


@dataclass(frozen=True, slots=True)
class FetchLimits:
    max_wait_ms: int
    max_bytes: int
    max_partition_bytes: int


class Problem(NamedTuple):
    """Why fetching fails, and since when (loop time). `answered`: the leader itself reported it,
    so it can be reached."""

    why: str
    since: float
    answered: bool
