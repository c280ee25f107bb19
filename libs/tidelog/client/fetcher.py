"""Fetches ahead from every leader in the background: the I/O around `FetchState`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from tidelog.client.assigned_partition import Assigned
from tidelog.client.clock import Clock
from tidelog.client.cluster_metadata import ClusterMetadata
from tidelog.client.connections import Connections
from tidelog.client.fetch_codec import fetch_from_wire, fetch_to_wire
from tidelog.client.fetch_state import FetchPlan, FetchState
from tidelog.client.offset_finder import OffsetFinder
from tidelog.client.unclean_elections import UncleanElection, UncleanElections
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import OffsetPosition, TopicPartition
from tidelog.rpc.status import UnreachableError
from tidelog.rpc.trace_context import Metadata, carrying
from tidelog.v1 import broker_pb2

# An answer may arrive this much later than the maximum wait of the broker.
ANSWER_GRACE_MS = 5_000
# A leader may hang if a fetch has no answer this long after its maximum wait. Metadata is then
# polled for newer leaders,
UNANSWERED_MS = 1_000
# at this interval, until the fetch is answered or given up.
UNANSWERED_POLL_MS = 500

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Pending:
    plan: FetchPlan
    sent_ms: int
    given_up: set[TopicPartition] = field(default_factory=set)


class Fetcher:
    """Fetches for one consumer. `arrived` is set whenever there may be something new to take."""

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
        on_unclean_election: Callable[[UncleanElection], None],
    ) -> None:
        self._state = state
        self._metadata = metadata
        self._connections = connections
        self._clock = clock
        self._finder = finder
        self._max_wait_ms = max_wait_ms
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._on_unclean_election = on_unclean_election
        self._elections = UncleanElections()
        self._wake = asyncio.Event()
        self.arrived = asyncio.Event()
        # Trace context of the user's span in which records were last requested.
        self.trace_context: Metadata | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._fetches: dict[asyncio.Task[None], _Pending] = {}
        self._next_check_ms = 0
        self._loop_task: asyncio.Task[None] | None = None
        self._confirming: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._loop_task is None:
            self._loop_task = asyncio.create_task(self._run())
            self._loop_task.add_done_callback(lambda _: self.arrived.set())

    def check(self) -> None:
        """Raises `TidelogError` if a fault has ended the background work."""
        if self._loop_task is None or not self._loop_task.done():
            return
        fault = None if self._loop_task.cancelled() else self._loop_task.exception()
        raise TidelogError(
            ErrorCode.INTERNAL,
            "the consumer's background work ended "
            + (f"with {fault!r}" if fault else "when its event loop cancelled all tasks")
            + "; make a new consumer",
        ) from fault

    def wake(self) -> None:
        """Wakes the loop when something may be fetched that could not be before."""
        self._wake.set()

    def confirm_missing(self) -> None:
        """Queries a broker, in the background, about the partition whose error is unconfirmed."""
        partition = self._state.errors.unconfirmed
        if partition is not None and (self._confirming is None or self._confirming.done()):
            self._confirming = self._spawn(self._confirm(partition.topic))

    async def _confirm(self, topic: str) -> None:
        # Without an answer nothing is confirmed, and the next call queries again.
        with contextlib.suppress(UnreachableError, TidelogError):
            await self._metadata.refresh((topic,))
            self._state.update_missing(self._metadata.leader, self._metadata.removal_error)
            self._state.confirm_missing(topic)
            self.arrived.set()
            self.wake()

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
        """Starts all fetches that are possible now. Returns the maximum pause until the next step
        in milliseconds; None: no limit."""
        now_ms = self._clock.monotonic_ms()
        self._state.update_missing(self._metadata.leader, self._metadata.removal_error)
        for position, partitions in self._state.to_find().items():
            self._spawn(self._find(position, partitions))
        due = self._give_up_superseded(now_ms)
        for plan in self._state.plan(now_ms, self._metadata.leader):
            pending = _Pending(plan, now_ms)
            self._fetches[self._spawn(self._fetch(pending))] = pending
            due.append(self._late_ms(pending))
        if self._state.has_error:
            # The error was found while planning; the next call that takes records raises it.
            self.arrived.set()
        if self._state.wants_metadata(self._metadata.leader):
            self._metadata.refresh_soon()
        if (retry_ms := self._state.next_retry_ms(now_ms)) is not None:
            due.append(retry_ms)
        return max(min(due) - now_ms, 1) if due else None

    def _late_ms(self, pending: _Pending) -> int:
        return pending.sent_ms + self._max_wait_ms + UNANSWERED_MS

    def _give_up_superseded(self, now_ms: int) -> list[int]:
        """Gives up fetches that old leaders have not answered for UNANSWERED_MS, if there are newer
        leaders. Returns when to check the remaining fetches again, one time for each."""
        due: list[int] = []
        for task, pending in list(self._fetches.items()):
            if task.done():  # answered a moment ago, and its partitions have their results
                continue
            if self._late_ms(pending) > now_ms:
                due.append(self._late_ms(pending))
                continue
            for want, leader in pending.plan.wants:
                newest = self._metadata.leader(want.assigned.partition)
                if newest is not None and newest.supersedes(leader):
                    self._state.give_up(want)
                    pending.given_up.add(want.assigned.partition)
            if len(pending.given_up) == len(pending.plan.wants):
                del self._fetches[task]
                self._state.finish(pending.plan)
                task.cancel()
                continue
            if now_ms >= self._next_check_ms:
                self._next_check_ms = now_ms + UNANSWERED_POLL_MS
                self._metadata.refresh_soon()
            due.append(self._next_check_ms)
        return due

    def metadata_changed(self) -> None:
        for election in self._elections.new_elections(self._metadata.leader):
            self._on_unclean_election(election)
        self._elections.forget_removed(self._metadata.removal_error)
        self.wake()

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self._fetches.pop(task, None)

    async def _fetch(self, pending: _Pending) -> None:
        plan = pending.plan
        try:
            wire = fetch_to_wire(
                plan,
                max_wait_ms=self._max_wait_ms,
                min_bytes=self._min_bytes,
                max_bytes=self._max_bytes,
            )
            with carrying(self.trace_context):
                answer = await self._connections.broker(plan.leader.address).fetch(
                    wire, self._max_wait_ms + ANSWER_GRACE_MS
                )
        except UnreachableError as error:
            unknown = TidelogError(ErrorCode.REQUEST_TIMED_OUT, str(error))
            self._all_failed(plan, unknown, stale=True)
        except TidelogError as error:
            self._all_failed(plan, error, stale=False)
        except Exception as error:  # reported by the next poll
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
                self._metadata.led(want.assigned.partition, leader.topic_id, fetched.leader_epoch)
                if fetched.batches:
                    self._elections.reached(
                        want.assigned.partition,
                        leader.topic_id,
                        leader.leader_epoch,
                        want.assigned.fetch_offset,
                    )
            elif error is not None:
                partition = want.assigned.partition
                if error.leader is not None and self._metadata.apply_hint(
                    partition, leader.topic_id, error.leader
                ):
                    # The hint is used at once; only metadata says how the leader was elected.
                    self._metadata.refresh_soon()
                self._state.failed(want, leader, error, now_ms, stale=False, answer=fetched)
        for truncation in self._state.take_truncations():
            _log.warning("%s", truncation)
        for skipped in self._state.take_skipped():
            _log.warning("skipped: %s", skipped)

    def _all_failed(self, plan: FetchPlan, error: TidelogError, *, stale: bool) -> None:
        self._state.finish(plan)
        now_ms = self._clock.monotonic_ms()
        for want, leader in plan.wants:
            self._state.failed(want, leader, error, now_ms, stale=stale)

    async def _find(self, position: OffsetPosition, partitions: list[tuple[Assigned, int]]) -> None:
        """Finds the start of partitions without a position."""
        wanted = {assigned.partition: (assigned, generation) for assigned, generation in partitions}
        async with contextlib.aclosing(self._finder.find_each(wanted, position)) as outcomes:
            async for partition, outcome in outcomes:
                assigned, generation = wanted[partition]
                if assigned.generation != generation:
                    continue
                if isinstance(outcome, TidelogError):
                    assigned.finding = False
                    self._state.errors.add(assigned, outcome)
                else:
                    assigned.found(outcome.offset, outcome.topic_id)
                self.arrived.set()
                self.wake()
