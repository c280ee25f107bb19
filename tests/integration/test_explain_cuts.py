"""A broker that stalls repeatedly, or that others cannot reach.

Each is explained beside a second fault, a healthy partition is not blamed, and etcd is not named as
the cause. Services reach brokers through proxies, which cut off single processes. One cluster
serves all tests, and its standby controller, the second fault, is down all the time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest
import pytest_asyncio

from integration.clusters import running_cluster
from integration.explaining import (
    ANSWER_MS,
    WHOLE,
    Pairs,
    assert_not_blamed,
    causes_of,
    create_pairs,
    faults_of,
    services,
    text_of,
    the,
    until_present,
)
from integration.process_proxy import ProcessProxy
from integration.reconfigured import restart_broker, until_registered
from integration.suggested_steps import until_gone
from integration.topics import until_in_sync
from integration.waiting import until
from tidelog.client import Admin
from tidelog.client.clock import SystemClock
from tidelog.client.cluster_explainer import Explainer
from tidelog.inspection.explain import causes
from tidelog.inspection.state_reports import Explanation
from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.local.cluster_file import Setting

TOPIC = "pairs"
UNSTEADY, UNCONTROLLED, CUT_OFF = 2, 2, 3
# Enough lost leases to count as repeated.
PAUSES = 3

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class World:
    """`brokers`: proxies before their advertised addresses.
    `store`: the proxy before etcd, of the broker that is cut off."""

    cluster: LocalCluster
    brokers: dict[int, ProcessProxy]
    store: ProcessProxy
    pairs: Pairs
    controller: str

    def release(self) -> None:
        for proxy in (*self.brokers.values(), self.store):
            proxy.release()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    directory = tmp_path_factory.mktemp("explain")
    async with (
        running_cluster(directory, controller_config={"leader_balance": False}) as cluster,
        AsyncExitStack() as proxies,
    ):

        async def proxy(address: str) -> ProcessProxy:
            made = ProcessProxy(address, lambda: processes(cluster))
            await made.start()
            proxies.push_async_callback(made.stop)
            return made

        store = await proxy(cluster.etcd_address)
        brokers = {b: await proxy(cluster.broker_address(b)) for b in cluster.broker_ids}
        restarts = []
        for broker_id, before in brokers.items():
            endpoint = store.address if broker_id == CUT_OFF else cluster.etcd_address
            settings: dict[str, Setting] = {"etcd_endpoints": [endpoint]}
            settings["advertised_address"] = before.address
            restarts.append(restart_broker(cluster, broker_id, settings))
        await asyncio.gather(*restarts)
        for before in brokers.values():
            await until_registered(cluster, before.address)
        pairs = await create_pairs(cluster, TOPIC)
        active = await cluster.active_controller()
        assert active is not None
        await cluster.kill_controller(3 - active)
        made = World(cluster, brokers, store, pairs, f"controller-{active}")
        yield made
        made.release()


def processes(cluster: LocalCluster) -> Mapping[str, int]:
    described = cluster.describe()
    found = {f"broker-{part.id}": part.pid for part in described.brokers}
    found |= {f"controller-{part.id}": part.pid for part in described.controllers}
    return {name: pid for name, pid in found.items() if pid is not None}


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def everything_is_reached_again(world: World) -> AsyncIterator[None]:
    """Runs also after a failed test."""
    yield
    world.release()
    world.cluster.resume(UNSTEADY)
    await until_registered(world.cluster)
    await until_in_sync(world.cluster, TOPIC)


async def found_from_here(
    cluster: LocalCluster, *expected: tuple[str, int], containing: str
) -> Explanation:
    """By requests of this process, which reaches all services, like a machine beside the cut."""
    known = services(cluster)
    seen: list[Explanation] = []

    async def check() -> bool:
        explainer = Explainer(SystemClock())
        seen[:] = [await explainer.explain(list(known), WHOLE, ANSWER_MS, known=known)]
        has_words = containing in "".join(map(text_of, seen[0].findings))
        return has_words and causes_of(seen[0]).issuperset(expected)

    try:
        await until(check, f"explain finds {expected}")
    except AssertionError as error:
        raise AssertionError(f"{error}: {seen}") from None
    return seen[0]


async def test_a_broker_unreachable_by_the_controller_of_an_idle_cluster_is_explained(
    world: World,
) -> None:
    cluster, pairs = world.cluster, world.pairs
    world.brokers[UNCONTROLLED].hold([world.controller])
    # The controller pings a silent broker after 10 s, and waits for 5 s.
    found = await until_present(cluster, ("controller_cut_off", UNCONTROLLED), ("no_standby", -1))
    cut = the(found, "controller_cut_off")
    assert f"{world.controller}, the active controller," in cut.summary
    assert f"the controller reaches brokers 1, {CUT_OFF}" in text_of(cut)
    assert world.brokers[UNCONTROLLED].address in cut.next_step
    # Nothing waits for that broker; its replication continues.
    assert {f.cause for f in found.findings if f.severity != "info"} == {
        "controller_cut_off",
        "no_standby",
    }
    assert await faults_of(cluster, pairs[UNCONTROLLED, 1]) == []
    world.release()
    await until_gone(cluster, "controller_cut_off")


async def test_a_broker_cut_off_from_its_peers_and_then_from_everything_is_explained(
    world: World,
) -> None:
    cluster, pairs = world.cluster, world.pairs
    root = f"broker_cut_off of broker {CUT_OFF}"
    for other in (1, 2):
        world.brokers[other].hold([f"broker-{CUT_OFF}"])
        world.brokers[CUT_OFF].hold([f"broker-{other}"])
    found = await found_from_here(
        cluster,
        (causes.BROKER_CUT_OFF, CUT_OFF),
        (causes.NO_STANDBY, -1),
        containing=f"broker-{CUT_OFF} reports: broker 1 has not answered it",
    )
    cut = the(found, causes.BROKER_CUT_OFF)
    assert "cut off from the other brokers" in cut.summary
    assert "it reaches the metadata store" in text_of(cut)
    assert "has a connection to it" in text_of(cut)
    assert not {cause for cause, _ in causes_of(found) if cause.startswith("store_")}
    assert_not_blamed(found, pairs[1, 2], pairs[2, 1])

    world.brokers[CUT_OFF].hold([world.controller])
    world.store.hold([f"broker-{CUT_OFF}"])
    found = await found_from_here(
        cluster,
        (causes.BROKER_CUT_OFF, CUT_OFF),
        (causes.STORE_UNREACHABLE, CUT_OFF),
        containing="and from the metadata store",
    )
    assert "and from the metadata store" in the(found, causes.BROKER_CUT_OFF).summary
    lost = the(found, causes.STORE_UNREACHABLE)
    assert lost.because == (root,)
    assert "etcd" not in lost.next_step
    assert_not_blamed(found, pairs[1, 2], pairs[2, 1])
    world.release()
    await until_gone(cluster, causes.BROKER_CUT_OFF)


async def test_a_broker_that_stalls_repeatedly_is_explained(world: World) -> None:
    """The last test: a lost lease is reported for 45 s."""
    cluster, healthy = world.cluster, world.pairs[1, 3]
    for _ in range(PAUSES):
        cluster.pause(UNSTEADY)
        await until_registered_as(cluster, UNSTEADY, registered=False)
        cluster.resume(UNSTEADY)
        await until_registered_as(cluster, UNSTEADY, registered=True)
    found = await until_present(cluster, ("repeated_elections", UNSTEADY), ("no_standby", -1))
    repeated = the(found, "repeated_elections")
    assert f"broker {UNSTEADY} is paused repeatedly" in repeated.summary
    assert f"its lease has ended {PAUSES} times" in repeated.summary
    assert f"stops the process or the machine of broker {UNSTEADY}" in repeated.next_step
    assert "etcd" not in text_of(repeated)
    assert await faults_of(cluster, healthy) == []
    assert_not_blamed(found, healthy)


async def until_registered_as(cluster: LocalCluster, broker_id: int, *, registered: bool) -> None:
    async def check() -> bool:
        async with Admin([cluster.broker_address(1)]) as admin:
            known = (await admin.describe_cluster()).brokers
        return registered == any(broker.broker_id == broker_id for broker in known)

    await until(check, f"broker {broker_id} is registered: {registered}")
