"""When a cluster counts as healthy: services by their reports, the store by its answers. Also
the choice of targets, with one fault per broker at a time."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from faults import scene as scenes
from faults.kinds.network import cut_follower
from faults.scene import PROBE_PRODUCER, Scene
from tidelog.client.descriptions import (
    BrokerDescription,
    ClusterDescription,
    ControllerDescription,
    ControllerProcessDescription,
    PartitionDescription,
    TopicDescription,
)
from tidelog.errors import ErrorCode, TidelogError

BROKERS = ["broker-1", "broker-2", "broker-3"]


class World:
    """A cluster and its admin client in one. After etcd goes away, services still report what
    they knew before."""

    def __init__(self) -> None:
        self.brokers = BROKERS
        self.controllers = ["controller-1"]
        self.etcd_members = ["etcd-1", "etcd-2", "etcd-3"]
        self.silent: set[str] = set()
        self.isr: tuple[int, ...] = (1, 2, 3)
        self.store_error: BaseException | None = None
        self.asked_store: list[str] = []

    async def etcd_answers(self, member: str) -> bool:
        return member not in self.silent

    async def cut(self, service: str, others: Sequence[str], *, only_in: bool) -> None:
        pass

    async def init_producer_id(self, name: str) -> None:
        self.asked_store.append(name)
        if self.store_error is not None:
            raise self.store_error

    async def describe_cluster(self) -> ClusterDescription:
        return ClusterDescription(
            "tides",
            ControllerDescription(1, "here:1", 1),
            tuple(BrokerDescription(number, "here:2", "", 1, "running") for number in (1, 2, 3)),
            (ControllerProcessDescription(1, "here:1", 0),),
        )

    async def describe_topic(self, topic: str) -> TopicDescription:
        partition = PartitionDescription(0, 1, 1, (1, 2, 3), self.isr, (), (), 0, 2)
        return TopicDescription(topic, "id", 3, {}, (partition,), 1)


async def missing(world: World) -> Sequence[str]:
    return await Scene(world, "sea", world).missing()  # type: ignore[arg-type]


async def test_a_cluster_with_a_writable_store_is_healthy() -> None:
    world = World()

    assert await missing(world) == []
    assert world.asked_store == [PROBE_PRODUCER]


async def test_a_cluster_without_etcd_is_unhealthy_whatever_its_services_report() -> None:
    world = World()
    world.silent = set(world.etcd_members)

    assert await missing(world) == [
        f"etcd-{number} does not answer as healthy" for number in (1, 2, 3)
    ]


async def test_each_expected_etcd_member_has_to_answer() -> None:
    world = World()
    world.silent = {"etcd-2"}

    assert await missing(world) == ["etcd-2 does not answer as healthy"]


@pytest.mark.parametrize(
    "error", [TidelogError(ErrorCode.METADATA_STORE_UNAVAILABLE, "etcd is away"), TimeoutError()]
)
async def test_a_store_without_broker_requests_keeps_the_cluster_unhealthy(
    error: Exception,
) -> None:
    world = World()
    world.store_error = error

    [reported] = await missing(world)

    assert reported.startswith("no broker writes to the metadata store")


async def test_the_store_is_not_checked_while_services_are_missing() -> None:
    world = World()
    world.isr = (1, 2)

    assert await missing(world) == ["partition 0 has ISR [1, 2]"]
    assert world.asked_store == []


async def test_a_struck_broker_is_not_chosen_as_a_follower_or_its_leader() -> None:
    world = World()
    scene = Scene(world, "sea", world)  # type: ignore[arg-type]
    scene.view().strike("broker-2")

    assert await scene.view().follower_and_leader() == ("broker-3", "broker-1")


async def test_a_fault_without_a_free_follower_waits_until_one_is_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scenes, "FIND_PAUSE_S", 0)
    world = World()
    scene = Scene(world, "sea", world)  # type: ignore[arg-type]
    other = scene.view()
    for follower in ("broker-2", "broker-3"):
        other.strike(follower)
    found = asyncio.create_task(scene.view().follower_and_leader())
    await asyncio.sleep(0)
    assert not found.done()

    other.release()

    assert await found == ("broker-2", "broker-1")


async def test_a_cut_link_is_reserved_at_both_ends() -> None:
    world = World()
    struck = Counter[str]()
    scene = Scene(world, "sea", world, struck)  # type: ignore[arg-type]

    cut = await cut_follower(scene)

    assert cut.target == "broker-2 from broker-1"
    assert set(struck) == {"broker-1", "broker-2"}
