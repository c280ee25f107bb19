"""`python -m bench`: throughput in pairs with the ceiling, latency, memory, start, an idle
cluster, rolling restart. `python -m bench idle`, `rolling` or `history` (the checker on a
million operations): that alone.

`python -m bench scrape` and `metrics-cost` measure metrics, into files of their own."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import uvloop
from rich.console import Console

from bench import history, idle, memory, metrics_cost, produce, report, restart, rolling, scrape
from bench.noop import ceiling_mb_per_second, noop_server
from bench.report import Measured
from tidelog_runtime.local.cluster import LocalCluster

WANTED_RATIO = {1: 0.35, 3: 1 / 6}
WANTED_P50_MS = 5.0
WANTED_RSS_MB = 200.0
WANTED_START_S = 5.0
WANTED_ROLLING_MS = 1000.0
LATENCY_SAMPLES = 1000
MANY_PARTITIONS = 1000
RESTARTS = 3
# What is measured alone has `out/<name>.json`.
OWN_FILES = ("scrape", "metrics-cost")


async def throughput(
    cluster: LocalCluster, replication_factor: int, pairs: int, seconds: float, console: Console
) -> list[Measured]:
    topic = f"bench-rf{replication_factor}"
    await produce.create_topic(cluster.bootstrap, topic, replication_factor)
    ceilings, values, ratios = [], [], []
    async with noop_server() as address:
        for pair in range(pairs):
            ceiling = await ceiling_mb_per_second(address, produce.BATCH_BYTES, seconds)
            value = await produce.mb_per_second(cluster.bootstrap, topic, seconds)
            ceilings.append(ceiling)
            values.append(value)
            ratios.append(value / ceiling)
            console.print(
                f"  factor {replication_factor}, pair {pair + 1}: ceiling {ceiling:.0f} MB/s, "
                f"Tidelog {value:.0f} MB/s, ratio {value / ceiling:.2f}"
            )
    wanted = WANTED_RATIO[replication_factor]
    ratio = produce.median(ratios)
    return [
        Measured(
            f"gRPC ceiling C, 64 KiB (beside factor {replication_factor})",
            round(produce.median(ceilings), 1),
            "MB/s",
        ),
        Measured(
            f"produce, acks=all, replication factor {replication_factor}",
            round(produce.median(values), 1),
            "MB/s",
            round(ratio, 3),
            f">= {wanted:.2f} C",
            ratio >= wanted,
        ),
    ]


async def latency(cluster: LocalCluster) -> list[Measured]:
    found = await produce.latencies_ms(cluster.bootstrap, "bench-rf3", LATENCY_SAMPLES)
    p50 = produce.percentile(found, 0.5)
    await produce.create_topic(cluster.bootstrap, "bench-synced", 3, {"durability": "synced"})
    synced = await produce.latencies_ms(cluster.bootstrap, "bench-synced", LATENCY_SAMPLES)
    return [
        Measured(
            "one record in flight, acks=all, factor 3: p50",
            round(p50, 2),
            "ms",
            wanted=f"<= {WANTED_P50_MS:.0f}",
            met=p50 <= WANTED_P50_MS,
        ),
        Measured("one record in flight: p99", round(produce.percentile(found, 0.99), 2), "ms"),
        Measured(
            "one record in flight, durability synced: p50",
            round(produce.percentile(synced, 0.5), 2),
            "ms",
        ),
    ]


async def rolling_restarts(directory: Path, console: Console) -> list[Measured]:
    results = []
    for durability in ("replicated", "synced"):
        found = await rolling.rolling_restart(directory / durability, durability)
        latencies = sorted(found.latencies_ms)
        stops = ", ".join(f"{seconds:.2f}" for seconds in found.stop_seconds)
        console.print(
            f"  rolling restart, {durability}: {len(latencies):,} sends, p99 "
            f"{produce.percentile(latencies, 0.99):.0f} ms, brokers stopped within {stops} s"
        )
        results += [
            Measured(
                f"rolling restart, acks=all, factor 3, {durability}: slowest send",
                round(latencies[-1], 1),
                "ms",
                wanted=f"<= {WANTED_ROLLING_MS:.0f}",
                met=latencies[-1] <= WANTED_ROLLING_MS,
            ),
            Measured(
                f"rolling restart, {durability}: failed sends",
                found.failed,
                "",
                wanted="0",
                met=found.failed == 0,
            ),
        ]
    return results


def most_memory(cluster: LocalCluster) -> Measured:
    pids = [broker.pid for broker in cluster.describe().brokers]
    most = max(memory.rss_mb(pid, "VmHWM") for pid in pids if pid is not None)
    return Measured(
        "broker memory under load, largest of three (peak RSS)",
        round(most, 1),
        "MB",
        wanted=f"<= {WANTED_RSS_MB:.0f}",
        met=most <= WANTED_RSS_MB,
    )


async def idle_cluster(directory: Path) -> list[Measured]:
    one = await idle.cpu_percent(directory / "idle-one", 1)
    many = await idle.cpu_percent(directory / "idle-many", MANY_PARTITIONS)
    return [
        Measured("idle broker, 1 partition, factor 3: processor", round(one, 2), "% of a core"),
        Measured(
            f"idle broker, {MANY_PARTITIONS:,} partitions, factor 3: processor",
            round(many, 2),
            "% of a core",
        ),
    ]


async def run(arguments: argparse.Namespace, directory: Path, console: Console) -> list[Measured]:
    results: list[Measured] = []
    if arguments.what == "scrape":
        return await scrape.scrapes(directory, console)
    if arguments.what == "metrics-cost":
        return await metrics_cost.cost(directory, console)
    if arguments.what == "all":
        results += await figures(arguments, directory, console)
    if arguments.what in ("all", "idle"):
        results += await idle_cluster(directory)
    if arguments.what in ("all", "rolling"):
        results += await rolling_restarts(directory, console)
    if arguments.what in ("all", "history"):
        results += history.check(directory)
    return results


async def figures(
    arguments: argparse.Namespace, directory: Path, console: Console
) -> list[Measured]:
    results: list[Measured] = []
    cluster = LocalCluster(directory / "throughput", usual_ports=False)
    await cluster.start()
    try:
        await cluster.ready()
        for factor in (3, 1):
            results += await throughput(
                cluster, factor, arguments.pairs, arguments.seconds, console
            )
        results += await latency(cluster)
        results.append(most_memory(cluster))
    finally:
        await cluster.stop()
    starts = []
    for number in range(RESTARTS):
        took = await restart.seconds_to_serve(directory / f"restart-{number}", MANY_PARTITIONS)
        starts.append(took)
        console.print(f"  start of a stopped cluster, {MANY_PARTITIONS:,} partitions: {took:.2f} s")
    seconds = produce.median(starts)
    results.append(
        Measured(
            f"start of a stopped cluster, {MANY_PARTITIONS:,} partitions, to all leaders serving",
            round(seconds, 2),
            "s",
            wanted=f"<= {WANTED_START_S:.0f}",
            met=seconds <= WANTED_START_S,
        )
    )
    return results


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "what", nargs="?", choices=("all", "idle", "rolling", "history", *OWN_FILES), default="all"
    )
    parser.add_argument("--pairs", type=int, default=5, help="pairs of ceiling and Tidelog")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of one measurement")
    arguments = parser.parse_args()
    console = Console()
    directory = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))
    try:
        results = uvloop.run(run(arguments, directory, console))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    name = arguments.what if arguments.what in OWN_FILES else "bench"
    keep_others = arguments.what in ("idle", "rolling", "history")
    report.write(results, Path("out") / f"{name}.json", keep_others=keep_others)
    report.show(results, console)
    return 0 if all(result.met is not False for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
