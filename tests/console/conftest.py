"""A live cluster with its gateway, and a real browser.

All tests share them, on one event loop; a test that kills a service starts it again. Without
Chromium tests/suites.py leaves the suite out."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser

import longest_first
from collected import own_items
from console.browser import running_browser
from console.console import Console, new_console
from integration.clusters import running_cluster
from tidelog_runtime.local.cluster import LocalCluster

# A browser may use up the processor for a while, and no lease must end then. The death of a killed
# broker is still detected at once.
TEST_SECONDS = 240
UNHURRIED = {"lease_ttl_seconds": 15}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    longest_first.order(items)
    for item in own_items(items, __file__):
        item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
        item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    async with running_cluster(
        tmp_path_factory.mktemp("console"),
        broker_config={**UNHURRIED, "replica_lag_time_max_ms": 10_000},
        # Leaders stay where tests have put them.
        controller_config={**UNHURRIED, "leader_balance": False},
        gateway=True,
    ) as running:
        yield running
        running.check_alive()


@pytest.fixture(scope="session")
def gateway(cluster: LocalCluster) -> str:
    """The URL of the gateway."""
    return f"http://{cluster.gateway_address}"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def rest(gateway: str) -> AsyncIterator[httpx.AsyncClient]:
    """A REST client, to prepare tests and to check the effect of the console."""
    async with httpx.AsyncClient(base_url=gateway, timeout=60) as client:
        yield client


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sea(rest: httpx.AsyncClient) -> str:
    """A topic of six partitions with some records."""
    body = {"topic": "sea", "partitions": 6, "replication_factor": 3}
    (await rest.post("/v1/topics", json=body)).raise_for_status()
    records = [
        {"key": f"buoy-{n}", "value": {"tide": "ebb", "metres": n}, "partition": n % 6}
        for n in range(60)
    ]
    (await rest.post("/v1/topics/sea/records", json={"records": records})).raise_for_status()
    return "sea"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with running_browser() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def console(browser: Browser, gateway: str) -> AsyncIterator[Console]:
    """A page in a new browser profile.

    The test fails if the browser's console has errors, or if the page sent a request to another
    host than the gateway."""
    opened = await new_console(browser, gateway)
    yield opened
    await opened.close()
    assert opened.faults == []
