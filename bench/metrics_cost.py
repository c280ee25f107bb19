"""What metrics cost: processor seconds of three brokers for each GB that is produced with
acks=all and replicated, with metrics on and scraped, and with metrics off, by turns."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rich.console import Console

from bench import produce
from bench.idle import cpu_seconds
from bench.report import Measured
from bench.scrape import read
from tidelog.client import Producer
from tidelog_runtime.config import METRICS_OFF
from tidelog_runtime.local.cluster import LocalCluster

PAIRS = 10
BYTES_A_RUN = 300_000_000
# Three times as often as Prometheus' default.
SCRAPE_INTERVAL_S = 5.0
WANTED_RATIO = 1.03
TOPIC = "cost"


async def cpu_seconds_per_gb(cluster: LocalCluster) -> float:
    """Of all brokers together."""
    pids = [broker.pid for broker in cluster.describe().brokers if broker.pid is not None]
    values = [bytes(produce.RECORD_BYTES)] * (produce.BATCH_BYTES // produce.RECORD_BYTES)
    async with Producer(cluster.bootstrap, batch_bytes=produce.BATCH_BYTES) as producer:
        for partition in range(produce.PARTITIONS):
            await (await producer.send_many(TOPIC, values, partition=partition))
        before = sum(map(cpu_seconds, pids))
        for number in range(BYTES_A_RUN // produce.BATCH_BYTES):
            await producer.send_many(TOPIC, values, partition=number % produce.PARTITIONS)
        await producer.flush()
        spent = sum(map(cpu_seconds, pids)) - before
    return spent / (BYTES_A_RUN / 1e9)


@asynccontextmanager
async def scraped(cluster: LocalCluster) -> AsyncIterator[None]:
    """As Prometheus would; nothing where metrics are off."""
    addresses = [broker.metrics for broker in cluster.describe().brokers if broker.metrics]

    async def go_on() -> None:
        while True:
            for address in addresses:
                await asyncio.to_thread(read, address)
            await asyncio.sleep(SCRAPE_INTERVAL_S)

    scraping = asyncio.create_task(go_on())
    try:
        yield
    finally:
        scraping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await scraping


async def cost(directory: Path, console: Console) -> list[Measured]:
    clusters = {
        "on": LocalCluster(directory / "metrics-on", usual_ports=False),
        "off": LocalCluster(
            directory / "metrics-off",
            usual_ports=False,
            broker_config={"metrics_listen": METRICS_OFF},
            controller_config={"metrics_listen": METRICS_OFF},
        ),
    }
    try:
        for cluster in clusters.values():
            await cluster.start()
            await cluster.ready()
            await produce.create_topic(cluster.bootstrap, TOPIC, 3)
        ratios, found = [], dict[str, list[float]](on=[], off=[])
        for pair in range(PAIRS):
            for name in ("on", "off") if pair % 2 == 0 else ("off", "on"):
                async with scraped(clusters[name]):
                    found[name].append(await cpu_seconds_per_gb(clusters[name]))
            ratios.append(found["on"][-1] / found["off"][-1])
            console.print(
                f"  metrics, pair {pair + 1}: on {found['on'][-1]:.2f}, off "
                f"{found['off'][-1]:.2f} CPU s/GB, ratio {ratios[-1]:.3f}"
            )
    finally:
        for cluster in clusters.values():
            await cluster.stop()
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
            wanted=f"<= {WANTED_RATIO}",
            met=ratio <= WANTED_RATIO,
        ),
        Measured("metrics: on / off, least", round(min(ratios), 4), ""),
        Measured("metrics: on / off, most", round(max(ratios), 4), ""),
    ]
