"""Latency with acks=all and factor 3: with one record in flight, and at fixed rates in an open
loop; to the acknowledgement, and to a consumer in a separate process."""

from __future__ import annotations

import asyncio

from bench.percentiles import Timed, timed
from bench.suite.bed import Bed
from bench.suite.consumers import observe
from bench.suite.matrix import USUAL
from bench.suite.outcome import Outcome
from bench.suite.producers import WARM_UP_S, one_in_flight, open_loop
from bench.suite.progress import Display
from bench.suite.settings import Settings
from bench.suite.waits import OneInFlight, Rate, outcome

PARTITIONS = USUAL.partitions
# Time for the consumer to reach the end of the topic.
SETTLE_S = 0.7


async def run(bed: Bed, settings: Settings, display: Display) -> Outcome:
    display.begin("latency", 3 + len(settings.rates))
    display.step("one in flight")
    alone = await _one_in_flight(bed, settings, 3)
    display.step("one in flight, factor 1")
    single = await _one_in_flight(bed, settings, 1)
    display.step("one in flight, and a consumer")
    followed = await _followed(bed, settings)
    rates = []
    for rate in settings.rates:
        display.step(f"{rate:,} records/s")
        rates.append(await _at_rate(bed, settings, rate))
    return outcome(OneInFlight(alone, single, *followed), rates)


async def _one_in_flight(bed: Bed, settings: Settings, factor: int) -> Timed:
    async with bed.topic(PARTITIONS, factor) as topic:
        return await _acknowledged(bed, settings, topic)


async def _acknowledged(bed: Bed, settings: Settings, topic: str) -> Timed:
    found = await bed.producer.call(
        one_in_flight,
        bed.bootstrap,
        topic,
        PARTITIONS,
        USUAL.record_bytes,
        settings.one_in_flight_s,
    )
    return timed(found)


async def _followed(bed: Bed, settings: Settings) -> tuple[Timed, Timed]:
    async with bed.topic(PARTITIONS) as topic:
        observing = asyncio.create_task(bed.consumer.call(observe, bed.bootstrap, topic, 0.2))
        await asyncio.sleep(SETTLE_S)
        return await _acknowledged(bed, settings, topic), await observing


async def _at_rate(bed: Bed, settings: Settings, rate: int) -> Rate:
    async with bed.topic(PARTITIONS) as topic:
        observing = asyncio.create_task(bed.consumer.call(observe, bed.bootstrap, topic, WARM_UP_S))
        await asyncio.sleep(SETTLE_S)
        acknowledged = await bed.producer.call(
            open_loop, bed.bootstrap, [topic], PARTITIONS, rate, settings.open_loop_s
        )
        return Rate(rate, acknowledged, await observing)
