"""What the console shows of answers that come late, or not at all. The gateway is as it is, the
cluster behind it in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest_asyncio
from playwright.async_api import Browser, expect

from console.console import Console, new_console
from console.gateways import MemoryGateway
from unit.admin_api.fakes import FakeCluster


@dataclass
class Scene:
    cluster: FakeCluster
    gateway: MemoryGateway
    console: Console


@pytest_asyncio.fixture(loop_scope="session")
async def scene(browser: Browser) -> AsyncIterator[Scene]:
    """What the browser's console tells of refused requests is no fault here."""
    cluster = FakeCluster()
    gateway = MemoryGateway(cluster.app)
    gateway.start()
    console = await new_console(browser, gateway.url)
    yield Scene(cluster, gateway, console)
    await console.close()
    await gateway.stop()


async def test_brokers_that_have_yet_to_start_their_replicas_are_named(scene: Scene) -> None:
    console = scene.console
    await console.open("topics")
    await console.button("Create topic").click()
    await console.page.get_by_label("Name").fill("slack")
    await console.look()
    await console.button("Create it").click()
    behind = "Topic slack is created. Broker 3 has yet to start its replicas."
    await expect(console.page.get_by_role("status").get_by_text(behind)).to_be_visible()
