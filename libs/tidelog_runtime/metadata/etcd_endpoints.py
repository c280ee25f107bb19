"""Requests to whichever etcd endpoint answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
from aetcd import rpc

from tidelog.inspection.model import NOT_KNOWN, WITHOUT_MAJORITY, StoreMember
from tidelog.rpc.channels import open_channel
from tidelog_runtime.cancellation import is_being_cancelled
from tidelog_runtime.clock import Clock
from tidelog_runtime.loop_lag import LoopLag
from tidelog_runtime.metadata.etcd_messages import store_error
from tidelog_runtime.metadata.seen_revisions import SeenRevisions
from tidelog_runtime.metadata.store import (
    StoreClosedError,
    StoreFullError,
    StoreUnavailableError,
)

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
# A member counts as lost after so many failed attempts in a row, each so long after the one before:
# retries of one request are one attempt.
MIN_FAILED_ATTEMPTS = 2
ATTEMPTS_APART_MS = 1_000
# A failed attempt during which this process's event loop was late by so much says nothing of the
# member; of those since it last answered so many are left out, since a process that is late all the
# time has to notice a lost member as well.
MAX_OWN_LATENESS_MS = 100
MAX_LATE_ATTEMPTS = 3

Send = Callable[["Endpoint", float], Awaitable[Any]]


class Endpoint:
    """One address, its channel, and the stubs on it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = open_channel(address)
        self.kv = rpc.KVStub(self._channel)
        self.lease = rpc.LeaseStub(self._channel)
        self.watch = rpc.WatchStub(self._channel)
        self.maintenance = rpc.MaintenanceStub(self._channel)
        # How to end each long stream that hangs on this endpoint.
        self.streams: set[Callable[[], None]] = set()
        # Since when it has not answered, by the monotonic clock; None: it answers, as far as it
        # was asked, or has failed less than MIN_FAILED_ATTEMPTS.
        self.lost_since_ms: int | None = None
        self.problem = ""
        self._first_failed_ms = self._last_failed_ms = 0
        self._failed_attempts = self._late_attempts = 0

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
        self._failed_attempts = self._late_attempts = 0

    def failed(self, began_ms: int, late_ms: int, problem: str) -> None:
        """`late_ms`: by how much this process's event loop was late meanwhile."""
        if late_ms >= MAX_OWN_LATENESS_MS and self._late_attempts < MAX_LATE_ATTEMPTS:
            self._late_attempts += 1
            return
        self.problem = problem
        if self._failed_attempts == 0:
            self._first_failed_ms = began_ms
        elif began_ms - self._last_failed_ms < ATTEMPTS_APART_MS:
            return
        self._failed_attempts += 1
        self._last_failed_ms = began_ms
        if self._failed_attempts >= MIN_FAILED_ATTEMPTS:
            self.lost_since_ms = self._first_failed_ms

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
        self._lag = LoopLag(clock)
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
            if await self._connect(endpoint, min(left_ms, CONNECT_TIMEOUT_MS)):
                return endpoint
            self.rotate(endpoint)
            failures += 1
            # Round by round, so that one dead endpoint costs no pause.
            if failures % len(self._endpoints) == 0:
                await asyncio.sleep(min(left_ms, self.pause_ms(1)) / 1000)

    async def _connect(self, endpoint: Endpoint, timeout_ms: int) -> bool:
        with self._attempt(endpoint) as failed:
            try:
                if await endpoint.connect(timeout_ms):
                    return True
            except (asyncio.CancelledError, grpc.aio.UsageError):
                self.raise_if_closed()
                raise
            failed("no connection")
            return False

    @contextmanager
    def _attempt(self, endpoint: Endpoint) -> Iterator[Callable[[str], None]]:
        """Gives what is to be called with the problem where the member did not answer."""
        began_ms, began_late_ms = self._clock.monotonic_ms(), self._lag.begin()
        problems: list[str] = []
        try:
            yield problems.append
        finally:
            late_ms = self._lag.end(began_late_ms)
            for problem in problems:
                endpoint.failed(began_ms, late_ms, problem)

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
        with self._attempt(endpoint) as failed:
            try:
                response = await send(endpoint, timeout_ms / 1000)
            except grpc.aio.AioRpcError as error:
                failure = store_error(error, endpoint.address)
                if isinstance(failure, StoreFullError):
                    endpoint.answered()
                elif isinstance(failure, StoreUnavailableError):
                    failed(str(failure))
                raise failure from error
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
        if not await self._connect(endpoint, CONNECT_TIMEOUT_MS):
            return
        with self._attempt(endpoint) as failed:
            try:
                await send(endpoint, MEMBER_PROBE_TIMEOUT_MS / 1000)
            except grpc.aio.AioRpcError as error:
                problem = str(store_error(error, endpoint.address))
                # A read needs a majority of the members; whether this one is there it says alone.
                says_why = "etcdserver:" in problem
                if not says_why and await self._alarms_of(endpoint) is not None:
                    problem = f"{endpoint.address} {WITHOUT_MAJORITY}"
                failed(problem)
            except (asyncio.CancelledError, grpc.aio.UsageError):
                self.raise_if_closed()
                raise
            else:
                endpoint.answered()

    async def alarms(self) -> list[str] | None:
        """What the member that requests go to now says is wrong with the store. None: it gave no
        answer, which other requests notice."""
        return await self._alarms_of(self._endpoints[self._current])

    async def _alarms_of(self, endpoint: Endpoint) -> list[str] | None:
        try:
            status = await endpoint.maintenance.Status(
                rpc.StatusRequest(), timeout=MEMBER_PROBE_TIMEOUT_MS / 1000
            )
        except grpc.aio.AioRpcError:
            return None
        except (asyncio.CancelledError, grpc.aio.UsageError):
            self.raise_if_closed()
            raise
        return list(status.errors)

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
