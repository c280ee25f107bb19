"""Producers and consumers for requests. Their connections are kept between requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Self

from tidelog.client import Consumer, Producer
from tidelog.client.admin_api import AdminApi
from tidelog.client.connections import BrokerApi, Connections, GrpcConnections
from tidelog.client.published_events import Published, published
from tidelog.model import Acks
from tidelog.record_limits import HIGHEST_MAX_BATCH_BYTES
from tidelog.state_changes.tracing import TraceScope

# Longer than any timeout of a request. Then the producer drops the record.
DELIVERY_TIMEOUT_MS = 300_000
# Large batches (up to 64 MiB decompressed) that are opened at a time. Each is opened in a thread,
# which can delay the event loop.
MAX_LARGE_BATCHES = 4
# Bytes that a consumer reads ahead. Most requests use few of them.
MAX_FETCH_BYTES = 1 << 20


class _Kept:
    """Connections that all consumers share. A consumer does not close them."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def broker(self, address: str) -> BrokerApi:
        return self._connections.broker(address)

    def controller(self, address: str) -> AdminApi:
        return self._connections.controller(address)

    async def close(self) -> None: ...


class RecordClients:
    def __init__(self, bootstrap: Sequence[str]) -> None:
        self._bootstrap = list(bootstrap)
        self._connections = GrpcConnections()
        self._opening_room = asyncio.Semaphore(MAX_LARGE_BATCHES)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connections.close()

    def producer(self, acks: Acks) -> Producer:
        return Producer(
            self._bootstrap,
            acks=acks,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            # The topic's max_batch_bytes is the limit that applies.
            max_request_bytes=HIGHEST_MAX_BATCH_BYTES,
        )

    def consumer(self, timeout_ms: int) -> Consumer:
        """Returns a consumer for one read.

        - `timeout_ms`: how long leaders may take to report the offsets of their logs
        """
        return Consumer(
            self._bootstrap,
            max_bytes=MAX_FETCH_BYTES,
            prefetch_bytes=MAX_FETCH_BYTES,
            offsets_timeout_ms=timeout_ms,
            connections=_Kept(self._connections),
            opening_room=self._opening_room,
        )

    async def published(self, scope: TraceScope) -> Published:
        return await published(self._bootstrap, scope, connections=_Kept(self._connections))
