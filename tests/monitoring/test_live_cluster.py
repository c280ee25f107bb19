"""A real Prometheus on a real cluster: every panel has data, and exactly the expected alerts
fire."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitoring import grafana
from monitoring.prometheus import Prometheus, QueryError, Series
from monitoring.story import (
    LAGGING,
    Phase,
    Story,
    expected_while_gone,
    expected_while_replaced,
    name_of,
    run_story,
)

# The story alone takes a minute and a half.
pytestmark = pytest.mark.timeout(420)

RESULTS = Path(__file__).parents[2] / "out/dashboards.json"
# Covers the scrape interval, the long poll of a fetch, and other load on the machine.
TOLERANCE_SECONDS = 4.0
# The records in flight when the pause began, and those of one or two scrapes.
TOLERANCE_RECORDS = 300

PLACES = [query.place for query in grafana.queries() if not query.is_of_spark]


@pytest.fixture(scope="module")
def finished_story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Story, Prometheus]]:
    story, prometheus = asyncio.run(run_story(tmp_path_factory.mktemp("monitoring")))
    write_results(story)
    try:
        yield story, prometheus
    finally:
        asyncio.run(prometheus.process.stop())


@pytest.fixture
def story(finished_story: tuple[Story, Prometheus]) -> Story:
    return finished_story[0]


@pytest.fixture
def prometheus(finished_story: tuple[Story, Prometheus]) -> Prometheus:
    return finished_story[1]


@pytest.mark.parametrize("place", PLACES)
def test_a_query_of_a_panel_has_data(story: Story, place: str) -> None:
    answer = story.answers[place]

    assert not isinstance(answer, QueryError), answer
    assert answer, f"nothing is found by {story.expressions[place]}"


def test_the_lag_panel_shows_for_how_long_the_follower_was_paused(story: Story) -> None:
    lags = by_label(of(story, "replication-lag: Replication lag by broker A"), "follower")
    pause = story.pause

    assert at_end(lags[str(story.paused)], pause) == pytest.approx(
        pause.end - pause.start, abs=TOLERANCE_SECONDS
    )


def test_the_lag_panel_shows_that_no_other_follower_was_behind(story: Story) -> None:
    lags = by_label(of(story, "replication-lag: Replication lag by broker A"), "follower")

    for follower, series in lags.items():
        if follower != str(story.paused):
            assert at_end(series, story.pause) < TOLERANCE_SECONDS


def test_the_lag_panel_shows_how_many_records_the_paused_follower_lacked(story: Story) -> None:
    lags = of(story, "replication-lag: Highest replication lag in records A")
    labels = {
        "topic": LAGGING.topic,
        "partition": str(LAGGING.partition),
        "follower": str(story.paused),
    }
    [series] = [series for series in lags if series.labels == labels]

    assert at_end(series, story.pause) == pytest.approx(story.missed, abs=TOLERANCE_RECORDS)
    assert story.missed > TOLERANCE_RECORDS


def test_the_lag_is_gone_when_the_cluster_has_healed(story: Story) -> None:
    for series in of(story, "replication-lag: Replication lag by broker A"):
        assert series.last < TOLERANCE_SECONDS


def test_no_alert_fires_in_a_healthy_cluster(story: Story, prometheus: Prometheus) -> None:
    assert firing(prometheus, story.healthy) == set()


def test_a_paused_follower_fires_exactly_its_alerts(story: Story, prometheus: Prometheus) -> None:
    assert firing(prometheus, story.pause) == expected_while_gone(story.paused)


def test_a_killed_broker_fires_exactly_its_alerts(story: Story, prometheus: Prometheus) -> None:
    assert firing(prometheus, story.kill) == expected_while_gone(story.killed)


def test_a_controller_replaced_in_time_causes_no_alert_beyond_its_own_absence(
    story: Story, prometheus: Prometheus
) -> None:
    assert firing(prometheus, story.takeover) == expected_while_replaced(story.replaced)


def test_no_other_alert_fires_at_any_time(story: Story, prometheus: Prometheus) -> None:
    expected = (
        expected_while_gone(story.paused)
        | expected_while_gone(story.killed)
        | expected_while_replaced(story.replaced)
    )

    assert firing(prometheus, story.whole) <= expected


def test_an_alert_describes_the_problem_and_the_command_to_run(story: Story) -> None:
    alert_texts = story.alerts["TidelogReplicationLag", str(story.killed)]["annotations"]

    assert f"Broker {story.killed} of {story.cluster} is " in alert_texts["summary"]
    assert f"`tidelog explain broker {story.killed}`" in alert_texts["runbook"]


@pytest.mark.parametrize("service", ["controller-1", "controller-2", "broker-1"])
def test_promtool_accepts_the_metrics_of_a_service(story: Story, service: str) -> None:
    run = subprocess.run(
        ["promtool", "check", "metrics"],
        input=story.scrapes[service],
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stdout + run.stderr


# -- reading the results ------------------------------------------------------------------------


def of(story: Story, place: str) -> list[Series]:
    answer = story.answers[place]
    assert not isinstance(answer, QueryError), answer
    return answer


def by_label(found: list[Series], label: str) -> dict[str, Series]:
    return {series.labels[label]: series for series in found}


def at_end(series: Series, phase: Phase) -> float:
    within = [value for at, value in series.points if phase.start <= at <= phase.end]
    assert within, f"{series.labels} has no point between {phase.start} and {phase.end}"
    return within[-1]


def firing(prometheus: Prometheus, phase: Phase) -> set[tuple[str, str]]:
    found = prometheus.query_range('ALERTS{alertstate="firing"}', phase.start, phase.end)
    return {name_of(dict(series.labels)) for series in found}


def write_results(story: Story) -> None:
    """Writes one row for each query: how many series it found, and the largest and last value of
    any series."""
    rows = []
    for query in grafana.queries():
        answer = story.answers[query.place]
        row: dict[str, object] = {
            "dashboard": query.dashboard,
            "panel": query.panel,
            "query": story.expressions[query.place],
        }
        if isinstance(answer, QueryError):
            row["error"] = str(answer)
        elif answer:
            row["series"] = len(answer)
            row["largest"] = max(series.largest for series in answer)
            row["last"] = max(answer, key=lambda series: series.points[-1][0]).last
        else:
            row["series"] = 0
        rows.append(row)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(rows, indent=2) + "\n")
