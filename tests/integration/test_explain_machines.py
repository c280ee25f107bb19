"""Machines with too little memory or CPU for a broker, a wrong clock, or a network that loses
packets, and clients that use too much.

Each is explained beside a second fault, a healthy partition is not blamed, and the step that
`explain` suggests ends it. One cluster serves all tests: each test restores the state that it
found."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from beside import beside
from faults.compose_override import clock_setting
from faults.own_clocks import CLOCK_FILE, clock_program, find_faketime
from integration.clusters import running_cluster
from integration.explaining import (
    Pairs,
    append,
    assert_not_blamed,
    causes_of,
    create_pairs,
    explained,
    faults_of,
    text_of,
    the,
    until_present,
)
from integration.logs import LogSince
from integration.process_limits import ONE_ARENA, limit_memory
from integration.suggested_steps import lead_as_preferred, until_gone, without_standby
from integration.topics import create_topic, read_values, until_in_sync
from integration.waiting import until, until_true
from lossy_sockets import losing_packets
from tidelog.caller_limits import CallerLimits
from tidelog.errors import TidelogError
from tidelog.inspection.state_reports import Explanation, Finding
from tidelog.log_dump import segment_paths
from tidelog.model import Acks
from tidelog_runtime.demo.replicas import find_replica
from tidelog_runtime.local.cluster import LocalCluster, Programs

TOPIC = "pairs"
HOUR_MS = 3_600_000
SEGMENT_BYTES = 64 << 10
RETENTION_CHECK_MS = 500
CONNECTIONS = 5_000
# The limit of one client, and the connections of services and tests from the same address.
MAX_CONNECTIONS = CallerLimits().max_connections_per_client
OTHER_CONNECTIONS = 100
# Brokers without a replica of the healthy partition, which is on brokers 1 and 2.
SHORT = 3
# The size of records that use up the memory, and of those that only keep the broker busy.
LARGE_BYTES, SMALL_BYTES = 900_000, 10_000
# The share of its memory limit: a broker without any memory left would end before it reports that.
USED_PERCENT = 93
# How long a broker without memory may continue before the test ends it, and how often it may.
SURVIVES_SECONDS = 15.0
MEMORY_TRIES = 3
# Half the weight of another process.
NICE = 3
# The share of packets that is lost on the way to a broker, and the pause between batches that it
# replicates.
LOST_PERCENT, PAUSE_SECONDS = 30, 0.05

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class World:
    cluster: LocalCluster
    pairs: Pairs
    clocks: Path | None

    @property
    def healthy(self) -> str:
        return self.pairs[1, 2]

    def pid(self, broker_id: int) -> int:
        pid = self.cluster.broker_process(broker_id).pid
        assert pid is not None
        return pid


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Broker SHORT has its own wall clock if libfaketime is installed. No other broker has one,
    because with libfaketime the waits of a paused process end early."""
    directory = tmp_path_factory.mktemp("explain")
    clocks, library = directory / "clocks", find_faketime()
    programs = Programs()
    if library is not None:
        programs = Programs(broker=clock_program(clocks, library))
        _set_clock(clocks, SHORT, 0)
    with pytest.MonkeyPatch.context() as patched:
        # Where brokers find the program that sets their clock.
        patched.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        patched.setenv(*ONE_ARENA)
        settings = {"lease_ttl_seconds": 5, "retention_check_interval_ms": RETENTION_CHECK_MS}
        async with running_cluster(
            directory / "cluster", programs=programs, broker_config=settings
        ) as cluster:
            pairs = await create_pairs(cluster, TOPIC)
            yield World(cluster, pairs, None if library is None else clocks)


def _set_clock(clocks: Path, broker_id: int, ahead_s: int) -> None:
    file = clocks / f"broker-{broker_id}" / CLOCK_FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(clock_setting(ahead_s))


