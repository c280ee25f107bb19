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


# As `session_id`: of a request, that it names every partition and opens a session; of a
# response, that there is none.
NO_SESSION = 0


class ReplicaFetchRequest(NamedTuple):
    """`session_sequence`: which request of its session this is, from 1 on; with NO_SESSION
    which session of the follower's life. `synced`: which of the follower's two fetches this
    is (see `fetchers`). `forgotten`: partitions that leave the session."""

    broker_id: int
    broker_epoch: int
    leader_broker_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    entries: Sequence[ReplicaFetchEntry]
    session_id: int = NO_SESSION
    session_sequence: int = 0
    synced: bool = False
    forgotten: Sequence[ReplicaKey] = ()


class ReplicaFetchResult(NamedTuple):
    """One of `answer` and `error` is set."""

    replica: ReplicaKey
    answer: FetchAnswer | None
    error: TidelogError | None
    log_start_offset: int


class ReplicaFetchResponse(NamedTuple):
    """`session_id`: to be named in the next request."""

    error: TidelogError | None
    results: Sequence[ReplicaFetchResult]
    session_id: int = NO_SESSION


class PeerUnreachableError(Exception):
    """No answer from the other broker."""


class Peers(Protocol):
    """Every other broker, by address. Raises `PeerUnreachableError`."""

    async def replica_fetch(
        self, address: str, request: ReplicaFetchRequest
    ) -> ReplicaFetchResponse: ...

    async def close(self) -> None: ...
