"""Requests to etcd, through whichever endpoint answers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
from aetcd import rpc

from tidelog.inspection.state_reports import NOT_KNOWN, WITHOUT_MAJORITY, StoreMember
from tidelog.rpc.channels import open_channel
from tidelog_runtime.clock import Clock
from tidelog_runtime.cooperative import is_being_cancelled
from tidelog_runtime.loop_lag import LoopLag
from tidelog_runtime.metadata.etcd_messages import store_error
from tidelog_runtime.metadata.seen_revisions import SeenRevisions
from tidelog_runtime.metadata.store import (
    StoreClosedError,
    StoreFullError,
    StoreUnavailableError,
)

# A member that has lost its leader rejects requests at once, instead of letting them time out.
HAS_LEADER = (("hasleader", "true"),)

# Pauses between attempts; they double from the first to the second with every failure.
MIN_RETRY_PAUSE_MS = 25
MAX_RETRY_PAUSE_MS = 1_000
# A request that may be repeated reserves time for this many endpoints that hang.
MAX_HANGING_ENDPOINTS = 2
# After this time without a connection, the next endpoint is tried.
CONNECT_TIMEOUT_MS = 500

# Timeout of a request that only probes a member.
MEMBER_PROBE_TIMEOUT_MS = 1_000
# A member counts as lost after this many failed attempts in a row. Attempts count if they begin
# this far apart: retries of one request are one attempt.
MIN_FAILED_ATTEMPTS = 2
ATTEMPTS_APART_MS = 1_000
# A failed attempt says nothing about the member if this process's event loop was late by this much
# meanwhile. At most so many attempts since the member's last answer are ignored for that reason,
# because a process that is always late has to notice a lost member, too.
MAX_OWN_LATENESS_MS = 100
MAX_LATE_ATTEMPTS = 3

Send = Callable[["Endpoint", float], Awaitable[Any]]


class Endpoint:
    """One address, its channel and its stubs."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = open_channel(address)
        self.kv = rpc.KVStub(self._channel)
        self.lease = rpc.LeaseStub(self._channel)
        self.watch = rpc.WatchStub(self._channel)
        self.maintenance = rpc.MaintenanceStub(self._channel)
        # Functions that end the long-lived streams of this endpoint.
        self.streams: set[Callable[[], None]] = set()
        # Monotonic time of its first failed attempt. None: it answers, as far as requests were
        # sent, or has failed fewer than MIN_FAILED_ATTEMPTS times.
        self.lost_since_ms: int | None = None
        self.problem = ""
        self._first_failed_ms = self._last_failed_ms = 0
        self._failed_attempts = self._late_attempts = 0

    async def connect(self, timeout_ms: int) -> bool:
        """Returns whether the channel is connected."""
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
        """Counts a failed attempt.

        - `began_ms`: monotonic time of its start.
        - `late_ms`: delay of this process's event loop during the attempt.
        """
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
    """The endpoints of one etcd cluster. Create it on the event loop that uses it."""

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
        # A random start spreads clients over the endpoints.
        self._current = rng.randrange(len(addresses))

    async def read(
        self, send: Send, *, linearizable: bool = True, timeout_ms: int | None = None
    ) -> Any:
        """Sends a repeatable request to one endpoint after another until one answers.

        - `linearizable`: rejects an answer that shows an older store than an earlier answer
          did.
        - `timeout_ms`: for all attempts together; default: `request_timeout_ms`.

        Raises `StoreError`.
        """
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
        """Sends a request that must not be sent twice.

        - `wrote`: returns whether, by its answer, the request used a revision of the store.

        Raises `StoreUnavailableError` if the outcome is unknown.
        """
        deadline_ms = self._clock.monotonic_ms() + self.request_timeout_ms
        # Waiting for a connection is safe, because nothing has been sent yet.
        endpoint = await self.connected(deadline_ms)
        try:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            return await self._send(endpoint, send, left_ms, linearizable=True, wrote=wrote)
        except StoreUnavailableError:
            self.rotate(endpoint)
            raise

    async def connected(self, deadline_ms: int) -> Endpoint:
        """Returns the current endpoint, or the next one that has a connection.

        Raises `StoreUnavailableError` if there is none by the deadline.
        """
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
            # One pause per round over all endpoints, so that one dead endpoint costs none.
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
        """Yields a function to call with the problem if the member did not answer."""
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
        """Makes one attempt, and checks its answer against the revisions seen before."""
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
        """The members, ordered by address."""
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
        """Probes the endpoints that receive no requests now, concurrently.

        No other request would notice that one of them is cut off or is back.
        """
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
                # A read needs a majority of the members; the status request shows whether this
                # member itself runs.
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
        """Returns the alarms of the store, as reported by the current endpoint.

        None: no answer. Other requests notice that.
        """
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
        """Makes the next endpoint current, unless `failed` is no longer the current one.

        Ends the streams of `failed`, too: a stream that hangs is noticed only after gRPC's own
        keep-alive. The requests and leases of the same client notice a lost endpoint sooner.
        """
        if len(self._endpoints) == 1 or self._endpoints[self._current] is not failed:
            return
        self._current = (self._current + 1) % len(self._endpoints)
        for abandon in list(failed.streams):
            abandon()

    def pause_ms(self, failures: int) -> int:
        """Returns the pause after this many failures in a row, with jitter."""
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
        """Raises `StoreClosedError` if a cancellation was caused by the closed store.

        gRPC reports a closed channel as a cancellation. Returns if the task itself is being
        cancelled.
        """
        if self.closed and not is_being_cancelled():
            raise StoreClosedError("the metadata store was closed during a request") from None

    async def close(self) -> None:
        self.closed = True
        for endpoint in self._endpoints:
            await endpoint.close()

    def __str__(self) -> str:
        return ", ".join(endpoint.address for endpoint in self._endpoints)
