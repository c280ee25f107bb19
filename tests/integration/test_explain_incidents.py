"""Incidents that operators meet: each is named beside a second fault, a healthy partition is not
blamed, and the step that `explain` suggests ends it.

One cluster serves all of them: each test leaves it as it found it."""

from __future__ import annotations

import asyncio
import resource
import shlex
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

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
    said,
    split,
    the,
    tidelog,
    until_found,
)
from integration.tcp_proxy import TcpProxy
from integration.topics import create_topic, describe, until_in_sync
from integration.waiting import until, until_true
from integration.wire_client import WireClient
from tidelog.cli.exit_status import ExitStatus
from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.model import Explanation, Finding
from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.local.etcd import LocalEtcd

TOPIC = "pairs"
# Of one client address, which is that of all clients here; no other test has as many.
MAX_CONNECTIONS = 48
# Within the command that a finding suggests.
_END = (". ", ", which ", ", with ")

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class World:
    """Services know the store by three addresses: `members`, each a way to the one etcd."""

    cluster: LocalCluster
    etcd: LocalEtcd
    members: list[TcpProxy]
    pairs: Pairs


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    directory = tmp_path_factory.mktemp("explain")
    etcd = await LocalEtcd.start(directory / "etcd", log_path=directory / "etcd.log", fsync=False)
    members = [TcpProxy(etcd.endpoint) for _ in range(3)]
    for member in members:
        await member.start()
    endpoints = {"etcd_endpoints": [member.address for member in members]}
    try:
        async with running_cluster(
            directory / "cluster",
            broker_config={**endpoints, "max_connections_per_client": MAX_CONNECTIONS},
            controller_config={**endpoints, "leader_balance": False},
            etcd=etcd.endpoint,
        ) as cluster:
            pairs = await create_pairs(cluster, TOPIC)
            yield World(cluster, etcd, members, pairs)
    finally:
        for member in members:
            await member.stop()
        await etcd.stop()


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def everything_runs_again(world: World) -> AsyncIterator[None]:
    """A test that fails between a fault and its repair leaves the next ones a sound cluster."""
    yield
    world.etcd.resume()
    for member in world.members:
        member.flow()
    cluster = world.cluster
    for broker_id in cluster.broker_ids:
        if not cluster.broker_process(broker_id).running:
            cluster.start_broker(broker_id)
    for controller_id in (1, 2):
        if not cluster.controller_process(controller_id).running:
            cluster.start_controller(controller_id)
    await cluster.ready()
    await until_in_sync(cluster, TOPIC)


@asynccontextmanager
async def without_standby(cluster: LocalCluster) -> AsyncIterator[int]:
    """The second fault: the controller that stands by is killed."""
    active = await cluster.active_controller()
    standby = next(c for c in (1, 2) if c != active)
    await cluster.kill_controller(standby)
    yield standby
    if not cluster.controller_process(standby).running:
        cluster.start_controller(standby)
    await cluster.ready()


def commands_of(finding: Finding) -> list[list[str]]:
    """The commands that a finding suggests, without `tidelog`."""
    found = []
    for part in finding.next_step.split("tidelog ")[1:]:
        command = part
        for end in _END:
            command = command.partition(end)[0]
        found.append(shlex.split(command.rstrip(".")))
    return found


async def until_gone(cluster: LocalCluster, cause: str) -> None:
    seen: list[Explanation] = []

    async def look() -> bool:
        seen[:] = [await explained(cluster)]
        return cause not in {name for name, _ in causes_of(seen[0])}

    try:
        await until(look, f"explain says {cause} no more")
    except AssertionError as error:
        raise AssertionError(f"{error}: {seen}") from None


async def test_a_killed_standby_and_leaders_that_are_not_preferred(world: World) -> None:
    cluster, pairs = world.cluster, world.pairs
    moved, bystander = pairs[2, 1], pairs[1, 3]
    await cluster.kill(2)
    await until_found(cluster, ("replica_dead", 2))
    cluster.start_broker(2)
    await cluster.ready()
    await until_in_sync(cluster, TOPIC)
    async with without_standby(cluster) as standby:
        found = await until_found(cluster, ("no_standby", -1), ("not_preferred_leader", 2))
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


async def test_records_that_are_too_large_again_and_again(world: World) -> None:
    cluster, pairs = world.cluster, world.pairs
    topic = "small"
    await create_topic(cluster, topic, 1, 3, {"max_batch_bytes": "2000"})
    large = bytes(range(256)) * 16
    async with without_standby(cluster):
        for _ in range(4):
            with pytest.raises(TidelogError) as rejected:
                await append(cluster, f"{topic}/0", [large])
            assert rejected.value.code is ErrorCode.BATCH_TOO_LARGE
        found = await until_found(cluster, ("no_standby", -1))
        finding = the(found, "requests_rejected")
        assert (finding.severity, finding.topic) == ("warning", topic)
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


async def test_a_broker_without_open_files_left(world: World) -> None:
    cluster, pairs = world.cluster, world.pairs
    pid = cluster.broker_process(3).pid
    assert pid is not None
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    opened = _open_files(pid)
    host, _, port = cluster.broker_address(3).rpartition(":")
    async with without_standby(cluster):
        with ExitStack() as connections:
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (opened + 60, before[1]))
            for _ in range(80):
                held = connections.enter_context(socket.socket())
                held.connect((host, int(port)))
            try:
                found = await until_found(cluster, ("open_files", 3), ("no_standby", -1))
                healthy = await faults_of(cluster, pairs[1, 2])
            finally:
                # The step that is suggested for a process that runs.
                resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    short = the(found, "open_files")
    assert "limit of open files" in short.summary
    assert f"of {opened + 60:,} are open" in short.summary
    assert "prlimit --pid PID --nofile=" in short.next_step
    assert "network" not in said(short)
    assert ("broker_paused", 3) not in causes_of(found)
    assert healthy == []
    await until_gone(cluster, "open_files")
    await until_in_sync(cluster, TOPIC)


