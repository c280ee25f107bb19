"""The faults of a real cluster while a real Prometheus scrapes it.

The cluster is healthy at first. Then a partition is moved, a follower is paused for a while, a
broker is killed and started again, and finally the active controller is killed."""

from __future__ import annotations

import asyncio
import random
import time
import urllib.request
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beside import beside
from integration.load import load
from integration.topics import create_topic, describe, new_name, until_in_sync, write
from integration.waiting import until, until_true
from monitoring import grafana
from monitoring.grafana import PanelQuery
from monitoring.prometheus import SCRAPE_SECONDS, Prometheus, QueryError, Series
from tidelog.admin_messages import Move
from tidelog.client import Admin, Consumer
from tidelog.model import TopicPartition
from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.local.cluster_file import Setting

TOPIC, PARTITIONS = "sea", 6
# The replica whose lag is checked in detail.
LAGGING = TopicPartition(TOPIC, 0)

# Long enough for an alert to fire without a reason.
HEALTHY_SECONDS = 12.0
# An alert fires when its wait is over: 15 s in the worst case.
FIRING_SECONDS = 75.0
HEALED_SECONDS = 60.0
LINGER_SECONDS = 2.0

# About four seconds.
MOVED_RECORDS = 100
MOVED_BYTES_PER_SECOND = 250_000

# The leaders of a paused broker remove it from their ISRs before its lease ends, and both happen
# before an alert for stalled high watermarks would fire.
BROKERS: Mapping[str, Setting] = {"lease_ttl_seconds": 6, "replica_lag_time_max_ms": 3_000}
# Another controller takes over before the alert for a missing active controller would fire.
CONTROLLERS: Mapping[str, Setting] = {"lease_ttl_seconds": 2}

# The step that Grafana chooses at this scrape interval.
RATE_INTERVAL = f"{4 * SCRAPE_SECONDS}s"


@dataclass(frozen=True, slots=True)
class Phase:
    """Begin and end, in seconds since the epoch."""

    start: float
    end: float


# An alert's name, and its subject: a service, a follower, or empty.
Alert = tuple[str, str]


@dataclass(slots=True)
class Story:
    """What happened, and when.

    `paused` and `killed`: ids of brokers.
    `replaced`: the id of a controller.
    `missed`: the records of LAGGING, by what the leader had committed, that the paused broker
    lacked at the end of its pause."""

    cluster: str = ""
    healthy: Phase = Phase(0, 0)
    pause: Phase = Phase(0, 0)
    kill: Phase = Phase(0, 0)
    takeover: Phase = Phase(0, 0)
    whole: Phase = Phase(0, 0)
    paused: int = 0
    killed: int = 0
    replaced: int = 0
    missed: int = 0
    scrapes: dict[str, str] = field(default_factory=dict)
    alerts: dict[Alert, dict[str, Any]] = field(default_factory=dict)
    expressions: dict[str, str] = field(default_factory=dict)
    answers: dict[str, list[Series] | QueryError] = field(default_factory=dict)


def expected_while_gone(broker_id: int) -> set[Alert]:
    """The alerts of a cluster of three brokers and topics with three replicas while one broker does
    not answer."""
    return {
        ("TidelogServiceDown", f"broker-{broker_id}"),
        ("TidelogReplicationLag", str(broker_id)),
        ("TidelogPartitionsAtMinIsr", ""),
        ("TidelogPartitionsUnderReplicated", ""),
    }


def expected_while_replaced(controller_id: int) -> set[Alert]:
    return {("TidelogServiceDown", f"controller-{controller_id}")}


def name_of(labels: dict[str, str]) -> Alert:
    whom = labels.get("service") or labels.get("follower") or labels.get("broker") or ""
    return labels["alertname"], whom


