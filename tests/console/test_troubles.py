"""The console with answers that come late or not at all. The gateway is real; the cluster behind it
is in memory."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, expect

from console.console import Console, new_console
from console.gateways import MemoryGateway
from tidelog.admin_messages import Plan, RestartCheck, RestartFinding
from tidelog.client.descriptions import PartitionDescription
from tidelog.client.event_streams import Silent
from tidelog.errors import ErrorCode, TidelogError, unknown_partition, unknown_topic
from tidelog.model import NO_LEADER, Record
from tidelog.rpc.status import UnreachableError
from tidelog.state_changes.event import Kind, Stage, StateChange
from tidelog_admin_api.limits import Usage
from unit.admin_api.fake_operations import FakeConsumer, recovery
from unit.admin_api.fakes import NO_PASS, FakeCluster, broker, operation, partition, topic

# By the cluster's clock; the browser's clock is years ahead.
NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
# How long brokers may take to describe their logs while a user waits for the dialog.
LOOK_AT_RECOVERY_MS = 5_000
CHECK_PAUSE_SECONDS = 0.2
# The status of the whole page; parts of it have their own in small letters.
AS_OF = re.compile(r"^As of \d")
MAX_CHECKS = 500
# Makes the page see its tab as hidden, or as visible again.
_TURN = """(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def leaderless(partition_id: int) -> PartitionDescription:
    return partition(partition_id, leader=NO_LEADER, isr=())


@dataclass
class Scene:
    cluster: FakeCluster
    gateway: MemoryGateway
    console: Console

    def send_created(self, topic: str) -> None:
        """Sends the event that the topic was created."""
        change = StateChange(NOW_MS, "controller-1", Kind.TOPIC_CREATION, Stage.COMPLETED)
        self.cluster.events.batches.put_nowait([change._replace(topic=topic)])

    def shown(self, topic: str) -> Locator:
        return self.console.page.get_by_role("link", name=topic, exact=True)

    @property
    def streams(self) -> int:
        """The number of open streams."""
        usage: Usage = self.gateway.app.state.gateway.usage
        return usage.streams

    async def until_streams(self, expected: int) -> None:
        for _ in range(MAX_CHECKS):
            if self.streams == expected:
                return
            await asyncio.sleep(CHECK_PAUSE_SECONDS)
        pytest.fail(f"{self.streams} streams are open, and not {expected}")


@pytest_asyncio.fixture(loop_scope="session")
async def scene(browser: Browser) -> AsyncIterator[Scene]:
    """The browser's log lines of rejected requests are no fault here."""
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
    await console.dry_run()
    await console.button("Create it").click()
    behind = "Topic slack is created. Broker 3 has yet to start its replicas."
    await expect(console.page.get_by_role("status").get_by_text(behind)).to_be_visible()


async def test_a_partition_is_found_among_many_that_have_no_leader(scene: Scene) -> None:
    last = 149
    scene.cluster.admin.topics = [topic("sea", *(leaderless(n) for n in range(last + 1)))]
    scene.cluster.admin.recoveries = [recovery(n) for n in range(last + 1)]
    await scene.console.open(f"topics/sea/{last}")
    await scene.console.button("Recover…").click()
    await expect(scene.console.dialog).to_contain_text("The partition waits for broker 1 or 2")
    described = ("describe_recovery", ("sea", [last], LOOK_AT_RECOVERY_MS))
    assert described in [call[:2] for call in scene.cluster.admin.calls]


WITHOUT_CONTROLLER = TidelogError(
    ErrorCode.REQUEST_TIMED_OUT,
    "the request was not answered in time; the last problem: no active controller is known",
)


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("topics/sea", "Durability"),
        ("topics/sea/0", "High watermark"),
        ("brokers", "127.0.0.1:7501"),
        ("moves/op-1", "Requested from"),
    ],
)
async def test_a_page_shows_its_age_and_why_it_is_not_up_to_date(
    scene: Scene, place: str, shown: str
) -> None:
    page = scene.console.page
    main = page.get_by_role("main")
    scene.cluster.admin.operations = [operation()]
    await scene.console.open(place)
    await expect(main.get_by_text(shown).first).to_be_visible()
    scene.cluster.admin.rejection = WITHOUT_CONTROLLER
    await expect(main.get_by_role("alert").first).to_contain_text("no active controller is known")
    await expect(main.get_by_text(AS_OF)).to_be_visible()
    await expect(main.get_by_text(shown).first).to_be_visible()
    scene.cluster.admin.rejection = None
    await expect(main.get_by_role("alert")).to_have_count(0)
    await expect(main.get_by_text(AS_OF)).to_have_count(0)


