"""Records are produced with the console."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Route, expect

from console.console import Console, new_console
from console.gateways import MemoryGateway
from tidelog.model import Record
from unit.admin_api.fake_operations import FakeConsumer
from unit.admin_api.fakes import FakeCluster, details, topic

SHORT_MS = 300


def _text(console: Console, label: str) -> Locator:
    return console.dialog.get_by_role("textbox", name=label, exact=True)


def _choice(console: Console, label: str) -> Locator:
    return console.dialog.get_by_role("combobox", name=label, exact=True)


@dataclass
class Scene:
    """The dialog of a gateway that is real, over a cluster in memory."""

    cluster: FakeCluster
    console: Console

    @property
    def send(self) -> Locator:
        return self.console.dialog.get_by_role("button", name="Produce", exact=True)

    def text(self, label: str) -> Locator:
        return _text(self.console, label)

    async def open(self, topic_name: str = "sea") -> None:
        await self.console.open(f"topics/{topic_name}")
        await self.console.button("Produce…").click()

    async def fill(self, **fields: str) -> None:
        """`fields`: texts by label, in lower case."""
        for label, text in fields.items():
            await self.text(label.capitalize()).fill(text)

    async def choose(self, label: str, option: str) -> None:
        await _choice(self.console, label).select_option(option)


@pytest_asyncio.fixture(loop_scope="session")
async def scene(browser: Browser) -> AsyncIterator[Scene]:
    """The browser's log lines of rejected requests are no fault here."""
    cluster = FakeCluster()
    gateway = MemoryGateway(cluster.app)
    gateway.start()
    console = await new_console(browser, gateway.url)
    yield Scene(cluster, console)
    await console.close()
    await gateway.stop()
    assert [fault for fault in console.faults if "/records" not in fault] == []


async def test_a_record_is_produced_by_keyboard_and_shown(
    console: Console, rest: httpx.AsyncClient
) -> None:
    (await rest.post("/v1/topics", json={"topic": "ripple", "partitions": 3})).raise_for_status()
    await console.open("topics/ripple")
    await expect(console.button("Produce…")).to_be_visible()
    keyboard = console.page.keyboard
    await keyboard.press("n")
    await expect(_text(console, "Value")).to_be_focused()
    await keyboard.type("spring tide")
    await keyboard.press("Shift+Tab")
    await keyboard.press("Shift+Tab")
    await keyboard.type("buoy-7")
    await _choice(console, "Partition").select_option("2")
    await keyboard.press("Control+Enter")
    shown = console.dialog.get_by_role("status")
    await expect(shown).to_contain_text("The record is in ripple/2 at offset 0")
    await console.page.get_by_role("link", name="Show the record").click()
    await expect(console.page.locator("pre")).to_have_text("spring tide")
    newest = (await rest.get("/v1/topics/ripple/partitions/2/records?latest=1")).json()["items"]
    assert (newest[0]["key"], newest[0]["value"]) == ("buoy-7", "spring tide")


async def test_a_record_is_written_as_it_was_typed(scene: Scene) -> None:
    await scene.open()
    await scene.choose("Partition", "0")
    await scene.choose("Value format", "json")
    # Parsing and serializing would change this number.
    await scene.fill(key="north", value='{ "id": 9007199254740993 }')
    await scene.choose("Key format", "base64")
    await scene.fill(key="/w==")
    for number, (name, text) in enumerate([("source", "gps"), ("dropped", "")], start=1):
        await scene.console.button("Add a header").click()
        await expect(scene.console.page.get_by_label(f"Name of header {number}")).to_be_focused()
        await scene.console.page.keyboard.type(name)
        await scene.console.page.get_by_label(f"Value of header {number}").fill(text)
    await scene.console.button("Remove header 2").click()
    await scene.console.dialog.get_by_label("Timestamp").fill("2026-01-02T03:04:05.678")
    await scene.send.click()
    shown = scene.console.dialog.get_by_role("status")
    await expect(shown).to_contain_text("The record is in sea/0 at offset 0")
    [(value, key, options)] = scene.cluster.producer.sent
    assert (value, key) == (b'{ "id": 9007199254740993 }', b"\xff")
    assert options["headers"] == (("source", b"gps"),)
    assert (options["partition"], options["timestamp_ms"]) == (0, 1_767_323_045_678)
    link = scene.console.page.get_by_role("link", name="Show the record")
    await expect(link).to_have_attribute("href", "#/topics/sea/0/records/0")


