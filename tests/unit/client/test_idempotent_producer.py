"""Idempotent producers whose answers are lost, late or rejections: batches are written once and in
order, or their outcome is reported as unknown.
"""

import asyncio
from typing import Any

import pytest

from tidelog.client import Delivery, Producer
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_OFFSET, Acks
from tidelog.record_batch import decode
from tidelog.v1 import broker_pb2
from unit.client.fake_broker import Late, Slow, Unanswered
from unit.client.idempotent_world import World, milliseconds, story, warm
from unit.client.memory_connections import LATENCY_MS

TOO_FEW = TidelogError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")
LATE = TidelogError(ErrorCode.REQUEST_TIMED_OUT, "too late")
LOST = "append, then die"


def values(count: int) -> list[bytes | None]:
    return [b"%d" % number for number in range(count)]


async def send(producer: Producer, count: int, first: int = 0) -> list[asyncio.Future[Delivery]]:
    return [await producer.send("sea", b"%d" % n) for n in range(first, first + count)]


async def send_slowly(
    producer: Producer, count: int, first: int = 0
) -> list[asyncio.Future[Delivery]]:
    """So that none overtakes another."""
    deliveries = []
    for number in range(first, first + count):
        deliveries += await send(producer, 1, number)
        await milliseconds(3 * LATENCY_MS)
    return deliveries


async def outcome(delivery: asyncio.Future[Delivery]) -> TidelogError | int:
    try:
        return (await delivery).offset
    except TidelogError as error:
        return error


@story
async def test_batches_are_numbered_in_order_from_one_id(world: World) -> None:
    async with world.producer() as producer:
        await asyncio.gather(*await send(producer, 8))
    assert world.sequences() == [(1, n) for n in range(8)]


@story
async def test_a_sequence_counts_records(world: World) -> None:
    async with world.producer(batch_bytes=1000) as producer:
        await (await producer.send_many("sea", [b"a", b"b", b"c"]))
        await (await producer.send_many("sea", [b"d"]))
    assert world.sequences() == [(1, 0), (1, 3)]


@pytest.mark.rule("waiting-produce-ends-with-epoch")
@story
async def test_a_batch_whose_answer_was_lost_is_written_once(world: World) -> None:
    world.script(LOST)
    async with world.producer() as producer:
        [delivery] = await send(producer, 1)
        assert (await delivery).offset == 0
    assert world.sea.values() == values(1)
    assert world.asked() == [(1, 0), (1, 0)]


@story
async def test_losing_every_answer_of_a_full_pipeline_keeps_the_order(world: World) -> None:
    async with world.producer() as producer:
        await warm(producer)
        world.script(*[LOST] * 5)
        deliveries = await send(producer, 20)
        assert [(await d).offset for d in deliveries] == list(range(20))
    assert world.sea.values() == values(20)


@story
async def test_an_overtaken_batch_is_followed_by_the_others(world: World) -> None:
    async with world.producer() as producer:
        await warm(producer)
        world.script(Slow(30))
        deliveries = await send(producer, 5)
        assert [(await d).offset for d in deliveries] == list(range(5))
    assert world.sea.values() == values(5)
    assert world.sequences() == [(1, n) for n in range(5)]


@story
async def test_at_most_five_batches_are_in_flight(world: World) -> None:
    async with world.producer() as producer:
        await warm(producer)
        world.broker.gate.clear()
        await send(producer, 12)
        await milliseconds(50)
        assert len(world.asked()) == 5
        world.broker.gate.set()
    assert world.sea.values() == values(12)


@story
async def test_a_group_carries_no_more_than_five_batches(world: World) -> None:
    async with world.producer() as producer:
        await warm(producer)
        world.broker.gate.clear()
        await producer.send_many("sea", values(12))
        await milliseconds(50)
        assert len(world.asked()) == 5
        world.broker.gate.set()
    assert world.sea.values() == values(12)


