"""The text alternatives of pictures for screen readers. The gateway is real; the cluster behind it
is in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from console.console import Console, new_console
from console.gateways import MemoryGateway
from tidelog.client.event_streams import Silent
from tidelog.client.published_events import Published
from tidelog.state_changes.event import Cause, Detail, Kind, Stage, StateChange
from unit.admin_api.fakes import FakeCluster, broker

NOON_MS = 1_700_049_600_000  # 2023-11-15 12:00:00 UTC
DAY = "15 Nov"
UNREAD = "__state_changes has no leader, and was not read."
SECOND_MS = 1_000


def changed(seconds: int, kind: Kind, cause: Cause, **details: Detail) -> StateChange:
    """A state change of sea/0, at this time after noon."""
    at_ms = NOON_MS + seconds * SECOND_MS
    change = StateChange(at_ms, "controller-1", kind, Stage.COMPLETED, cause)
    return change._replace(topic="sea", partition=0, details=details)


CRASHED: dict[str, Detail] = {"leader": 2, "leader_before": 1, "isr": [2], "isr_before": [1, 2]}
HISTORY = [
    changed(0, Kind.ELECTION, Cause.TOPIC_CREATED, leader=1, isr=[1, 2]),
    changed(10, Kind.ELECTION, Cause.BROKER_CRASHED, **CRASHED),
    changed(25, Kind.ISR_EXPAND, Cause.CAUGHT_UP, leader=2, isr=[2, 1], isr_before=[2]),
]


@pytest_asyncio.fixture(loop_scope="session")
async def shown(browser: Browser) -> AsyncIterator[Console]:
    cluster = FakeCluster()
    cluster.events.remembered = HISTORY
    cluster.events.silent = (Silent("127.0.0.1:7503", "it is gone"),)
    cluster.published.result = Published([], (UNREAD,))
    cluster.admin.brokers = [
        broker(1, replicas=7, leaders=3),
        broker(2, replicas=6, leaders=2, status="gone"),
    ]
    gateway = MemoryGateway(cluster.app)
    gateway.start()
    console = await new_console(browser, gateway.url)
    yield console
    await console.close()
    await gateway.stop()
    assert console.faults == []


async def test_the_timeline_shows_changes_and_causes_newest_first(shown: Console) -> None:
    await shown.open("topics/sea/0")
    entries = shown.page.get_by_label("State changes").locator("ol").get_by_role("listitem")
    await expect(entries).to_have_count(len(HISTORY))
    await expect(entries.nth(0)).to_contain_text("ISR expand")
    await expect(entries.nth(0)).to_contain_text("in sync 2 → 2, 1 · because caught up")
    await expect(entries.nth(1)).to_contain_text("leader 1 → 2; in sync 1, 2 → 2")
    await expect(entries.nth(1)).to_contain_text(
        "because broker crashed · reported by controller-1"
    )
    await expect(entries.nth(2)).to_contain_text("leader 1; in sync 1, 2")


@pytest.mark.parametrize(("place", "also"), [("topics/sea/0", [UNREAD]), ("events", [])])
async def test_possibly_missing_events_are_reported_beside_the_events(
    shown: Console, place: str, also: list[str]
) -> None:
    await shown.open(place)
    missing = shown.page.get_by_role("list", name="What may be missing")
    silence = (
        "127.0.0.1:7503 did not answer (it is gone): events that only it remembers are missing."
    )
    await expect(missing.get_by_role("listitem")).to_have_text([silence, *also])


async def test_the_lanes_show_leaders_and_isr_over_time(shown: Console) -> None:
    await shown.open("topics/sea/0")
    lanes = shown.page.get_by_label("Leader and ISR over time").get_by_role("img")
    began, crashed, back = (f"{DAY} 12:00:{second}" for second in ("00", "10", "25"))
    first = f"Broker 1: led from {began} to {crashed}, in sync from {back} to now"
    await expect(lanes.nth(0)).to_have_attribute("aria-label", first)
    second = f"Broker 2: in sync from {began} to {crashed}, led from {crashed} to now"
    await expect(lanes.nth(1)).to_have_attribute("aria-label", second)
    third = "Broker 3: neither led nor in sync"
    await expect(lanes.nth(2)).to_have_attribute("aria-label", third)


async def test_the_load_of_each_broker_has_a_text_form(shown: Console) -> None:
    await shown.open("brokers")
    loads = shown.page.get_by_role("list", name="Leaders and replicas of each broker")
    await expect(loads.get_by_role("listitem")).to_have_text(
        ["Broker 1leads 3 of 7", "Broker 2gone, holds 6"]
    )
