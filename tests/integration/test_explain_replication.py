"""Incidents between leaders, followers and producers.

Each is explained beside a second fault, a healthy partition is not blamed, and the suggested step
ends it. Others reach broker 1 through a proxy, and controllers reach the metadata store through
one."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest
import pytest_asyncio

from beside import beside
from integration.clusters import running_cluster
from integration.explaining import (
    Pairs,
    append,
    assert_not_blamed,
    assert_still_found,
    causes_of,
    create_pairs,
    explained,
    faults_of,
    of,
    split,
    text_of,
    the,
    until_found,
)
from integration.reconfigured import restart_broker, until_registered
from integration.suggested_steps import carried_out, commands_of, until_gone, without_standby
from integration.tcp_proxy import TcpProxy
from integration.topics import create_topic, describe, until_in_sync, until_isr
from integration.waiting import until
from tidelog.client import Producer
from tidelog.client.partitioner import partition_for_key
from tidelog.errors import FencedProducerError, TidelogError
from tidelog.inspection.explain import causes
from tidelog.inspection.state_reports import Finding
from tidelog.model import Acks, Codec
from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.local.cluster_file import Setting
from tidelog_runtime.local.etcd_member import LocalEtcd

TOPIC = "pairs"
SENT, ARRIVES = b"sent as it is", b"sent as it iz"
ELECTED = re.compile(r"elected in leader epoch (\d+) at (\S+Z)")

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class World:
    cluster: LocalCluster
    store: TcpProxy
    leader: TcpProxy
    pairs: Pairs


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    directory = tmp_path_factory.mktemp("explain")
    etcd = await LocalEtcd.start(directory / "etcd", log_path=directory / "etcd.log", fsync=False)
    store = TcpProxy(etcd.endpoint)
    await store.start()
    controllers: dict[str, Setting] = {
        "etcd_endpoints": [store.address],
        # Longer than a test needs the store to hang.
        "lease_ttl_seconds": 30,
        "leader_balance": False,
    }
    try:
        async with running_cluster(
            directory / "cluster",
            controller_config=controllers,
            etcd=etcd.endpoint,
        ) as cluster:
            leader = TcpProxy(cluster.broker_address(1))
            await leader.start()
            await restart_broker(cluster, 1, {"advertised_address": leader.address})
            await until_registered(cluster, leader.address)
            yield World(cluster, store, leader, await create_pairs(cluster, TOPIC))
            await leader.stop()
    finally:
        await store.stop()
        await etcd.stop()


async def test_a_follower_rejects_damaged_answers(world: World) -> None:
    cluster, pairs = world.cluster, world.pairs
    damaged, bystander = pairs[1, 2], pairs[2, 3]
    topic, partition = split(damaged)
    async with without_standby(cluster):
        world.leader.garbles = (SENT, ARRIVES)
        try:
            async with Producer(cluster.bootstrap, acks=Acks.LEADER, codec=Codec.NONE) as producer:
                await (await producer.send_many(topic, [SENT] * 3, partition=partition))
            found = await until_found(
                cluster,
                ("replica_rejects", 2),
                ("under_min_isr", 1),
                ("no_standby", -1),
                # Records that the leader alone has acknowledged.
                also=(("hw_stalled", 1),),
                containing=("out of the ISR",),
            )
            healthy = await faults_of(cluster, bystander)
            finding = the(found, "replica_rejects", 2)
            [scrub] = commands_of(finding)
            # The disk is intact, so that the network must be the cause.
            checked = await carried_out(cluster, scrub)
        finally:
            world.leader.garbles = None
        await until_gone(cluster, "replica_rejects")
    await until_in_sync(cluster, TOPIC)
    # damage found and diverged.
    assert checked.splitlines()[1].split()[-2:] == ["0", "0"], checked
    assert finding.partitions == (damaged,)
    assert "from broker 1 does not match its checksum" in text_of(finding)
    assert not causes_of(found) & {("replica_cut_off", 2), ("replica_corrupt", 2)}
    assert healthy == []
    assert_not_blamed(found, bystander)


async def test_an_isr_that_shrank_after_the_controller_read_it_is_explained(world: World) -> None:
    """The leader's disk is intact: the follower is the replica that has left."""
    cluster, pairs = world.cluster, world.pairs
    shrunk, bystander = pairs[3, 2], pairs[3, 1]
    async with without_standby(cluster):
        cluster.pause(2)
        world.store.hang()
        try:
            await until_isr(cluster, TOPIC, {3}, split(shrunk)[1])
            await append(cluster, shrunk, [b"waits"])
            # The controller, which has lost the store, elects no leader.
            expected = (
                ("hw_stalled", 3),
                ("broker_paused", 2),
                ("no_leader", 2),
                ("under_min_isr", -1),
                ("store_unreachable", -1),
                ("no_standby", -1),
            )
            waiting = (("command_backlog", 2), ("command_overdue", 2))
            found = await until_found(
                cluster, *expected, also=waiting, containing=("below min ISR",)
            )
            healthy = await faults_of(cluster, bystander)
            await assert_still_found(cluster, *expected, also=waiting)
        finally:
            world.store.flow()
            cluster.resume(2)
    stalled = the(found, "hw_stalled", 3)
    assert stalled.partitions == (shrunk,)
    assert stalled.because == ("broker_paused of broker 2",)
    assert "disk" not in text_of(stalled)
    assert "Bring broker 2 back into the ISR" in stalled.next_step
    assert "kill -CONT PID" in the(found, "broker_paused", 2).next_step
    assert healthy == []
    assert_not_blamed(found, bystander)
    await append(cluster, shrunk, [b"is committed"], Acks.ALL)
    await until_gone(cluster, "hw_stalled")
    await until_in_sync(cluster, TOPIC)


