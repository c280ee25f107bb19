"""Replicas that are cut off, slow, damaged or out of space, and a metadata store that is down or
slow: `tidelog explain` finds each cause from what services observe.

Others reach broker 1 through a proxy, and all services reach etcd through one."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import pytest
import pytest_asyncio

from beside import beside
from integration.bit_flips import flip_a_bit
from integration.clusters import running_cluster
from integration.explaining import (
    Pairs,
    append,
    assert_not_blamed,
    assert_still_present,
    causes_of,
    create_pairs,
    explained,
    explained_by,
    faults_in,
    faults_of,
    of,
    of_partition,
    only,
    reads_from_the_start,
    split,
    text_of,
    the,
    tidelog,
    until_present,
)
from integration.full_disk import FileSizeLimit
from integration.reconfigured import restart_broker, until_registered
from integration.suggested_steps import lead_as_preferred
from integration.tcp_proxy import TcpProxy
from integration.topics import describe, until_in_sync
from tidelog.cli.exit_status import ExitStatus
from tidelog.client import Producer
from tidelog.errors import TidelogError
from tidelog.inspection.state_reports import Explanation
from tidelog.model import Acks
from tidelog_runtime.demo.replicas import find_replica
from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.local.etcd_member import LocalEtcd

TOPIC = "pairs"
CONFIG = {
    "lease_ttl_seconds": 10,
    "replica_fetch_max_bytes": 64 << 10,
    "replica_fetch_partition_max_bytes": 64 << 10,
}
VALUE = bytes(range(256)) * 64
SEGMENT_BYTES = 64 << 10


@dataclass
class World:
    cluster: LocalCluster
    store: TcpProxy
    leader: TcpProxy
    pairs: Pairs

    async def heal(self) -> None:
        self.leader.flow()
        self.leader.bytes_per_second = 0
        for broker_id in self.cluster.broker_ids:
            if not self.cluster.broker_process(broker_id).running:
                self.cluster.start_broker(broker_id)
        await until_registered(self.cluster)
        await until_in_sync(self.cluster, TOPIC)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    directory = tmp_path_factory.mktemp("explain")
    etcd = await LocalEtcd.start(directory / "etcd", log_path=directory / "etcd.log")
    store = TcpProxy(etcd.endpoint)
    await store.start()
    try:
        async with running_cluster(
            directory / "cluster",
            controllers=1,
            broker_config=CONFIG,
            controller_config={"lease_ttl_seconds": 10},
            etcd=store.address,
        ) as cluster:
            leader = TcpProxy(cluster.broker_address(1))
            await leader.start()
            await restart_broker(cluster, 1, {"advertised_address": leader.address})
            await until_registered(cluster, leader.address)
            pairs = await create_pairs(cluster, TOPIC, {"min_insync_replicas": "1"})
            yield World(cluster, store, leader, pairs)
            await leader.stop()
    finally:
        await store.stop()
        await etcd.stop()


@asynccontextmanager
async def writing(cluster: LocalCluster, name: str) -> AsyncIterator[None]:
    """Writes about a megabyte a second, acknowledged by the leader alone."""
    topic, partition = split(name)

    async def write() -> None:
        async with Producer(cluster.bootstrap, acks=Acks.LEADER, idempotent=False) as producer:
            while True:
                await producer.send(topic, VALUE, partition=partition)
                await asyncio.sleep(0.016)

    async with beside(write()):
        yield


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_cut_off_followers_and_a_full_disk_are_distinguished(world: World) -> None:
    cluster, pairs, disk = world.cluster, world.pairs, FileSizeLimit()
    await append(cluster, pairs[2, 3], [VALUE] * 40)
    await until_in_sync(cluster, TOPIC)
    world.leader.hang()
    disk.fill(cluster, 3)
    try:
        await append(cluster, pairs[2, 3], [VALUE] * 8)
        expected = (("replica_cut_off", 2), ("replica_cut_off", 3), ("disk_full", 3))
        # The proxy cuts off the controller, too, which notices it later.
        uncontrolled = (("controller_cut_off", 1), ("command_overdue", 1))
        await until_present(cluster, *expected)
        found = await until_present(cluster, ("replica_cut_off", 2), scope=of(pairs[1, 2]))
        whole = await explained(cluster)
        by_another = await explained_by(cluster.broker_address(2))
        healthy = [await faults_of(cluster, pairs[pair]) for pair in ((3, 2), (2, 1), (3, 1))]
    finally:
        world.leader.flow()
        disk.free(cluster, 3)
    await world.heal()

    only(whole, *expected, *uncontrolled)
    cut = the(found, "replica_cut_off")
    assert cut.partitions == (pairs[1, 2],)
    evidence = text_of(cut)
    assert "broker-1, the leader, has received" in evidence or (
        "cannot fetch from broker 1" in evidence
    )
    full = the(whole, "disk_full")
    assert full.partitions == (pairs[2, 3],)
    assert disk.message in text_of(full)
    assert re.search(r"its file system has [\d.]+ [kMG]?B left", text_of(full))
    assert set(the(whole, "replica_cut_off", 3).partitions) == {pairs[1, 3]}
    assert healthy == [[], [], []]
    assert_not_blamed(whole, pairs[3, 2], pairs[2, 1], pairs[3, 1])
    # Broker 1 answers the test but not its peers, who know from its fetches that it is alive.
    far = the(by_another, "broker_unreachable")
    assert far.broker == 1
    assert "cannot be reached from here, and is alive" in far.summary
    assert "a leader received a fetch from it" in text_of(far)
    assert f"{world.leader.address} takes connections" in text_of(far)
    alone = the(by_another, "replica_out_of_isr", 2)
    assert alone.partitions == (pairs[1, 2],)
    assert "its leader, broker 1, does not report it" in alone.summary
    assert ("disk_full", 3) in causes_of(by_another)
    assert not {"replica_dead", "broker_paused"} & {finding.cause for finding in by_another}
    assert_not_blamed(Explanation(tuple(by_another)), pairs[3, 2], pairs[2, 1], pairs[3, 1])


async def test_slow_recovering_and_dead_followers_are_distinguished(
    world: World,
) -> None:
    cluster, pairs = world.cluster, world.pairs
    world.leader.bytes_per_second = 150_000
    async with writing(cluster, pairs[1, 2]):
        await cluster.kill(3)
        found = await until_present(cluster, ("replica_slow", 2), ("replica_dead", 3))
        of_slow = await of_partition(cluster, pairs[1, 2])
        healthy = await faults_of(cluster, pairs[2, 1])
    # Writing has stopped: the follower catches up, as slowly as before.
    later = await until_present(cluster, ("replica_catching_up", 2), ("replica_dead", 3))
    await world.heal()

    gains = the(later, "replica_catching_up")
    assert (gains.severity, gains.partitions) == ("info", (pairs[1, 2],))
    assert "at this rate it is caught up in about" in text_of(gains)
    assert "replica_slow" not in {finding.cause for finding in later.findings}
    assert_not_blamed(later, pairs[2, 1])
    slow = the(found, "replica_slow")
    assert slow.partitions == (pairs[1, 2],)
    assert "records per second, while" in text_of(slow)
    assert "the oldest of them written" in text_of(slow)
    assert causes_of(of_slow) - {("hw_stalled", 1)} == {("replica_slow", 2)}
    assert pairs[1, 3] in the(found, "replica_dead").partitions
    assert healthy == []
    assert_not_blamed(found, pairs[2, 1])


async def test_a_leader_whose_network_is_slow_is_named_and_not_its_followers(
    world: World,
) -> None:
    """Broker 2 follows broker 1 through the slow proxy, and keeps up with broker 3."""
    cluster, pairs = world.cluster, world.pairs
    await lead_as_preferred(cluster)
    world.leader.bytes_per_second = 150_000
    async with writing(cluster, pairs[1, 2]):
        found = await until_present(cluster, ("leader_slow", 1))
    await world.heal()

    slow = the(found, "leader_slow")
    assert pairs[1, 2] in slow.partitions
    assert "broker 2 keeps up with broker 3" in text_of(slow)
    assert "network between broker 1 and the followers" in slow.next_step
    assert "replica_slow" not in {finding.cause for finding in found.findings}
    assert_not_blamed(found, pairs[3, 2], pairs[2, 1])


async def test_without_the_store_a_dead_follower_stays_in_the_isr_and_damage_stays_damage(
    world: World,
) -> None:
    cluster, pairs = world.cluster, world.pairs
    topic_id = (await describe(cluster, TOPIC)).topic_id
    short = await create_pairs(
        cluster, "short", {"min_insync_replicas": "1", "segment_bytes": str(SEGMENT_BYTES)}
    )
    short_id = (await describe(cluster, "short")).topic_id
    for _ in range(10):
        await append(cluster, pairs[2, 1], [b"a record of a batch"] * 10)
    await until_in_sync(cluster, TOPIC)
    await world.store.stop()
    try:
        await until_present(cluster, ("store_unreachable", -1))
        await cluster.kill(3)
        await append(cluster, pairs[1, 3], [b"waits"] * 5)
        flip_a_bit(find_replica(cluster.broker_data_dir(2), TOPIC, split(pairs[2, 1])[1], topic_id))
        await reads_from_the_start(cluster, pairs[2, 1])
        shutil.rmtree(
            find_replica(cluster.broker_data_dir(1), "short", split(short[1, 2])[1], short_id)
        )
        await fails_to_roll(cluster, short[1, 2])
        # By then every service has polled it again.
        await until_present(cluster, ("store_unreachable", -1), missing=("may not have used",))
        found = await until_present(
            cluster,
            ("store_unreachable", -1),
            ("replica_dead", 3),
            ("hw_stalled", 1),
            ("replica_corrupt", 2),
            ("disk_error", 1),
            # No other leader can be elected.
            ("no_leader", 3),
        )
        healthy = await faults_of(cluster, pairs[1, 2])
    finally:
        await world.store.start()
    await world.heal()

    lost = the(found, "store_unreachable")
    assert lost.severity == "critical"
    assert "broker-1 has received no answer for" in text_of(lost)
    stalled = the(found, "hw_stalled", 1)
    assert stalled.partitions == (pairs[1, 3],)
    assert stalled.because == ("replica_dead of broker 3", "store_unreachable")
    assert "broker 3 holds it" in text_of(stalled)
    damaged = the(found, "replica_corrupt")
    assert damaged.partitions == (pairs[2, 1],)
    assert "broker-2 reports" in text_of(damaged)
    assert damaged.because == ("store_unreachable",)
    broken = the(found, "disk_error")
    assert (broken.broker, broken.partitions) == (1, (short[1, 2],))
    assert "the data directory was moved or removed; put it back" in text_of(broken)
    assert healthy == []
    assert_not_blamed(found, pairs[1, 2])


async def fails_to_roll(cluster: LocalCluster, name: str) -> None:
    """Writes more than one segment holds."""
    with suppress(TidelogError):
        await append(cluster, name, [VALUE] * (2 * SEGMENT_BYTES // len(VALUE)))


async def test_a_slow_store_is_reported_beside_a_dead_broker(world: World) -> None:
    cluster, pairs = world.cluster, world.pairs
    world.store.delay_seconds = 0.4
    try:
        await cluster.kill(3)
        found = await until_present(
            cluster,
            ("store_slow", -1),
            ("replica_dead", 3),
            containing=("elections and ISR changes take as long",),
        )
        healthy = await faults_of(cluster, pairs[1, 2])
    finally:
        world.store.delay_seconds = 0.0
    await world.heal()

    slow = the(found, "store_slow")
    assert slow.severity == "warning"
    assert "within the last minute" in slow.summary
    assert healthy == []


async def test_the_last_broker_explains_without_store_and_controller(world: World) -> None:
    """The last test: nothing is repaired after it."""
    cluster, pairs = world.cluster, world.pairs
    await world.store.stop()
    await cluster.kill_controller(1)
    for broker_id in (2, 3):
        await cluster.kill(broker_id)
    found = await until_present(
        cluster,
        ("store_unreachable", -1),
        ("no_controller", -1),
        ("replica_dead", 2),
        ("replica_dead", 3),
    )
    await assert_still_present(
        cluster, *((finding.cause, finding.broker) for finding in faults_in(found))
    )
    of_led = await of_partition(cluster, pairs[2, 3])
    status, output = await tidelog(cluster, "explain", pairs[2, 3])

    assert the(found, "no_controller").because == ("store_unreachable",)
    assert "broker-1 has received no answer" in text_of(the(found, "store_unreachable"))
    for broker_id in (2, 3):
        dead = the(found, "replica_dead", broker_id)
        assert f"{cluster.broker_address(broker_id)} refuses connections" in text_of(dead)
        assert "according to broker-1, which does not reach the metadata store now" in text_of(dead)
    lost = the(of_led, "no_leader")
    assert lost.because[0] in ("replica_dead of broker 2", "replica_dead of broker 3")
    assert "no_controller" in lost.because
    assert status == ExitStatus.FAILED
    assert f"{pairs[2, 3]} is led by broker" in output