async def test_a_leaders_clock_an_hour_ahead_is_explained(world: World) -> None:
    """Nor does its retention delete records of the last minutes."""
    if world.clocks is None:
        pytest.skip("libfaketime is not installed")
    cluster = world.cluster
    topic, written = await _closed_segments(world)
    async with without_standby(cluster):
        _set_clock(world.clocks, SHORT, HOUR_MS // 1_000)
        try:
            # The broker reports its own doubts about the clock as well.
            found = await until_present(
                cluster, ("clock_in_doubt", SHORT), ("clock_skew", SHORT), ("no_standby", -1)
            )
            healthy = await faults_of(cluster, world.healthy)
            await asyncio.sleep(2 * RETENTION_CHECK_MS / 1_000)
            read_meanwhile = await read_values(cluster, topic)
        finally:
            skewed = the(found, "clock_skew")
            [named] = re.findall(r"Correct the clock of broker (\d+) ", skewed.next_step)
            _set_clock(world.clocks, int(named), 0)
        assert skewed.severity == "warning"
        assert f"the clock of broker {SHORT} is 1 h 0 min ahead of" in skewed.summary
        assert {broker for cause, broker in causes_of(found) if cause == "clock_skew"} == {SHORT}
        assert healthy == []
        assert_not_blamed(found, world.healthy)
        await until_gone(cluster, "clock_skew")
        await until_gone(cluster, "clock_in_doubt")
    assert read_meanwhile == written
    assert await read_values(cluster, topic) == written


async def _closed_segments(world: World) -> tuple[str, list[bytes | None]]:
    """A topic that broker SHORT leads, with closed segments that become too old after ten
    minutes, and its values."""
    cluster, topic = world.cluster, "kept"
    config = {"retention_ms": str(HOUR_MS // 6), "segment_bytes": str(SEGMENT_BYTES)}
    described = await create_topic(cluster, topic, 3, 2, config)
    [led] = [p.partition for p in described.partitions if p.leader == SHORT]
    values = [os.urandom(SEGMENT_BYTES // 2) for _ in range(8)]
    for value in values:
        await append(cluster, f"{topic}/{led}", [value], Acks.ALL)
    replica = find_replica(cluster.broker_data_dir(SHORT), topic, led, described.topic_id)
    assert len(segment_paths(replica)) > 2
    return topic, list(values)


async def test_a_broker_at_its_memory_limit_is_explained(world: World) -> None:
    cluster = world.cluster
    process = cluster.broker_process(SHORT)
    async with without_standby(cluster):
        for _ in range(MEMORY_TRIES):
            log = LogSince(process.log_path)
            if await _ends_without_memory(world):
                break
            # It may serve requests with the little that it frees.
            await cluster.kill(SHORT)
            cluster.start_broker(SHORT)
            await cluster.ready()
            await until_in_sync(cluster, TOPIC)
            await lead_as_preferred(cluster)
        assert process.died, "a broker without memory has never ended by itself"
        found = await until_present(cluster, ("replica_dead", SHORT), ("no_standby", -1))
        # Not the lines of the interpreter, which prints errors that it cannot raise.
        lines = log.text().splitlines()
        assert [line for line in lines if line.startswith("{") and "Traceback" in line] == []
        dead = the(found, "replica_dead", SHORT)
        assert "memory" in dead.summary.lower()
        # A MemoryError in a task ends it, or a failed allocation of gRPC aborts it.
        crashes = log.events("crashed")
        assert crashes or process.exit_status == -signal.SIGABRT, process.exit_status
        for crashed in crashes:
            assert "MemoryError: the process may not use more memory" in crashed["why"]
            # etcd's client may lack the memory to report it.
            if not log.events("rejected_start_not_reported"):
                assert f"it has crashed ({crashed['why']})" in dead.summary
        assert "was stopped" not in text_of(dead)
        assert await faults_of(cluster, world.healthy) == []
        # Its new process has no limit.
        [named] = re.findall(
            r"Raise the memory limit of broker (\d+) .*, and start it", dead.next_step
        )
        cluster.start_broker(int(named))
        await until_gone(cluster, "replica_dead")
        await until_gone(cluster, "memory_short")
        await until_in_sync(cluster, TOPIC)
        await lead_as_preferred(cluster)


async def _ends_without_memory(world: World) -> bool:
    """Takes the memory of broker SHORT away in two steps: the first one is explained. Returns
    whether the broker ends by itself after the second one."""
    cluster, pid = world.cluster, world.pid(SHORT)
    process = cluster.broker_process(SHORT)
    limit_memory(pid, USED_PERCENT)
    near = await until_present(cluster, ("memory_short", SHORT), ("no_standby", -1))
    short = the(near, "memory_short")
    assert short.severity == "warning"
    assert "is near its memory limit" in short.summary
    assert await faults_of(cluster, world.healthy) == []
    limit_memory(pid, 100)
    async with _pushing(cluster, world.pairs[SHORT, 1], LARGE_BYTES, 0.05):
        with suppress(AssertionError):
            await until_true(lambda: not process.running, "it has ended", SURVIVES_SECONDS)
    return process.died


@asynccontextmanager
async def _pushing(
    cluster: LocalCluster, name: str, value_bytes: int, pause_seconds: float
) -> AsyncIterator[None]:
    """Sends batches repeatedly, whatever their outcome."""

    async def push() -> None:
        while True:
            with suppress(TidelogError):
                await append(cluster, name, [os.urandom(value_bytes) for _ in range(8)])
            await asyncio.sleep(pause_seconds)

    async with beside(*(push() for _ in range(3))):
        yield


async def test_lost_packets_of_a_broker_are_explained(world: World) -> None:
    cluster = world.cluster
    names = [world.pairs[SHORT, 1], world.pairs[2, SHORT]]
    async with without_standby(cluster):
        async with (
            losing_packets(world.pid(SHORT), LOST_PERCENT, [world.pid(1), world.pid(2)]),
            _pushing(cluster, names[0], SMALL_BYTES, PAUSE_SECONDS),
            _pushing(cluster, names[1], SMALL_BYTES, PAUSE_SECONDS),
        ):
            found = await until_present(cluster, ("packets_lost", SHORT), ("no_standby", -1))
            healthy = await faults_of(cluster, world.healthy)
        lost = the(found, "packets_lost")
        assert lost.severity in ("warning", "critical")
        assert f"broker {SHORT} loses packets" in lost.summary
        assert re.search(r"sent \d+ of [\d,]+ TCP segments again \(\d+ to 127.0.0.1", lost.summary)
        assert f"the machine of broker {SHORT}" in lost.next_step
        assert "ping -c 100" in lost.next_step
        # Only the links of its brokers to the lossy one are affected.
        assert {finding.cause for finding in healthy} <= {"packets_lost"}
        assert_not_blamed(found, world.healthy)
        # The filter is gone: the network is repaired.
        await until_gone(cluster, "packets_lost")
        await until_in_sync(cluster, TOPIC)


async def test_brokers_short_of_cpu_are_explained(world: World) -> None:
    """One broker runs beside processes that use up its processor, and one is stopped repeatedly:
    each is the second fault of the other."""
    cluster, stopped = world.cluster, 2
    # The only replica of each leads it, whatever earlier tests have done.
    described = await create_topic(cluster, "alone", 3, 1)
    alone = {p.leader: f"alone/{p.partition}" for p in described.partitions}
    healthy = alone[1]
    with _stopped_again_and_again(world.pid(stopped)), _crowded(world.pid(SHORT)):
        # Without a pause: the share must be too small on a fast processor as well.
        async with _pushing(cluster, alone[SHORT], SMALL_BYTES, 0):
            found = await until_present(
                cluster, ("cpu_starved", SHORT), ("cpu_starved", stopped), timeout_seconds=60
            )
            assert await faults_of(cluster, healthy) == []
    for broker_id in (SHORT, stopped):
        starved = the(found, "cpu_starved", broker_id)
        assert "gets too little CPU" in starved.summary
        assert "end what else runs on its machine" in starved.next_step
        assert "or find what stops its process again and again" in starved.next_step
    assert ("cpu_starved", 1) not in causes_of(found)
    assert_not_blamed(found, healthy)
    # Both processes were ended above.
    await until_gone(cluster, "cpu_starved")
    await until_in_sync(cluster, TOPIC)


# A separate process: on a busy machine the event loop of the test is late, and the broker would get
# more of the processor than intended.
_STOP_AND_GO = """
import os, signal, sys, time
while True:
    os.kill(int(sys.argv[1]), signal.SIGSTOP)
    time.sleep(1.35)
    os.kill(int(sys.argv[1]), signal.SIGCONT)
    time.sleep(0.15)
"""


@contextmanager
def _stopped_again_and_again(pid: int) -> Iterator[None]:
    """Stops and resumes the process as cpulimit does, with a tenth of a processor."""
    stopping = subprocess.Popen([sys.executable, "-c", _STOP_AND_GO, str(pid)])
    try:
        yield
    finally:
        stopping.kill()
        stopping.wait()
        os.kill(pid, signal.SIGCONT)


@contextmanager
def _crowded(pid: int) -> Iterator[None]:
    """Processes of higher priority use up the one processor that this process may use: it gets a
    fifth of it, enough to report the shortage."""
    processor = max(os.sched_getaffinity(0))
    autogroup = Path(f"/proc/{pid}/autogroup")
    _place(pid, {processor}, NICE)
    with suppress(OSError):
        autogroup.write_text(str(NICE))
    endless = [sys.executable, "-c", "while True: pass"]
    # Separate sessions: the kernel may share the processor among sessions.
    others = [subprocess.Popen(endless, start_new_session=True) for _ in range(2)]
    try:
        for other in others:
            os.sched_setaffinity(other.pid, {processor})
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
        # Without the privilege it stays last, on a machine without other load.
        with suppress(OSError):
            autogroup.write_text("0")
        _place(pid, os.sched_getaffinity(0), 0)


def _place(pid: int, processors: set[int], nice: int) -> None:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(PermissionError, ProcessLookupError):
            os.sched_setaffinity(int(thread.name), processors)
            os.setpriority(os.PRIO_PROCESS, int(thread.name), nice)


_CLIENT = """
import resource, socket, sys, time
host, port, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
# HTTP/2 connections as a gRPC client opens them, without any request.
opening = b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
held = []
while len(held) < number:
    held.append(socket.create_connection((host, port), timeout=30))
    held[-1].sendall(opening)
print("open", flush=True)
sys.stdin.read()
"""


async def test_five_thousand_connections_of_one_client_are_explained(world: World) -> None:
    cluster = world.cluster
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard < 2 * CONNECTIONS:
        pytest.skip(f"no process may have more than {hard} open files here")
    pid = world.pid(SHORT)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (before[1], before[1]))
    host, _, port = cluster.broker_address(SHORT).rpartition(":")
    async with without_standby(cluster):
        client = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _CLIENT, host, port, str(CONNECTIONS)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert client.stdin is not None
        assert client.stdout is not None
        try:
            async with asyncio.timeout(60):
                assert await client.stdout.readline() == b"open\n"
            await until_present(cluster, ("many_connections", SHORT), ("no_standby", -1))

            async def bounded() -> Explanation | None:
                found = await explained(cluster)
                many = the(found, "many_connections", SHORT)
                is_bounded = _count(many) <= MAX_CONNECTIONS + OTHER_CONNECTIONS
                return found if is_bounded and _closed(many) else None

            explanations = [await until(bounded, "idle connections beyond the limit are closed")]
            # The finding is stable.
            for _ in range(3):
                await asyncio.sleep(0.5)
                explanations.append(await explained(cluster))
            healthy = await faults_of(cluster, world.healthy)
        finally:
            # As the finding suggests.
            client.stdin.close()
            await client.wait()
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        for explanation in explanations:
            assert explanation is not None
            many = the(explanation, "many_connections", SHORT)
            assert f"max_connections_per_client is {MAX_CONNECTIONS:,}" in many.summary
            assert _count(many) <= MAX_CONNECTIONS + OTHER_CONNECTIONS
            assert _closed(many) >= CONNECTIONS - MAX_CONNECTIONS
            assert "from 127.0.0.1" in many.summary
            assert "close those that it does not use" in many.next_step
            assert "network" not in text_of(many)
            assert_not_blamed(explanation, world.healthy)
        assert healthy == []
        await until_gone(cluster, "many_connections")


def _count(many: Finding) -> int:
    [number] = re.findall(r"holds ([\d,]+) connections of one client", many.summary)
    return int(number.replace(",", ""))


def _closed(many: Finding) -> int:
    """0: no connection is reported."""
    found = re.findall(
        r"rejected ([\d,]+) requests or idle connections of client 127.0.0.1", text_of(many)
    )
    return int(found[0].replace(",", "")) if found else 0
