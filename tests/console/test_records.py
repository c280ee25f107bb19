"""Records in the console: pages, a single record, searches, and files. The gateway is real; the
cluster behind it is in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from console.console import Console, new_console
from console.gateways import MemoryGateway
from tidelog.model import Record
from unit.admin_api.fake_operations import FakeConsumer
from unit.admin_api.fakes import FakeCluster

SEA = "records?topic=sea&partition=0"
COUNT = 60
RECORDS = [
    Record("sea", 0, n, 1_000 + n, b"buoy-%d" % n, b'{"n":%d}' % n, (("source", b"gps"),), 3)
    for n in range(COUNT)
]
_CALL = (
    "async ([module, name, given]) => (await import(`/console/app/${module}.js`))[name](...given)"
)


class Stalled(FakeConsumer):
    """A consumer that gets some records, and then no more."""

    async def poll(self, timeout_ms: int = 0, max_records: int = 0) -> list[Record]:
        if self.at > 0:
            await asyncio.sleep(timeout_ms / 1000)
            return []
        return await super().poll(timeout_ms, min(max_records, 20))


@dataclass
class Scene:
    cluster: FakeCluster
    console: Console

    @property
    def page(self) -> Page:
        return self.console.page

    @property
    def offsets(self) -> Locator:
        """The links of records in the table, which are their offsets."""
        return self.page.get_by_role("table", name="Records").locator("a[href*='/records/']")

    async def search(self, **criteria: str) -> None:
        await self.console.open(f"{SEA}&tab=search")
        for label, text in criteria.items():
            await self.page.get_by_label(label.replace("_", " "), exact=True).fill(text)
        await self.console.button("Search").click()

    async def saved(self, name: str, directory: Path) -> str:
        async with self.page.expect_download() as waiting:
            await self.console.button(name).click()
        path = directory / "saved"
        await (await waiting.value).save_as(path)
        return path.read_bytes().decode()


@pytest_asyncio.fixture(loop_scope="session")
async def scene(browser: Browser) -> AsyncIterator[Scene]:
    cluster = FakeCluster()
    cluster.consumer = FakeConsumer(RECORDS)
    gateway = MemoryGateway(cluster.app)
    gateway.start()
    console = await new_console(browser, gateway.url)
    yield Scene(cluster, console)
    await console.close()
    await gateway.stop()
    assert console.faults == []


async def test_pages_lead_to_older_and_newer_records(scene: Scene) -> None:
    page = scene.page
    await scene.console.open(f"{SEA}&count=20")
    await expect(page.get_by_text("Offsets 40 to 59 of 0 to 59 in the partition")).to_be_visible()
    await expect(scene.console.button("Newer")).to_be_disabled()
    await scene.console.button("Older").click()
    await expect(page.get_by_text("Offsets 20 to 39 of 0 to 59")).to_be_visible()
    await expect(scene.offsets.first).to_have_text("39")
    await expect(scene.console.button("Older")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Offsets 0 to 19 of 0 to 59")).to_be_visible()
    await expect(scene.console.button("Older")).to_be_disabled()
    await scene.console.button("Newer").click()
    await expect(page.get_by_text("Offsets 20 to 39 of 0 to 59")).to_be_visible()
    await page.go_back()
    await expect(page.get_by_text("Offsets 0 to 19 of 0 to 59")).to_be_visible()
    await scene.console.button("Newest").click()
    await expect(page.get_by_text("Offsets 40 to 59 of 0 to 59")).to_be_visible()


def answered(*offsets: int, start: int, first: int, following: int, end: int) -> dict[str, Any]:
    """A page of records of partition 0."""
    items = [{"partition": 0, "offset": offset} for offset in offsets]
    page = {"items": items, "log_start_offset": start, "first_offset": first}
    return {**page, "next_offset": following, "end_offset": end}


@pytest.mark.parametrize(
    ("page", "shown", "is_backwards", "older", "newer"),
    [
        # All records of the answer are shown.
        (answered(5, 6, start=0, first=5, following=7, end=9), [5, 6], True, 5, 7),
        # The older ones, or the newer ones, are left out for those of other partitions.
        (answered(5, 6, start=0, first=5, following=7, end=9), [6], True, 6, 7),
        (answered(5, 6, start=0, first=5, following=7, end=9), [5], False, 5, 6),
        (answered(5, 6, start=0, first=5, following=7, end=9), [], True, 7, 7),
        (answered(5, 6, start=0, first=5, following=7, end=9), [], False, 5, 5),
        # No record has the key, or offsets have gaps.
        (answered(start=0, first=3, following=7, end=9), [], True, 3, 7),
        (answered(5, 6, start=5, first=5, following=7, end=7), [5, 6], True, None, None),
    ],
)
async def test_pages_of_several_partitions_leave_out_no_record(
    scene: Scene,
    page: dict[str, Any],
    shown: list[int],
    is_backwards: bool,
    older: int | None,
    newer: int | None,
) -> None:
    await scene.console.open("records")
    records = [{"partition": 0, "offset": offset} for offset in shown]
    given = ["parts/record_pager", "neighbours", [{0: page}, records, is_backwards]]
    found = await scene.page.evaluate(_CALL, given)
    expected = {"older": older, "newer": newer}
    assert {name: (found[name] or {"0": None})["0"] for name in expected} == expected


async def test_pages_of_all_partitions_have_each_record_once(console: Console, sea: str) -> None:
    await console.open(f"records?topic={sea}&count=20")
    table = console.page.get_by_role("table", name="Records")
    found: list[str] = []
    for shown in (20, 40, 60):
        await expect(console.page.get_by_text("20 records of 6 partitions")).to_be_visible()
        found += await table.locator("a[href*='/records/']").evaluate_all(
            "(all) => all.map((a) => a.href)"
        )
        assert len(set(found)) == shown
        if shown < 60:
            await console.button("Older").click()
            await expect(
                table.locator(f"a[href='{found[-1][found[-1].index('#') :]}']")
            ).to_have_count(0)
    await expect(console.button("Older")).to_be_disabled()
    await console.button("Newer").click()
    await expect(console.button("Older")).to_be_enabled()


async def test_a_record_has_an_address_and_neighbours(scene: Scene) -> None:
    page = scene.page
    await scene.console.open(f"{SEA}&count=20")
    await page.get_by_role("link", name="57", exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("sea/0, offset 57")
    assert page.url.endswith("#/topics/sea/0/records/57")
    await expect(page.get_by_text('"n": 57')).to_be_visible()
    await expect(page.get_by_text("source: gps")).to_be_visible()
    await page.get_by_role("link", name="Newer", exact=True).click()
    await expect(page.get_by_text('"n": 58')).to_be_visible()
    await page.get_by_role("link", name="Records around this one").click()
    await expect(page.get_by_text("Offsets 48 to 59 of 0 to 59")).to_be_visible()


async def test_the_address_of_a_deleted_record_says_which_records_there_are(scene: Scene) -> None:
    scene.cluster.consumer = FakeConsumer(RECORDS[10:], start=10)
    scene.cluster.consumer.end = COUNT
    await scene.console.open("topics/sea/0/records/3")
    await expect(scene.page.get_by_text("Not found", exact=True)).to_be_visible()
    await expect(scene.page.get_by_text("its records are at offsets 10 to 59")).to_be_visible()
    scene.console.faults[:] = [f for f in scene.console.faults if "/records/3" not in f]


@pytest.mark.parametrize("place", ["records", "records/x", "records/1/2", "other/1"])
async def test_a_wrong_address_of_a_record_is_no_page(scene: Scene, place: str) -> None:
    await scene.console.open(f"topics/sea/0/{place}")
    await expect(scene.page.get_by_text("There is no such page")).to_be_visible()


async def test_a_search_finds_records_beyond_the_page(scene: Scene) -> None:
    await scene.search(JSON_path="n", JSON_value_is="7")
    await expect(
        scene.page.get_by_text("The whole range was searched: 1 record found")
    ).to_be_visible()
    await expect(scene.page.get_by_text("among 60")).to_be_visible()
    await expect(scene.page.get_by_text("offsets 0 to 59, next 60")).to_be_visible()
    await expect(scene.page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "100")
    await expect(scene.offsets).to_have_text(["7"])


@pytest.mark.parametrize(
    ("sought", "link", "field", "found"),
    [("buoy-7", "in keys", "Key contains", "7"), ('{"n":8}', "in values", "Value contains", "8")],
)
async def test_a_filter_of_the_page_leads_to_a_search_of_all_records(
    scene: Scene, sought: str, link: str, field: str, found: str
) -> None:
    await scene.console.open(f"{SEA}&count=20")
    await scene.page.get_by_label("On this page, key or value contains").fill(sought)
    await expect(scene.page.get_by_text("No record on this page matches.")).to_be_visible()
    await expect(scene.page.get_by_text("0 records of 20 on this page")).to_be_visible()
    await scene.page.get_by_role("link", name=link, exact=True).click()
    await expect(scene.page.get_by_label(field, exact=True)).to_have_value(sought)
    await scene.console.button("Search").click()
    await expect(scene.page.get_by_text("1 record found among 60")).to_be_visible()
    await expect(scene.offsets).to_have_text([found])


async def test_a_search_continues_from_where_it_ended(scene: Scene) -> None:
    await scene.console.open(f"{SEA}&tab=search&count=20")
    await scene.page.get_by_label("Header value is", exact=True).fill("gps")
    await scene.page.get_by_label("Has the header", exact=True).fill("source")
    # The key starts the search.
    await scene.page.keyboard.press("Enter")
    await expect(scene.page.get_by_text("20 records found among 20")).to_be_visible()
    await scene.console.button("Continue").click()
    await expect(scene.page.get_by_text("40 records found")).to_be_visible()
    await expect(scene.offsets).to_have_count(40)
    assert "header=source" in scene.page.url


async def test_the_key_that_starts_a_search_includes_the_field_that_was_edited(
    scene: Scene,
) -> None:
    await scene.console.open(f"{SEA}&tab=search")
    await scene.page.get_by_label("Key contains", exact=True).fill("buoy-33")
    await scene.page.keyboard.press("Enter")
    await expect(scene.page.get_by_text("1 record found among 60")).to_be_visible()
    await expect(scene.offsets).to_have_text(["33"])


async def test_a_search_shows_its_progress_and_can_be_cancelled(scene: Scene) -> None:
    scene.cluster.consumer = Stalled(RECORDS)
    await scene.search(Value_contains="n")
    await expect(scene.page.get_by_text("Searching: 20 records found among 20")).to_be_visible()
    await expect(scene.page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "33")
    await scene.console.button("Cancel").click()
    await expect(scene.page.get_by_text("Cancelled: 20 records found")).to_be_visible()
    for _ in range(100):
        if scene.cluster.consumer.is_closed:
            break
        await asyncio.sleep(0.1)
    assert scene.cluster.consumer.is_closed


async def test_a_wrong_criterion_is_reported(scene: Scene) -> None:
    await scene.search(JSON_path="a..b")
    await expect(scene.page.get_by_role("alert")).to_contain_text("no name and no [index]")
    scene.console.faults[:] = [f for f in scene.console.faults if "/search" not in f]


async def test_damaged_records_are_named_in_a_search(scene: Scene) -> None:
    scene.cluster.consumer.damaged = [(3, 5)]
    await scene.search(Key_is="buoy-9")
    await expect(scene.page.get_by_text("partition 0, offsets 3 to 4")).to_be_visible()
    await expect(scene.offsets).to_have_text(["9"])


async def test_a_search_stays_within_its_offsets(scene: Scene) -> None:
    await scene.search(From_offset="5", Before_offset="8")
    await expect(scene.offsets).to_have_text(["5", "6", "7"])


async def test_shown_records_are_saved_as_files(scene: Scene, tmp_path: Path) -> None:
    await scene.console.open(f"{SEA}&count=20")
    await expect(scene.offsets).to_have_count(20)
    lines = (await scene.saved("Save as JSON lines", tmp_path)).splitlines()
    assert [json.loads(line)["offset"] for line in lines] == list(range(59, 39, -1))
    assert json.loads(lines[0])["value"] == '{"n":59}'
    table = await scene.saved("Save as CSV", tmp_path)
    head, first, *_ = table.split("\r\n")
    assert head.startswith('"topic","partition","offset"')
    assert first.startswith('"sea",0,59,1059,"buoy-59","text","{""n"":59}","text",')


@pytest.mark.parametrize(
    ("fields", "cells"),
    [
        ({"key": "=1+1", "value": "-5"}, '"\'=1+1","text","\'-5","text"'),
        ({"key": None, "value": ""}, '"","","","text"'),
        ({"key": "/w==", "key_encoding": "base64"}, '"/w==","base64","","text"'),
        ({"key": 'a"b\nc,d'}, '"a""b\nc,d","text","","text"'),
    ],
)
async def test_csv_keeps_texts_apart_and_runs_no_formula(
    scene: Scene, fields: dict[str, Any], cells: str
) -> None:
    record = {"topic": "sea", "partition": 0, "offset": 1, "timestamp_ms": 2, "headers": []}
    record |= {"key": "", "key_encoding": "text", "value": "", "value_encoding": "text", **fields}
    await scene.console.open("records")
    saved = await scene.page.evaluate(_CALL, ["record_export", "toCsv", [[record]]])
    assert saved.split("\r\n")[1] == f'"sea",0,1,2,{cells},"[]"'


async def test_the_console_links_to_the_page_of_the_api(scene: Scene) -> None:
    await scene.console.open("records")
    await scene.page.get_by_role("link", name="REST API").click()
    await expect(scene.page).to_have_title("Tidelog REST API")
    # Its text comes from the gateway, without a request to another host.
    await expect(scene.page.get_by_text("Manages a Tidelog cluster").first).to_be_visible()
