"""How a broker reaches other brokers. `edge/replica_client.py` is the real one; the
simulator has its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tidelog.errors import TidelogError
from tidelog_broker.partition.exchange import FetchAnswer, FetchPosition


class ReplicaKey(NamedTuple):
    """A partition of one very topic, also after its name is used again (KIP-516)."""

    topic_id: str
    partition: int


class ReplicaFetchEntry(NamedTuple):
    replica: ReplicaKey
    position: FetchPosition
    max_bytes: int


class ReplicaFetchRequest(NamedTuple):
    broker_id: int
    broker_epoch: int
    leader_broker_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    entries: Sequence[ReplicaFetchEntry]


class ReplicaFetchResult(NamedTuple):
    """One of `answer` and `error` is set."""

    replica: ReplicaKey
    answer: FetchAnswer | None
    error: TidelogError | None
    log_start_offset: int


class ReplicaFetchResponse(NamedTuple):
    error: TidelogError | None
    results: Sequence[ReplicaFetchResult]


class PeerUnreachableError(Exception):
    """No answer from the other broker."""


class Peers(Protocol):
    """Every other broker, by address. Raises `PeerUnreachableError`."""

    async def replica_fetch(
        self, address: str, request: ReplicaFetchRequest
    ) -> ReplicaFetchResponse: ...

    async def close(self) -> None: ...
