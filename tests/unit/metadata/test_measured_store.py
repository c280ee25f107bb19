"""Measurements of a store's answers, and a single report of its loss."""

from __future__ import annotations

import asyncio

import pytest

from doubles.memory_store import MemoryStore
from tidelog.inspection.state_reports import NOT_KNOWN, StoreMember
from tidelog.state_changes.event import Cause, Kind, StateChange
from tidelog_runtime.loop_lag import TICK_MS
from tidelog_runtime.metadata.measured_store import (
    MEMBERS_INTERVAL_MS,
    PROBE_INTERVAL_MS,
    MeasuredStore,
    SlidingMaximum,
    SparseTimes,
)
from tidelog_runtime.metadata.store import (
    Delete,
    KeyValue,
    Put,
    StoreFullError,
    StoreUnavailableError,
    Transaction,
    TransactionResult,
    has_put,
)
from tidelog_runtime.telemetry.state_change_log import Filter, StateChangeLog
from unit.metadata.virtual_time import VirtualTimeLoop, run, virtual_clock


class _SlowStore(MemoryStore):
    """Answers after `latency_ms`, or fails then."""

    latency_ms = 0
    away = False
    asked = 0

    async def get(self, key: str) -> KeyValue | None:
        self.asked += 1
        await asyncio.sleep(self.latency_ms / 1000)
        if self.away:
            raise StoreUnavailableError("no endpoint answers")
        return await super().get(key)


class _World:
    def __init__(self, clock: VirtualTimeLoop) -> None:
        self.inner = _SlowStore(clock)
        self.told = StateChangeLog("broker-1", clock)
        self.store = MeasuredStore(self.inner, "/probe", clock, self.told)

    def changes(self) -> list[StateChange]:
        return self.told.recent(Filter())

    async def fail(self, latency_ms: int = 0) -> None:
        self.inner.away, self.inner.latency_ms = True, latency_ms
        with pytest.raises(StoreUnavailableError):
            await self.store.get("/a")


def test_the_maximum_of_the_window_is_known_until_it_expires() -> None:
    largest = SlidingMaximum(100)
    for now_ms, value in ((0, 9), (10, 3), (60, 5)):
        largest.add(value, now_ms)
    found = [largest.maximum(at_ms) for at_ms in (60, 99, 100, 159, 160)]
    assert found == [(9, 0), (9, 0), (5, 60), (5, 60), None]


def test_durations_of_the_window_are_kept_separately() -> None:
    times = SparseTimes(100, 10)
    for at_ms in (0, 4, 12, 40, 49):
        times.add(at_ms)
    assert times.ages(60) == (60, 48, 20)
    assert times.ages(105) == (93, 65)


def test_the_last_and_the_longest_latency_are_known() -> None:
    async def story() -> None:
        world = _World(virtual_clock())
        assert world.store.health.last_latency_ms == NOT_KNOWN
        for world.inner.latency_ms in (40, 7):
            await world.store.get("/a")
        health = world.store.health
        assert (health.last_latency_ms, health.max_latency_ms) == (7, 40)
        assert health.unreachable_ms == NOT_KNOWN

    run(story())


def test_times_of_slow_and_quick_answers_are_known() -> None:
    async def story() -> None:
        world = _World(virtual_clock())
        for world.inner.latency_ms in (10, 2_000, 30):
            await world.store.get("/a")
        await asyncio.sleep(5)
        health = world.store.health
        assert (health.max_latency_ms, health.max_latency_ago_ms) == (2_000, 5_030)
        # Read at the start, and again after the slow answer.
        assert health.quick_answers_ms == (7_040, 5_030)

    run(story())


def test_a_late_event_loop_is_not_attributed_to_the_store() -> None:
    async def story() -> None:
        clock = virtual_clock()
        world = _World(clock)
        world.inner.latency_ms = 100
        read = asyncio.create_task(world.store.get("/a"))
        await asyncio.sleep(0.06)
        clock.stand_still(3)
        await read
        health = world.store.health
        assert max(health.last_latency_ms, health.max_latency_ms) <= 100
        assert health.last_slow_ago_ms == NOT_KNOWN

    run(story())


