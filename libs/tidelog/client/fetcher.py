"""The consumer's shell: fetches ahead from every leader in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from tidelog.client.clock import Clock
from tidelog.client.cluster_metadata import ClusterMetadata
from tidelog.client.connections import Connections
from tidelog.client.fetch_codec import fetch_from_wire, fetch_to_wire
from tidelog.client.fetch_state import Assigned, FetchPlan, FetchState
from tidelog.client.offset_finder import OffsetFinder
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import OffsetPosition, TopicPartition
from tidelog.rpc.status import UnreachableError
from tidelog.v1 import broker_pb2

# An answer may come this much after the time that the broker was given to wait.
ANSWER_GRACE_MS = 5_000


class Fetcher:
    """`arrived` is set whenever there may be something new to take."""

    def __init__(
        self,
        state: FetchState,
        metadata: ClusterMetadata,
        connections: Connections,
        clock: Clock,
        finder: OffsetFinder,
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
    ) -> None:
        self._state = state
        self._metadata = metadata
        self._connections = connections
        self._clock = clock
        self._finder = finder
        self._max_wait_ms = max_wait_ms
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._wake = asyncio.Event()
        self.arrived = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop_task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._loop_task is None:
            self._loop_task = asyncio.create_task(self._run())
            self._loop_task.add_done_callback(lambda _: self.arrived.set())

    def check(self) -> None:
        """Raises whatever ended the background work."""
        if self._loop_task is not None and self._loop_task.done():
            self._loop_task.result()

    def wake(self) -> None:
        """Something may be fetched that could not before."""
        self._wake.set()

    async def stop(self) -> None:
        tasks = [*self._tasks, *([self._loop_task] if self._loop_task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            pause_ms = self._step()
            timer = None
            if pause_ms is not None:
                timer = loop.call_later(pause_ms / 1000, self._wake.set)
            await self._wake.wait()
            if timer is not None:
                timer.cancel()

    def _step(self) -> int | None:
        """Starts all that can be fetched now; returns when to look again at the latest."""
        now_ms = self._clock.monotonic_ms()
        for position, partitions in self._state.to_find().items():
            self._spawn(self._find(position, partitions))
        for plan in self._state.plan(now_ms, self._metadata.leader):
            self._spawn(self._fetch(plan))
        if self._state.has_error:
            # Found while planning, and told by whoever takes next.
            self.arrived.set()
        if self._state.wants_metadata(self._metadata.leader):
            self._metadata.poke()
        retry_ms = self._state.next_retry_ms(now_ms)
        return None if retry_ms is None else max(retry_ms - now_ms, 1)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fetch(self, plan: FetchPlan) -> None:
        try:
            answer = await self._connections.broker(plan.leader.address).fetch(
                fetch_to_wire(
                    plan,
                    max_wait_ms=self._max_wait_ms,
                    min_bytes=self._min_bytes,
                    max_bytes=self._max_bytes,
                ),
                self._max_wait_ms + ANSWER_GRACE_MS,
            )
        except UnreachableError as error:
            unknown = TidelogError(ErrorCode.REQUEST_TIMED_OUT, str(error))
            self._all_failed(plan, unknown, stale=True)
        except TidelogError as error:
            self._all_failed(plan, error, stale=False)
        except Exception as error:  # told to whoever polls
            fault = TidelogError(ErrorCode.INTERNAL, f"the client failed to fetch: {error!r}")
            fault.__cause__ = error
            self._all_failed(plan, fault, stale=False)
        else:
            self._answered(plan, answer)
        self.arrived.set()
        self.wake()

    def _answered(self, plan: FetchPlan, answer: broker_pb2.FetchResponse) -> None:
        self._state.finish(plan)
        now_ms = self._clock.monotonic_ms()
        for want, leader, fetched, error in fetch_from_wire(plan, answer):
            if error is None and fetched is not None:
                self._state.received(want, leader, fetched, now_ms)
            elif error is not None:
                if error.leader is not None:
                    self._metadata.apply_hint(want.assigned.partition, error.leader)
                self._state.failed(want, leader, error, now_ms, stale=False, answer=fetched)

    def _all_failed(self, plan: FetchPlan, error: TidelogError, *, stale: bool) -> None:
        self._state.finish(plan)
        now_ms = self._clock.monotonic_ms()
        for want, leader in plan.wants:
            self._state.failed(want, leader, error, now_ms, stale=stale)

    async def _find(self, position: OffsetPosition, partitions: list[tuple[Assigned, int]]) -> None:
        """Finds where partitions without a position begin."""
        outcome: dict[TopicPartition, int] | TidelogError
        try:
            outcome = await self._finder.find([a.partition for a, _ in partitions], position)
        except TidelogError as error:
            outcome = error
        for assigned, generation in partitions:
            if assigned.generation != generation:
                continue
            if isinstance(outcome, TidelogError):
                assigned.finding = False
                assigned.error = outcome
            else:
                assigned.seek(outcome[assigned.partition])
        self.arrived.set()
        self.wake()
