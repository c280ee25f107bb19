"""Replicas moved with the console, and brokers that come and go."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import expect

from console.answers import until_partition, until_partitions, until_replicas
from console.console import Console
from console.pickers import choose_replicas
from integration.waiting import until
from tidelog_runtime.local.cluster import LocalCluster

# The throttle of a broker, in bytes per second: a copy takes minutes.
SLOWLY = 1_024
RECORDS = 64
VALUE = "spray" * 1_600


Create = Callable[[str, list[list[int]]], Awaitable[None]]


@pytest_asyncio.fixture(loop_scope="session")
async def create(rest: httpx.AsyncClient) -> AsyncIterator[Create]:
    """Creates topics that are deleted with the test.

    With so few replicas, a broker that another test kills would leave them without a leader or
    under min ISR, which the console would show first."""
    topics = []

    async def create(topic: str, assignment: list[list[int]]) -> None:
        body = {"topic": topic, "assignment": assignment}
        (await rest.post("/v1/topics", json=body)).raise_for_status()
        topics.append(topic)

    yield create
    for topic in topics:
        (await rest.delete(f"/v1/topics/{topic}", params={"confirm": topic})).raise_for_status()


async def broker(rest: httpx.AsyncClient, broker_id: int) -> dict[str, Any]:
    described: dict[str, Any] = (await rest.get(f"/v1/brokers/{broker_id}")).json()
    return described


@pytest_asyncio.fixture(loop_scope="session")
async def slowly(rest: httpx.AsyncClient) -> AsyncIterator[None]:
    """Throttles everything that is copied for moves."""
    throttle = "/v1/throttle"
    (await rest.put(throttle, json={"bytes_per_second": SLOWLY})).raise_for_status()
    yield
    (await rest.put(throttle, json={"bytes_per_second": None})).raise_for_status()


async def test_a_move_is_followed_to_its_end_and_reversed(
    console: Console, rest: httpx.AsyncClient, create: Create
) -> None:
    await create("drift", [[1, 2], [2, 1]])
    await console.open("moves")
    await console.button("Move partitions…").click()
    await choose_replicas(console, "drift", {0: [3, 2], 1: [3, 1]})
    await console.dry_run()
    await expect(console.plan).to_contain_text("2 partitions would change replicas")
    await console.button("Begin to move").click()
    await console.follow()
    await console.until_state("done")
    await expect(console.page.get_by_text("2 of 2 moves done")).to_be_visible()
    await until_replicas(rest, "drift", [[3, 2], [3, 1]])

    await console.button("Reverse…").click()
    await expect(console.plan).to_contain_text("2 partitions")
    await console.button("Begin the reversal").click()
    await console.follow()
    await expect(console.page.get_by_role("heading", name="Reversal")).to_be_visible()
    await console.until_state("done")
    await until_replicas(rest, "drift", [[1, 2], [2, 1]])


@pytest.mark.usefixtures("slowly")
async def test_a_move_under_way_is_seen_and_cancelled(
    console: Console, rest: httpx.AsyncClient, create: Create
) -> None:
    await create("ebb", [[1, 2]])
    records = [{"value": VALUE}] * RECORDS
    (await rest.post("/v1/topics/ebb/records", json={"records": records})).raise_for_status()
    move = {"topic": "ebb", "partition": 0, "target": [1, 3]}
    body = {"moves": [move], "operation_id": "ebb-to-3"}
    (await rest.post("/v1/reassignments", json=body)).raise_for_status()

    await console.open("overview")
    await expect(console.page.get_by_label("Moves of ebb-to-3")).to_be_visible()
    await console.open("topics/ebb/0")
    await console.until_state("moving")
    added = console.page.get_by_role("img", name="Broker 3: catching up")
    await expect(added).to_be_visible()
    await console.page.get_by_role("link", name="to 3, off 2").click()
    await console.until_state("running")
    await expect(console.page.get_by_text("broker 3 to be in sync")).to_be_visible()

    await console.button("Cancel…").click()
    await expect(console.plan).to_contain_text("1 active move would be reverted")
    await until_replicas(rest, "ebb", [[1, 2, 3]])
    await console.button("Cancel and revert").click()
    await console.until_state("cancelled")
    await expect(console.button("Cancel…")).to_have_count(0)
    await until_replicas(rest, "ebb", [[1, 2]])


@pytest.mark.usefixtures("slowly")
async def test_min_isr_follows_a_move_to_fewer_replicas_and_comes_back_when_it_is_cancelled(
    console: Console, rest: httpx.AsyncClient, create: Create
) -> None:
    await create("neap", [[1, 2]])
    records = [{"value": VALUE}] * RECORDS
    (await rest.post("/v1/topics/neap/records", json={"records": records})).raise_for_status()
    await console.open("topics/neap/0")
    min_isr = console.page.get_by_role("main").locator("dt:text-is('Min ISR') + dd")
    await expect(min_isr).to_have_text("2")

    move = {"topic": "neap", "partition": 0, "target": [3]}
    body = {"moves": [move], "operation_id": "neap-to-3"}
    (await rest.post("/v1/reassignments", json=body)).raise_for_status()
    await console.until_state("moving")
    await expect(min_isr).to_have_text("1")
    (await rest.post("/v1/operations/neap-to-3/cancel", json={})).raise_for_status()
    await console.until_state("in sync")
    await expect(min_isr).to_have_text("2")
    await until_partition(rest, "neap/0", min_isr=2, replicas=[1, 2])


async def test_the_throttle_is_set_and_shown(console: Console, rest: httpx.AsyncClient) -> None:
    await console.open("moves")
    await console.page.get_by_label("Throttle").get_by_role("button").click()
    await console.page.get_by_label("Bytes a second").fill("5")
    await console.dry_run()
    await console.button("Set it").click()
    await expect(console.page.get_by_text("at most 5.0 MiB a second")).to_be_visible()
    assert (await rest.get("/v1/throttle")).json()["bytes_per_second"] == 5 << 20
    (await rest.put("/v1/throttle", json={"bytes_per_second": None})).raise_for_status()


@pytest.mark.usefixtures("sea")  # Every broker has replicas of it, and so takes part in plans.
async def test_each_partition_of_a_topic_gets_more_replicas(
    console: Console, rest: httpx.AsyncClient, create: Create
) -> None:
    await create("fog", [[1], [2]])
    await console.open("topics/fog")
    await console.button("Replicas…").click()
    await console.page.get_by_label("Replicas of each partition").fill("3")
    await console.dry_run()
    await expect(console.plan).to_contain_text("4 replicas would be copied")
    await console.button(
        "Begin",
    ).click()
    await console.follow()
    await console.until_state("done")

    async def are_more() -> bool:
        placed = await until_partitions(rest, "fog", 2)
        return [sorted(one["replicas"]) for one in placed] == [[1, 2, 3]] * 2

    await until(are_more, "each partition of fog has three replicas")


async def test_a_plan_that_changed_since_it_was_shown_is_rejected_and_shown_again(
    console: Console, rest: httpx.AsyncClient, create: Create
) -> None:
    await create("spume", [[1], [2]])
    await console.open("topics/spume")
    await console.button("Replicas…").click()
    await console.page.get_by_label("Replicas of each partition").fill("2")
    await console.dry_run()
    await expect(console.plan).to_contain_text("2 partitions would change replicas")

    more = {"partitions": 3, "assignment": [[3]]}
    (await rest.put("/v1/topics/spume/partition-count", json=more)).raise_for_status()
    await console.button("Begin").click()
    await expect(console.dialog.get_by_role("alert")).to_contain_text("the cluster has changed")
    await expect(console.plan).to_have_count(0)
    await until_replicas(rest, "spume", [[1], [2], [3]])
    await console.dry_run()
    await expect(console.plan).to_contain_text("3 partitions would change replicas")
    # The browser logs the rejected request itself.
    console.faults[:] = [fault for fault in console.faults if "/v1/topics/spume" not in fault]


@pytest.mark.usefixtures("sea")
async def test_a_new_broker_is_added_and_drained_again(
    console: Console, rest: httpx.AsyncClient, cluster: LocalCluster, create: Create
) -> None:
    await create("tide", [[1, 2], [2, 3], [3, 1], [1, 3]])
    new = cluster.add_broker()
    await console.open("brokers")
    row = console.page.get_by_role("row").filter(
        has=console.button(f"Restart check of broker {new}")
    )
    await expect(row).to_contain_text("not added")

    await console.button("Add brokers…").click()
    await expect(console.dialog.get_by_role("checkbox", checked=True)).to_have_value(str(new))
    await console.dry_run()
    shares = console.plan.get_by_role("table", name="Brokers before and after")
    await expect(shares.get_by_role("row").last).to_contain_text("+")
    assert (await broker(rest, new))["replicas"] == 0
    await console.button("Add them, and begin to move").click()
    await console.follow()
    await console.until_state("done")
    held = (await broker(rest, new))["replicas"]
    assert held > 0

    await console.open("brokers")
    await expect(row).to_contain_text("running")
    await console.button(f"Remove broker {new}").click()
    await expect(console.dialog.get_by_role("checkbox", checked=True)).to_have_value(str(new))
    await console.dry_run()
    await expect(console.plan).to_contain_text(f"−{held}")
    await console.button("Begin to drain").click()
    await console.follow()
    await console.until_state("done")
    drained = await broker(rest, new)
    assert (drained["replicas"], drained["removed"]) == (0, True)
    await console.open("brokers")
    await expect(row).to_contain_text("removed")

    # The broker is released: it is not reported as missing.
    await cluster.stop_broker(new)
    await expect(row).to_have_count(0)
    side = console.page.get_by_role("banner")
    await expect(side.get_by_text("gone")).to_have_count(0)
    await expect(side.get_by_text("All is well")).to_be_visible()


async def test_the_plan_of_a_rebalance_is_shown_before_it_begins(
    console: Console, rest: httpx.AsyncClient
) -> None:
    before = (await rest.get("/v1/operations")).json()["items"]
    await console.open("moves")
    await console.button("Rebalance…").click()
    await expect(console.plan).to_be_visible()
    await console.page.keyboard.press("Escape")
    await expect(console.dialog).to_have_count(0)
    assert (await rest.get("/v1/operations")).json()["items"] == before