async def run_story(directory: Path) -> tuple[Story, Prometheus]:
    """Runs the story. Afterwards the cluster has stopped, and Prometheus still runs for further
    queries."""
    story = Story(cluster=f"test-{uuid.uuid4().hex[:8]}")
    cluster = LocalCluster(
        directory / "cluster",
        cluster=story.cluster,
        broker_config=BROKERS,
        controller_config=CONTROLLERS,
        usual_ports=False,
        rng=random.Random(),
    )
    prometheus: Prometheus | None = None
    try:
        await cluster.start()
        await cluster.ready()
        await create_topic(cluster, TOPIC, PARTITIONS)
        # Prometheus starts first, so that no process of the cluster takes its port.
        prometheus = Prometheus(directory / "prometheus", cluster.directory)
        # Not in a thread: a process that a thread starts ends with that thread.
        prometheus.process.start()
        await asyncio.to_thread(prometheus.until_ready)
        async with load(cluster, TOPIC), _reading(cluster):
            began = time.time()
            await asyncio.sleep(HEALTHY_SECONDS)
            story.healthy = Phase(began, time.time())
            story.scrapes = await asyncio.to_thread(_scrape, cluster)
            for chapter in (
                _a_partition_moves,
                _a_follower_is_paused,
                _a_broker_is_killed,
                _a_controller_is_killed,
            ):
                await chapter(story, cluster, prometheus)
            story.whole = Phase(story.healthy.start, time.time())
        await asyncio.to_thread(_query_all, story, prometheus)
    except BaseException:
        if prometheus is not None:
            await prometheus.process.stop()
        raise
    finally:
        await cluster.stop()
    return story, prometheus


async def _a_partition_moves(story: Story, cluster: LocalCluster, prometheus: Prometheus) -> None:
    """Slowly enough that several scrapes see the move."""
    del story, prometheus
    name = new_name("moved")
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic(name, 1, 2)
        await write(
            cluster, name, [random.Random(n).randbytes(10_000) for n in range(MOVED_RECORDS)]
        )
        stays, leaves = (await describe(cluster, name)).partitions[0].replicas
        [added] = set(cluster.broker_ids) - {stays, leaves}
        await admin.set_throttle(MOVED_BYTES_PER_SECOND)
        begun = (await admin.reassign([Move(name, 0, (stays, added))])).operation
        assert begun is not None

        async def is_done() -> bool:
            return (await admin.describe_operation(begun.operation_id)).state == "done"

        await until(is_done, f"operation {begun.operation_id} is done", HEALED_SECONDS)
        await admin.set_throttle(None)
        await admin.delete_topic(name)


async def _a_follower_is_paused(
    story: Story, cluster: LocalCluster, prometheus: Prometheus
) -> None:
    leader, follower = (await describe(cluster, TOPIC)).partitions[0].replicas[:2]
    story.paused, story.killed = follower, leader
    end_then = await _committed(cluster, LAGGING)
    began = time.time()
    cluster.pause(follower)
    try:
        await _until_firing(story, prometheus, expected_while_gone(follower))
        story.pause = Phase(began, time.time())
        story.missed = await _committed(cluster, LAGGING) - end_then
    finally:
        cluster.resume(follower)
    await until_in_sync(cluster, TOPIC, HEALED_SECONDS)
    await _until_silent(prometheus)


async def _a_broker_is_killed(story: Story, cluster: LocalCluster, prometheus: Prometheus) -> None:
    began = time.time()
    await cluster.kill(story.killed)
    # Administrative requests have panels as well; they go to the brokers that run.
    await until(lambda: _is_gone(cluster, story.killed), f"broker {story.killed} is gone")
    await _create_and_delete(cluster)
    await _until_firing(story, prometheus, expected_while_gone(story.killed))
    story.kill = Phase(began, time.time())
    cluster.start_broker(story.killed)
    await until_in_sync(cluster, TOPIC, HEALED_SECONDS)
    await _until_silent(prometheus)


