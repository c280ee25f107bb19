"""A lease in etcd, kept alive in the background."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from aetcd import rpc

from tidelog_runtime.metadata.etcd_endpoints import HAS_LEADER, Endpoint, EtcdEndpoints
from tidelog_runtime.metadata.store import (
    LeaseLostError,
    StoreClosedError,
    StoreError,
    StoreUnavailableError,
)

# Two of them may fail before the lease expires.
KEEP_ALIVES_PER_TTL = 3


class EtcdLease:
    def __init__(self, endpoints: EtcdEndpoints, lease_id: int, ttl_seconds: int) -> None:
        self._endpoints = endpoints
        self._id = lease_id
        self._interval_ms = ttl_seconds * 1000 // KEEP_ALIVES_PER_TTL
        self._ended = asyncio.Event()
        # The reason why it ended, unless it was lost.
        self._failure: StoreError | None = None
        self._keeping_alive = asyncio.create_task(self._keep_alive())

    @property
    def id(self) -> int:
        return self._id

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    async def wait_lost(self) -> None:
        await self._ended.wait()
        if self._failure is not None:
            raise self._failure

    async def revoke(self) -> None:
        if self._ended.is_set():
            return
        await _end(self._keeping_alive)
        # It may have expired, or an earlier attempt may have succeeded.
        with suppress(LeaseLostError):
            await self._endpoints.read(self._revoke_once, linearizable=False)
        self._ended.set()

    async def close(self) -> None:
        """Ends the keep-alives; the lease then expires by itself."""
        await _end(self._keeping_alive)
        if not self._ended.is_set():
            self._failure = StoreClosedError("the metadata store was closed; its leases expire")
            self._ended.set()

    async def _keep_alive(self) -> None:
        """Sends keep-alives until the store reports that the lease is gone.

        A store that does not answer does not end the lease.
        """
        while True:
            try:
                # No longer than the interval: an endpoint that hangs must not use up the time to
                # live.
                response = await self._endpoints.read(
                    self._keep_alive_once, linearizable=False, timeout_ms=self._interval_ms
                )
            except StoreUnavailableError:
                await asyncio.sleep(self._endpoints.pause_ms(1) / 1000)
                continue
            except StoreError as error:
                # The store was closed, was rolled back, or rejects the request. The lease cannot be
                # kept alive any longer, and `wait_lost` raises the reason.
                self._failure = error
                self._ended.set()
                return
            if response.TTL <= 0:
                self._ended.set()
                return
            await asyncio.sleep(self._interval_ms / 1000)

    async def _keep_alive_once(self, endpoint: Endpoint, timeout_seconds: float) -> Any:
        # etcd offers keep-alives as a stream. A stream for each message needs no state across lost
        # connections, and its cost is negligible at this interval.
        call = endpoint.lease.LeaseKeepAlive(timeout=timeout_seconds, metadata=HAS_LEADER)
        try:
            # The stream may have ended before it began; reading raises the reason.
            with suppress(asyncio.InvalidStateError):
                await call.write(rpc.LeaseKeepAliveRequest(ID=self._id))
            response = await call.read()
            if not isinstance(response, rpc.LeaseKeepAliveResponse):
                raise StoreUnavailableError(
                    f"etcd at {endpoint.address} ended a keep-alive without an answer"
                )
            return response
        finally:
            call.cancel()

    async def _revoke_once(self, endpoint: Endpoint, timeout_seconds: float) -> Any:
        return await endpoint.lease.LeaseRevoke(
            rpc.LeaseRevokeRequest(ID=self._id), timeout=timeout_seconds, metadata=HAS_LEADER
        )


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
