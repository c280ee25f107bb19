"""Every page and dialog for assistive technology, by axe, and on a phone. All checks share one page
of the browser. The gateway is real; the cluster behind it is in memory."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from console.axe import findings
from console.console import Console, new_console
from console.gateways import MemoryGateway
from console.pickers import brokers_of
from tidelog.admin_messages import RestartCheck, RestartFinding
from tidelog.client.event_streams import Silent
from tidelog.client.service_states import ReportedStates
from tidelog.inspection.state_reports import Explanation, Finding
from tidelog.model import NO_LEADER, Record
from tidelog.state_changes.event import Cause, Detail, Kind, Stage, StateChange
from tidelog_admin_api import console_files
from unit.admin_api.fake_operations import FakeConsumer, recovery
from unit.admin_api.fakes import FakeCluster, broker, details, operation, partition, topic
from unit.admin_api.test_gateways import LIMITED, controller, gateway_at

SCRIPTS = Path(console_files.__file__).parent / "console" / "app"
DESKTOP, PHONE, SMALL_PHONE = (1440, 900), (390, 844), (360, 640)
# Themes differ in colours alone, so that the other combinations need only one rule.
VIEWS = [(DESKTOP, "light"), (PHONE, "dark")]
COLOURS = [(DESKTOP, "dark"), (PHONE, "light")]
NOW_MS = 1_700_000_000_000
# The least height of what is tapped, in pixels.
TAPPED_PX = 40
LONG_NAME = "orders.of-all-regions.with_a_long_name-" * 4
PLACES = (
    "overview",
    "topics",
    "topics/sea",
    "topics/sea?tab=config",
    "topics/sea/0",
    "topics/sea/1",
    "topics/sea/0/records/5",
    "brokers",
    "moves",
    "moves/op-1",
    "events",
    "records",
    "records?topic=sea&partition=0",
    "records?topic=sea&partition=0&tab=search",
    "no-such-page",
)
# A place, and the button that opens a dialog there.
DIALOGS = (
    ("topics", "Create topic"),
    ("topics/sea", "Produce…"),
    ("topics/sea", "Partitions…"),
    ("topics/sea", "Replicas…"),
    ("topics/sea", "Delete…"),
    ("topics/sea?tab=config", "Change…"),
    ("topics/sea/0", "Change leader…"),
    ("topics/sea/0", "Move replicas…"),
    ("topics/sea/1", "Recover…"),
    ("topics/sea/0/records/5", "Produce a copy…"),
    ("brokers", "Preferred leaders…"),
    ("brokers", "Rebalance…"),
    ("brokers", "Add brokers…"),
    ("brokers", "Scrub now…"),
    ("brokers", "Maintenance of broker 1"),
    ("brokers", "End maintenance of broker 3"),
    ("brokers", "Remove broker 2"),
    ("brokers", "Restart check of broker 1"),
    ("moves", "Move partitions…"),
    ("moves", "Rebalance…"),
    ("moves", "Change…"),
    ("moves/op-1", "Cancel…"),
    ("moves/op-0", "Reverse…"),
    ("records?topic=sea&partition=0", "Produce…"),
    ("records?topic=sea&partition=0", "Open record 0/5"),
    ("overview", "Keyboard shortcuts"),
)
# Buttons in rows of a table, which have the name of the row's broker besides.
NAMED = {
    "Check…": "Restart check of broker 1",
    "End maint…": "End maintenance of broker 3",
    "Maintenance…": "Maintenance of broker 1",
    "Remove…": "Remove broker 2",
}
# How other texts with an ellipsis begin: what goes on, and the choice of nothing.
PROGRESS = ("Checking", "Choose…", "Loading", "Producing", "Working")
_BUTTON = re.compile(r"""[>"]([A-Z][A-Za-z ]*…)["<]""")
# If the page or a dialog scrolls sideways: the elements beyond the right edge.
_TOO_WIDE = """() => [document.documentElement, ...document.querySelectorAll("dialog > .content")]
  .filter((place) => place.scrollWidth > place.clientWidth)
  .flatMap((place) => [place, ...place.querySelectorAll("*")])
  .filter((element, at) => at === 0 || element.getBoundingClientRect().right > innerWidth)
  .map((element) => element.outerHTML.slice(0, 160))"""
# Cells whose text is cut, and is not in a title; and buttons that are not in their table entirely.
_CUT = """() => [...document.querySelectorAll("td, th")]
  .filter((cell) => cell.checkVisibility() && (
    (cell.scrollWidth > cell.clientWidth + 1 && (cell.querySelector("td button")
      || !cell.querySelector("[title]") && !cell.title))
    || [...cell.querySelectorAll("td button")].some((button) =>
      button.getBoundingClientRect().right > cell.getBoundingClientRect().right + 1)))
  .map((cell) => cell.outerHTML.slice(0, 240))"""
_SMALL = """(least) => [...document.querySelectorAll(
    "button, select, textarea, nav a, a.button, label.choice, label.check, summary, "
    + "input:not([type=checkbox], [type=radio])")]
  .filter((element) => element.checkVisibility() && element.closest(".uplot") === null)
  .map((element) => [element.getBoundingClientRect().height, element.outerHTML.slice(0, 120)])
  .filter(([height]) => height > 0 && height < least)"""


def changed(number: int, kind: Kind, cause: Cause, **details: Detail) -> StateChange:
    at_ms = NOW_MS + 1_000 * number
    change = StateChange(at_ms, "controller-1", kind, Stage.COMPLETED, cause)
    return change._replace(topic="sea", partition=0, details=details)


def troubled() -> FakeCluster:
    """A cluster with problems, so that pages have all their parts."""
    cluster = FakeCluster()
    admin = cluster.admin
    lost = partition(1, leader=NO_LEADER, isr=())
    admin.topics = [topic("sea", partition(0, isr=(1, 3)), lost), topic(LONG_NAME)]
    admin.details = details(config=(*details().config, *details().config))
    admin.brokers = [
        broker(1, replicas=7, leaders=3, moves_in=1),
        broker(2, status="gone", gone_at_ms=NOW_MS),
        broker(3, maintenance=True, rack="b"),
        broker(4, removed=True, rack="a-rack-with-a-long-name"),
    ]
    admin.operations = [operation(), operation(operation_id="op-0", state="done", ended_at_ms=9)]
    checked = RestartFinding("sea", 0, "under_min_isr", "1 of 2 replicas would be in sync")
    admin.restart_check = RestartCheck(False, 0, 1, 0, 0, (checked,))
    admin.recoveries = [recovery(1)]
    cluster.events.remembered = [
        changed(0, Kind.ELECTION, Cause.TOPIC_CREATED, leader=1, isr=[1, 2]),
        changed(9, Kind.ISR_SHRINK, Cause.BROKER_CRASHED, leader=1, isr=[1], isr_before=[1, 2]),
    ]
    cluster.events.silent = (Silent("127.0.0.1:7503", "it is gone"),)
    cluster.consumer = FakeConsumer(
        [Record("sea", 0, n, 1_000 + n, b"buoy", b'{"n":1}', (("a", b"b"),), 3) for n in range(8)]
    )
    evidence = ("its lease has ended", "no service reaches it")
    gone = Finding("broker_gone", "critical", "broker 2 is gone", evidence, "Start it.", broker=2)
    late = Finding("replica_out_of_isr", "warning", "sea/0 lacks 2", evidence, "", "sea", 0, 2)
    cluster.explains.explanation = Explanation((gone, late))
    announced = gateway_at("gate:1", 900, limited_clients=(LIMITED,))
    cluster.states.reported = ReportedStates((controller(1, announced),), ())
    return cluster


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def console_of_all(browser: Browser) -> AsyncIterator[Console]:
    gateway = MemoryGateway(troubled().app)
    gateway.start()
    console = await new_console(browser, gateway.url)
    yield console
    await console.close()
    await gateway.stop()


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="session",
    params=[*((place, "") for place in PLACES), *DIALOGS],
    ids=lambda param: " ".join(param).strip(),
)
async def shown(console_of_all: Console, request: pytest.FixtureRequest) -> Console:
    """Each page and dialog, once for all of its tests."""
    await opened(console_of_all, *request.param)
    return console_of_all


async def see(console: Console, view: tuple[tuple[int, int], str]) -> None:
    (width, height), scheme = view
    await console.page.set_viewport_size({"width": width, "height": height})
    await console.page.emulate_media(
        color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce"
    )


async def opened(console: Console, place: str, button: str = "") -> None:
    """Opens a page without a dialog, and then the dialog of the button."""
    close = console.page.get_by_role("button", name="Close", exact=True)
    while await close.count():
        await close.first.click()
    await see(console, VIEWS[0])
    await console.open(place)
    await expect(console.page.get_by_text("Loading…")).to_have_count(0)
    if button:
        await console.button(button).first.click()
        await expect(console.dialog.get_by_text("Loading…")).to_have_count(0)
        await expect(console.dialog.get_by_text("Checking the effects…")).to_have_count(0)
    if button == "Move replicas…":
        await expect(brokers_of(console)).to_be_visible()
    effects = console.button("Show the effects")
    if await effects.count() and await effects.is_enabled():
        await console.dry_run()


async def test_every_button_that_opens_a_dialog_is_pressed() -> None:
    scripts = "".join(path.read_text() for path in SCRIPTS.rglob("*.js"))
    buttons = {text for text in _BUTTON.findall(scripts) if not text.startswith(PROGRESS)}
    assert len(buttons) > 15
    pressed = {button for _, button in DIALOGS}
    assert {NAMED.get(text, text) for text in buttons} - pressed == set()


async def test_axe_finds_nothing(shown: Console) -> None:
    for view in VIEWS:
        await see(shown, view)
        assert (view, await findings(shown.page)) == (view, [])
    for view in COLOURS:
        await see(shown, view)
        assert (view, await findings(shown.page, "color-contrast")) == (view, [])


async def test_no_cell_is_cut_without_its_whole_text_in_a_title(shown: Console) -> None:
    for view in VIEWS:
        await see(shown, view)
        assert (view, await shown.page.evaluate(_CUT)) == (view, [])


async def test_everything_fits_on_a_phone(shown: Console) -> None:
    for size in (PHONE, SMALL_PHONE):
        await see(shown, (size, "light"))
        assert (size, await shown.page.evaluate(_TOO_WIDE)) == (size, [])
        assert (size, await shown.page.evaluate(_SMALL, TAPPED_PX)) == (size, [])


async def test_pages_are_reached_on_a_phone(console_of_all: Console) -> None:
    shown = console_of_all
    await opened(shown, "overview")
    await see(shown, (SMALL_PHONE, "light"))
    pages = shown.page.get_by_role("navigation", name="Pages")
    for name in ("Topics", "Brokers", "Moves", "Events", "Records", "Overview"):
        await pages.get_by_role("link", name=name).click()
        await expect(shown.page.get_by_role("heading", level=1)).to_have_text(name)
        await expect(pages.get_by_role("link", name=name)).to_be_in_viewport(ratio=1)


async def test_a_wide_table_is_scrolled_by_keyboard(console_of_all: Console) -> None:
    shown = console_of_all
    await opened(shown, "brokers")
    await see(shown, (PHONE, "light"))
    table = shown.page.get_by_role("group", name="Brokers", exact=True)
    await expect(table).to_have_attribute("tabindex", "0")
    await table.focus()
    await shown.page.keyboard.press("ArrowRight")
    await expect(table).not_to_have_js_property("scrollLeft", 0)
