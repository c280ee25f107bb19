"""Resource shortages of a process, and how it reports them."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from doubles.memory_store import MemoryStore
from tidelog.inspection.resource_pressures import ControllerPressure
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.store import KeyValue, Put, Transaction
from tidelog_runtime.pressure import usage as process_usage
from tidelog_runtime.pressure.detection import (
    CPU_WINDOW_MS,
    MIN_RESENT_SEGMENTS,
    PressureDetector,
    Usage,
)
from tidelog_runtime.pressure.process_pauses import (
    INTERVAL_MS,
    REMEMBERED_MS,
    STANDSTILL_MS,
    PauseMeter,
    gap_ms,
)
from tidelog_runtime.pressure.records import (
    ControllerPressures,
    Pressure,
    decode_pressures,
    encode_pressures,
)
from tidelog_runtime.pressure.reporting import (
    HELD_UP_MS,
    REWRITE_MS,
    HasRegistered,
    PressureMeter,
    PressureReports,
)
from tidelog_runtime.pressure.segments import Segments, TcpConnection
from tidelog_runtime.pressure.usage import established_peers, measure_usage

KEY = "/tidelog/test/brokers/pressures/1"


def files(open_files: int, **more: Any) -> Usage:
    return Usage(open_files=open_files, open_files_limit=100, **more)


def test_a_shortage_begins_at_the_limit_and_ends_below_it() -> None:
    judge = PressureDetector()
    found = [
        [p.since_ms for p in judge.take(files(open_files), at_ms, at_ms)]
        for at_ms, open_files in ((1, 79), (2, 80), (3, 76), (4, 74), (5, 79), (6, 95))
    ]
    assert found == [[], [2], [2], [], [], [6]]


def test_connections_are_reported_with_the_address_that_has_most() -> None:
    judge = PressureDetector()
    usage = files(90, sockets=60, top_peer="10.0.0.7", top_peer_connections=50)
    [pressure] = judge.take(usage, 1, 1)
    assert pressure.detail == "60 of them are connections, 50 of these with 10.0.0.7"


def test_a_process_without_limits_has_no_shortage() -> None:
    assert PressureDetector().take(Usage(open_files=9, memory_bytes=1 << 40), 1, 1) == ()


def test_cpu_wait_times_count_over_a_window() -> None:
    judge = PressureDetector()
    step_ms = 2_000
    found = [
        judge.take(Usage(cpu_wait_ms=at_ms * 7 // 10), at_ms, at_ms)
        for at_ms in range(0, CPU_WINDOW_MS + step_ms, step_ms)
    ]
    assert found[:-1] == [()] * (len(found) - 1)
    [[pressure]] = found[-1:]
    assert (pressure.resource, pressure.used, pressure.limit) == ("cpu", 7_000, 10_000)


def test_a_throttled_control_group_is_named() -> None:
    judge = PressureDetector()
    judge.take(Usage(), 0, 0)
    [pressure] = judge.take(Usage(throttled_periods=90, periods=100), CPU_WINDOW_MS, 0)
    assert pressure.used == 9_000
    assert "cpu.max" in pressure.detail


def test_a_disk_is_slow_from_one_second_on() -> None:
    judge = PressureDetector()
    found = [
        judge.take(Usage(disk_ms=disk_ms, disk_operation="write"), at_ms, at_ms)
        for at_ms, disk_ms in enumerate((999, 1_000, 600, 400))
    ]
    assert [[(p.resource, p.used, p.since_ms, p.detail) for p in look] for look in found] == [
        [],
        [("disk", 1_000, 1, "write")],
        [("disk", 600, 1, "write")],
        [],
    ]


@pytest.mark.parametrize(("resent", "is_reported"), [(60, True), (40, False), (19, False)])
def test_many_segments_that_are_sent_again_are_packet_loss(resent: int, is_reported: bool) -> None:
    """A few are connections to a machine that has failed, however little else is sent."""
    sent = 1_000 if resent >= MIN_RESENT_SEGMENTS else 30
    peer = TcpConnection("10.0.0.7", 7_500, 40_000)
    judge = PressureDetector()
    judge.take(Usage(segments={peer: Segments(5, 3)}), 0, 0)
    usage = Usage(segments={peer: Segments(5 + sent, 3 + resent)})
    found = judge.take(usage, CPU_WINDOW_MS, 7)
    reported = Pressure("network", resent, sent, 7, f"{resent} to 10.0.0.7")
    assert found == ((reported,) if is_reported else ())


def test_packet_loss_ends_below_a_lower_share() -> None:
    peer = TcpConnection("10.0.0.7", 7_500, 40_000)
    judge = PressureDetector()
    sent = resent = 0
    found = []
    for at_ms, percent in enumerate((0, 6, 3, 3, 1, 3, 6)):  # of 10,000
        sent, resent = sent + 10_000, resent + 100 * percent
        usage = Usage(segments={peer: Segments(sent, resent)})
        found.append([p.since_ms for p in judge.take(usage, at_ms * CPU_WINDOW_MS, at_ms)])
    assert found == [[], [1], [1], [1], [], [], [6]]


def test_packet_loss_continues_while_less_is_sent() -> None:
    peer = TcpConnection("10.0.0.7", 7_500, 40_000)
    judge = PressureDetector()
    sent = resent = 0
    found = []
    for at_ms, again in enumerate((0, MIN_RESENT_SEGMENTS, MIN_RESENT_SEGMENTS // 2, 2)):
        sent, resent = sent + 100, resent + again
        usage = Usage(segments={peer: Segments(sent, resent)})
        found.append([p.used for p in judge.take(usage, at_ms * CPU_WINDOW_MS, at_ms)])
    assert found == [[], [MIN_RESENT_SEGMENTS], [MIN_RESENT_SEGMENTS // 2], []]


def test_peers_are_read_from_kernel_tables() -> None:
    lines = [
        "   0: 0100007F:1D4D 0100007F:A1B2 01 00000000:00000000 00:00000000 0",
        "   1: 0100007F:1D4D 00000000:0000 0A 00000000:00000000 00:00000000 0",
        "   2: 0000000000000000FFFF00000100007F:1D4D 0000000000000000FFFF00000700000A:1 01 0:0",
    ]
    assert list(established_peers(lines, {0x1D4D})) == ["127.0.0.1", "10.0.0.7"]
    assert list(established_peers(lines, {80})) == []


def test_many_connections_of_one_address_are_a_separate_shortage() -> None:
    judge = PressureDetector(max_connections=100)
    usage = Usage(sockets=400, top_peer="10.0.0.7", top_peer_connections=79)
    assert judge.take(usage, 1, 1) == ()
    [pressure] = judge.take(replace(usage, top_peer_connections=300), 2, 2)
    assert (pressure.resource, pressure.used, pressure.limit) == ("connections", 300, 100)
    assert pressure.detail == "from 10.0.0.7"


@pytest.mark.parametrize(
    ("address_space", "group", "expected"),
    [
        (resource.RLIM_INFINITY, "max", (4, 0)),
        (resource.RLIM_INFINITY, "5", (4, 5)),
        (20, "max", (16, 20)),
        (20, "5", (16, 20)),
        (24, "5", (4, 5)),
    ],
)
def test_of_two_memory_limits_the_tighter_counts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    address_space: int,
    group: str,
    expected: tuple[int, int],
) -> None:
    (tmp_path / "statm").write_text("16 4 0 0 0 0 0")
    (tmp_path / "cgroup").write_text("0::/")
    (tmp_path / "memory.max").write_text(group)
    monkeypatch.setattr(process_usage, "_PROC", tmp_path)
    monkeypatch.setattr(process_usage, "_CGROUP", tmp_path)
    monkeypatch.setattr(resource, "getpagesize", lambda: 1)
    limits = (address_space, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    found = measure_usage()
    assert (found.memory_bytes, found.memory_limit_bytes) == expected


def test_the_usage_of_this_process_can_be_read() -> None:
    usage = measure_usage()
    assert 0 < usage.open_files <= usage.open_files_limit
    assert usage.memory_bytes > 0
    assert all(counts.sent >= counts.resent for counts in usage.segments.values())


def test_pause_times_are_a_part_of_usage() -> None:
    """It was once taken for the time of a sync."""
    meter = PauseMeter()
    meter.total_ms = 7_000
    usage = measure_usage(standstill=meter)
    assert (usage.stood_still_ms, usage.disk_ms) == (7_000, 0)


def test_pressures_round_trip_through_the_store() -> None:
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


async def test_a_shortage_is_in_the_store_for_as_long_as_it_lasts() -> None:
    world = _World()
    assert await world.written() == ()
    world.usage = files(90)
    [pressure] = await world.written()
    assert (pressure.resource, pressure.used) == ("open_files", 90)
    world.usage = files(10)
    assert await world.written() == ()
    await world.store.close()


async def test_a_meter_without_a_store_knows_shortages() -> None:
    meter = PressureMeter(_Clock(), lambda: files(90))
    await meter.step()
    assert [pressure.resource for pressure in meter.current] == ["open_files"]


def test_shortages_of_controllers_can_be_read_by_others() -> None:
    keys, known = Keys("test"), ControllerPressures(Keys("test").controller_pressures)
    memory, cpu = Pressure("memory", 9, 10, 5), Pressure("cpu", 8, 10, 6, "why")

    def put(key: str, value: bytes) -> None:
        known.take(key, KeyValue(key, value, 1, 1))

    put(keys.controller_pressure(2), encode_pressures((memory, cpu)))
    put(keys.controller_pressure(1), b"{not json")
    put(keys.pressure(3), encode_pressures((memory,)))
    assert known.described() == (ControllerPressure(2, *memory), ControllerPressure(2, *cpu))
    assert known.described(2, (cpu,)) == (ControllerPressure(2, *cpu),)
    known.take(keys.controller_pressure(2), None)
    assert known.described(1, ()) == ()
    # The previous release ignores the key.
    assert keys.parse(keys.controller_pressure(2)) is None


async def test_a_shortage_is_not_rewritten_for_each_file_and_refreshed_after_a_while() -> None:
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


async def test_a_shortage_left_by_a_previous_process_is_ended() -> None:
    world = _World()
    left = encode_pressures((Pressure("memory", 99, 100, 5),))
    await world.store.transact(Transaction([], [Put(KEY, left)]))
    assert await world.written() == ()
    await world.store.close()


async def test_a_shortage_takes_one_request_to_write() -> None:
    """A process that its disk delays has no time for two answers."""
    world = _World()
    await world.written()
    world.store.grant_lease = None  # type: ignore[assignment,method-assign]
    world.usage = files(90)
    assert len(await world.written()) == 1
    await world.store.close()


async def test_a_process_with_a_blocked_event_loop_reports_from_a_thread() -> None:
    world = _World()
    put: list[tuple[str, bytes, int]] = []
    world.reports = PressureReports(
        world.store,
        KEY,
        world.clock,
        lambda: world.usage,
        lambda: world.may_write,
        put_directly=lambda *args: put.append(args),
    )
    await world.written()
    world.usage = files(90)
    world.clock.now += HELD_UP_MS - 1
    world.reports.step_held_up()
    assert put == []
    world.clock.now += 1
    world.reports.step_held_up()
    [(key, value, lease_id)] = put
    assert (key, lease_id > 0) == (KEY, True)
    assert [pressure.used for pressure in decode_pressures(value)] == [90]
    # Whichever came last, the resumed loop writes the present state.
    world.usage = files(10)
    assert await world.written() == ()
    world.clock.now += HELD_UP_MS
    world.reports.step_held_up()
    assert len(put) == 1
    await world.store.close()


async def test_shortages_are_not_written_to_a_store_that_may_be_of_another_cluster() -> None:
    world = _World()
    world.may_write = False
    world.usage = files(90)
    assert await world.written() == ()
    assert len(world.reports.current) == 1
    await world.store.close()


def test_repeated_pauses_are_a_shortage_of_cpu() -> None:
    judge = PressureDetector()
    judge.take(Usage(), 0, 0)
    [pressure] = judge.take(Usage(cpu_wait_ms=300, stood_still_ms=8_000), CPU_WINDOW_MS, 0)
    assert (pressure.resource, pressure.used) == ("cpu", 8_000)
    assert "was paused repeatedly" in pressure.detail


def test_one_long_pause_is_no_shortage_of_cpu() -> None:
    judge = PressureDetector()
    judge.take(Usage(), 0, 0)
    paused = Usage(stood_still_ms=gap_ms(60_000, 0))
    assert judge.take(paused, CPU_WINDOW_MS, 0) == ()


def test_working_and_sleeping_processes_are_not_paused() -> None:
    """This runs in real time: CPU time of the process itself does not count."""
    meter = PauseMeter()
    meter.start()
    ends_at = time.process_time() + 1.0
    while time.process_time() < ends_at:
        sum(range(1_000))
    time.sleep(0.3)
    meter.stop()
    # Other processes of a busy machine may run meanwhile.
    assert meter.total_ms < 5_000


def test_a_gap_of_a_second_is_remembered_with_its_full_length() -> None:
    meter = PauseMeter()
    now_ms = round(time.monotonic() * 1_000)
    meter.take(INTERVAL_MS + STANDSTILL_MS - 1, 0, now_ms)
    meter.take(6_000, 5_500, now_ms)  # it computed
    meter.take(7_000, 100, now_ms - REMEMBERED_MS)
    assert meter.recent() == []
    meter.take(7_000, 100, now_ms - 500)
    [standstill] = meter.recent()
    assert standstill.for_ms == 6_800
    assert [ended - began for began, ended in meter.gaps()][-1:] == [6_800]
    assert 500 <= standstill.ago_ms < 60_000


def test_a_repeatedly_stopped_process_counts_as_paused() -> None:
    program = (
        "import sys, time\n"
        "from tidelog_runtime.pressure.process_pauses import PauseMeter\n"
        "meter = PauseMeter()\n"
        "meter.start()\n"
        "print('started', flush=True)\n"
        "sys.stdin.read()\n"
        "meter.stop()\n"
        "print(meter.total_ms)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    for _ in range(3):
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        process.send_signal(signal.SIGCONT)
        time.sleep(0.15)
    output, _ = process.communicate("")
    # Each stop less one interval, within which the next sample was due anyway.
    assert int(output) >= 3 * (500 - 2 * INTERVAL_MS)


def test_a_process_without_its_registration_still_reports_shortages() -> None:
    registered = iter([False, True, False])
    may_write = HasRegistered(lambda: next(registered))
    assert [may_write(), may_write(), may_write()] == [False, True, True]
