"""Metrics are recorded and rendered for a scrape."""

from __future__ import annotations

import asyncio
import threading

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tidelog.state_changes.event import Kind, Stage, StateChange
from tidelog_runtime.telemetry.metrics.broker_catalogue import BROKER_METRICS
from tidelog_runtime.telemetry.metrics.http_server import Exposition, LoopCollector
from tidelog_runtime.telemetry.metrics.metric import Metric, counter, gauge, histogram
from tidelog_runtime.telemetry.metrics.recording import Counts, HistogramFamily
from tidelog_runtime.telemetry.metrics.service_catalogue import STATE_CHANGE_DURATION
from tidelog_runtime.telemetry.metrics.service_metrics import LoopWatch, StateChangeMetrics
from tidelog_runtime.telemetry.metrics.snapshot import MetricsSnapshot
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

SENT = counter("tidelog_sent_total", "Sent.", "Look.", ("to",), [("a",), ("b",)], bound=1)
DEPTH = gauge("tidelog_depth", "Depth.", "Look.", ("of",), bound=2)
TIME = histogram("tidelog_time_seconds", "Time.", "Look.", (0.1, 1.0))
BUILD = ("broker-1", "default", "0.1.0")


class ManualClock:
    def monotonic_ms(self) -> int:
        return 1

    def wall_ms(self) -> int:
        return 1


async def nothing(snapshot: MetricsSnapshot) -> None:
    pass


def collector(metrics: tuple[Metric, ...] = BROKER_METRICS) -> LoopCollector:
    return LoopCollector(metrics, nothing, LoopWatch(lambda: 1.0), BUILD)


def test_a_counter_has_its_fixed_series_before_the_first_count() -> None:
    assert Counts(SENT).values == {("a",): 0, ("b",): 0}


def test_a_counter_takes_no_more_series_than_its_bound() -> None:
    counts = Counts(SENT)

    for label in ("c", "d", "c"):
        counts.add(label)

    assert counts.values == {("a",): 0, ("b",): 0, ("c",): 2}


@pytest.mark.parametrize(
    ("seconds", "cumulative"),
    [(0.05, [1, 1, 1]), (0.1, [1, 1, 1]), (0.5, [0, 1, 1]), (5, [0, 0, 1])],
)
def test_a_bucket_includes_its_bound(seconds: float, cumulative: list[int]) -> None:
    durations = HistogramFamily(TIME)

    durations.of().observe(seconds)

    assert durations.of().cumulative() == cumulative
    assert durations.of().total == seconds


def test_a_snapshot_omits_and_counts_series_beyond_the_bound() -> None:
    snapshot = MetricsSnapshot([DEPTH])

    for label in ("a", "b", "c"):
        snapshot.set(DEPTH, 1, label)

    assert snapshot.values["tidelog_depth"] == {("a",): 1, ("b",): 1}
    assert snapshot.left_out == 1


def test_an_uncatalogued_metric_is_rejected() -> None:
    with pytest.raises(KeyError):
        MetricsSnapshot([DEPTH]).set(SENT, 1, "a")


def test_a_value_with_missing_labels_is_rejected() -> None:
    with pytest.raises(ValueError, match="labels"):
        MetricsSnapshot([DEPTH]).set(DEPTH, 1)


def test_every_counter_and_histogram_of_a_broker_starts_at_zero() -> None:
    snapshot = MetricsSnapshot(BROKER_METRICS)

    snapshot.begin()

    reported = {name: set(series) for name, series in snapshot.values.items()}
    reported |= {name: set(series) for name, series in snapshot.distributions.items()}
    beginning = {m.name: set(m.series) for m in BROKER_METRICS if m.type.value != "gauge"}
    assert reported == beginning
    assert not any(value for series in snapshot.values.values() for value in series.values())


def test_a_state_change_is_counted_by_kind_and_stage_and_timed_where_a_duration_is_kept() -> None:
    log = StateChangeLog("controller-1", ManualClock())
    meter = StateChangeMetrics(log, STATE_CHANGE_DURATION.of([("election", "completed")]))
    for stage in (Stage.REQUESTED, Stage.COMPLETED):
        log.add(StateChange(1, "controller-1", Kind.ELECTION, stage, duration_ms=20))
    snapshot = MetricsSnapshot(BROKER_METRICS)

    meter.write_to(snapshot)

    counted = snapshot.values["tidelog_state_changes_total"]
    assert counted[("election", "requested")] == 1
    assert counted[("election", "completed")] == 1
    assert sum(counted.values()) == 2
    duration = snapshot.distributions["tidelog_state_change_duration_seconds"]
    assert duration[("election", "completed")].total == 0.02