async def test_a_topic_deleted_by_another_user_keeps_no_buttons(scene: Scene) -> None:
    await scene.console.open("topics/sea")
    await scene.console.button("Partitions…").click()
    await expect(scene.console.dialog).to_be_visible()
    scene.cluster.admin.rejection = unknown_topic("sea")
    main = scene.console.page.get_by_role("main")
    await expect(main.get_by_text("Not found", exact=True)).to_be_visible()
    for name in ("Partitions…", "Replicas…", "Delete…"):
        await expect(scene.console.button(name)).to_have_count(0)
    await expect(scene.console.dialog).to_have_count(0)


async def test_only_the_object_that_was_shown_is_deleted_or_cancelled(scene: Scene) -> None:
    admin, console = scene.cluster.admin, scene.console
    admin.operations = [operation()]
    await console.open("moves/op-1")
    await console.button("Cancel…").click()
    await console.button("Cancel and revert").click()
    await expect(console.dialog).to_have_count(0)
    expected = {"expected_revision": admin.operations[0].revision}
    assert ("plan_cancellation", ("op-1",), expected) in admin.calls
    assert ("cancel_operation", ("op-1",), expected) in admin.calls

    await console.open("topics/sea")
    await console.button("Delete…").click()
    await console.page.get_by_label("Type sea to confirm").fill("sea")
    await console.button("Delete it with its data").click()
    await expect(console.dialog).to_have_count(0)
    deleted = next(named for name, _, named in admin.calls if name == "delete_topic")
    assert deleted["expected_revision"] == admin.details.revision


async def test_the_rollback_of_marks_is_shown_before_a_cancellation(scene: Scene) -> None:
    goes_back = "besides the moves, broker 3 is not marked as removed any more"
    scene.cluster.admin.operations = [operation()]
    scene.cluster.admin.cancellation = Plan((), 0, 0, 0, None, (), (goes_back,))
    await scene.console.open("moves/op-1")
    await scene.console.button("Cancel…").click()
    await expect(scene.console.plan).to_contain_text("0 active moves would be reverted")
    await expect(scene.console.plan).to_contain_text(goes_back)


async def test_partitions_are_added_where_the_plan_showed(scene: Scene) -> None:
    admin, console = scene.cluster.admin, scene.console
    await console.open("topics/sea")
    await console.button("Partitions…").click()
    await console.page.get_by_label("Partitions in all").fill("7")
    await console.dry_run()
    await expect(console.plan).to_contain_text("sea/6")
    await console.button("Add them").click()
    added = "sea has 7 partitions. Broker 3 has yet to start its replicas."
    await expect(console.page.get_by_text(added)).to_be_visible()
    requested = [named for name, _, named in admin.calls if name == "add_partitions"]
    assert requested[0]["dry_run"]
    assert list(requested[-1]["assignment"]) == [[1, 2]]  # type: ignore[call-overload]


async def test_a_restart_check_says_that_its_list_is_incomplete(scene: Scene) -> None:
    findings = [RestartFinding("sea", n, "leader_moves", "broker 2 leads then") for n in range(150)]
    scene.cluster.admin.restart_check = RestartCheck(True, 0, 0, 0, 150, tuple(findings))
    await scene.console.open("brokers")
    await scene.console.button("Restart check of broker 1").click()
    await expect(scene.console.dialog).to_contain_text("150 partitions led by another broker")
    await expect(scene.console.dialog).to_contain_text("The worst 100 are shown.")


