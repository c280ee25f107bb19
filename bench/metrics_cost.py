"""The cost of metrics (`python -m bench.metrics_cost`).

Processor seconds of three brokers for each GB that is produced with acks=all and replicated, with
metrics on and scraped, and with metrics off.

Each pair has two new clusters, because two equal clusters differ by some percent for as long as
they run. Within a pair the load alternates between them in small pieces, so that other load of the
machine affects both."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import statistics
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from rich.console import Console

from bench.process_figures import cpu_seconds
from bench.report import Measured, run_alone
from bench.scrape import read
from bench.suite.bed import retention
from bench.suite.matrix import BATCH_BYTES
from tidelog.client import Admin, Producer
from tidelog_runtime.config import METRICS_OFF
from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.local.cluster_file import Setting

PAIRS = 10
# The load of one cluster in one pair: pieces, and the batches of each; 300 MB in total.
PIECES = 10
BATCHES_A_PIECE = 460
SCRAPE_INTERVAL_S = 15.0
MAX_RATIO = 1.03
TOPIC = "cost"
PARTITIONS = 6
RECORD_BYTES = 1024


async def send(producer: Producer, batches: int) -> None:
    values = [bytes(RECORD_BYTES)] * (BATCH_BYTES // RECORD_BYTES)
    for number in range(batches):
        await producer.send_many(TOPIC, values, partition=number % PARTITIONS)
    await producer.flush()


def brokers_cpu_seconds(cluster: LocalCluster) -> float:
    pids = [broker.pid for broker in cluster.describe().brokers if broker.pid is not None]
    return sum(map(cpu_seconds, pids))


@asynccontextmanager
async def scraped(cluster: LocalCluster) -> AsyncIterator[None]:
    """Scrapes the brokers during the context, as Prometheus does."""
    addresses = [broker.metrics for broker in cluster.describe().brokers if broker.metrics]

    async def scrape_repeatedly() -> None:
        while True:
            for address in addresses:
                await asyncio.to_thread(read, address)
            await asyncio.sleep(SCRAPE_INTERVAL_S)

    scraping = asyncio.create_task(scrape_repeatedly())
    try:
        yield
    finally:
        scraping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await scraping


@asynccontextmanager
async def sending(
    directory: Path,
    broker_config: Mapping[str, Setting],
    controller_config: Mapping[str, Setting] | None = None,
) -> AsyncIterator[tuple[LocalCluster, Producer]]:
    """Yields a new cluster with a topic, and a producer whose logs and connections are open."""
    cluster = LocalCluster(
        directory,
        usual_ports=False,
        broker_config=broker_config,
        controller_config=controller_config,
    )
    try:
        await cluster.start()
        await cluster.ready()
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, PARTITIONS, 3, retention(PARTITIONS))
        async with Producer(cluster.bootstrap, batch_bytes=BATCH_BYTES) as producer:
            await send(producer, BATCHES_A_PIECE)
            yield cluster, producer
    finally:
        await cluster.stop()
        await asyncio.to_thread(shutil.rmtree, directory)


async def one_pair(directory: Path, pair: int) -> dict[str, float]:
    """Returns processor seconds a GB with metrics "on" and "off". The first one alternates."""
    unmeasured = {"metrics_listen": METRICS_OFF}
    async with (
        sending(directory / f"on-{pair}", {}) as on,
        sending(directory / f"off-{pair}", unmeasured, unmeasured) as off,
        scraped(on[0]),
    ):
        sides = {"on": on, "off": off}
        order = sorted(sides, reverse=pair % 2 == 1)
        before = {name: brokers_cpu_seconds(sides[name][0]) for name in order}
        for _ in range(PIECES):
            for name in order:
                await send(sides[name][1], BATCHES_A_PIECE)
        gb = PIECES * BATCHES_A_PIECE * BATCH_BYTES / 1e9
        return {name: (brokers_cpu_seconds(sides[name][0]) - before[name]) / gb for name in order}


async def cost(directory: Path, console: Console) -> list[Measured]:
    ratios, found = [], dict[str, list[float]](on=[], off=[])
    for pair in range(PAIRS):
        for name, value in (await one_pair(directory, pair)).items():
            found[name].append(value)
        ratios.append(found["on"][-1] / found["off"][-1])
        console.print(
            f"  metrics, pair {pair + 1}: on {found['on'][-1]:.2f}, off "
            f"{found['off'][-1]:.2f} CPU s/GB, ratio {ratios[-1]:.3f}"
        )
    ratio = statistics.median(ratios)
    return [
        *(
            Measured(
                f"metrics {name}: processor of three brokers, produced and replicated",
                round(statistics.median(values), 3),
                "s/GB",
            )
            for name, values in found.items()
        ),
        Measured(
            f"metrics: processor on / off, median of {PAIRS} alternated pairs",
            round(ratio, 4),
            "",
            target=f"<= {MAX_RATIO}",
            met=ratio <= MAX_RATIO,
        ),
        Measured("metrics: on / off, least", round(min(ratios), 4), ""),
        Measured("metrics: on / off, most", round(max(ratios), 4), ""),
    ]


if __name__ == "__main__":
    sys.exit(run_alone("metrics-cost", cost))
