"""The cost of a scrape for a broker, and for the active controller, with very many partitions
(`PYTHONPATH=tests python -m bench.scrape`): series, and the time until the last byte is read.

The metrics are collected from real replicas with real logs, and served by the real server, in a
process that does nothing else: once with all followers caught up, and once with a dead follower, so
that every partition is unhealthy and lags."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import NamedTuple

from rich.console import Console

from bench.report import Measured, run_alone
from doubles.memory_store import MemoryStore
from tidelog.batch import new_batch
from tidelog.inspection.state_reports import BrokerBacklog
from tidelog.model import Acks, Codec, TopicPartition
from tidelog_broker.core.partition.exchange import FetchPosition
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.producer_state import CrowdedOut
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.disk import OsDisk
from tidelog_broker.metrics.broker_metrics import BrokerMetrics
from tidelog_broker.metrics.collector import BrokerCollector
from tidelog_broker.metrics.replica_metrics import HighWatermarkChecks
from tidelog_broker.metrics.vitals import BrokerVitals
from tidelog_broker.storage.disk_use import DiskUse
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_broker.storage.scrub_state import ScrubState
from tidelog_controller.metrics.controller_metrics import ControllerMetrics
from tidelog_controller.state.context import Context
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.measured_store import MeasuredStore
from tidelog_runtime.metadata.schema import (
    LeaderAndIsr,
    Member,
    TopicEntry,
    encode,
    encode_leader_and_isr,
)
from tidelog_runtime.metadata.store import Changed, KeyValue
from tidelog_runtime.telemetry.metrics.broker_catalogue import BROKER_METRICS
from tidelog_runtime.telemetry.metrics.controller_catalogue import CONTROLLER_METRICS
from tidelog_runtime.telemetry.metrics.http_server import Collect, MetricsServer
from tidelog_runtime.telemetry.metrics.metric import Metric
from tidelog_runtime.telemetry.metrics.service_metrics import LoopWatch
from tidelog_runtime.telemetry.state_change_log import StateChangeLog
from tidelog_runtime.topic_config import TopicConfig

PARTITIONS = 10_000
TOPICS = 200
SCRAPES = 10
PAUSE_S = 0.2
MAX_SERIES = 2_000
MAX_MS = 200.0
BROKERS = (1, 2, 3)
DEAD = 3
KEYS = Keys("bench")
CLOCK = SystemClock()
BUILD = ("bench", "bench", "0")


def read(address: str) -> tuple[float, str]:
    """Returns the milliseconds that a scrape takes, and its answer."""
    began = time.perf_counter()
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as response:
        text = response.read().decode()
    return (time.perf_counter() - began) * 1000, text


def series_of(text: str) -> int:
    return sum(1 for line in text.splitlines() if line and not line.startswith("#"))


async def measure(what: str, metrics: Sequence[Metric], collect: Collect) -> list[Measured]:
    server = MetricsServer(metrics, collect, LoopWatch(time.monotonic), BUILD)
    address = server.start("127.0.0.1", 0)
    times, processor_times, most = [], [], 0
    try:
        for _ in range(SCRAPES):
            processor = time.process_time()
            took, text = await asyncio.to_thread(read, address)
            times.append(took)
            processor_times.append((time.process_time() - processor) * 1000)
            most = max(most, series_of(text))
            await asyncio.sleep(PAUSE_S)
    finally:
        server.stop()
    median = statistics.median(times)
    return [
        Measured(f"{what}: series", most, "", target=f"<= {MAX_SERIES:,}", met=most <= MAX_SERIES),
        Measured(
            f"{what}: scrape, median of {SCRAPES}",
            round(median, 1),
            "ms",
            target=f"<= {MAX_MS:.0f}",
            met=median <= MAX_MS,
        ),
        Measured(f"{what}: scrape, slowest", round(max(times), 1), "ms"),
        # Includes the reader's time; the duration of a scrape on an idle machine.
        Measured(
            f"{what}: scrape, processor, median", round(statistics.median(processor_times), 1), "ms"
        ),
    ]


def key(in_sync: Sequence[int]) -> LeaderAndIsr:
    return LeaderAndIsr(
        topic_id=_topic_id(0),
        replicas=BROKERS,
        controller_epoch=1,
        leader=1,
        leader_epoch=1,
        isr=tuple(Member(broker, 100 + broker) for broker in in_sync),
        eligible=(),
        min_isr=2,
    )


def _name(number: int) -> TopicPartition:
    return TopicPartition(f"topic-{number % TOPICS}", number // TOPICS)


def _topic_id(number: int) -> str:
    return f"{number % TOPICS:022d}"


# -- a broker ------------------------------------------------------------------------------


class _Listener:
    def _ignore(self, _: Partition) -> None: ...

    log_grew = sync_needed = high_watermark_moved = log_start_moved = _ignore
    leadership_ended = followers_forgotten = isr_needs_evaluation = _ignore


class Replicas:
    """Replicas that all lead, with two batches each; `fetch` acts as their followers."""

    def __init__(self, directory: Path) -> None:
        self._logs = LogDirectory(OsDisk(), PurePath(directory), CLOCK)
        self._logs.open_all()
        self._partitions = [self._new(number) for number in range(PARTITIONS)]

    def all(self) -> Sequence[Partition]:
        return self._partitions

    def _new(self, number: int) -> Partition:
        name, topic_id = _name(number), _topic_id(number)
        log = self._logs.open_replica(name, ReplicaKey(topic_id, name.partition), TopicConfig())
        partition = Partition(name, topic_id, 1, log, high_watermark=0, listener=_Listener())
        partition.take(key(BROKERS), 10, broker_epoch=101, now_ms=CLOCK.monotonic_ms())
        self._append(partition)
        self._append(partition)
        return partition

    def _append(self, partition: Partition) -> None:
        batch = new_batch(
            bytes(1024), codec=Codec.NONE, record_count=10, base_timestamp_ms=1, max_timestamp_ms=1
        )
        partition.append([batch], Acks.LEADER, CLOCK.wall_ms())

    def fetch(self, *, dead: bool) -> None:
        for partition in self._partitions:
            for follower in BROKERS[1:]:
                behind = dead and follower == DEAD
                offset = 10 if behind else partition.log.log_end_offset
                position = FetchPosition(1, 1, offset, 1, offset, 0)
                partition.replica_fetch(follower, 100 + follower, position, CLOCK.monotonic_ms())

    def shrink(self) -> None:
        for partition in self._partitions:
            partition.take(key(BROKERS[:2]), 11, broker_epoch=101, now_ms=CLOCK.monotonic_ms())


class MeasuredBroker(NamedTuple):
    store: MeasuredStore
    collector: BrokerCollector

    def has_topic(self, topic: str) -> bool:  # noqa: ARG002 - all counted topics exist
        return True


async def no_disk() -> DiskUse:
    return DiskUse(0, 0)


def _measured_store(state_changes: StateChangeLog) -> MeasuredStore:
    return MeasuredStore(MemoryStore(CLOCK), KEYS.cluster, CLOCK, state_changes)


async def broker_scrapes(directory: Path) -> list[Measured]:
    replicas = Replicas(directory)
    state_changes = StateChangeLog("broker-1", CLOCK)
    metrics = BrokerMetrics(state_changes, time.perf_counter)
    for number in range(TOPICS):
        metrics.requests.topic(f"topic-{number}")
    checks = HighWatermarkChecks(lambda _: True, lambda _: True)
    vitals = BrokerVitals(
        lambda: True, lambda: True, {}, checks, no_disk, CrowdedOut, int, {}, int, ScrubState
    )
    collector = BrokerCollector(replicas, vitals, CLOCK)
    broker = MeasuredBroker(_measured_store(state_changes), collector)
    collect: Collect = partial(metrics.collect, broker)
    many = f"broker that leads {PARTITIONS:,} partitions"
    replicas.fetch(dead=False)
    results = await measure(many, BROKER_METRICS, collect)
    replicas.shrink()
    replicas.fetch(dead=True)
    return results + await measure(f"{many}, a follower dead", BROKER_METRICS, collect)


# -- a controller --------------------------------------------------------------------------


class Term:
    is_loaded = True

    def __init__(self, in_sync: Sequence[int]) -> None:
        self.context = Context(KEYS)
        for number in range(TOPICS):
            entry = TopicEntry(_topic_id(number), PARTITIONS // TOPICS, len(BROKERS))
            self._absorb(KEYS.topic(f"topic-{number}"), encode(entry))
        for number in range(PARTITIONS):
            value = encode_leader_and_isr(key(in_sync))
            self._absorb(KEYS.leader_and_isr(_name(number)), value)

    def _absorb(self, name: str, value: bytes) -> None:
        self.context.absorb(Changed(name, KeyValue(name, value, 1, 1), 1))

    def backlogs(self) -> Sequence[BrokerBacklog]:
        return [BrokerBacklog(broker, 100 + broker, 0, 0, overdue=False) for broker in BROKERS]

    def queues(self) -> Mapping[str, int]:
        return {}


class Active:
    def __init__(self, term: Term) -> None:
        self.term = term

    def described_gateways(self) -> tuple[()]:
        return ()


async def controller_scrapes() -> list[Measured]:
    state_changes = StateChangeLog("controller-1", CLOCK)
    metrics = ControllerMetrics(_measured_store(state_changes), state_changes, time.perf_counter)
    results = []
    for in_sync, what in ((BROKERS, ""), (BROKERS[:2], ", a broker dead")):
        collect: Collect = partial(metrics.collect, Active(Term(in_sync)))
        name = f"controller of {PARTITIONS:,} partitions{what}"
        results += await measure(name, CONTROLLER_METRICS, collect)
    return results


async def scrapes(directory: Path, console: Console) -> list[Measured]:
    console.print(f"  {PARTITIONS:,} logs are created, and scraped {SCRAPES} times")
    return [*await broker_scrapes(directory), *await controller_scrapes()]


if __name__ == "__main__":
    sys.exit(run_alone("scrape", scrapes))