@story
async def test_batches_in_doubt_share_no_group(world: World) -> None:
    async with world.producer() as producer:
        await warm(producer)
        world.script(LOST)
        await producer.send_many("sea", values(3))
    sizes = [len(r.partitions[0].batches) for r in world.broker.seen["produce"][1:]]  # type: ignore[attr-defined]
    assert sizes == [3, 1, 1, 1]
    assert world.sea.values() == values(3)


@pytest.mark.rule("unanswered-write-happens-once", "unanswered-writes-are-atomic")
@story
async def test_a_new_leader_knows_what_the_old_one_appended(world: World) -> None:
    world.script(LOST)
    async with world.producer() as producer:
        [delivery] = await send(producer, 1)
        await milliseconds(4)
        world.cluster.elect("sea", 0, leader=1)
        assert (await delivery).offset == 0
    assert world.sea.values() == values(1)


@pytest.mark.rule("waiting-produce-ends-with-epoch")
@story
async def test_a_late_retry_of_an_unanswered_batch_is_recognised(
    world: World,
) -> None:
    """However many later batches have been answered meanwhile."""
    async with world.producer() as producer:
        await warm(producer)
        world.script(Unanswered(200))
        deliveries = await send_slowly(producer, 12)
        assert [(await d).offset for d in deliveries] == list(range(12))
    assert world.sequences() == [(1, n) for n in range(12)]


@story
async def test_a_duplicate_of_long_ago_counts_as_acknowledged(world: World) -> None:
    world.script(LATE, TidelogError(ErrorCode.DUPLICATE_SEQUENCE, "long ago"))
    async with world.producer() as producer:
        [delivery] = await send(producer, 1)
        assert (await delivery).offset == NO_OFFSET


@story
async def test_no_id_is_requested_before_it_is_needed(world: World) -> None:
    async with world.producer():
        await milliseconds(100)
    assert not any(b.seen["init_producer_id"] for b in world.cluster.brokers.values())


@story
async def test_an_id_is_requested_until_a_broker_returns_one(world: World) -> None:
    unavailable = TidelogError(ErrorCode.METADATA_STORE_UNAVAILABLE, "no store")
    for broker in world.cluster.brokers.values():
        broker.script["init_producer_id"].extend([unavailable, unavailable])
    async with world.producer() as producer:
        [delivery] = await send(producer, 1)
        assert (await delivery).offset == 0


@story
async def test_without_an_id_batches_expire_with_the_reason(world: World) -> None:
    unavailable = TidelogError(ErrorCode.METADATA_STORE_UNAVAILABLE, "no store")
    for broker in world.cluster.brokers.values():
        broker.script["init_producer_id"].extend([unavailable] * 1000)
    async with world.producer(delivery_timeout_ms=2000) as producer:
        [delivery] = await send(producer, 1)
        with pytest.raises(TidelogError, match=r"InitProducerId.*no store.*known: it was not"):
            await delivery


@story
async def test_a_rejected_name_is_reported_at_once(world: World) -> None:
    rejected = TidelogError(ErrorCode.INVALID_REQUEST, "bad name")
    for broker in world.cluster.brokers.values():
        broker.script["init_producer_id"].append(rejected)
    async with world.producer() as producer:
        [delivery] = await send(producer, 1)
        with pytest.raises(TidelogError, match="bad name"):
            await delivery


@story
async def test_a_rejected_batch_frees_its_sequence(world: World) -> None:
    async with world.producer() as producer:
        await warm(producer)
        world.script(TidelogError(ErrorCode.INVALID_BATCH, "no batch"))
        [rejected] = await send(producer, 1)
        assert isinstance(await outcome(rejected), TidelogError)
        await asyncio.gather(*await send(producer, 2, first=1))
    assert world.sequences() == [(1, 0), (1, 1)]


@story
async def test_batches_after_a_rejected_one_are_renumbered(world: World) -> None:
    async with world.producer() as producer:
        await warm(producer)
        world.script(TidelogError(ErrorCode.INVALID_BATCH, "no batch"))
        rejected, *others = await send(producer, 5)
        assert isinstance(await outcome(rejected), TidelogError)
        assert [await outcome(other) for other in others] == [0, 1, 2, 3]
    assert world.sea.values() == values(5)[1:]
    assert world.sequences() == [(1, n) for n in range(4)]


