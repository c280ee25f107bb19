"""Incidents that operators meet.

Each is explained beside a second fault, a healthy partition is not blamed, and the step that
`explain` suggests ends it. One cluster serves all tests: each test restores the state that it
found."""

from __future__ import annotations

import asyncio
import re
import resource
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from beside import beside
from integration.clusters import running_cluster
from integration.explaining import (
    Pairs,
    append,
    assert_not_blamed,
    causes_of,
    create_pairs,
    explained,
    faults_of,
    of,
    split,
    text_of,
    the,
    tidelog,
    until_present,
)
from integration.reconfigured import restart_broker
from integration.scraped import scrape
from integration.suggested_steps import carried_out, commands_of, until_gone, without_standby
from integration.topics import create_topic, describe, until_in_sync
from integration.waiting import until, until_true
from integration.wire_client import WireClient
from tidelog.caller_limits import (
    METRICS_CONNECTIONS,
    METRICS_CONNECTIONS_PER_CLIENT,
    METRICS_LIMITS,
)
from tidelog.cli.exit_status import ExitStatus
from tidelog.client import Producer
from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.state_reports import Explanation, Finding
from tidelog_runtime.local.cluster import LocalCluster

TOPIC = "pairs"
# The limit for one client address, which all clients and services here share; no other test has as
# many connections.
MAX_CONNECTIONS = 48
# Idle connections to a metrics port.
IDLE_SCRAPERS = 400
# Connections besides those of services; together they stay below the limit.
FEW_CONNECTIONS = 24
HOUR_MS = 3_600_000

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class World:
    cluster: LocalCluster
    pairs: Pairs


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with running_cluster(
        tmp_path_factory.mktemp("explain"),
        broker_config={"max_connections_per_client": MAX_CONNECTIONS},
        controller_config={"leader_balance": False},
    ) as cluster:
        yield World(cluster, await create_pairs(cluster, TOPIC))


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def everything_runs_again(world: World) -> AsyncIterator[None]:
    """A test that fails between a fault and its repair leaves an intact cluster to the next
    ones."""
    yield
    cluster = world.cluster
    for broker_id in cluster.broker_ids:
        if not cluster.broker_process(broker_id).running:
            cluster.start_broker(broker_id)
    for controller_id in (1, 2):
        if not cluster.controller_process(controller_id).running:
            cluster.start_controller(controller_id)
    await cluster.ready()
    await until_in_sync(cluster, TOPIC)


async def test_a_killed_standby_and_non_preferred_leaders_are_explained(world: World) -> None:
    cluster, pairs = world.cluster, world.pairs
    moved, bystander = pairs[2, 1], pairs[1, 3]
    await cluster.kill(2)
    await until_present(cluster, ("replica_dead", 2))
    cluster.start_broker(2)
    await cluster.ready()
    await until_in_sync(cluster, TOPIC)
    async with without_standby(cluster) as standby:
        found = await until_present(cluster, ("no_standby", -1), ("not_preferred_leader", 2))
        note = the(found, "not_preferred_leader", 2)
        assert moved in note.partitions
        [command] = commands_of(note)
        assert command[:2] == ["leaders", "elect-preferred"]
        status, output = await tidelog(cluster, *command)
        assert status == ExitStatus.DONE, output
        await until_gone(cluster, "not_preferred_leader")
        status, output = await tidelog(cluster, "explain")
        assert status == ExitStatus.FAILED, output
        assert "WARNING no_standby" in output
        assert_not_blamed(found, bystander)
        assert f"Start controller {standby} again" in the(found, "no_standby").next_step
        cluster.start_controller(standby)
        await until_gone(cluster, "no_standby")
    assert (await describe(cluster, TOPIC)).partitions[split(moved)[1]].leader == 2


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_an_ended_active_controller_of_two_is_explained(world: World, how: str) -> None:
    cluster, bystander = world.cluster, world.pairs[1, 2]
    active = await until(cluster.active_controller, "a controller is active")
    assert active is not None
    [standby] = {1, 2} - {active}
    await cluster.kill(3)
    await (cluster.stop_controller if how == "stopped" else cluster.kill_controller)(active)
    found = await until_present(cluster, ("no_standby", -1), ("replica_dead", 3))
    alone = the(found, "no_standby")
    assert alone.severity == "warning"
    assert f"controller-{standby} is active, and no standby controller can take over" in (
        alone.summary
    )
    assert "no_controller" not in {cause for cause, _ in causes_of(found)}
    assert_not_blamed(found, bystander)
    assert await faults_of(cluster, bystander) == []
    [named] = re.findall(r"Start controller (\d+) again", alone.next_step)
    assert int(named) == active
    cluster.start_controller(active)
    await until_gone(cluster, "no_standby")
    assert await cluster.active_controller() == standby