def _open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def test_a_client_at_its_limit_of_connections(world: World) -> None:
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
            waiting = [asyncio.create_task(waits_for_records(client)) for client in clients]
            try:
                found = await until_found(cluster, ("client_limited", 1), ("no_standby", -1))
                healthy = await faults_of(cluster, pairs[2, 3])
            finally:
                for task in waiting:
                    task.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)
        limited = the(found, "client_limited")
        assert f"client 127.0.0.1 is at max_connections_per_client ({MAX_CONNECTIONS})" in (
            limited.summary
        )
        assert "close those that it does not use" in limited.next_step
        assert "network" not in said(limited)
        assert not causes_of(found) & {("broker_paused", 1), ("broker_busy", 1)}
        assert healthy == []
        # The connections are closed, as the finding suggests.
        await append(cluster, pairs[1, 2], [b"taken again"])


async def test_a_damaged_identity_and_what_the_broker_said_of_it(world: World) -> None:
    cluster, pairs = world.cluster, world.pairs
    identity = cluster.broker_data_dir(3) / "broker.json"
    await cluster.stop_broker(3)
    kept = identity.read_bytes()
    identity.write_bytes(kept[: len(kept) // 2])
    async with without_standby(cluster):
        cluster.start_broker(3)
        found = await until_found(cluster, ("broker_cannot_start", 3), ("no_standby", -1))
        healthy = await faults_of(cluster, pairs[1, 2])
        failed = the(found, "broker_cannot_start")
        assert "broker.json" in failed.summary
        assert failed.next_step.startswith("Correct what its last start reported")
        assert not causes_of(found) & {("replica_dead", 3), ("broker_stopped", 3)}
        assert healthy == []
        identity.write_bytes(kept)
        await until_true(lambda: not cluster.broker_process(3).running, "its process has ended")
        cluster.start_broker(3)
        await until_gone(cluster, "broker_cannot_start")
    await until_in_sync(cluster, TOPIC)


async def test_two_brokers_crash_and_one_of_them_is_enough(world: World) -> None:
    cluster = world.cluster
    await create_topic(cluster, "trio", 1, 3)
    leader = (await describe(cluster, "trio")).partitions[0].leader
    first_out = next(b for b in (3, 2, 1) if b != leader)
    last = [b for b in (1, 2, 3) if b != first_out]
    await cluster.kill(first_out)
    await until_found(cluster, ("replica_dead", first_out))

    async def is_out() -> bool:
        return first_out not in (await describe(cluster, "trio")).partitions[0].isr

    await until(is_out, "the first one has left the ISR")
    async with without_standby(cluster):
        await asyncio.gather(*map(cluster.kill, last))
        cluster.start_broker(first_out)
        found = await until_found(
            cluster, ("no_leader", -1), ("replica_dead", last[0]), ("no_standby", -1)
        )
        missing = the(await explained(cluster, of("trio/0")), "no_leader")
        assert f"waits for any one of brokers {last[0]}, {last[1]}" in missing.summary
        lossless, _, lossy = missing.next_step.partition("Only if")
        assert f"Start broker {last[0]} or broker {last[1]}: one of them is enough" in lossless
        assert "--from-live-replicas" not in lossless
        assert "--from-live-replicas" in lossy
        assert found.findings
        cluster.start_broker(last[1])

        async def is_led() -> bool:
            return (await describe(cluster, "trio")).partitions[0].leader >= 0

        await until(is_led, "the one is elected")
    assert (await describe(cluster, "trio")).partitions[0].unclean_leader_epoch == -1
    cluster.start_broker(last[0])
    await cluster.ready()
    await until_in_sync(cluster, TOPIC)


async def test_a_member_of_the_store_that_is_cut_off(world: World) -> None:
    cluster, pairs = world.cluster, world.pairs
    away = world.members[1]
    async with without_standby(cluster):
        away.hang()
        try:
            found = await until_found(cluster, ("store_member_unreachable", -1), ("no_standby", -1))
            healthy = await faults_of(cluster, pairs[1, 2])
        finally:
            away.flow()
        lost = the(found, "store_member_unreachable")
        assert away.address in lost.summary
        others = [member.address for member in world.members if member is not away]
        assert not any(address in said(lost) for address in others)
        assert "store_slow" not in {cause for cause, _ in causes_of(found)}
        assert healthy == []
        await until_gone(cluster, "store_member_unreachable")


async def test_a_store_that_stops_again_and_again(world: World) -> None:
    """The last test: what it makes slow is told of for a minute."""
    cluster = world.cluster
    stopping = asyncio.create_task(_stop_and_go(world.etcd))
    try:
        found = await until_found(cluster, ("repeated_elections", -1))
        # By now every service has waited for it.
        await until_found(cluster, ("store_slow", -1), ("repeated_elections", -1))
    finally:
        stopping.cancel()
        with suppress(asyncio.CancelledError):
            await stopping
        world.etcd.resume()
    repeated = the(found, "repeated_elections")
    assert repeated.severity == "warning"
    await cluster.ready()
    await until_in_sync(cluster, TOPIC)
    # It is not well a moment later: what was not answered counts as slow.
    later = await explained(cluster)
    assert "store_slow" in {cause for cause, _ in causes_of(later)}


async def _stop_and_go(etcd: LocalEtcd) -> None:
    """Longer than the leases of the tests, which are of two seconds."""
    while True:
        etcd.pause()
        await asyncio.sleep(3.5)
        etcd.resume()
        await asyncio.sleep(1.0)
