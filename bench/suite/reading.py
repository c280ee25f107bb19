"""Consuming: a backlog from the page cache and from the disk, new records, and both at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from statistics import median

from bench.report import Measured, of_ceiling
from bench.suite.bed import Bed
from bench.suite.consumers import Read, follow, read_all, read_for
from bench.suite.matrix import USUAL
from bench.suite.outcome import Chart, Line, Outcome, Point
from bench.suite.producers import Produced, fill, produce
from bench.suite.progress import Display
from bench.suite.settings import Settings

MIN_BATCHES_OF_C = 0.7
RECORD_BYTES = USUAL.record_bytes
PARTITIONS = USUAL.partitions
# Time for a consumer to reach the end of the topic.
SETTLE_S = 0.7


async def run(bed: Bed, settings: Settings, display: Display) -> Outcome:
    display.begin("reading", 3 + 3 * settings.repeats + 1)
    async with bed.topic(PARTITIONS, keeps_all=True) as backlog:
        display.step("writing the backlog")
        records = await bed.producer.call(
            fill, bed.bootstrap, backlog, PARTITIONS, RECORD_BYTES, int(settings.read_mb * 1e6)
        )
        results = await _backlog(bed, settings, display, backlog, records)
        display.step("a backlog beside a producer")
        results += await _beside(bed, settings, backlog)
    for one_by_one in (False, True):
        display.step("the tail")
        results += await _tail(bed, settings, one_by_one=one_by_one)
    return Outcome(results, [_chart(results)])


def _chart(results: Sequence[Measured]) -> Chart:
    shown = [result for result in results if result.unit == "MB/s"]
    line = Line("", [Point(number, result.value) for number, result in enumerate(shown)])
    names = [result.name for result in shown]
    return Chart("reading", "Consuming, 1 KiB records", "", "MB/s", [line], ticks=names)


async def _backlog(
    bed: Bed, settings: Settings, display: Display, topic: str, records: int
) -> list[Measured]:
    ceilings: list[float] = []
    found: dict[str, list[Read]] = {"memory": [], "disk": [], "records": []}
    for _ in range(settings.repeats):
        display.step("batches from memory")
        ceilings.append(await bed.ceiling(settings.ceiling_s))
        await bed.consumer.call(read_all, bed.bootstrap, topic, records, one_by_one=False)
        found["memory"].append(
            await bed.consumer.call(read_all, bed.bootstrap, topic, records, one_by_one=False)
        )
        display.step("records")
        found["records"].append(
            await bed.consumer.call(read_all, bed.bootstrap, topic, records, one_by_one=True)
        )
        display.step("batches from the disk")
        await bed.forget_pages()
        found["disk"].append(
            await bed.consumer.call(read_all, bed.bootstrap, topic, records, one_by_one=False)
        )
    speeds = {
        name: [read.mb_per_second(RECORD_BYTES) for read in reads] for name, reads in found.items()
    }
    ratios = {
        name: median([s / c for s, c in zip(of_name, ceilings, strict=True)])
        for name, of_name in speeds.items()
    }
    records_per_second = median([read.records_per_second for read in found["records"]])
    return [
        of_ceiling(
            "consume batches, a backlog in memory",
            median(speeds["memory"]),
            ratios["memory"],
            MIN_BATCHES_OF_C,
            "MB/s",
        ),
        Measured(
            "consume batches, a backlog on the disk",
            median(speeds["disk"]),
            "MB/s",
            ratios["disk"],
        ),
        Measured(
            "consume records in Python, a backlog in memory",
            median(speeds["records"]),
            "MB/s",
            ratios["records"],
        ),
        Measured("consume records in Python", records_per_second, "records/s"),
    ]


async def _beside(bed: Bed, settings: Settings, backlog: str) -> list[Measured]:
    async with bed.topic(PARTITIONS) as topic:
        ceiling = await bed.ceiling(settings.ceiling_s)
        seconds = settings.produce_s
        produced, read = await asyncio.gather(
            bed.producer.call(produce, bed.bootstrap, topic, USUAL, seconds),
            bed.consumer.call(read_for, bed.bootstrap, backlog, seconds),
        )
    return _pair("a backlog is read", produced, read, ceiling, "batches of a backlog")


async def _tail(bed: Bed, settings: Settings, *, one_by_one: bool) -> list[Measured]:
    async with bed.topic(PARTITIONS) as topic:
        ceiling = await bed.ceiling(settings.ceiling_s)
        following = asyncio.create_task(
            bed.consumer.call(follow, bed.bootstrap, topic, one_by_one=one_by_one)
        )
        await asyncio.sleep(SETTLE_S)
        produced = await bed.producer.call(produce, bed.bootstrap, topic, USUAL, settings.produce_s)
        read = await following
    what = "records" if one_by_one else "batches"
    return _pair(f"its {what} are consumed at once", produced, read, ceiling, f"{what} at the tail")


def _pair(
    meanwhile: str, produced: Produced, read: Read, ceiling: float, what: str
) -> list[Measured]:
    produced_mb, read_mb = produced.mb_per_second, read.mb_per_second(RECORD_BYTES)
    return [
        Measured(f"produce while {meanwhile}", produced_mb, "MB/s", produced_mb / ceiling),
        Measured(f"consume {what}, while producing", read_mb, "MB/s", read_mb / ceiling),
    ]