def rejections_of(found: Explanation, topic: str) -> Finding:
    """Those of other topics, by the test before, are found for a minute, too."""
    return the([f for f in found.findings if f.topic == topic], "requests_rejected")


async def test_records_that_are_repeatedly_too_large_are_explained(world: World) -> None:
    cluster, pairs = world.cluster, world.pairs
    topic = "small"
    await create_topic(cluster, topic, 1, 3, {"max_batch_bytes": "2000"})
    large = bytes(range(256)) * 16
    async with without_standby(cluster):
        for _ in range(4):
            with pytest.raises(TidelogError) as rejected:
                await append(cluster, f"{topic}/0", [large])
            assert rejected.value.code is ErrorCode.BATCH_TOO_LARGE
        found = await until_present(cluster, ("no_standby", -1))
        finding = rejections_of(found, topic)
        assert finding.severity == "warning"
        assert "because of BATCH_TOO_LARGE" in finding.summary
        assert await faults_of(cluster, pairs[1, 2]) == []
    [command] = commands_of(finding)
    command = [word.replace("BYTES", "20000") for word in command]
    status, output = await tidelog(cluster, *command, "--yes")
    assert status == ExitStatus.DONE, output

    async def is_taken() -> bool:
        with suppress(TidelogError):
            await append(cluster, f"{topic}/0", [large])
            return True
        return False

    await until(is_taken, "the record is taken")


async def test_a_client_whose_clock_is_ahead_is_explained(world: World) -> None:
    cluster, topic, ahead_ms = world.cluster, "timely", 2 * HOUR_MS
    await create_topic(cluster, topic, 1, 3, {"timestamp_max_ahead_ms": str(HOUR_MS)})

    async def send() -> None:
        async with Producer(cluster.bootstrap) as producer:
            now_ms = time.time_ns() // 1_000_000
            await (await producer.send(topic, b"a", partition=0, timestamp_ms=now_ms + ahead_ms))

    async with without_standby(cluster):
        for _ in range(4):
            with pytest.raises(TidelogError) as rejected:
                await send()
            assert rejected.value.code is ErrorCode.INVALID_TIMESTAMP
        found = await until_present(cluster, ("no_standby", -1))
        finding = rejections_of(found, topic)
        healthy = await faults_of(cluster, world.pairs[1, 2])
    assert finding.severity == "warning"
    assert "because of INVALID_TIMESTAMP" in finding.summary
    assert "ms ahead of the leader's clock" in text_of(finding)
    assert healthy == []
    assert_not_blamed(found, world.pairs[1, 2])
    # No clock of a service is wrong.
    assert not {cause for cause, _ in causes_of(found)} & {"clock_skew", "clock_in_doubt"}
    steps = re.fullmatch(
        r"Correct the clock of the client, or raise (\w+) of topic (\w+)\.", finding.next_step
    )
    assert steps is not None
    raised = f"{steps[1]}={4 * HOUR_MS}"
    await carried_out(cluster, ["topics", "alter-config", steps[2], "--set", raised, "--yes"])

    async def is_taken() -> bool:
        with suppress(TidelogError):
            await send()
            return True
        return False

    await until(is_taken, "the record is taken")


async def test_a_broker_out_of_open_files_is_explained(world: World) -> None:
    cluster, pairs = world.cluster, world.pairs
    pid = cluster.broker_process(3).pid
    assert pid is not None
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    opened = _open_files(pid)
    host, _, port = cluster.broker_address(3).rpartition(":")
    async with without_standby(cluster):
        with ExitStack() as connections:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (opened + FEW_CONNECTIONS, before[1]))
            for _ in range(FEW_CONNECTIONS):
                held = connections.enter_context(socket.socket())
                held.connect((host, int(port)))
            try:
                found = await until_present(cluster, ("open_files", 3), ("no_standby", -1))
                healthy = await faults_of(cluster, pairs[1, 2])
            finally:
                # The step that is suggested for a running process.
                resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    short = the(found, "open_files")
    assert "limit of open files" in short.summary
    assert f"of {opened + FEW_CONNECTIONS:,} are open" in short.summary
    assert "prlimit --pid PID --nofile=" in short.next_step
    assert "network" not in text_of(short)
    assert ("broker_paused", 3) not in causes_of(found)
    assert healthy == []
    await until_gone(cluster, "open_files")
    await until_in_sync(cluster, TOPIC)