def test_a_process_with_long_loop_turns_is_always_late() -> None:
    async def story() -> None:
        clock = virtual_clock()
        world = _World(clock)
        world.inner.latency_ms = 1_000
        read = asyncio.create_task(world.store.get("/a"))
        while not read.done():
            await asyncio.sleep(0)
            clock.stand_still(0.1)
        assert world.store.health.max_latency_ms <= 1_000 * TICK_MS // 100 + 100

    run(story())


def test_a_slow_store_is_slow_also_for_a_slightly_late_process() -> None:
    async def story() -> None:
        clock = virtual_clock()
        world = _World(clock)
        world.inner.latency_ms = 2_000
        read = asyncio.create_task(world.store.get("/a"))
        await asyncio.sleep(0.5)
        clock.stand_still(0.3)
        await read
        assert 1_700 <= world.store.health.max_latency_ms <= 1_700 + TICK_MS

    run(story())


def test_the_last_slow_answer_is_known_for_a_minute() -> None:
    async def story() -> None:
        world = _World(virtual_clock())
        for world.inner.latency_ms in (2_000, 500, 499):
            await world.store.get("/a")
        assert world.store.health.last_slow_ago_ms == 499
        await asyncio.sleep(59.5)
        assert world.store.health.last_slow_ago_ms == 59_999
        await asyncio.sleep(0.001)
        assert world.store.health.last_slow_ago_ms == NOT_KNOWN

    run(story())


def test_a_lost_store_is_reported_once_and_its_return_too() -> None:
    async def story() -> None:
        await asyncio.sleep(1)
        world = _World(virtual_clock())
        await world.fail(latency_ms=3_000)
        await world.fail()
        await asyncio.sleep(1)
        health = world.store.health
        assert (health.unreachable_ms, health.problem) == (4_000, "no endpoint answers")
        world.inner.away = False
        await world.store.get("/a")
        lost, back = world.changes()
        assert (lost.kind, lost.details["problem"]) == (Kind.STORE_LOST, "no endpoint answers")
        assert (back.kind, back.duration_ms) == (Kind.STORE_BACK, 4_000)
        assert (lost.cause, back.cause) == (Cause.STORE_UNREACHABLE, Cause.STORE_UNREACHABLE)
        assert back.change_id == lost.change_id != ""
        assert world.store.health.unreachable_ms == NOT_KNOWN

    run(story())


def test_one_failed_request_among_answered_ones_is_no_lost_store() -> None:
    async def story() -> None:
        world = _World(virtual_clock())
        failing = asyncio.create_task(world.fail(latency_ms=3_000))
        await asyncio.sleep(1)
        world.inner.latency_ms = 0
        await world.store.grant_lease(3)
        await failing
        assert world.changes() == []

    run(story())


def test_an_idle_store_is_probed() -> None:
    async def story() -> None:
        world = _World(virtual_clock())
        probing = asyncio.create_task(world.store.probe())
        await asyncio.sleep(1)
        world.inner.away = True
        await asyncio.sleep(2 * PROBE_INTERVAL_MS / 1000)
        assert [change.kind for change in world.changes()] == [Kind.STORE_LOST]
        probing.cancel()

    run(story())


def test_a_store_in_use_is_not_probed() -> None:
    async def story() -> None:
        world = _World(virtual_clock())
        probing = asyncio.create_task(world.store.probe())
        for _ in range(20):
            await asyncio.sleep(1)
            await world.store.grant_lease(3)
        assert world.inner.asked == 0
        probing.cancel()

    run(story())


