"""What a process is short of, and how it says so."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidelog_runtime.clock import SystemClock
from tidelog_runtime.metadata.memory import MemoryStore
from tidelog_runtime.metadata.store import Put, Transaction
from tidelog_runtime.pressure.judging import CPU_WINDOW_MS, PressureJudge, Usage
from tidelog_runtime.pressure.records import Pressure, decode_pressures, encode_pressures
from tidelog_runtime.pressure.reporting import REWRITE_MS, PressureReports
from tidelog_runtime.pressure.usage import established_peers, look_at_process

KEY = "/tidelog/test/brokers/pressures/1"


def files(open_files: int, **more: Any) -> Usage:
    return Usage(open_files=open_files, open_files_limit=100)._replace(**more)


def test_a_shortage_begins_at_the_limit_and_ends_below_it() -> None:
    judge = PressureJudge()
    found = [
        [p.since_ms for p in judge.take(files(open_files), at_ms, at_ms)]
        for at_ms, open_files in ((1, 79), (2, 80), (3, 76), (4, 74), (5, 79), (6, 95))
    ]
    assert found == [[], [2], [2], [], [], [6]]


def test_connections_are_named_and_whose_most_of_them_are() -> None:
    judge = PressureJudge()
    usage = files(90, sockets=60, top_peer="10.0.0.7", top_peer_connections=50)
    [pressure] = judge.take(usage, 1, 1)
    assert pressure.detail == "60 of them are connections, 50 of these with 10.0.0.7"


def test_a_process_without_limits_is_short_of_nothing() -> None:
    assert PressureJudge().take(Usage(open_files=9, memory_bytes=1 << 40), 1, 1) == ()


def test_waits_for_the_cpu_count_over_a_window() -> None:
    judge = PressureJudge()
    step_ms = 2_000
    found = [
        judge.take(Usage(cpu_wait_ms=at_ms * 7 // 10), at_ms, at_ms)
        for at_ms in range(0, CPU_WINDOW_MS + step_ms, step_ms)
    ]
    assert found[:-1] == [()] * (len(found) - 1)
    [[pressure]] = found[-1:]
    assert (pressure.resource, pressure.used, pressure.limit) == ("cpu", 7_000, 10_000)


def test_a_throttled_control_group_is_named() -> None:
    judge = PressureJudge()
    judge.take(Usage(), 0, 0)
    [pressure] = judge.take(Usage(throttled_periods=90, periods=100), CPU_WINDOW_MS, 0)
    assert pressure.used == 9_000
    assert "cpu.max" in pressure.detail


def test_peers_are_read_from_the_tables_of_the_kernel() -> None:
    lines = [
        "   0: 0100007F:1D4D 0100007F:A1B2 01 00000000:00000000 00:00000000 0",
        "   1: 0100007F:1D4D 00000000:0000 0A 00000000:00000000 00:00000000 0",
        "   2: 0000000000000000FFFF00000100007F:1D4D 0000000000000000FFFF00000700000A:1 01 0:0",
    ]
    assert list(established_peers(lines, {0x1D4D})) == ["127.0.0.1", "10.0.0.7"]
    assert list(established_peers(lines, {80})) == []


def test_many_connections_of_one_address_are_a_shortage_of_their_own() -> None:
    judge = PressureJudge(max_connections=100)
    usage = Usage(sockets=400, top_peer="10.0.0.7", top_peer_connections=79)
    assert judge.take(usage, 1, 1) == ()
    [pressure] = judge.take(usage._replace(top_peer_connections=300), 2, 2)
    assert (pressure.resource, pressure.used, pressure.limit) == ("connections", 300, 100)
    assert pressure.detail == "from 10.0.0.7"


def test_this_process_can_be_looked_at() -> None:
    usage = look_at_process()
    assert 0 < usage.open_files <= usage.open_files_limit
    assert usage.memory_bytes > 0


def test_pressures_come_back_from_the_store() -> None:
    pressures = (Pressure("memory", 9, 10, 5), Pressure("open_files", 90, 100, 6, "why"))
    assert decode_pressures(encode_pressures(pressures)) == pressures
    with pytest.raises(KeyError):
        decode_pressures(json.dumps([{}]).encode())


class _Clock:
    now = 0

    def monotonic_ms(self) -> int:
        return self.now

    wall_ms = monotonic_ms


class _World:
    def __init__(self) -> None:
        self.usage = files(10)
        self.may_write = True
        self.clock = _Clock()
        self.store = MemoryStore(SystemClock())
        self.reports = PressureReports(
            self.store, KEY, self.clock, lambda: self.usage, lambda: self.may_write
        )

    async def written(self) -> tuple[Pressure, ...]:
        await self.reports.step()
        found = await self.store.get(KEY)
        return decode_pressures(found.value) if found else ()


async def test_what_is_short_is_in_the_store_for_as_long_as_it_is() -> None:
    world = _World()
    assert await world.written() == ()
    world.usage = files(90)
    [pressure] = await world.written()
    assert (pressure.resource, pressure.used) == ("open_files", 90)
    world.usage = files(10)
    assert await world.written() == ()
    await world.store.close()


async def test_a_shortage_is_not_written_for_each_file_and_again_after_a_while() -> None:
    world = _World()
    world.usage = files(90)
    await world.written()
    revision = world.store.seen_revision
    world.usage = files(91)
    await world.written()
    assert world.store.seen_revision == revision
    world.clock.now += REWRITE_MS
    [pressure] = await world.written()
    assert pressure.used == 91
    await world.store.close()


async def test_what_a_former_process_has_left_is_ended() -> None:
    world = _World()
    left = encode_pressures((Pressure("memory", 99, 100, 5),))
    await world.store.transact(Transaction([], [Put(KEY, left)]))
    assert await world.written() == ()
    await world.store.close()


async def test_a_store_that_may_be_another_clusters_is_not_written_to() -> None:
    world = _World()
    world.may_write = False
    world.usage = files(90)
    assert await world.written() == ()
    assert len(world.reports.current) == 1
    await world.store.close()
