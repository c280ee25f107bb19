"""Changes of the cluster while a page shows it."""

from __future__ import annotations

import re

import httpx
from playwright.async_api import expect

from console.answers import until_partition
from console.console import Console
from tidelog_runtime.local.cluster import LocalCluster

VICTIM = 3
CONTROLLERS = (1, 2)
GATEWAYS_WORDS = "the request was not answered in time; the last problem"


async def test_a_dead_broker_is_shown_without_reloading(
    console: Console, cluster: LocalCluster, rest: httpx.AsyncClient, sea: str
) -> None:
    """`make bench-console` measures the delay on an idle machine. Here the death is detected by the
    refused connection, long before the lease ends."""
    await console.open("overview")
    side = console.page.get_by_role("banner")
    await expect(side.get_by_text("All is well")).to_be_visible()
    await cluster.kill(VICTIM)
    try:
        await expect(side.get_by_text("1 broker gone")).to_be_visible()
        await _check_other_pages(console, sea)
    finally:
        cluster.start_broker(VICTIM)
        await cluster.ready()
    await console.open("overview")
    await expect(side.get_by_text("All is well")).to_be_visible()
    assert await _fencing_dials(rest) == ["refused"]


async def _fencing_dials(rest: httpx.AsyncClient) -> list[str]:
    """The failed connection attempts to the victim that the controller reports; it has none for a
    lease that has ended."""
    query = {"kind": "broker_fenced", "broker": str(VICTIM)}
    events = (await rest.get("/v1/events", params=query)).raise_for_status().json()["items"]
    return [event["details"].get("dial", "") for event in events if event["stage"] == "requested"]


async def _check_other_pages(console: Console, topic: str) -> None:
    # The verdict and, once the services have answered, the finding begin with these words.
    verdict = console.page.get_by_role("main").get_by_text(f"Broker {VICTIM} is gone", exact=True)
    await expect(verdict).to_be_visible()
    wrong = console.page.get_by_role("region", name="Problems and causes")
    await expect(wrong.get_by_text(f"Broker {VICTIM} is gone: ").first).to_be_visible()

    await console.open(f"topics/{topic}/0")
    replica = console.page.get_by_role("img", name=f"Broker {VICTIM}: gone")
    await expect(replica).to_be_visible()
    await console.open("brokers")
    row = console.page.get_by_role("row").filter(has=console.page.get_by_text("gone", exact=True))
    await expect(row.get_by_role("cell").first).to_have_text(str(VICTIM))


async def test_an_event_is_shown_while_it_happens(
    console: Console, rest: httpx.AsyncClient
) -> None:
    await console.open("events")
    await expect(console.page.get_by_text("live", exact=True)).to_be_visible()
    (await rest.post("/v1/topics", json={"topic": "gust"})).raise_for_status()
    await expect(console.page.get_by_role("link", name="gust", exact=True).first).to_be_visible()


async def test_without_a_controller_the_cause_is_shown(
    console: Console, cluster: LocalCluster, sea: str
) -> None:
    await console.open(f"topics/{sea}")
    main = console.page.get_by_role("main")
    await expect(main.get_by_text("Durability")).to_be_visible()
    for controller_id in CONTROLLERS:
        await cluster.kill_controller(controller_id)
    try:
        await expect(main.get_by_text("there has been no answer since")).to_be_visible()
        # The gateway answers this after it has retried for a while.
        await expect(main.get_by_role("alert").first).to_contain_text(GATEWAYS_WORDS)
        await expect(main.get_by_text("Durability")).to_be_visible()
    finally:
        for controller_id in CONTROLLERS:
            cluster.start_controller(controller_id)
        await cluster.ready()
    await expect(main.get_by_role("alert")).to_have_count(0)
    # The browser logs the failed requests itself.
    console.faults[:] = [fault for fault in console.faults if "/v1/" not in fault]


async def test_another_replica_is_made_leader(console: Console, rest: httpx.AsyncClient) -> None:
    body = {"topic": "helm", "assignment": [[1, 2]]}
    (await rest.post("/v1/topics", json=body)).raise_for_status()
    await console.open("topics/helm/0")
    await console.button("Change leader…").click()
    await console.dry_run()
    await console.button("Transfer leadership").click()
    await expect(console.page.get_by_text("Broker 2 leads helm/0.")).to_be_visible()
    await until_partition(rest, "helm/0", leader=2)
    await expect(console.page.get_by_label("State changes")).to_contain_text("leader 1 → 2")
    lanes = console.page.get_by_label("Leader and ISR over time")
    led = lanes.get_by_role("img", name=re.compile("Broker 1: led from .*, in sync from .* to now"))
    await expect(led).to_be_visible()
    leads = lanes.get_by_role("img", name=re.compile("Broker 2: in sync from .*, led from .* now"))
    await expect(leads).to_be_visible()


async def test_maintenance_and_the_restart_check_explain_their_effect(
    console: Console, rest: httpx.AsyncClient
) -> None:
    # Two replicas; acks=all needs both.
    body = {"topic": "keel", "assignment": [[1, 2]]}
    (await rest.post("/v1/topics", json=body)).raise_for_status()
    await console.open("brokers")
    await console.button("Restart check of broker 1").click()
    await expect(console.dialog.get_by_text("It should not be stopped")).to_be_visible()
    row = console.dialog.get_by_role("row").filter(has=console.page.get_by_text("keel/0"))
    await expect(row).to_contain_text("under min ISR")
    await console.page.keyboard.press("Escape")
    await console.button("Maintenance of broker 1").click()
    await expect(console.plan).to_contain_text("led by others")
    await console.button("Begin maintenance").click()
    await expect(console.page.get_by_text("Broker 1 is in maintenance.")).to_be_visible()
    assert (await rest.get("/v1/brokers/1")).json()["maintenance"]
    await console.button("End maintenance of broker 1").click()
    await console.button("End maintenance").click()
    await expect(console.button("Maintenance of broker 1")).to_be_visible()

    await until_partition(rest, "keel/0", leader=2)
    await console.button("Preferred leaders…").click()
    row = console.plan.get_by_role("row").filter(has=console.page.get_by_text("keel/0"))
    await expect(row.get_by_role("cell")).to_have_text(["keel/0", "2", "1", ""])
    await console.button("Elect them").click()
    again = console.page.get_by_role("status").get_by_text("led by preferred replicas again")
    await expect(again).to_be_visible()
    await until_partition(rest, "keel/0", leader=1)