async def test_the_scrub_of_each_broker_is_shown(scene: Scene) -> None:
    silent = "127.0.0.1:7502"
    scene.cluster.admin.brokers = [broker(1), broker(2)]
    scene.cluster.scrub.progress["127.0.0.1:7501"] = replace(
        NO_PASS, running=True, full_rate=True, pass_bytes=250, damage_found=3
    )
    scene.cluster.scrub.rejections[silent] = UnreachableError(silent, "it refuses connections")
    await scene.console.open("brokers")
    panel = scene.console.page.get_by_role("region", name="Scrub", exact=True)
    one, two = panel.get_by_role("row").nth(1), panel.get_by_role("row").nth(2)
    await expect(one).to_contain_text("full rate")
    await expect(one.get_by_role("progressbar")).to_be_visible()
    await expect(one.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "25")
    # Damaged batches, and diverged ranges.
    await expect(one.get_by_role("cell").nth(4)).to_have_text("3")
    await expect(one.get_by_role("cell").nth(5)).to_have_text("0")
    await expect(two).to_contain_text("no answer")
    await expect(two).to_contain_text("it refuses connections")


async def test_a_scrub_begins_on_the_brokers_that_were_chosen(scene: Scene) -> None:
    console, scrub = scene.console, scene.cluster.scrub
    scene.cluster.admin.brokers = [broker(1)]
    scrub.progress["127.0.0.1:7501"] = replace(NO_PASS, running=True)
    await console.open("brokers")
    await console.button("Scrub now…").click()
    await console.dialog.get_by_label("At full rate").check()
    await console.dry_run()
    await expect(console.plan).to_contain_text("replace the pass in progress on broker 1")
    assert not any(begin for _, begin, _ in scrub.calls)
    await console.button("Scrub now").click()
    begun = console.page.get_by_role("status").get_by_text("A new pass has begun on 1 broker.")
    await expect(begun).to_be_visible()
    assert ("127.0.0.1:7501", True, True) in scrub.calls


async def test_damaged_records_are_left_out_and_named(scene: Scene) -> None:
    records = [Record("sea", 0, n, 1_000 + n, None, b"calm", (), 1) for n in range(10)]
    scene.cluster.consumer = FakeConsumer(records)
    scene.cluster.consumer.damaged = [(3, 5)]
    await scene.console.open("records?topic=sea&partition=0")
    page = scene.console.page
    await expect(page.get_by_text("8 records", exact=True)).to_be_visible()
    note = page.get_by_role("status").filter(has_text="damaged on the last disk")
    await expect(note).to_contain_text("partition 0, offsets 3 to 4")


async def test_a_slow_answer_is_announced_before_it_arrives(scene: Scene) -> None:
    page = scene.console.page
    await scene.console.open("brokers")
    await expect(page.get_by_title("127.0.0.1:7501").first).to_be_visible()
    # No service answers.
    await page.route("**/v1/brokers?*", lambda _: None)
    await expect(page.get_by_text("there has been no answer since")).to_be_visible()
    await expect(page.get_by_title("127.0.0.1:7501").first).to_be_visible()
    await expect(page.get_by_text("not up to date")).to_be_visible()


async def test_a_stream_continues_after_the_gateway_was_away_and_rejected_it(scene: Scene) -> None:
    live = scene.console.page.get_by_text("live", exact=True)
    await scene.console.open("events")
    await expect(live).to_be_visible()
    scene.send_created("flood")
    await expect(scene.shown("flood")).to_be_visible()

    refused = scene.console.page.wait_for_event(
        "response", lambda answer: "/stream" in answer.url and answer.status == 503
    )
    waiting = asyncio.ensure_future(refused)
    await scene.gateway.stop()
    await expect(scene.console.page.get_by_text("connection lost")).to_be_visible()
    scene.cluster.events.is_silent = True
    scene.gateway.start()
    await waiting
    scene.cluster.events.is_silent = False
    await expect(live).to_be_visible()
    scene.send_created("squall")
    await expect(scene.shown("squall")).to_be_visible()
    await expect(scene.shown("flood")).to_be_visible()


async def test_a_clock_that_is_ahead_hides_no_events(scene: Scene) -> None:
    await scene.console.open("events")
    await expect(scene.console.page.get_by_text("live", exact=True)).to_be_visible()
    assert await scene.console.page.evaluate("Date.now()") > NOW_MS + HOUR_MS
    scene.send_created("ripple")
    await expect(scene.shown("ripple")).to_be_visible()


