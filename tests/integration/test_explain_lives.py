"""Living brokers that do not do their work, all at the same time.

One has lost the metadata store; one starts and one stops while the controller is paused. `tidelog
explain` names each, and what it waits for. Others reach broker 1 through a proxy, and so does
broker 4 the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import pytest_asyncio

from integration.clusters import running_cluster
from integration.explaining import (
    Pairs,
    assert_not_blamed,
    causes_of,
    create_pairs,
    faults_of,
    of_partition,
    split,
    text_of,
    the,
    until_found,
)
from integration.reconfigured import restart_broker, until_registered
from integration.tcp_proxy import TcpProxy
from integration.topics import create_topic, until_isr
from tidelog.inspection.state_reports import Explanation, Finding
from tidelog_runtime.local.cluster import LocalCluster

TOPIC = "pairs"
LEADER, STOPPING, STARTING, LONELY = 1, 2, 3, 4
# A paused controller stays the active one for this long.
CONTROLLER_CONFIG = {"lease_ttl_seconds": 60}
STOP_TIMEOUT_SECONDS = 60

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Faulty:
    """The explanations while all faults lasted."""

    cluster: LocalCluster
    pairs: Pairs
    alone: str  # a partition on broker 1 alone
    whole: Explanation
    of_follower: Mapping[int, list[Finding]]  # of the partition that broker 1 leads
    of_alone: list[Finding]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def faulty(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Faulty]:
    async with running_cluster(
        tmp_path_factory.mktemp("explain"),
        brokers=4,
        controllers=1,
        broker_config={"shutdown_timeout_ms": STOP_TIMEOUT_SECONDS * 1_000},
        controller_config=CONTROLLER_CONFIG,
    ) as cluster:
        leader, store = TcpProxy(cluster.broker_address(LEADER)), TcpProxy(cluster.etcd_address)
        await leader.start()
        await store.start()
        await asyncio.gather(
            restart_broker(cluster, LEADER, {"advertised_address": leader.address}),
            restart_broker(cluster, LONELY, {"etcd_endpoints": [store.address]}),
        )
        await until_registered(cluster, leader.address)
        pairs = await create_pairs(cluster, TOPIC, {"min_insync_replicas": "1"})
        single = (await create_topic(cluster, "alone", 4, 1)).partitions
        alone = next(f"alone/{p.partition}" for p in single if p.leader == LEADER)
        async with faults(cluster, leader, store, pairs):
            yield await explained_faults(cluster, pairs, alone)
        await leader.stop()


@asynccontextmanager
async def faults(
    cluster: LocalCluster, leader: TcpProxy, store: TcpProxy, pairs: Pairs
) -> AsyncIterator[None]:
    controller = cluster.controller_process(1)
    await store.stop()
    # Later no controller removes a stopping broker from any ISR.
    leader.hang()
    for follower in (STOPPING, STARTING):
        await until_isr(cluster, TOPIC, {LEADER}, split(pairs[LEADER, follower])[1])
    controller.pause()
    stopping = asyncio.create_task(cluster.broker_process(STOPPING).stop(STOP_TIMEOUT_SECONDS))
    try:
        await cluster.kill(STARTING)
        cluster.start_broker(STARTING)
        yield
    finally:
        # Without the store it would take long to end by itself.
        await cluster.kill(LONELY)
        leader.flow()
        controller.resume()
        await stopping


async def explained_faults(cluster: LocalCluster, pairs: Pairs, alone: str) -> Faulty:
    whole = await until_found(
        cluster,
        ("broker_stopping", STOPPING),
        ("broker_starting", STARTING),
        ("broker_unregistered", LONELY),
        # By then every service has polled it again.
        ("store_unreachable", LONELY),
        ("no_controller", -1),
        # Without the controller, no other broker leads what the starting one led.
        ("no_leader", STARTING),
        # The partition that only the lonely broker has, before and after its lease has ended.
        also=(("no_leader", -1), ("no_leader", LONELY)),
    )
    followers = (STOPPING, STARTING, LONELY)
    *of_followers, of_alone = await asyncio.gather(
        *(of_partition(cluster, pairs[LEADER, follower]) for follower in followers),
        faults_of(cluster, alone),
    )
    by_follower = dict(zip(followers, of_followers, strict=True))
    return Faulty(cluster, pairs, alone, whole, by_follower, of_alone)


async def test_a_broker_without_the_store_is_reported_alive_and_unregistered(
    faulty: Faulty,
) -> None:
    unregistered = the(faulty.whole, "broker_unregistered")
    assert unregistered.because == (f"store_unreachable of broker {LONELY}",)
    assert "it has no registration, according to broker-" in text_of(unregistered)
    # Once its lease has ended, it also names the first few partitions that it led.
    held = {name for replicas, name in faulty.pairs.items() if LONELY in replicas}
    named = {name for name in unregistered.partitions if split(name)[0] == TOPIC}
    assert named
    assert named <= held
    missed = the(faulty.whole, "store_unreachable")
    assert missed.summary.startswith(f"broker-{LONELY} does not reach the metadata store")


async def test_a_starting_broker_waits_for_its_full_state_from_the_controller(
    faulty: Faulty,
) -> None:
    starting = the(faulty.whole, "broker_starting")
    assert starting.because == ("no_controller",)
    assert "waits for a controller to send its replicas" in starting.next_step
    assert "the active controller is paused" in the(faulty.whole, "no_controller").summary


async def test_a_stopping_broker_is_named_where_it_is_missing(faulty: Faulty) -> None:
    stopping = the(faulty.whole, "broker_stopping")
    assert stopping.partitions == (faulty.pairs[LEADER, STOPPING],)
    assert stopping.severity == "warning"


async def test_only_the_follower_of_each_partition_is_named(faulty: Faulty) -> None:
    about = ("broker_stopping", "broker_starting", "broker_unregistered", "replica_dead")
    assert {
        follower: {cause for cause in causes_of(found) if cause[0] in about}
        for follower, found in faulty.of_follower.items()
    } == {
        STOPPING: {("broker_stopping", STOPPING)},
        STARTING: {("broker_starting", STARTING)},
        LONELY: {("broker_unregistered", LONELY)},
    }


async def test_a_partition_on_none_of_these_brokers_is_healthy(faulty: Faulty) -> None:
    assert faulty.of_alone == []
    assert_not_blamed(faulty.whole, faulty.alone)