def test_a_state_change_without_a_duration_is_counted_and_not_timed() -> None:
    log = StateChangeLog("controller-1", ManualClock())
    meter = StateChangeMetrics(log, STATE_CHANGE_DURATION.of([("election", "completed")]))
    log.add(StateChange(1, "controller-1", Kind.ELECTION, Stage.COMPLETED))
    snapshot = MetricsSnapshot(BROKER_METRICS)

    meter.write_to(snapshot)

    durations = snapshot.distributions["tidelog_state_change_duration_seconds"]
    assert sum(durations[("election", "completed")].counts) == 0


def test_dropped_events_are_counted() -> None:
    log = StateChangeLog("controller-1", ManualClock())
    meter, snapshot = (
        StateChangeMetrics(log, STATE_CHANGE_DURATION),
        MetricsSnapshot(BROKER_METRICS),
    )

    log.dropped = 3
    meter.write_to(snapshot)

    assert snapshot.values["tidelog_events_dropped_total"] == {(): 3}


async def test_a_scrape_has_the_values_of_the_loop_in_prometheus_format() -> None:
    async def collect(snapshot: MetricsSnapshot) -> None:
        assert threading.current_thread() is threading.main_thread()
        snapshot.set(DEPTH, 3, "a")
        counts, durations = Counts(SENT), HistogramFamily(TIME)
        counts.add("b", amount=2)
        durations.of().observe(0.5)
        snapshot.set_counters(counts)
        snapshot.set_histograms(durations)

    metrics = (*(m for m in BROKER_METRICS if not m.labels), BROKER_METRICS[0], DEPTH, SENT, TIME)
    own = LoopCollector(metrics, collect, LoopWatch(lambda: 1.0), BUILD)
    own.loop = asyncio.get_running_loop()
    registry = CollectorRegistry()
    registry.register(own)

    text = (await asyncio.to_thread(generate_latest, registry)).decode()

    lines = text.splitlines()
    assert "# HELP tidelog_depth Depth. Look." in lines
    assert 'tidelog_depth{of="a"} 3.0' in lines
    assert 'tidelog_sent_total{to="a"} 0.0' in lines
    assert 'tidelog_sent_total{to="b"} 2.0' in lines
    assert 'tidelog_time_seconds_bucket{le="0.1"} 0.0' in lines
    assert 'tidelog_time_seconds_bucket{le="1.0"} 1.0' in lines
    assert 'tidelog_time_seconds_bucket{le="+Inf"} 1.0' in lines
    assert "tidelog_time_seconds_sum 0.5" in lines
    build = 'tidelog_build_info{cluster="default",service="broker-1",version="0.1.0"} 1.0'
    assert build in lines
    assert not [line for line in lines if "_created" in line]
    assert list(text_string_to_metric_families(text))


async def test_scrapes_at_the_same_time_on_the_loop_share_one_collection() -> None:
    collected: list[MetricsSnapshot] = []

    async def collect(snapshot: MetricsSnapshot) -> None:
        collected.append(snapshot)

    exposition = Exposition(BROKER_METRICS, collect, LoopWatch(lambda: 1.0), BUILD)
    scrapes = [asyncio.create_task(exposition.text()) for _ in range(50)]
    await asyncio.sleep(0)
    scrapes.pop(0).cancel()
    assert len(set(await asyncio.gather(*scrapes))) == 1
    assert len(collected) == 1
    await exposition.text()
    assert len(collected) == 2


def test_a_scrape_without_a_responding_loop_reports_only_that() -> None:
    reported = {family.name: family.samples[0].value for family in collector().collect()}

    assert reported.keys() == {
        "tidelog_build_info",
        "tidelog_event_loop_silent_seconds",
        "tidelog_scrape_timeouts",
        "tidelog_scrape_collection_seconds",
    }
    assert reported["tidelog_scrape_timeouts"] == 1


def test_a_loop_with_an_overdue_timer_is_unresponsive_since_it_was_due() -> None:
    now = [10.0]
    watch = LoopWatch(lambda: now[0])

    now[0] = 14.0

    assert watch.silent_seconds == 4.0
