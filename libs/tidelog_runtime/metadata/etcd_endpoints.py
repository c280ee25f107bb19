"""Requests to whichever etcd endpoint answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc
from aetcd import rpc

from tidelog.inspection.model import NOT_KNOWN, StoreMember
from tidelog.rpc.channels import open_channel
from tidelog_runtime.cancellation import is_being_cancelled
from tidelog_runtime.clock import Clock
from tidelog_runtime.metadata.etcd_messages import store_error
from tidelog_runtime.metadata.seen_revisions import SeenRevisions
from tidelog_runtime.metadata.store import StoreClosedError, StoreUnavailableError

# A member that has lost its leader refuses at once, instead of letting requests time out.
HAS_LEADER = (("hasleader", "true"),)

# Pauses between attempts; they double from the first to the second with every failure.
MIN_RETRY_PAUSE_MS = 25
MAX_RETRY_PAUSE_MS = 1_000
# A request that may be repeated leaves time for this many endpoints that hang.
MAX_HANGING_ENDPOINTS = 2
# An endpoint without a connection is given this long before the next one is tried.
CONNECT_TIMEOUT_MS = 500

# How long a member may take that is asked only to see whether it answers.
MEMBER_PROBE_TIMEOUT_MS = 1_000

Send = Callable[["Endpoint", float], Awaitable[Any]]


class Endpoint:
    """One address, its channel, and the stubs on it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = open_channel(address)
        self.kv = rpc.KVStub(self._channel)
        self.lease = rpc.LeaseStub(self._channel)
        self.watch = rpc.WatchStub(self._channel)
        # How to end each long stream that hangs on this endpoint.
        self.streams: set[Callable[[], None]] = set()
        # Since when it has not answered, by the monotonic clock; None: it answers, as far as it
        # was asked.
        self.lost_since_ms: int | None = None
        self.problem = ""

    async def connect(self, timeout_ms: int) -> bool:
        """Whether there is a connection now."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                state = self._channel.get_state(try_to_connect=True)
                while state is not grpc.ChannelConnectivity.READY:
                    if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                        return False
                    await self._channel.wait_for_state_change(state)
                    state = self._channel.get_state(try_to_connect=True)
        except TimeoutError:
            return False
        return True

    def answered(self) -> None:
        self.lost_since_ms = None
        self.problem = ""

    def failed(self, began_ms: int, problem: str) -> None:
        if self.lost_since_ms is None:
            self.lost_since_ms = began_ms
        self.problem = problem

    async def close(self) -> None:
        await self._channel.close()


class EtcdEndpoints:
    """Create it on the event loop that it is used on."""

    def __init__(
        self, addresses: Sequence[str], *, clock: Clock, rng: random.Random, request_timeout_ms: int
    ) -> None:
        if not addresses:
            raise ValueError("no etcd endpoints; give at least one host:port")
        for address in addresses:
            if "://" in address or not address.rpartition(":")[2].isdecimal():
                raise ValueError(f"etcd endpoint {address!r} is not host:port")
        self.seen = SeenRevisions()
        self.closed = False
        self.request_timeout_ms = request_timeout_ms
        self._clock = clock
        self._rng = rng
        self._endpoints = [Endpoint(address) for address in addresses]
        # Not all clients on the first one.
        self._current = rng.randrange(len(addresses))

    async def read(
        self, send: Send, *, linearizable: bool = True, timeout_ms: int | None = None
    ) -> Any:
        """For requests that may be sent again: goes on, over all endpoints, until one
        answers or the time is up. `linearizable`: no answer may show an older store than
        an earlier one did. Raises `StoreError`."""
        budget_ms = timeout_ms or self.request_timeout_ms
        deadline_ms = self._clock.monotonic_ms() + budget_ms
        hanging = min(len(self._endpoints) - 1, MAX_HANGING_ENDPOINTS)
        failures = 0
        while True:
            endpoint = await self.connected(deadline_ms)
            left_ms = deadline_ms - self._clock.monotonic_ms()
            try:
                attempt_ms = min(left_ms, budget_ms // (hanging + 1))
                return await self._send(endpoint, send, attempt_ms, linearizable)
            except StoreUnavailableError:
                self.rotate(endpoint)
                failures += 1
                pause_ms = self.pause_ms(failures)
                if self._clock.monotonic_ms() + pause_ms >= deadline_ms:
                    raise
                await asyncio.sleep(pause_ms / 1000)

    async def write(self, send: Send, wrote: Callable[[Any], bool]) -> Any:
        """For requests that must not be sent twice. `wrote`: whether, by its answer, it took
        a revision. Raises `StoreUnavailableError` where the outcome is unknown."""
        deadline_ms = self._clock.monotonic_ms() + self.request_timeout_ms
        # Waiting for a connection is safe: nothing has been sent yet.
        endpoint = await self.connected(deadline_ms)
        try:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            return await self._send(endpoint, send, left_ms, linearizable=True, wrote=wrote)
        except StoreUnavailableError:
            self.rotate(endpoint)
            raise

    async def connected(self, deadline_ms: int) -> Endpoint:
        """The current endpoint, or the next that has a connection. Raises
        `StoreUnavailableError` if there is none by the deadline."""
        failures = 0
        while True:
            self.check_usable()
            endpoint = self._endpoints[self._current]
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                raise StoreUnavailableError(f"none of {self} could be connected to in time")
            began_ms = self._clock.monotonic_ms()
            if await self._connect(endpoint, min(left_ms, CONNECT_TIMEOUT_MS)):
                return endpoint
            endpoint.failed(began_ms, "no connection")
            self.rotate(endpoint)
            failures += 1
            # Round by round, so that one dead endpoint costs no pause.
            if failures % len(self._endpoints) == 0:
                await asyncio.sleep(min(left_ms, self.pause_ms(1)) / 1000)

    async def _connect(self, endpoint: Endpoint, timeout_ms: int) -> bool:
        try:
            return await endpoint.connect(timeout_ms)
        except (asyncio.CancelledError, grpc.aio.UsageError):
            self.raise_if_closed()
            raise

    async def _send(
        self,
        endpoint: Endpoint,
        send: Send,
        timeout_ms: int,
        linearizable: bool,
        wrote: Callable[[Any], bool] = lambda _: False,
    ) -> Any:
        """One attempt, whose answer is checked against what was seen before it."""
        highest = self.seen.highest
        began_ms = self._clock.monotonic_ms()
        try:
            response = await send(endpoint, timeout_ms / 1000)
        except grpc.aio.AioRpcError as error:
            unavailable = store_error(error, endpoint.address)
            if isinstance(unavailable, StoreUnavailableError):
                endpoint.failed(began_ms, str(unavailable))
            raise unavailable from error
        except (asyncio.CancelledError, grpc.aio.UsageError):
            self.raise_if_closed()
            raise
        endpoint.answered()
        header = response.header
        self.seen.answered(
            header.revision,
            header.cluster_id,
            at_least=highest if linearizable else 0,
            wrote=wrote(response),
        )
        return response

    @property
    def members(self) -> tuple[StoreMember, ...]:
        """Ordered by address."""
        now_ms = self._clock.monotonic_ms()
        return tuple(
            StoreMember(
                endpoint.address,
                NOT_KNOWN if endpoint.lost_since_ms is None else now_ms - endpoint.lost_since_ms,
                endpoint.problem,
            )
            for endpoint in sorted(self._endpoints, key=lambda endpoint: endpoint.address)
        )

    async def probe_others(self, send: Send) -> None:
        """Asks those that no request goes to now, side by side: nothing else would notice that
        one of them is cut off, or is back."""
        current = self._endpoints[self._current]
        others = [endpoint for endpoint in self._endpoints if endpoint is not current]
        await asyncio.gather(*(self._probe(endpoint, send) for endpoint in others))

    async def _probe(self, endpoint: Endpoint, send: Send) -> None:
        began_ms = self._clock.monotonic_ms()
        if not await self._connect(endpoint, CONNECT_TIMEOUT_MS):
            endpoint.failed(began_ms, "no connection")
            return
        try:
            await send(endpoint, MEMBER_PROBE_TIMEOUT_MS / 1000)
        except grpc.aio.AioRpcError as error:
            endpoint.failed(began_ms, str(store_error(error, endpoint.address)))
        except (asyncio.CancelledError, grpc.aio.UsageError):
            self.raise_if_closed()
            raise
        else:
            endpoint.answered()

    def rotate(self, failed: Endpoint) -> None:
        """The next one's turn, unless somebody else has moved on from `failed` already.
        Streams move too: one that hangs would notice only after gRPC's own keep-alive,
        and whoever watches also has requests and leases, which notice sooner."""
        if len(self._endpoints) == 1 or self._endpoints[self._current] is not failed:
            return
        self._current = (self._current + 1) % len(self._endpoints)
        for abandon in list(failed.streams):
            abandon()

    def pause_ms(self, failures: int) -> int:
        """After so many failures in a row, with jitter."""
        doublings = min(failures - 1, (MAX_RETRY_PAUSE_MS // MIN_RETRY_PAUSE_MS).bit_length())
        longest_ms = min(MIN_RETRY_PAUSE_MS << doublings, MAX_RETRY_PAUSE_MS)
        return round(longest_ms * self._rng.uniform(0.5, 1.0))

    def now_ms(self) -> int:
        return self._clock.monotonic_ms()

    def check_usable(self) -> None:
        if self.closed:
            raise StoreClosedError("the metadata store was closed; open another")
        self.seen.check()

    def raise_if_closed(self) -> None:
        """Where gRPC reports a closed channel as a cancellation: says what it was, unless
        the task itself is being cancelled."""
        if self.closed and not is_being_cancelled():
            raise StoreClosedError("the metadata store was closed during a request") from None

    async def close(self) -> None:
        self.closed = True
        for endpoint in self._endpoints:
            await endpoint.close()

    def __str__(self) -> str:
        return ", ".join(endpoint.address for endpoint in self._endpoints)
