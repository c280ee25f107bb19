"""Measures how the metadata store answers this process.

A service without requests would not notice that the store is lost. Therefore `probe` sends a
request when there was none for some time. The delay of this process's own event loop is
subtracted from response times, because it says nothing about the store.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

import structlog

from tidelog.inspection.state_reports import NOT_KNOWN, STORE_SLOW_MS, StoreHealth, StoreMember
from tidelog.state_changes.event import Cause, Change, Kind, Stage
from tidelog_runtime.clock import Clock
from tidelog_runtime.loop_lag import LoopLag
from tidelog_runtime.metadata.store import (
    Changed,
    KeyValue,
    Lease,
    LeaseLostError,
    MetadataStore,
    Snapshot,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    Transaction,
    TransactionResult,
    has_put,
)
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

# After this time without an answer, `probe` reads a key.
PROBE_INTERVAL_MS = 5_000
# Interval of the probes of members that receive no other requests.
MEMBERS_INTERVAL_MS = 2_000
LATENCY_WINDOW_MS = 60_000
QUICK_ANSWERS_APART_MS = 1_000
# A store that rejects requests at once fails more of them than need to be counted.
FAILED_TRIES_KEPT = 1_000

FULL_REMEDY = (
    "compact and defragment etcd, or raise its --quota-backend-bytes; then disarm its alarm "
    "(etcdctl alarm disarm)"
)
REMEDY = "check that etcd runs at the configured etcd_endpoints; the service keeps trying"

_log = structlog.get_logger()

_Answer = TypeVar("_Answer")


@runtime_checkable
class HasMembers(Protocol):
    """A store of several members, each of which may fail alone."""

    def members(self) -> tuple[StoreMember, ...]: ...

    async def probe_members(self) -> None:
        """Probes the members that receive no other requests now."""


@runtime_checkable
class HasWriteProblem(Protocol):
    """A store that can answer reads while it rejects writes."""

    async def write_problem(self) -> str | None:
        """Returns why it rejects writes now; empty: it accepts them; None: no answer."""


Observer = Callable[[str, float, bool], None]


class SlidingMaximum:
    """The maximum of the values of the last `window_ms`. Pure."""

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        # Times ascend and values descend: an older and smaller value can never be the maximum.
        self._falling: deque[tuple[int, int]] = deque()

    def add(self, value: int, now_ms: int) -> None:
        while self._falling and self._falling[-1][1] <= value:
            self._falling.pop()
        self._falling.append((now_ms, value))
        self._expire(now_ms)

    def maximum(self, now_ms: int) -> tuple[int, int] | None:
        """Returns the maximum and the time at which it was added."""
        self._expire(now_ms)
        if not self._falling:
            return None
        added_at_ms, value = self._falling[0]
        return value, added_at_ms

    def _expire(self, now_ms: int) -> None:
        while self._falling and self._falling[0][0] <= now_ms - self._window_ms:
            self._falling.popleft()


class SparseTimes:
    """Ascending times of the last `window_ms`, at most one in every `apart_ms`. Pure."""

    def __init__(self, window_ms: int, apart_ms: int) -> None:
        self._window_ms = window_ms
        self._apart_ms = apart_ms
        self._times: deque[int] = deque(maxlen=window_ms // apart_ms)

    def add(self, at_ms: int) -> None:
        if not self._times or at_ms - self._times[-1] >= self._apart_ms:
            self._times.append(at_ms)

    def ages(self, now_ms: int) -> tuple[int, ...]:
        return tuple(now_ms - at for at in self._times if now_ms - at < self._window_ms)


class MeasuredStore:
    """A `MetadataStore` over another one, which it measures.

    It reports the loss and the return of the store as state changes, each once.

    - `probe_key`: any key; it need not exist.
    """

    def __init__(
        self, store: MetadataStore, probe_key: str, clock: Clock, state_changes: StateChangeLog
    ) -> None:
        self._store = store
        self._probe_key = probe_key
        self._clock = clock
        self._state_changes = state_changes
        self._lag = LoopLag(clock)
        self._answered_at_ms = clock.monotonic_ms()
        self._last_latency_ms = NOT_KNOWN
        self._latencies = SlidingMaximum(LATENCY_WINDOW_MS)
        # None: every request was answered quickly.
        self._slow_at_ms: int | None = None
        self._failed_at_ms: deque[int] = deque(maxlen=FAILED_TRIES_KEPT)
        # Start times of quickly answered requests, which show that the store was not slow then.
        self._quick = SparseTimes(LATENCY_WINDOW_MS, QUICK_ANSWERS_APART_MS)
        # The monotonic time since which the store is lost (None: it answers), and the last problem
        # that was reported.
        self._lost_since_ms: int | None = None
        self._loss = Change()
        self._problem = ""
        self._write_problem = ""
        self._rejects_writes_since_ms: int | None = None
        # Called after each request with its name, seconds, and whether it was answered. The seconds
        # include the delay of this process.
        self.observers: list[Observer] = []

    @property
    def health(self) -> StoreHealth:
        now_ms = self._clock.monotonic_ms()
        lost_since_ms = self._lost_since_ms
        rejects_ms = self._rejects_writes_since_ms
        longest = self._latencies.maximum(now_ms)
        slow_at_ms = self._slow_at_ms
        is_old = slow_at_ms is None or slow_at_ms <= now_ms - LATENCY_WINDOW_MS
        return StoreHealth(
            unreachable_ms=NOT_KNOWN if lost_since_ms is None else now_ms - lost_since_ms,
            problem=self._problem,
            last_latency_ms=self._last_latency_ms,
            max_latency_ms=NOT_KNOWN if longest is None else longest[0],
            max_latency_ago_ms=NOT_KNOWN if longest is None else now_ms - longest[1],
            quick_answers_ms=self._quick.ages(now_ms),
            last_slow_ago_ms=NOT_KNOWN if slow_at_ms is None or is_old else now_ms - slow_at_ms,
            failed_tries=sum(at > now_ms - LATENCY_WINDOW_MS for at in self._failed_at_ms),
            members=self._members(),
            write_problem=self._write_problem,
            rejects_writes_ms=NOT_KNOWN if rejects_ms is None else now_ms - rejects_ms,
        )

    def _members(self) -> tuple[StoreMember, ...]:
        """The members of the store, if there is more than one."""
        store = self._store
        members = store.members() if isinstance(store, HasMembers) else ()
        return members if len(members) > 1 else ()

    async def _probe_space(self) -> None:
        """Checks whether the store accepts writes.

        An idle cluster writes nothing. Without this check it would notice a full store only at
        the next election.
        """
        if not isinstance(self._store, HasWriteProblem):
            return
        problem = await self._store.write_problem()
        if problem is not None:
            self._update_write_problem(problem)

    def _update_write_problem(self, problem: str) -> None:
        """Logs each change once."""
        if bool(problem) != bool(self._write_problem):
            self._rejects_writes_since_ms = self._clock.monotonic_ms() if problem else None
            if problem:
                _log.error("store_takes_no_writes", reason=problem, hint=FULL_REMEDY)
            else:
                _log.info("store_takes_writes_again")
        self._write_problem = problem

    async def probe(self) -> None:
        """Sends probes until it is cancelled, or the store is closed or rolled back.

        The users of the store's data report a closed or rolled back store themselves.
        """
        members_due_ms = room_due_ms = 0
        while True:
            idle_ms = self._clock.monotonic_ms() - self._answered_at_ms
            wait_ms = PROBE_INTERVAL_MS - idle_ms
            if self._members():
                wait_ms = min(wait_ms, MEMBERS_INTERVAL_MS)
            await asyncio.sleep(max(wait_ms, PROBE_INTERVAL_MS / 5) / 1000)
            if isinstance(self._store, HasMembers) and self._clock.monotonic_ms() >= members_due_ms:
                members_due_ms = self._clock.monotonic_ms() + MEMBERS_INTERVAL_MS
                await self._store.probe_members()
            if self._clock.monotonic_ms() >= room_due_ms:
                room_due_ms = self._clock.monotonic_ms() + PROBE_INTERVAL_MS
                await self._probe_space()
            if self._clock.monotonic_ms() - self._answered_at_ms < PROBE_INTERVAL_MS:
                continue
            try:
                await self.get(self._probe_key)
            except StoreUnavailableError:
                continue
            except StoreError:
                return

    # The methods of `MetadataStore`.

    @property
    def seen_revision(self) -> int:
        return self._store.seen_revision

    def observe_revision(self, revision: int) -> None:
        self._store.observe_revision(revision)

    async def get(self, key: str) -> KeyValue | None:
        return await self._measured("get", self._store.get(key))

    async def snapshot(self, prefix: str) -> Snapshot:
        """Not measured as one answer, because it reads many pages."""
        return await self._measured("snapshot", self._store.snapshot(prefix), one_answer=False)

    async def transact(self, transaction: Transaction) -> TransactionResult:
        result = await self._measured("transact", self._store.transact(transaction))
        # A full store accepts a transaction without a put, too.
        if result.succeeded and has_put(transaction):
            self._update_write_problem("")
        return result

    def watch(self, snapshot: Snapshot) -> AsyncIterator[Sequence[Changed]]:
        return self._store.watch(snapshot)

    async def grant_lease(self, ttl_seconds: int) -> Lease:
        return await self._measured("grant_lease", self._store.grant_lease(ttl_seconds))

    async def close(self) -> None:
        await self._store.close()

    async def _measured(
        self, name: str, asked: Awaitable[_Answer], *, one_answer: bool = True
    ) -> _Answer:
        began_ms, began_late_ms = self._clock.monotonic_ms(), self._lag.begin()
        answered, own_ms = True, 0
        try:
            try:
                answer = await asked
            finally:
                own_ms = self._lag.end(began_late_ms)
        except StoreFullError as error:
            answered = False
            self._update_write_problem(str(error))
            self._answered(began_ms, own_ms, one_answer=one_answer)
            raise
        except StoreUnavailableError as error:
            answered = False
            self._failed(began_ms, own_ms, one_answer=one_answer)
            self._lost(began_ms, str(error))
            raise
        except LeaseLostError:
            self._answered(began_ms, own_ms, one_answer=one_answer)
            raise
        finally:
            for observe in self.observers:
                observe(name, (self._clock.monotonic_ms() - began_ms) / 1000, answered)
        self._answered(began_ms, own_ms, one_answer=one_answer)
        return answer

    def _failed(self, began_ms: int, own_ms: int, *, one_answer: bool) -> None:
        """Records a failed request. Its wait counts as a latency does.

        Otherwise a store that answers only some requests would appear quick.
        """
        now_ms = self._clock.monotonic_ms()
        self._failed_at_ms.append(now_ms)
        # A request that fails at once, e.g. after another one has waited, is not a quick answer.
        self._slow_at_ms = now_ms
        waited_ms = now_ms - began_ms - own_ms
        if one_answer and waited_ms >= STORE_SLOW_MS:
            self._latencies.add(waited_ms, now_ms)

    def _lost(self, began_ms: int, problem: str) -> None:
        if self._answered_at_ms > began_ms:
            # Others were answered meanwhile: one request was lost, but the store is not.
            return
        self._problem = problem
        if self._lost_since_ms is not None:
            return
        self._lost_since_ms = began_ms
        elapsed_ms = self._clock.monotonic_ms() - began_ms
        self._loss = self._state_changes.condition_change(
            "store", Cause.STORE_UNREACHABLE, elapsed_ms
        )
        self._state_changes.emit(
            Kind.STORE_LOST,
            Stage.COMPLETED,
            change=self._loss,
            details={"problem": problem, "remedy": REMEDY},
        )

    def _answered(self, began_ms: int, own_ms: int, *, one_answer: bool) -> None:
        now_ms = self._clock.monotonic_ms()
        self._answered_at_ms = now_ms
        if one_answer:
            latency_ms = max(0, now_ms - began_ms - own_ms)
            self._last_latency_ms = latency_ms
            self._latencies.add(latency_ms, now_ms)
            if latency_ms < STORE_SLOW_MS:
                self._quick.add(began_ms)
            else:
                self._slow_at_ms = now_ms
        if self._lost_since_ms is not None:
            self._lost_since_ms = None
            self._problem = ""
            self._state_changes.emit(Kind.STORE_BACK, Stage.COMPLETED, change=self._loss)