@pytest.mark.parametrize(
    ("label", "form", "text", "problem"),
    [
        ("Value", "json", '{"tide": }', "This is not JSON"),
        ("Value", "json", "", "Enter a JSON value"),
        ("Key", "base64", "abc", "This is not base64"),
    ],
)
async def test_what_is_not_in_its_format_is_not_sent(
    scene: Scene, label: str, form: str, text: str, problem: str
) -> None:
    await scene.open()
    await scene.choose(f"{label} format", form)
    await scene.text(label).fill(text)
    await expect(scene.console.dialog.get_by_role("alert")).to_contain_text(problem)
    await expect(scene.send).to_be_disabled()


async def test_a_rejected_record_is_shown_with_its_fix(scene: Scene) -> None:
    await scene.open()
    await scene.fill(value="large")
    await scene.send.click()
    alert = scene.console.dialog.get_by_role("alert")
    await expect(alert).to_contain_text("raise the topic's max_batch_bytes")
    # It was not written, so that another try is harmless.
    await expect(scene.send).to_be_enabled()


async def test_a_record_in_doubt_is_sent_again_only_with_consent(scene: Scene) -> None:
    async def hurry(route: Route) -> None:
        await route.continue_(url=f"{route.request.url}?timeout_ms={SHORT_MS}")

    await scene.console.page.route("**/records", hurry)
    await scene.open()
    await scene.fill(value="lost")
    await scene.send.click()
    dialog = scene.console.dialog
    await expect(dialog.get_by_role("alert")).to_contain_text("The outcome is not known")
    await expect(scene.send).to_be_disabled()
    await dialog.get_by_label("Produce it again").check()
    await expect(scene.send).to_be_enabled()
    await dialog.get_by_label("Produce it again").uncheck()
    # Another record is no duplicate.
    await scene.fill(value="another")
    await scene.send.click()
    await expect(dialog.get_by_role("status")).to_contain_text("The record is in sea/0")
    assert [value for value, *_ in scene.cluster.producer.sent] == [b"lost", b"another"]


async def test_without_an_answer_the_outcome_is_in_doubt(scene: Scene) -> None:
    await scene.console.page.route("**/records", lambda route: route.abort())
    await scene.open()
    await scene.fill(value="calm")
    await scene.send.click()
    alert = scene.console.dialog.get_by_role("alert")
    await expect(alert).to_contain_text("The record may be written, at most once.")


async def test_limits_of_a_record_are_stated(scene: Scene) -> None:
    limited = replace(details().config[0], key="max_batch_bytes", value="4096")
    scene.cluster.admin.details = details(config=(limited,))
    await scene.open()
    await scene.fill(value="1234")
    await expect(scene.console.dialog).to_contain_text("4 B of at most 4.0 KiB after compression")


@pytest.mark.parametrize("place", ["topics/__state_changes", "records?topic=__state_changes"])
async def test_internal_topics_have_no_form(scene: Scene, place: str) -> None:
    name = "__state_changes"
    scene.cluster.admin.topics = [topic(name)]
    scene.cluster.admin.details = details(topic=name, internal=True)
    await scene.console.open(place)
    await expect(scene.console.page.get_by_text("Partition").first).to_be_visible()
    await expect(scene.console.button("Produce…")).to_have_count(0)


async def test_a_copy_of_a_record_is_produced(scene: Scene) -> None:
    record = Record("sea", 0, 0, 1_000, b"north", b"\xff", (("source", b"gps"),), 3)
    scene.cluster.consumer = FakeConsumer([record])
    await scene.console.open("topics/sea/0/records/0")
    await scene.console.button("Produce a copy…").click()
    await scene.send.click()
    await expect(scene.console.dialog.get_by_role("status")).to_contain_text("The record is in")
    [(value, key, options)] = scene.cluster.producer.sent
    assert (value, key, options["headers"]) == (b"\xff", b"north", (("source", b"gps"),))
