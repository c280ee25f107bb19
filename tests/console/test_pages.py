"""Every page on a live cluster."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from playwright.async_api import expect

from console.console import Console
from integration.waiting import until

PAGES = {
    "overview": ("All is well", "Leaders per broker", "Partitions by broker", "Gateways", "alive"),
    "topics": ("sea", "in sync"),
    "topics/sea": ("Partitions", "HW", "LEO", "Lag", "Over time", "Records written"),
    "topics/sea?tab=config": ("retention_ms", "Description"),
    "topics/sea/0": ("Replicas", "Lag over time", "State changes", "Leader and ISR over time"),
    "brokers": ("running", "Disk free", "Racks"),
    "moves": ("Throttle", "No operation is running."),
    "events": ("completed", "live"),
    "records?topic=sea": ("buoy-59", "60 records"),
}
# The sidebar of each page shows the status of the cluster.
STANDING = "All is well"


@pytest.mark.parametrize("place", PAGES)
@pytest.mark.usefixtures("sea")
async def test_every_page_shows_its_content(console: Console, place: str) -> None:
    await console.open(place if "records" not in place else f"{place}&count=100")
    for text in PAGES[place]:
        await expect(console.page.get_by_text(text).first).to_be_visible()
    await expect(console.page.get_by_role("banner").get_by_text(STANDING)).to_be_visible()


@pytest.mark.usefixtures("sea")
async def test_a_partition_shows_every_replica_against_the_high_watermark(
    console: Console,
) -> None:
    await console.open("topics/sea/0")
    for broker in (1, 2, 3):
        bar = console.page.get_by_role("img", name=f"Broker {broker}: ")
        await expect(bar.first).to_have_attribute("aria-label", _replica_label(broker))
    # The leader does not lag, and is no follower.
    lag = console.page.get_by_role("img", name="Lag of each follower in records")
    await expect(lag).to_have_attribute("aria-label", re.compile(r"(?=.*: –)(?=(.*: 0){2})"))


async def test_a_topic_shows_the_records_and_the_history_that_brokers_report(
    console: Console, rest: httpx.AsyncClient, sea: str
) -> None:
    async def is_sampled() -> bool:
        figures = (await rest.get(f"/v1/topics/{sea}")).json()["figures"]
        return figures is not None and figures["records_per_second"] == 0

    await until(is_sampled, "a topic that is written no more has been sampled twice")
    await console.open("topics")
    row = console.page.get_by_role("row").filter(
        has=console.page.get_by_role("link", name=sea, exact=True)
    )
    await expect(row).to_contain_text("60")
    await console.open(f"topics/{sea}")
    rates = console.page.get_by_role("img", name="Records written")
    await expect(rates).to_have_attribute("aria-label", re.compile("Records: 0/s"))
    history = (await rest.get("/v1/history", params={"topic": sea})).json()
    by_name = {series["name"]: series["values"] for series in history["series"]}
    assert by_name["approximate_records"][-1] == 60
    assert by_name["total_bytes"][-1] == 3 * by_name["leader_bytes"][-1] > 0


def _replica_label(broker: int) -> re.Pattern[str]:
    return re.compile(rf"Broker {broker}: (leader|in sync), LEO 10; high watermark 10")


@pytest.mark.usefixtures("sea")
async def test_a_topic_is_found_by_a_part_of_its_name(console: Console) -> None:
    await console.open("topics")
    await console.page.get_by_label("Find a topic").fill("no such")
    await expect(console.page.get_by_text("No topic matches.")).to_be_visible()
    await console.page.get_by_label("Find a topic").fill("se")
    await expect(console.page.get_by_role("link", name="sea", exact=True)).to_be_visible()


@pytest.mark.usefixtures("sea")
async def test_the_map_leads_to_a_partition_by_keyboard(console: Console) -> None:
    await console.open("overview")
    chart = console.page.get_by_role("application", name="Map of")
    await chart.focus()
    await console.page.keyboard.press("ArrowRight")
    await console.page.keyboard.press("Enter")
    await expect(console.page.get_by_role("heading", level=1)).to_have_text(re.compile(r".+/\d+"))


@pytest.mark.usefixtures("sea")
async def test_a_record_is_found_by_its_key_and_shown_in_full(console: Console) -> None:
    await console.open("records?topic=sea&partition=5")
    await console.page.get_by_label("Key or value contains").fill("buoy-11")
    await expect(console.page.get_by_text("1 record of 10")).to_be_visible()
    await console.button("Open record 5/1").click()
    await expect(console.page.get_by_text('"metres": 11')).to_be_visible()


@pytest.mark.usefixtures("sea")
async def test_records_are_read_from_an_offset(console: Console) -> None:
    await console.open("records?topic=sea&partition=0&from=offset&offset=7")
    await expect(console.page.get_by_text("3 records", exact=True)).to_be_visible()
    await expect(console.page.get_by_text("buoy-42")).to_be_visible()
    await expect(console.page.get_by_text("buoy-36")).to_have_count(0)


@pytest.mark.usefixtures("sea")
async def test_records_with_a_key_are_found_behind_newer_ones(console: Console) -> None:
    await console.open("records?topic=sea&count=20")
    await expect(console.page.get_by_text("20 records", exact=True)).to_be_visible()
    await expect(console.page.get_by_text("buoy-3", exact=True)).to_have_count(0)
    await console.page.get_by_label("Key is").fill("buoy-3")
    await console.page.keyboard.press("Enter")
    await expect(console.page.get_by_text("1 record", exact=True)).to_be_visible()
    await expect(console.page.get_by_text("buoy-3", exact=True)).to_be_visible()


async def test_records_are_read_from_a_time(console: Console, rest: httpx.AsyncClient) -> None:
    (await rest.post("/v1/topics", json={"topic": "clock"})).raise_for_status()
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    records = [
        {"value": f"minute-{n}", "timestamp_ms": int(hour.timestamp() * 1000) + n * 60_000}
        for n in (-3, -2, -1)
    ]
    (await rest.post("/v1/topics/clock/records", json={"records": records})).raise_for_status()
    since = (hour - timedelta(minutes=2)).strftime("%Y-%m-%dT%H:%M:%S")
    await console.open(f"records?topic=clock&from=time&time={since}")
    await expect(console.page.get_by_text("2 records", exact=True)).to_be_visible()
    await expect(console.page.get_by_text("minute--3")).to_have_count(0)
