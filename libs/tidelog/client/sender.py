"""The producer's shell: carries sealed batches to their leaders until they are settled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidelog.client.accumulator import Accumulator, Group, Request
from tidelog.client.clock import Clock
from tidelog.client.cluster_metadata import ClusterMetadata
from tidelog.client.connections import Connections
from tidelog.client.delivery import Appended, Outcome
from tidelog.client.produce_codec import outcomes_from_wire, request_to_wire
from tidelog.errors import STALE_METADATA, ErrorCode, TidelogError
from tidelog.model import Acks
from tidelog.rpc.status import UnreachableError

# An answer may come this much after the time that the broker was given.
ANSWER_GRACE_MS = 1_000
# How often batches are checked for their delivery timeout.
EXPIRY_INTERVAL_MS = 100


class Sender:
    """`seal_due(now_ms)` seals open batches that have lingered and returns when the next
    one is due, or None."""

    def __init__(
        self,
        accumulator: Accumulator,
        metadata: ClusterMetadata,
        connections: Connections,
        clock: Clock,
        *,
        acks: Acks,
        request_timeout_ms: int,
        seal_due: Callable[[int], int | None],
    ) -> None:
        self._accumulator = accumulator
        self._metadata = metadata
        self._connections = connections
        self._clock = clock
        self._acks = acks
        self._request_timeout_ms = request_timeout_ms
        self._seal_due = seal_due
        self._wake = asyncio.Event()
        self._requests: dict[asyncio.Task[None], Request] = {}
        self._loop_task: asyncio.Task[None] | None = None
        self._next_expiry_ms = 0

    def start(self) -> None:
        self._loop_task = asyncio.create_task(self._run())

    def wake(self) -> None:
        """Something can be sent that could not before."""
        self._wake.set()

    async def stop(self, error: TidelogError) -> None:
        """Settles all that is not delivered yet with the error."""
        if self._loop_task is not None:
            self._loop_task.cancel()
            await asyncio.gather(self._loop_task, return_exceptions=True)
        self._accumulator.fail_all(error)
        requests = dict(self._requests)
        for task in requests:
            task.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
        for task, request in requests.items():
            if task.cancelled():
                closed = TidelogError(
                    error.code, f"{error.message}; whether it was appended is not known"
                )
                self._all_failed(request, closed, stale=False)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            try:
                pause_ms = self._step()
            except Exception as error:  # told to whoever waits for these records
                fault = TidelogError(ErrorCode.INTERNAL, f"the client failed: {error!r}")
                fault.__cause__ = error
                self._accumulator.fail_all(fault)
                pause_ms = EXPIRY_INTERVAL_MS
            timer = None
            if pause_ms is not None:
                timer = loop.call_later(pause_ms / 1000, self._wake.set)
            await self._wake.wait()
            if timer is not None:
                timer.cancel()

    def _step(self) -> int | None:
        """Does all that can be done now; returns how long nothing else will be due."""
        now_ms = self._clock.monotonic_ms()
        due = [self._seal_due(now_ms)]
        if not self._accumulator.unsettled:
            return None if due[0] is None else max(due[0] - now_ms, 1)
        if now_ms >= self._next_expiry_ms:
            self._next_expiry_ms = now_ms + EXPIRY_INTERVAL_MS
            self._accumulator.expire(now_ms)
        due.append(self._next_expiry_ms)
        for request in self._accumulator.drain(now_ms, self._metadata.leader):
            task = asyncio.create_task(self._send(request))
            self._requests[task] = request
            task.add_done_callback(self._requests.pop)
        if self._accumulator.wants_metadata(self._metadata.leader):
            self._metadata.poke()
        due.append(self._accumulator.next_retry_ms(now_ms))
        return max(min(ms for ms in due if ms is not None) - now_ms, 1)

    async def _send(self, request: Request) -> None:
        try:
            wire = request_to_wire(request, self._acks, self._request_timeout_ms)
            answer = await self._connections.broker(request.leader.address).produce(
                wire, self._request_timeout_ms + ANSWER_GRACE_MS
            )
            outcomes = outcomes_from_wire(request, answer)
        except UnreachableError as error:
            unknown = TidelogError(ErrorCode.REQUEST_TIMED_OUT, str(error))
            self._all_failed(request, unknown, stale=True)
        except TidelogError as error:
            self._all_failed(request, error, stale=False)
        except Exception as error:  # told to whoever waits for these records
            fault = TidelogError(ErrorCode.INTERNAL, f"the client failed to send: {error!r}")
            fault.__cause__ = error
            self._all_failed(request, fault, stale=False)
        else:
            self._accumulator.finish(request)
            for group, outcome in outcomes:
                self._landed(group, outcome)
        self.wake()

    def _all_failed(self, request: Request, error: TidelogError, *, stale: bool) -> None:
        self._accumulator.finish(request)
        now_ms = self._clock.monotonic_ms()
        for group in request.groups:
            self._accumulator.failed(group, error, now_ms, stale=stale)

    def _landed(self, group: Group, outcome: Outcome) -> None:
        if isinstance(outcome, Appended):
            self._accumulator.appended(group, outcome)
            return
        if outcome.code is ErrorCode.DUPLICATE_SEQUENCE:
            # It had been appended before; where is not told.
            self._accumulator.appended(group, Appended(-1, group.leader.leader_epoch, -1))
            return
        stale = outcome.code in STALE_METADATA
        if outcome.leader is not None:
            # A newer leader than the one that refused is used at once.
            self._metadata.apply_hint(group.partition, outcome.leader)
        self._accumulator.failed(group, outcome, self._clock.monotonic_ms(), stale=stale)
