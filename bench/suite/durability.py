"""`synced` topics, in which a record counts once it is on the disks, compared with `replicated`
topics: with one record in flight, and with many, which share syncs (group commit)."""

from __future__ import annotations

from statistics import median

from bench.percentiles import percentiles
from bench.report import Measured, at_least
from bench.suite.bed import Bed
from bench.suite.matrix import USUAL
from bench.suite.outcome import Chart, Line, Outcome, Point
from bench.suite.producers import many_in_flight
from bench.suite.progress import Display
from bench.suite.settings import Settings

IN_FLIGHT = (1, 8, 64, 256)
BOUNDED = 64
MIN_SHARE_OF_REPLICATED = 0.5
DURABILITIES = ("replicated", "synced")


async def run(bed: Bed, settings: Settings, display: Display) -> Outcome:
    display.begin("durability", len(IN_FLIGHT) * settings.repeats)
    results: list[Measured] = []
    lines: dict[str, list[Point]] = {name: [] for name in DURABILITIES}
    for in_flight in IN_FLIGHT:
        rates: dict[str, list[float]] = {name: [] for name in DURABILITIES}
        medians: dict[str, list[float]] = {name: [] for name in DURABILITIES}
        for _ in range(settings.repeats):
            display.step(f"{in_flight} in flight")
            for name in DURABILITIES:
                async with bed.topic(USUAL.partitions, config={"durability": name}) as topic:
                    rate, latencies = await bed.producer.call(
                        many_in_flight,
                        bed.bootstrap,
                        topic,
                        USUAL.partitions,
                        in_flight,
                        settings.in_flight_s,
                    )
                rates[name].append(rate)
                medians[name].append(percentiles(latencies).get("p50", latencies[-1]))
        for name in DURABILITIES:
            what = f"{name}, {in_flight} in flight"
            lines[name].append(Point(in_flight, median(rates[name])))
            results.append(Measured(f"{what}: acknowledged", median(rates[name]), "records/s"))
            results.append(Measured(f"{what}: p50", median(medians[name]), "ms"))
        if in_flight == BOUNDED:
            shares = [s / r for s, r in zip(rates["synced"], rates["replicated"], strict=True)]
            name = f"synced of replicated, {in_flight} in flight"
            results.append(at_least(name, median(shares), MIN_SHARE_OF_REPLICATED, ""))
    chart = Chart(
        "durability",
        "Records a second, acks=all, factor 3, 1 KiB",
        "records in flight",
        "records/s",
        [Line(name, points) for name, points in lines.items()],
        x_log=True,
        y_log=True,
    )
    return Outcome(results, [chart])