def _open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def test_a_client_at_its_connection_limit_is_explained(world: World) -> None:
    cluster, pairs = world.cluster, world.pairs
    topic, partition = split(pairs[1, 2])
    address = cluster.broker_address(1)

    async def waits_for_records(client: WireClient) -> None:
        while True:
            with suppress(grpc.RpcError):
                await client.fetch(topic, partition, 0, max_wait_ms=5_000)
            await asyncio.sleep(0.2)

    async with without_standby(cluster):
        async with AsyncExitStack() as connections:
            clients = [
                await connections.enter_async_context(WireClient(address))
                for _ in range(MAX_CONNECTIONS + 8)
            ]
            async with beside(*map(waits_for_records, clients)):
                found = await until_present(cluster, ("client_limited", 1), ("no_standby", -1))
                healthy = await faults_of(cluster, pairs[2, 3])
        limited = the(found, "client_limited")
        assert f"client 127.0.0.1 has reached max_connections_per_client ({MAX_CONNECTIONS})" in (
            limited.summary
        )
        assert "close those that it does not use" in limited.next_step
        assert "network" not in text_of(limited)
        assert not causes_of(found) & {("broker_paused", 1), ("broker_busy", 1)}
        assert healthy == []
        # The connections are closed, as the finding suggests.
        await append(cluster, pairs[1, 2], [b"taken again"])


async def test_idle_connections_to_a_metrics_port_are_explained_and_leave_scrapes_answered(
    world: World,
) -> None:
    cluster, address = world.cluster, world.cluster.broker_metrics(3)
    pid = cluster.broker_process(3).pid
    assert pid is not None
    threads, open_files = _threads(pid), _open_files(pid)
    host, _, port = address.rpartition(":")
    with ExitStack() as idle:
        for _ in range(IDLE_SCRAPERS):
            idle.enter_context(socket.create_connection((host, int(port))))
        sample = await scrape(address)
        assert _threads(pid) - threads <= METRICS_LIMITS[METRICS_CONNECTIONS]
        assert _open_files(pid) - open_files < IDLE_SCRAPERS // 2
        rejected = sample.value(
            "client_rejected_requests_total", limit=METRICS_CONNECTIONS_PER_CLIENT
        )
        assert rejected is not None
        assert rejected >= IDLE_SCRAPERS // 2
        found = await until_present(cluster, ("client_limited", 3))
        healthy = await faults_of(cluster, world.pairs[2, 3])
    limited = the(found, "client_limited", 3)
    assert "client 127.0.0.1 has reached metrics_connections_per_client (8) of broker-3" in (
        limited.summary
    )
    assert "metrics port of broker-3 (metrics_listen" in limited.next_step
    assert healthy == []


def _threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


