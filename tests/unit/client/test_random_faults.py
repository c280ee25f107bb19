"""Idempotent producers under seeded faults: lost answers, requests that arrive late or out of
order, rejections, leaders that change or hang, deliveries that expire.
"""

import asyncio
import random

import pytest

from tidelog.client import Delivery
from tidelog.errors import ErrorCode, TidelogError
from unit.client.fake_broker import Late, Script, Slow
from unit.client.idempotent_world import World, milliseconds, warm
from unit.metadata.virtual_time import run

RECORDS = 60
SEEDS = range(60)
FAULTS = 0.4
TOO_LATE_MS = 20_000


def fault(rng: random.Random) -> Script:
    choices: list[Script] = [
        "append, then die",
        "hang",
        Late(rng.randint(1, TOO_LATE_MS)),
        Slow(rng.randint(1, 300)),
        TidelogError(ErrorCode.REQUEST_TIMED_OUT, "too late"),
        TidelogError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few"),
        TidelogError(ErrorCode.INVALID_BATCH, "no batch"),
    ]
    return rng.choice(choices)


async def trouble(world: World, rng: random.Random) -> None:
    """Runs until it is cancelled."""
    while True:
        await milliseconds(rng.randint(1, 400))
        broker = world.cluster.brokers[world.sea.leader]
        if rng.random() < FAULTS:
            broker.script["produce"].append(fault(rng))
        if rng.random() < FAULTS / 4:
            world.cluster.elect("sea", 0, leader=rng.randrange(2))
        if rng.random() < FAULTS / 8:
            broker.gate.clear()
            asyncio.get_running_loop().call_later(rng.uniform(0.01, 6), broker.gate.set)


def settled_as(delivery: asyncio.Future[Delivery]) -> str:
    error = delivery.exception()
    if error is None:
        return "acknowledged"
    assert isinstance(error, TidelogError)
    unknown = error.outcome_unknown and "known: it was not" not in error.message
    return "unknown" if unknown else "not written"


@pytest.mark.rule("retry-is-written-once")
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_written_twice_or_out_of_order(seed: int) -> None:
    rng = random.Random(seed)
    deliveries: dict[bytes, asyncio.Future[Delivery]] = {}
    world = World()

    async def story() -> None:
        timeout_ms = rng.choice((1_500, 5_000, 120_000))
        async with world.producer(
            delivery_timeout_ms=timeout_ms, request_timeout_ms=1_000, batch_bytes=rng.choice((1, 6))
        ) as producer:
            await warm(producer)
            storm = asyncio.create_task(trouble(world, rng))
            for number in range(RECORDS):
                value = b"%d" % number
                deliveries[value] = await producer.send("sea", value)
                await milliseconds(rng.choice((0, 0, 0, 5, 200)))
            await milliseconds(3_000)
            storm.cancel()
            for broker in world.cluster.brokers.values():
                broker.script["produce"].clear()
                broker.gate.set()
        await milliseconds(2 * TOO_LATE_MS)

    run(story())
    written = world.sea.values()
    assert len(set(written)) == len(written)
    by_outcome: dict[str, list[bytes | None]] = {}
    for value, delivery in deliveries.items():
        by_outcome.setdefault(settled_as(delivery), []).append(value)
    acknowledged = by_outcome.get("acknowledged", [])
    assert [value for value in written if value in set(acknowledged)] == acknowledged
    assert not set(written) & set(by_outcome.get("not written", []))


def test_the_faults_cause_every_outcome() -> None:
    """Otherwise the test above would prove less than it seems to."""
    world = World()
    outcomes: set[str] = set()

    async def story(seed: int) -> None:
        rng = random.Random(seed)
        async with world.producer(delivery_timeout_ms=1_500, request_timeout_ms=1_000) as producer:
            await warm(producer)
            storm = asyncio.create_task(trouble(world, rng))
            sent = []
            for number in range(RECORDS):
                sent.append(await producer.send("sea", b"%d" % number))
                await milliseconds(50)
            await producer.flush()
            storm.cancel()
            outcomes.update(map(settled_as, sent))

    run(story(1))
    assert outcomes == {"acknowledged", "unknown", "not written"}