async def test_events_are_shown_once_the_cluster_answers(scene: Scene) -> None:
    scene.cluster.events.is_silent = True
    await scene.console.open("events")
    problem = scene.console.page.get_by_role("alert")
    await expect(problem).to_contain_text("it is gone")
    scene.cluster.events.is_silent = False
    await expect(scene.console.page.get_by_text("live", exact=True)).to_be_visible()
    await expect(problem).to_have_count(0)


async def test_a_hidden_tab_has_no_stream(scene: Scene) -> None:
    page = scene.console.page
    await scene.console.open("events")
    await scene.until_streams(1)
    await page.evaluate(_TURN, True)
    await scene.until_streams(0)
    await page.evaluate(_TURN, False)
    await scene.until_streams(1)
    await expect(page.get_by_text("live", exact=True)).to_be_visible()


async def test_a_service_without_an_answer_is_shown_for_a_while(scene: Scene) -> None:
    page = scene.console.page
    await page.clock.install()
    await scene.console.open("events")
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    scene.cluster.events.batches.put_nowait([Silent("127.0.0.1:7501", "it refuses connections")])
    note = page.get_by_text("127.0.0.1:7501 does not answer: it refuses connections")
    await expect(note).to_be_visible()
    await page.clock.fast_forward("01:30")
    await expect(note).to_have_count(0)


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("topics/none", unknown_topic("none")),
        ("topics/sea/99", unknown_partition("sea", 99, 3)),
        ("moves/none", TidelogError(ErrorCode.UNKNOWN_OPERATION, "no operation has the id none")),
        ("events?topic=none", unknown_topic("none")),
    ],
)
async def test_unknown_objects_are_not_found(scene: Scene, place: str, error: TidelogError) -> None:
    scene.cluster.admin.rejection = error
    main = scene.console.page.get_by_role("main")
    await scene.console.open(place)
    await expect(main.get_by_text("Not found", exact=True)).to_be_visible()
    await expect(main.get_by_text("not found", exact=True)).to_be_visible()
    await expect(main.get_by_text(error.message)).to_be_visible()
    for word in ("live", "trying again", "Loading"):
        await expect(main.get_by_text(word)).to_have_count(0)


async def test_records_of_a_topic_that_does_not_exist_are_not_found(scene: Scene) -> None:
    main = scene.console.page.get_by_role("main")
    await scene.console.open("records?topic=none")
    await expect(main.get_by_text("Not found", exact=True)).to_be_visible()
    await expect(main.get_by_text("There is no topic none.")).to_be_visible()


@pytest.mark.parametrize(
    "place",
    [
        "topics/sea/first",
        "topics/sea/0/more",
        "moves/none/more",
        *(f"{page}/9" for page in ("overview", "brokers", "events", "records", "none")),
    ],
)
async def test_an_address_that_names_no_page_is_no_page(scene: Scene, place: str) -> None:
    await scene.console.open(place)
    await expect(scene.console.page.get_by_text("There is no such page")).to_be_visible()


@pytest.mark.parametrize(
    "place",
    [
        *("overview", "topics", "topics/sea", "topics/sea/0", "brokers", "moves", "events"),
        *("moves/op-1", "records?topic=sea"),
    ],
)
async def test_a_page_over_a_silent_gateway_is_not_live(scene: Scene, place: str) -> None:
    page = scene.console.page
    main = page.get_by_role("main")
    scene.cluster.admin.operations = [operation()]
    await scene.console.open(place)
    await expect(main.get_by_text("live", exact=True)).to_be_visible()
    # It accepts connections and answers nothing, like a paused process.
    await page.route("**/v1/**", lambda _: None)
    await expect(main.get_by_text("not up to date, trying again")).to_be_visible()
    await expect(main.get_by_text("live", exact=True)).to_have_count(0)
    await expect(page.get_by_text("Gateway does not answer")).to_be_visible()


async def test_a_page_without_any_answer_is_not_live(scene: Scene) -> None:
    page = scene.console.page
    await page.route("**/v1/**", lambda _: None)
    await scene.console.open("topics")
    await expect(page.get_by_role("main").get_by_text("connecting", exact=True)).to_be_visible()
    await expect(page.get_by_text("not up to date, trying again")).to_be_visible()
