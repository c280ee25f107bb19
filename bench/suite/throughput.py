"""Producing as fast as possible, each case in turn with the no-op ceiling."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from bench.suite import matrix
from bench.suite.bed import Bed
from bench.suite.cases import Found, outcome
from bench.suite.matrix import Case
from bench.suite.outcome import Outcome
from bench.suite.producers import Produced, produce
from bench.suite.progress import Display
from bench.suite.settings import Settings

LARGER_MESSAGES = (256 << 10, 1 << 20)


def cases_of(settings: Settings) -> Sequence[Case]:
    return matrix.cases(all_of_them=settings.matrix)


async def run(bed: Bed, settings: Settings, display: Display) -> Outcome:
    cases = cases_of(settings)
    display.begin("throughput", len(cases) + 1)
    display.step("ceilings of larger messages")
    larger = {size: await bed.ceiling(settings.ceiling_s, size) for size in LARGER_MESSAGES}
    found = []
    for case in cases:
        display.step(case.name)
        found.append(await _measure(bed, case, settings))
    return outcome(found, larger, bed.most_memory_mb())


async def _measure(bed: Bed, case: Case, settings: Settings) -> Found:
    ceilings: list[float] = []
    values: list[Produced] = []
    brokers_cpu_s = 0.0
    async with bed.topic(case.partitions, case.factor) as topic:
        for _ in range(settings.repeats):
            ceilings.append(await bed.ceiling(settings.ceiling_s))
            before = bed.brokers_cpu_s()
            values.append(
                await bed.producer.call(produce, bed.bootstrap, topic, case, settings.produce_s)
            )
            brokers_cpu_s += bed.brokers_cpu_s() - before
    gb = sum(value.bytes for value in values) / 1e9
    speeds = [value.mb_per_second for value in values]
    return Found(
        case=case,
        ceiling=median(ceilings),
        mb_per_second=median(speeds),
        records_per_second=median([value.records / value.seconds for value in values]),
        ratio=median([speed / ceiling for speed, ceiling in zip(speeds, ceilings, strict=True)]),
        failed=sum(value.failed for value in values),
        brokers_cpu_s_per_gb=brokers_cpu_s / gb,
        client_cpu_s_per_gb=sum(value.cpu_s for value in values) / gb,
    )