async def _is_gone(cluster: LocalCluster, broker_id: int) -> bool:
    async with Admin(cluster.bootstrap) as admin:
        described = await admin.describe_cluster()
    return all(broker.broker_id != broker_id for broker in described.brokers)


async def _a_controller_is_killed(
    story: Story, cluster: LocalCluster, prometheus: Prometheus
) -> None:
    active = await cluster.active_controller()
    assert active is not None
    story.replaced = active
    began = time.time()
    await cluster.kill_controller(active)
    await _until_firing(story, prometheus, expected_while_replaced(active))
    story.takeover = Phase(began, time.time())
    cluster.start_controller(active)
    await _until_silent(prometheus)


def _scrape(cluster: LocalCluster) -> dict[str, str]:
    """The metrics of every service, by its name."""
    parts = cluster.describe()
    addresses = {f"controller-{part.id}": part.metrics for part in parts.controllers}
    addresses |= {f"broker-{part.id}": part.metrics for part in parts.brokers}
    scrapes = {}
    for service, address in addresses.items():
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            scrapes[service] = answer.read().decode()
    return scrapes


async def _committed(cluster: LocalCluster, name: TopicPartition) -> int:
    async with Consumer(cluster.bootstrap) as consumer:
        return (await consumer.end_offsets([name]))[name]


async def _create_and_delete(cluster: LocalCluster) -> None:
    name = new_name("short-lived")
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic(name, 1, 2)
        await write(cluster, name, [b"one"])
        await admin.delete_topic(name)


async def _until_firing(story: Story, prometheus: Prometheus, expected: Iterable[Alert]) -> None:
    def all_fire() -> bool:
        for alert in prometheus.firing():
            story.alerts[name_of(alert["labels"])] = alert
            seen.add(name_of(alert["labels"]))
        return set(expected) <= seen

    seen: set[Alert] = set()
    await _until(all_fire, f"all of these fire: {sorted(expected)}", FIRING_SECONDS)
    # Polls the last target again, and lets an unexpected alert fire.
    await asyncio.sleep(LINGER_SECONDS)


async def _until_silent(prometheus: Prometheus) -> None:
    await _until(lambda: not prometheus.firing(), "no alert fires", HEALED_SECONDS)


async def _until(check: Callable[[], bool], what: str, timeout_seconds: float) -> None:
    """Polls in a thread, at Prometheus' own scrape interval."""
    seen = False

    async def ask() -> None:
        nonlocal seen
        while not seen:
            seen = await asyncio.to_thread(check)
            await asyncio.sleep(SCRAPE_SECONDS)

    asking = asyncio.create_task(ask())
    try:
        await until_true(lambda: seen or asking.done(), what, timeout_seconds)
    finally:
        asking.cancel()
    if asking.done() and not asking.cancelled():
        asking.result()


@asynccontextmanager
async def _reading(cluster: LocalCluster) -> AsyncIterator[None]:
    """Consumes everything that is written."""
    async with Consumer(cluster.bootstrap) as consumer:
        await consumer.assign_topic(TOPIC)

        async def read() -> None:
            while True:
                await consumer.poll()

        async with beside(read()):
            yield


def _query_all(story: Story, prometheus: Prometheus) -> None:
    """Sends every query of every panel for the whole story, as Grafana does."""
    phase = story.whole
    values = {
        name: grafana.variables(
            name,
            story.cluster,
            RATE_INTERVAL,
            lambda selector: prometheus.series(selector, phase.start, phase.end),
        )
        for name in grafana.DASHBOARDS
    }
    for query in grafana.queries():
        story.expressions[query.place] = expr = put_in(query, values[query.dashboard])
        try:
            answer = prometheus.query_range(expr, phase.start, phase.end)
        except QueryError as error:
            story.answers[query.place] = error
        else:
            story.answers[query.place] = answer


def put_in(query: PanelQuery, values: dict[str, str]) -> str:
    return grafana.put_in(query.expr, values)