@story
async def test_batches_after_a_rejected_one_are_renumbered_even_in_doubt(world: World) -> None:
    async with world.producer() as producer:
        await warm(producer)
        world.script(TidelogError(ErrorCode.INVALID_BATCH, "no batch"), LATE)
        rejected, *others = await send(producer, 4)
        assert isinstance(await outcome(rejected), TidelogError)
        assert [await outcome(other) for other in others] == [0, 1, 2]
    assert world.sequences() == [(2, 0), (2, 1), (2, 2)]


@story
async def test_after_an_unknown_outcome_the_producer_continues_with_a_new_id(world: World) -> None:
    world.script(*[LATE] * 1000)
    async with world.producer(delivery_timeout_ms=500) as producer:
        [unknown] = await send(producer, 1)
        error = await outcome(unknown)
        assert isinstance(error, TidelogError)
        assert "not known" in error.message
        world.broker.script["produce"].clear()
        assert [await outcome(d) for d in await send(producer, 2, first=1)] == [0, 1]
    assert world.sequences() == [(2, 0), (2, 1)]


@story
async def test_a_batch_of_unknown_outcome_that_arrives_late_is_written_once(world: World) -> None:
    world.script(*[Late(3000)] * 100)
    async with world.producer(delivery_timeout_ms=500) as producer:
        [unknown] = await send(producer, 1)
        assert isinstance(await outcome(unknown), TidelogError)
        world.broker.script["produce"].clear()
        [after] = await send(producer, 1, first=1)
        assert await outcome(after) == 0
        await milliseconds(5000)
    assert world.sea.values() == [b"1", b"0"]


@story
async def test_no_new_id_is_used_before_the_outcomes_of_the_old_one_are_known(world: World) -> None:
    """The first batch is lost, the second is in doubt: a third waits for both."""
    settings: dict[str, Any] = {"delivery_timeout_ms": 500, "retry_backoff_ms": (20, 20)}
    async with world.producer(**settings) as producer:
        await warm(producer)
        world.script(*[LATE] * 1000)
        first = (await send(producer, 1))[0]
        await milliseconds(300)
        second = (await send(producer, 1, first=1))[0]
        assert isinstance(await outcome(first), TidelogError)
        third = (await send(producer, 1, first=2))[0]
        world.broker.script["produce"].clear()
        assert isinstance(await outcome(second), TidelogError)
        assert not third.done()
        assert await outcome(third) == 0
    assert world.sequences() == [(2, 0)]


@story
async def test_a_batch_rejected_until_it_expires_leaves_no_gap(world: World) -> None:
    world.script(*[TOO_FEW] * 1000)
    async with world.producer(delivery_timeout_ms=500) as producer:
        [expired] = await send(producer, 1)
        error = await outcome(expired)
        assert isinstance(error, TidelogError)
        assert "known: it was not" in error.message
        world.broker.script["produce"].clear()
        [after] = await send(producer, 1, first=1)
        assert await outcome(after) == 0
    assert world.sequences() == [(1, 0)]


@story
async def test_an_unknown_producer_without_a_batch_in_doubt_gets_a_new_id(world: World) -> None:
    async with world.producer() as producer:
        await asyncio.gather(*await send(producer, 2))
        world.sea.batches.clear()
        assert [await outcome(d) for d in await send(producer, 2, first=2)] == [0, 1]
    assert world.sequences() == [(2, 0), (2, 1)]


@story
async def test_a_batch_in_doubt_of_an_unknown_producer_has_an_unknown_outcome(world: World) -> None:
    async with world.producer() as producer:
        await asyncio.gather(*await send(producer, 1))
        world.script(LATE)
        world.sea.batches.clear()
        [final_error] = await send(producer, 1, first=1)
        error = await outcome(final_error)
        assert isinstance(error, TidelogError)
        assert error.outcome_unknown
        assert [await outcome(d) for d in await send(producer, 1, first=2)] == [0]
    assert world.sea.values() == [b"2"]