def test_an_unanswered_request_counts_with_its_wait() -> None:
    async def story() -> None:
        world = _World(virtual_clock())
        await world.fail(latency_ms=3_000)
        world.inner.away, world.inner.latency_ms = False, 5
        await world.store.get("/a")
        health = world.store.health
        assert (health.unreachable_ms, health.max_latency_ms) == (NOT_KNOWN, 3_000)
        assert (health.failed_tries, health.last_slow_ago_ms) == (1, 5)
        await asyncio.sleep(60)
        assert world.store.health.failed_tries == 0

    run(story())


def test_an_immediately_rejected_request_is_not_slow() -> None:
    async def story() -> None:
        world = _World(virtual_clock())
        await world.fail(latency_ms=2)
        assert world.store.health.failed_tries == 1
        assert world.store.health.max_latency_ms == NOT_KNOWN

    run(story())


def test_a_store_that_fails_at_once_after_being_slow_is_not_quick_again() -> None:
    async def story() -> None:
        world = _World(virtual_clock())
        await world.fail(latency_ms=3_000)
        await asyncio.sleep(20)
        await world.fail(latency_ms=2)
        assert world.store.health.last_slow_ago_ms == 0

    run(story())


class _OfMembers(_SlowStore):
    probes = 0

    def members(self) -> tuple[StoreMember, ...]:
        return (StoreMember("a:1"), StoreMember("b:1", 9_000, "no connection"))

    async def probe_members(self) -> None:
        self.probes += 1


def test_members_of_a_store_are_probed_besides_its_requests() -> None:
    async def story() -> None:
        clock = virtual_clock()
        inner = _OfMembers(clock)
        store = MeasuredStore(inner, "/probe", clock, StateChangeLog("broker-1", clock))
        probing = asyncio.create_task(store.probe())
        await asyncio.sleep(10 * MEMBERS_INTERVAL_MS / 1_000)
        probing.cancel()
        assert 8 <= inner.probes <= 10
        assert store.health.members == inner.members()

    run(story())


class _FullStore(_SlowStore):
    """`is_full` acts like etcd with the alarm NOSPACE. The store reports it only on request."""

    is_full = True

    async def write_problem(self) -> str | None:
        return "the alarm NOSPACE" if self.is_full else ""

    async def transact(self, transaction: Transaction) -> TransactionResult:
        if self.is_full and has_put(transaction):
            raise StoreFullError("etcd takes no writes: no space")
        return await super().transact(transaction)


_PUT = Transaction([], [Put("/a", b"")])


def test_a_full_store_answers_reads_and_rejects_writes() -> None:
    async def story() -> None:
        clock = virtual_clock()
        inner = _FullStore(clock)
        store = MeasuredStore(inner, "/probe", clock, StateChangeLog("broker-1", clock))
        with pytest.raises(StoreFullError):
            await store.transact(_PUT)
        await asyncio.sleep(3)
        health = store.health
        assert (health.unreachable_ms, health.rejects_writes_ms) == (NOT_KNOWN, 3_000)
        assert health.write_problem == "etcd takes no writes: no space"
        # A request that only deletes is accepted, and says nothing about writes.
        await store.transact(Transaction([], [Delete("/a")]))
        await store.get("/a")
        assert store.health.write_problem
        inner.is_full = False
        await store.transact(_PUT)
        assert (store.health.write_problem, store.health.rejects_writes_ms) == ("", NOT_KNOWN)

    run(story())


def test_a_process_without_writes_notices_a_full_store() -> None:
    async def story() -> None:
        clock = virtual_clock()
        inner = _FullStore(clock)
        store = MeasuredStore(inner, "/probe", clock, StateChangeLog("broker-1", clock))
        probing = asyncio.create_task(store.probe())
        await asyncio.sleep(2 * PROBE_INTERVAL_MS / 1_000)
        assert store.health.write_problem == "the alarm NOSPACE"
        inner.is_full = False
        await asyncio.sleep(2 * PROBE_INTERVAL_MS / 1_000)
        probing.cancel()
        assert store.health.write_problem == ""

    run(story())
