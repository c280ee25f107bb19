"""Charts show the history from before their page was opened, and tables of topics their figures.

The gateway is real; the cluster behind it is in memory, and the history of the gateway is given."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

import pytest_asyncio
from playwright.async_api import Browser, Locator, expect

from console.console import Console, new_console
from console.gateways import MemoryGateway
from tidelog.client.service_states import ReportedStates
from tidelog.inspection.state_reports import FollowerProgress, LeaderState
from tidelog_admin_api.history import Sample
from tidelog_admin_api.history_figures import Key, broker_key, lag_key, topic_key
from unit.admin_api.fakes import FakeCluster, broker, topic
from unit.admin_api.test_gateways import controller
from unit.inspection.test_topic_sizes import broker as reporting
from unit.inspection.test_topic_sizes import replica

# The clock of the cluster in memory does not advance: 2023-11-14 22:13:21 UTC.
NOW_MS = 1_700_000_001_000
MINUTE_MS = 60_000
TOPICS = {"bay": 5, "sea": 300, "sky": 20}


class Scene(NamedTuple):
    console: Console
    cluster: FakeCluster


def reported(topics: Mapping[str, int]) -> ReportedStates:
    """Broker 1 leads all topics, which have these numbers of records of 1 KiB."""
    leader = LeaderState(followers=[FollowerProgress(2, lag_records=0)])
    led = [
        replica(
            0,
            leads=True,
            topic_id=f"id-of-{name}",
            log_end_offset=10 + records,
            size_bytes=records << 10,
            leader=leader,
        )
        for name, records in topics.items()
    ]
    return ReportedStates([reporting(1, *led), controller(1)], ())


def given_history() -> list[Sample]:
    """A sample every ten seconds of the last half hour, without those from minute 8 to 6."""
    samples = []
    for before_ms in range(30 * MINUTE_MS, 0, -10_000):
        if 6 * MINUTE_MS < before_ms < 8 * MINUTE_MS:
            continue
        minute = before_ms // MINUTE_MS
        figures: dict[Key, float] = {
            ("records_per_second",): 100 + minute,
            ("bytes_per_second",): 2_048 * minute,
            ("under_replicated",): 7 if minute == 12 else 0,
            ("without_leader",): 0,
            ("max_lag_records",): 40,
            topic_key("records_per_second", "id-of-sea"): 50,
            topic_key("total_bytes", "id-of-sea"): 3 << 20,
            topic_key("leader_bytes", "id-of-sea"): 1 << 20,
        }
        figures |= {broker_key("log_bytes", n): n << 30 for n in (1, 2, 3)}
        lags: dict[Key, float] = {lag_key("id-of-sea", 0, n): 10 * n for n in (2, 3)}
        follows = before_ms != 6 * MINUTE_MS
        samples.append(Sample(NOW_MS - before_ms, follows, figures, lags))
    return samples


@pytest_asyncio.fixture(loop_scope="session")
async def scene(browser: Browser) -> AsyncIterator[Scene]:
    cluster = FakeCluster()
    cluster.admin.topics = [topic(name) for name in TOPICS]
    cluster.admin.brokers = [broker(n) for n in (1, 2, 3)]
    cluster.states.reported = reported(TOPICS)
    gateway = MemoryGateway(cluster.app)
    gateway.start()
    for sample in given_history():
        gateway.app.state.gateway.sampler.history.add(sample)
    console = await new_console(browser, gateway.url)
    yield Scene(console, cluster)
    await console.close()
    await gateway.stop()
    assert console.faults == []


def chart(console: Console, name: str) -> Locator:
    return console.page.get_by_role("img", name=name)


async def point_at(plot: Locator, share: float) -> None:
    """Moves the pointer to this share of the plot's width."""
    over = plot.locator(".u-over")
    box = await over.bounding_box()
    assert box is not None
    await over.hover(position={"x": box["width"] * share, "y": box["height"] / 2})


async def test_a_chart_has_points_from_before_the_page_was_opened(scene: Scene) -> None:
    await scene.console.open("overview")
    rates = chart(scene.console, "Records written")
    await point_at(rates, 1 / 15)
    await expect(rates).to_contain_text("114/s")
    out_of_sync = chart(scene.console, "Partitions out of sync")
    await point_at(out_of_sync, 2.5 / 15)
    await expect(out_of_sync).to_contain_text("7")


async def test_a_gap_has_no_value(scene: Scene) -> None:
    await scene.console.open("overview")
    rates = chart(scene.console, "Records written")
    await point_at(rates, 8 / 15)
    await expect(rates).to_contain_text("–")


async def test_the_shown_time_can_be_chosen_and_is_kept(scene: Scene) -> None:
    page = scene.console.page
    await scene.console.open("overview")
    await expect(page.get_by_text("since 14 Nov 21:43:21")).to_have_count(0)
    await scene.console.button("1 h").click()
    await expect(page.get_by_text("since 14 Nov 21:43:21")).to_be_visible()
    await page.reload()
    await expect(scene.console.button("1 h")).to_have_attribute("aria-pressed", "true")


async def test_new_samples_continue_a_shown_chart(scene: Scene) -> None:
    await scene.console.open("topics/sea")
    size = chart(scene.console, "Size")
    await expect(size).to_have_attribute("aria-label", re.compile("Leaders: 300 KiB"))
    await point_at(size, 1 / 15)
    await expect(size).to_contain_text("1.0 MiB")
    scene.cluster.states.reported = reported({**TOPICS, "sea": 500})
    await expect(size).to_have_attribute("aria-label", re.compile("Leaders: 500 KiB"))


async def test_a_partition_shows_the_past_lag_of_each_follower(scene: Scene) -> None:
    await scene.console.open("topics/sea/0")
    lag = chart(scene.console, "Lag of each follower in records")
    await point_at(lag, 1 / 15)
    await expect(lag).to_contain_text(re.compile("Broker 1.*–.*Broker 2.*20.*Broker 3.*30"))


async def test_the_page_of_brokers_has_a_line_for_each(scene: Scene) -> None:
    await scene.console.open("brokers")
    data = chart(scene.console, "Data in logs")
    await point_at(data, 1 / 15)
    await expect(data).to_contain_text(re.compile("Broker 1.*1.0 GiB.*Broker 3.*3.0 GiB"))


async def test_topics_are_sorted_by_their_figures_and_have_sums(scene: Scene) -> None:
    await scene.console.open("topics")
    rows = scene.console.page.get_by_role("table", name="Topics").get_by_role("row")
    await expect(rows.nth(1)).to_contain_text("bay")
    sums = scene.console.page.get_by_label("Sums")
    # Brokers 2 and 3 do not report their replicas.
    await expect(sums).to_contain_text("3 topics · 325 records · ≥ 325 KiB on disk")
    await scene.console.button("Records").click()
    await scene.console.button("Records ↑").click()
    await expect(rows.nth(1)).to_contain_text(re.compile("sea.*300.*≥ 300 KiB"))
    await expect(rows.nth(3)).to_contain_text(re.compile("bay.*5.*≥ 5.0 KiB"))