async def test_a_damaged_identity_is_explained_with_the_brokers_message(world: World) -> None:
    cluster, pairs = world.cluster, world.pairs
    identity = cluster.broker_data_dir(3) / "broker.json"
    await cluster.stop_broker(3)
    kept = identity.read_bytes()
    identity.write_bytes(kept[: len(kept) // 2])
    async with without_standby(cluster):
        cluster.start_broker(3)
        found = await until_present(cluster, ("broker_cannot_start", 3), ("no_standby", -1))
        healthy = await faults_of(cluster, pairs[1, 2])
        failed = the(found, "broker_cannot_start")
        assert "broker.json" in failed.summary
        assert "restore the file" in failed.summary
        assert failed.next_step.startswith("Correct what its last start reported")
        assert not causes_of(found) & {("replica_dead", 3), ("broker_stopped", 3)}
        assert healthy == []
        identity.write_bytes(kept)
        await until_true(lambda: not cluster.broker_process(3).running, "its process has ended")
        cluster.start_broker(3)
        await until_gone(cluster, "broker_cannot_start")
    await until_in_sync(cluster, TOPIC)


async def test_two_crashed_brokers_are_explained_and_restarting_one_is_enough(world: World) -> None:
    cluster = world.cluster
    await create_topic(cluster, "trio", 1, 3)
    leader = (await describe(cluster, "trio")).partitions[0].leader
    first_out = next(b for b in (3, 2, 1) if b != leader)
    last = [b for b in (1, 2, 3) if b != first_out]
    solo = (await create_topic(cluster, "solo", 3, 1)).partitions
    healthy = next(p.partition for p in solo if p.leader == first_out)
    await cluster.kill(first_out)
    await until_present(cluster, ("replica_dead", first_out))

    async def is_out() -> bool:
        return first_out not in (await describe(cluster, "trio")).partitions[0].isr

    await until(is_out, "the first one has left the ISR")
    async with without_standby(cluster):
        await asyncio.gather(*map(cluster.kill, last))
        cluster.start_broker(first_out)

        async def healthy_is_led() -> bool:
            return (await describe(cluster, "solo")).partitions[healthy].leader == first_out

        await until(healthy_is_led, "the first one leads its own partition")
        found = await until_present(
            cluster, ("no_leader", -1), ("replica_dead", last[0]), ("no_standby", -1)
        )
        assert_not_blamed(found, f"solo/{healthy}")
        missing = the(await explained(cluster, of("trio/0")), "no_leader")
        assert f"waits for any one of brokers {last[0]}, {last[1]}" in missing.summary
        lossless, _, lossy = missing.next_step.partition("Only if")
        assert f"Start broker {last[0]} or broker {last[1]}: one of them is enough" in lossless
        assert "--from-live-replicas" not in lossless
        assert "--from-live-replicas" in lossy
        cluster.start_broker(last[1])

        async def is_led() -> bool:
            return (await describe(cluster, "trio")).partitions[0].leader >= 0

        await until(is_led, "the one is elected")
    assert (await describe(cluster, "trio")).partitions[0].unclean_leader_epoch == -1
    cluster.start_broker(last[0])
    await cluster.ready()
    await until_in_sync(cluster, TOPIC)


async def test_a_port_that_another_program_holds_is_explained(world: World) -> None:
    cluster, pairs = world.cluster, world.pairs
    host, _, port = cluster.broker_address(3).rpartition(":")
    await cluster.stop_broker(3)
    async with without_standby(cluster):
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind((host, int(port)))
            other.listen()
            cluster.start_broker(3)
            found = await until_present(cluster, ("broker_cannot_start", 3), ("no_standby", -1))
            healthy = await faults_of(cluster, pairs[1, 2])
        failed = the(found, "broker_cannot_start")
        assert f"port {port} is in use" in failed.summary
        assert ("broker_paused", 3) not in causes_of(found)
        assert healthy == []
        # The port is free again, and the finding names the broker to start.
        [named] = re.findall(r"and start broker (\d+) again", failed.next_step)
        await until_true(lambda: not cluster.broker_process(3).running, "its process has ended")
        cluster.start_broker(int(named))
        await until_gone(cluster, "broker_cannot_start")
    await until_in_sync(cluster, TOPIC)


async def test_an_unresolvable_advertised_address_is_explained(world: World) -> None:
    cluster, pairs = world.cluster, world.pairs
    right, named = cluster.broker_address(3), ["3"]
    wrong = f"broker-3.invalid:{right.rpartition(':')[2]}"
    async with without_standby(cluster):
        await restart_broker(cluster, 3, {"advertised_address": wrong})
        try:
            found = await until_present(cluster, ("broker_unreachable", 3), ("no_standby", -1))
            healthy = await faults_of(cluster, pairs[1, 2])
            unresolved = the(found, "broker_unreachable")
            named = re.findall(r"Correct advertised_address of broker (\d+)", unresolved.next_step)
        finally:
            for broker_id in named:
                await restart_broker(cluster, int(broker_id), {"advertised_address": right})
        assert named == ["3"]
        assert "advertises a name that does not resolve here: broker-3.invalid" in (
            unresolved.summary
        )
        assert healthy == []
        await until_gone(cluster, "broker_unreachable")
    await until_in_sync(cluster, TOPIC)


async def test_a_broker_that_no_service_knows_is_explained(world: World) -> None:
    """Explained even beside other faults."""
    async with without_standby(world.cluster):
        for arguments in (("broker", "9"), ("--broker", "9")):
            status, output = await tidelog(world.cluster, "explain", *arguments)
            assert status == ExitStatus.NOT_FOUND, output
            assert "no service knows a broker 9; known are [1, 2, 3]" in output
            assert "no_standby" not in output


async def test_a_trace_of_an_unchanged_partition_is_empty(world: World) -> None:
    """Other partitions change meanwhile."""
    cluster = world.cluster
    await create_topic(cluster, "quiet", 1, 3)
    await asyncio.sleep(2.5)
    async with without_standby(cluster):
        await create_topic(cluster, "lively", 1, 3)
        status, output = await tidelog(cluster, "trace", "quiet/0", "--since", "2s")
        assert status == ExitStatus.DONE, output
        assert "No changes of quiet/0 since " in output
        status, output = await tidelog(cluster, "trace", "quiet/0", "--since", "1m")
        assert status == ExitStatus.DONE, output
        assert "become_leader" in output
        assert "lively" not in output