@story
async def test_after_an_unclean_election_removed_sequences_a_new_id_is_used(world: World) -> None:
    async with world.producer() as producer:
        await asyncio.gather(*await send(producer, 3))
        world.cluster.elect_uncleanly("sea", 0, leader=1, end=1)
        assert [await outcome(d) for d in await send(producer, 2, first=3)] == [1, 2]
    assert world.sequences() == [(1, 0), (2, 0), (2, 1)]


@story
async def test_a_rejected_batch_in_doubt_may_have_been_written(world: World) -> None:
    world.script(LATE, TidelogError(ErrorCode.BATCH_TOO_LARGE, "the limit was lowered"))
    async with world.producer() as producer:
        [final_error] = await send(producer, 1)
        error = await outcome(final_error)
        assert isinstance(error, TidelogError)
        assert error.outcome_unknown
        assert "the limit was lowered; a try" in error.message


@story
async def test_a_hanging_leader_is_abandoned_for_a_newer_one(world: World) -> None:
    async with world.producer() as producer:
        await warm(producer)
        await asyncio.gather(*await send(producer, 1))
        world.broker.gate.clear()
        deliveries = await send(producer, 3, first=1)
        await milliseconds(100)
        world.cluster.elect("sea", 0, leader=1)
        began = asyncio.get_running_loop().time()
        assert [await outcome(d) for d in deliveries] == [1, 2, 3]
        assert asyncio.get_running_loop().time() - began < 2
        world.broker.gate.set()
        await milliseconds(100)
    assert world.sea.values() == values(4)
    assert world.sequences() == [(1, n) for n in range(4)]


@story
async def test_a_request_answered_a_moment_ago_is_not_abandoned(world: World) -> None:
    """The answer itself names the newer leader that would be a reason to abandon the request."""
    async with world.producer() as producer:
        await warm(producer)
        stale = world.broker.metadata(broker_pb2.MetadataRequest(topics=["sea", "bay"]))
        for broker in world.cluster.brokers.values():
            broker.metadata_of = lambda: stale
        world.script(Slow(1500))
        [delivery] = await send(producer, 1)
        world.cluster.elect("sea", 0, leader=1)
        assert await outcome(delivery) == 0
    assert len(world.cluster.brokers[1].seen["produce"]) == 1


@story
async def test_a_slow_leader_is_not_abandoned_while_there_is_no_newer(world: World) -> None:
    world.script(Slow(5000))
    async with world.producer() as producer:
        [delivery] = await send(producer, 1)
        assert await outcome(delivery) == 0
    assert world.asked() == [(1, 0)]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"idempotent": True, "acks": Acks.LEADER}, "needs acks all, not leader"),
        ({"idempotent": False, "producer_name": "x"}, "is for an idempotent producer"),
        ({"acks": Acks.NONE, "producer_name": "x"}, "is for an idempotent producer"),
        ({"producer_name": "a b"}, "is no name"),
        ({"producer_name": ""}, "is no name"),
        ({"idempotent": True, "max_in_flight_per_partition": 6}, "at most 5"),
    ],
)
def test_contradictory_settings_are_rejected(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Producer("localhost:1", **settings)


@story
async def test_records_are_logged_in_the_order_of_the_calls(world: World) -> None:
    """Also where the first callers wait for the topic's metadata, and later ones find it."""
    async with world.producer() as producer:
        calls = [asyncio.create_task(producer.send_many("sea", [b"0"]))]
        await asyncio.sleep(0)
        for _ in range(2):  # requests until the topic is known
            await milliseconds(LATENCY_MS)
        for number in range(
            1, 50
        ):  # one in each iteration of the loop during which the answer arrives
            calls.append(asyncio.create_task(producer.send_many("sea", [b"%d" % number])))
            await asyncio.sleep(0)
        for call in calls:
            await (await call)
    assert [decode(batch)[1] for batch in world.sea.batches] == [
        [b"%d" % number] for number in range(50)
    ]
