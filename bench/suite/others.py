"""Parts with their own cluster or file: the start of a stopped cluster, rolling restarts, and the
history checker."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from bench import history, restart, rolling
from bench.percentiles import percentile
from bench.report import Measured, at_most
from bench.suite.outcome import Outcome
from bench.suite.progress import Display

MAX_START_S = 5.0
MAX_ROLLING_MS = 1_000.0
MANY_PARTITIONS = 1_000
RESTARTS = 3
DURABILITIES = ("replicated", "synced")


async def start_of_a_cluster(directory: Path, display: Display) -> Outcome:
    display.begin("restart", RESTARTS)
    starts = []
    for number in range(RESTARTS):
        display.step(f"start {number + 1} of a stopped cluster")
        starts.append(
            await restart.seconds_to_serve(directory / f"restart-{number}", MANY_PARTITIONS)
        )
    name = f"start of a stopped cluster, {MANY_PARTITIONS:,} partitions, until all leaders serve"
    return Outcome([at_most(name, median(starts), MAX_START_S, "s")])


async def rolling_restarts(directory: Path, display: Display) -> Outcome:
    display.begin("rolling", len(DURABILITIES))
    results: list[Measured] = []
    for durability in DURABILITIES:
        display.step(durability)
        found = await rolling.rolling_restart(directory / durability, durability)
        latencies = sorted(found.latencies_ms)
        what = f"rolling restart, {durability}"
        results += [
            at_most(f"{what}: slowest send, acks=all", latencies[-1], MAX_ROLLING_MS, "ms"),
            Measured(f"{what}: p99", percentile(latencies, 0.99), "ms"),
            at_most(f"{what}: failed sends", found.failed, 0, ""),
            Measured(f"{what}: slowest stop of a broker", max(found.stop_seconds), "s"),
        ]
    return Outcome(results)


def checked_history(directory: Path, display: Display) -> Outcome:
    display.begin("history", 1)
    display.step("checking")
    return Outcome(history.check(directory))