async def fence_each_other(cluster: LocalCluster, topic: str) -> None:
    """Two producers of one name, each of which takes the name again when it is fenced."""

    async def write_on() -> None:
        while True:
            with suppress(FencedProducerError):
                async with Producer(cluster.bootstrap, producer_name="orders") as producer:
                    for _ in range(10):
                        await (await producer.send(topic, b"an order", partition=0))
                        await asyncio.sleep(0.2)

    await asyncio.gather(write_on(), write_on())


def rejected_count(finding: Finding) -> int:
    found = re.search(r"(\d+) requests? within", finding.summary)
    assert found is not None, finding
    return int(found[1])


async def test_an_unclean_election_is_explained_beside_two_producers_of_one_name(
    world: World,
) -> None:
    cluster, bystander = world.cluster, world.pairs[3, 1]
    await create_topic(cluster, "orders", 1, 2)
    config = {"unclean_leader_election": "true", "min_insync_replicas": "1"}
    described = await create_topic(cluster, "lossy", 1, 2, config)
    [partition] = described.partitions
    leader, follower = partition.replicas
    await cluster.kill(follower)
    await until_isr(cluster, "lossy", {leader})
    await append(cluster, "lossy/0", [b"lost"] * 20)
    await cluster.kill(leader)
    cluster.start_broker(follower)
    # The proxy before broker 1 accepts connections.
    gone = "broker_paused" if leader == 1 else "replica_dead"
    expected = (("unclean_election", follower), (gone, leader))
    found = await until_found(cluster, *expected, scope=of("lossy/0"))
    first = the(found, "unclean_election")
    cluster.start_broker(leader)
    await until_registered(cluster, world.leader.address)
    await until_in_sync(cluster, "lossy")
    async with beside(fence_each_other(cluster, "orders")):
        rejecting = (await describe(cluster, "orders")).partitions[0].leader
        found = await until_found(
            cluster,
            ("unclean_election", follower),
            ("requests_rejected", rejecting),
            containing=("FENCED_PRODUCER_EPOCH",),
        )
        healthy = await faults_of(cluster, bystander)
    later, fenced = the(found, "unclean_election"), the(found, "requests_rejected")

    # The ISR has changed since; the unclean election has not.
    assert ELECTED.search(text_of(first)) is not None, first
    assert ELECTED.findall(text_of(first)) == ELECTED.findall(text_of(later))
    assert later.partitions == ("lossy/0",)
    trace, move = commands_of(later)
    assert "lossy/0" in trace
    assert "unclean" in await carried_out(cluster, trace)
    assert move[:2] == ["leaders", "move"]
    await carried_out(cluster, [word.replace("BROKER", str(leader)) for word in move])
    await until_gone(cluster, causes.UNCLEAN_ELECTION)
    assert healthy == []
    assert_not_blamed(found, bystander)

    assert fenced.topic == "orders"
    assert "give each a name of its own" in fenced.next_step
    await _with_a_name_of_its_own(cluster, "orders")


