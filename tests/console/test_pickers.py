"""Brokers are chosen from lists that show their states and loads. The gateway is real; the cluster
behind it is in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest_asyncio
from playwright.async_api import Browser, expect

from console.console import Console, new_console
from console.gateways import MemoryGateway
from console.pickers import brokers_of, choose_replicas, set_target
from tidelog.admin_messages import Move
from unit.admin_api.fakes import FakeCluster, broker, partition, topic


@dataclass
class Scene:
    cluster: FakeCluster
    console: Console

    async def edit(self, target: list[int]) -> None:
        await self.console.open("topics/sea/0")
        await self.console.button("Move replicas…").click()
        await set_target(self.console, target)


@pytest_asyncio.fixture(loop_scope="session")
async def scene(browser: Browser) -> AsyncIterator[Scene]:
    """Replicas on brokers 1, 2 and 3. Brokers 3 and 4 are gone, and 5 is being drained."""
    cluster = FakeCluster()
    placed = [partition(0), partition(1, leader=2, replicas=(2, 1, 3))]
    cluster.admin.topics = [replace(topic("sea", *placed), config={"min_insync_replicas": "2"})]
    cluster.admin.brokers = [
        broker(1, rack="a", replicas=7, leaders=4),
        broker(2, rack="b"),
        broker(3, status="gone"),
        broker(4, status="gone"),
        broker(5, removed=True),
        broker(6, rack="c"),
    ]
    gateway = MemoryGateway(cluster.app)
    gateway.start()
    console = await new_console(browser, gateway.url)
    yield Scene(cluster, console)
    await console.close()
    await gateway.stop()
    assert console.faults == []


async def test_brokers_that_get_no_replicas_cannot_be_chosen_and_say_why(scene: Scene) -> None:
    await scene.console.open("topics/sea/0")
    await scene.console.button("Move replicas…").click()
    brokers = brokers_of(scene.console)
    await expect(brokers.get_by_role("checkbox", name="Broker 4 ")).to_be_disabled()
    await expect(brokers.get_by_text("gone: gets no new replicas")).to_be_visible()
    await expect(brokers.get_by_role("checkbox", name="Broker 5 ")).to_be_disabled()
    await expect(brokers.get_by_text("draining: gets no new replicas")).to_be_visible()
    # A present replica may stay on a broker that is gone.
    await expect(brokers.get_by_role("checkbox", name="Broker 3 ")).to_be_checked()
    await expect(brokers.get_by_text("a move waits until it is in sync")).to_be_visible()


async def test_each_broker_is_shown_with_its_state_rack_and_load(scene: Scene) -> None:
    await scene.console.open("topics/sea/0")
    await scene.console.button("Move replicas…").click()
    first = brokers_of(scene.console).locator("label").first
    await expect(first).to_have_text("Broker 1runningrack a · 7 replicas · leads 4")


async def test_an_invalid_choice_is_explained_before_the_dry_run(scene: Scene) -> None:
    await scene.edit([6])
    alert = scene.console.dialog.get_by_role("alert")
    await expect(alert).to_contain_text("which 1 replica can never meet. Choose at least 2")
    await expect(scene.console.button("Show the effects")).to_be_disabled()
    await set_target(scene.console, [])
    await expect(alert).to_have_text("Choose at least one broker.")
    assert "reassign" not in [name for name, *_ in scene.cluster.admin.calls]


async def test_the_order_of_choice_is_the_order_of_preference(scene: Scene) -> None:
    await scene.edit([6, 1])
    order = scene.console.dialog.get_by_role("region", name="Replicas of sea/0").locator("ol > li")
    await expect(order.first).to_contain_text("Broker 6preferred leadernew")
    await scene.console.button("Move broker 1 up").click()
    await expect(order.first).to_contain_text("Broker 1preferred leader")
    await scene.console.dry_run()
    assert _requested(scene) == [Move("sea", 0, (1, 6), (), "")]


async def test_one_choice_serves_several_partitions_with_rotated_leaders(scene: Scene) -> None:
    await scene.console.open("moves")
    await scene.console.button("Move partitions…").click()
    await choose_replicas(scene.console, "sea", {0: [1, 2], 1: [6, 1]})
    await scene.console.button("Use these brokers for all 2 partitions").click()
    await scene.console.dry_run()
    assert _requested(scene) == [Move("sea", 0, (6, 1), (), ""), Move("sea", 1, (1, 6), (), "")]


async def test_the_leader_of_a_partition_is_chosen_among_in_sync_replicas(scene: Scene) -> None:
    admin = scene.cluster.admin
    admin.topics = [topic("sea", partition(0, isr=(1, 3)))]
    await scene.console.open("topics/sea/0")
    await scene.console.button("Change leader…").click()
    choice = scene.console.dialog.get_by_role("group", name="New leader")
    await expect(choice.get_by_role("radio", name="Broker 2 ")).to_be_disabled()
    await expect(choice.get_by_role("radio", name="Broker 3 ")).to_be_checked()


def _requested(scene: Scene) -> list[Move]:
    """The moves of the last request."""
    calls = [arguments for name, arguments, _ in scene.cluster.admin.calls if name == "reassign"]
    moves = calls[-1][0]
    assert isinstance(moves, list)
    return moves