async def _with_a_name_of_its_own(cluster: LocalCluster, topic: str) -> None:
    """As the finding suggests; nothing more is rejected."""
    before = rejected_count(the(await explained(cluster), "requests_rejected"))
    async with (
        Producer(cluster.bootstrap, producer_name="orders") as one,
        Producer(cluster.bootstrap, producer_name="orders-2") as other,
    ):
        for _ in range(10):
            await asyncio.gather(
                await one.send(topic, b"an order", partition=0),
                await other.send(topic, b"an order", partition=0),
            )

    async def same() -> bool:
        with suppress(TidelogError):
            return rejected_count(the(await explained(cluster), "requests_rejected")) <= before
        return False

    await until(same, "no more requests are rejected")


def by_another_rule(key: bytes, partitions: int) -> int:
    return zlib.adler32(key) % partitions


async def test_a_client_with_another_partitioner_is_explained_beside_a_killed_standby(
    world: World,
) -> None:
    cluster, bystander, topic, partitions = world.cluster, world.pairs[3, 1], "keyed", 6
    await create_topic(cluster, topic, partitions, 2)
    keys = [b"key-%d" % number for number in range(60)]

    async def write_on(choose: Callable[[bytes, int], int] | None) -> None:
        async with Producer(cluster.bootstrap) as producer:
            while True:
                for key in keys:
                    partition = None if choose is None else choose(key, partitions)
                    await producer.send(topic, b"x", key=key, partition=partition)
                await producer.flush()
                await asyncio.sleep(0.2)

    async def last_ms() -> float:
        differ = the(await explained(cluster), "partitioners_differ")
        found = re.search(r"written ([\d.]+) (ms|s) ago", text_of(differ))
        assert found is not None, differ
        return float(found[1]) * (1 if found[2] == "ms" else 1_000)

    standard = asyncio.create_task(write_on(None))
    other = asyncio.create_task(write_on(by_another_rule))
    try:
        async with without_standby(cluster):
            # The clients that the test before has fenced are found for half a minute.
            fenced = [("requests_rejected", broker_id) for broker_id in cluster.broker_ids]
            found = await until_found(
                cluster, ("partitioners_differ", -1), ("no_standby", -1), also=fenced
            )
            healthy = await faults_of(cluster, bystander)
        other.cancel()
        # As the finding suggests: with the partitioner of the others. No more keys go elsewhere.
        other = asyncio.create_task(write_on(partition_for_key))

        async def is_over() -> bool:
            return await last_ms() > 5_000

        await until(is_over, "no key is written elsewhere any more")
    finally:
        for task in (standard, other):
            task.cancel()
        await asyncio.gather(standard, other, return_exceptions=True)
    differ = the(found, "partitioners_differ")
    assert differ.topic == topic
    assert "modulo 6 partitions" in differ.next_step
    assert healthy == []
    assert_not_blamed(found, bystander)
