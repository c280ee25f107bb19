"""A producer with a name: its sequences continue from holder to holder, one holder at a time."""

import asyncio

import pytest

from tidelog.batch import stamp
from tidelog.client import Admin, Identity
from tidelog.errors import ErrorCode, TidelogError
from tidelog.record_batch import encode_records
from unit.client.fake_broker import Slow, Unanswered
from unit.client.fake_producer_state import FIRST_NAMED_ID
from unit.client.idempotent_world import World, milliseconds, story, warm
from unit.client.memory_connections import MemoryConnections
from unit.client.test_idempotent_producer import LATE, LOST, outcome, send, send_slowly, values
from unit.metadata.virtual_time import virtual_clock

NAMED = FIRST_NAMED_ID


@story
async def test_the_next_holder_of_a_name_continues_after_the_previous_one(world: World) -> None:
    for first in (0, 3):
        async with world.producer(producer_name="tide") as producer:
            await asyncio.gather(*await send(producer, 3, first))
    assert world.sequences() == [(NAMED, n) for n in range(6)]
    assert {b.header.producer_epoch for b in world.sea.batches[3:]} == {1}


@story
async def test_sequences_wrap_to_0_after_the_last(world: World) -> None:
    last = encode_records(values(2), timestamps_ms=1).to_batch(NAMED, 0, 2**31 - 3)
    world.sea.batches.append(stamp(last, base_offset=0, leader_epoch=1, append_time_ms=1))
    world.cluster.ids.take("tide")
    async with world.producer(producer_name="tide", batch_bytes=1000) as producer:
        for count in (2, 1):
            await (await producer.send_many("sea", values(count)))
    assert world.sequences()[1:] == [(NAMED, 2**31 - 1), (NAMED, 1)]


@story
async def test_a_late_retry_of_its_own_batch_is_recognised(
    world: World,
) -> None:
    async with world.producer(producer_name="tide") as producer:
        await asyncio.gather(*await send(producer, 1))
        world.script(Unanswered(200))
        deliveries = await send_slowly(producer, 11, first=1)
        assert [await outcome(d) for d in deliveries] == list(range(1, 12))
    assert world.sequences() == [(NAMED, n) for n in range(12)]


@story
async def test_a_fenced_holder_stays_fenced(world: World) -> None:
    old = world.producer(producer_name="tide")
    await asyncio.gather(*await send(old, 1))
    async with world.producer(producer_name="tide") as new:
        await asyncio.gather(*await send(new, 1, first=1))
    error = await outcome((await send(old, 1, first=2))[0])
    assert isinstance(error, TidelogError)
    assert error.code is ErrorCode.FENCED_PRODUCER_EPOCH
    assert "has taken over this one's name, 'tide' (" in error.message
    with pytest.raises(TidelogError, match="has taken over"):
        await old.send("sea", b"more")
    await old.close()
    assert world.sea.values() == values(2)


@story
async def test_a_holder_is_fenced_where_the_next_one_has_only_read_its_position(
    world: World,
) -> None:
    """Otherwise a batch of the old holder would be a duplicate of the new one's first."""
    old = world.producer(producer_name="tide")
    await asyncio.gather(*await send(old, 1))
    world.script(Slow(100))
    late = (await send(old, 1, first=1))[0]
    await milliseconds(10)
    async with world.producer(producer_name="tide") as new:
        assert await outcome((await send(new, 1, first=2))[0]) == 1
    assert isinstance(await outcome(late), TidelogError)
    await old.close()
    assert world.sea.values() == [b"0", b"2"]


@story
async def test_a_leader_is_queried_until_it_knows_the_committed_end(world: World) -> None:
    unknown = TidelogError(ErrorCode.OFFSET_NOT_AVAILABLE, "not yet")
    world.broker.script["describe_producers"].extend([unknown, unknown])
    async with world.producer(producer_name="tide") as producer:
        assert await outcome((await send(producer, 1))[0]) == 0
    assert len(world.broker.seen["describe_producers"]) == 3


@story
async def test_the_position_is_read_from_the_leader(world: World) -> None:
    world.cluster.elect("sea", 0, leader=1)
    async with world.producer(producer_name="tide") as producer:
        assert await outcome((await send(producer, 1))[0]) == 0
    assert not world.broker.seen["describe_producers"]


@story
async def test_a_lost_answer_is_found_in_the_log(world: World) -> None:
    async with world.producer(producer_name="tide") as producer:
        await warm(producer)
        world.script(LOST)
        assert [await outcome(d) for d in await send(producer, 3)] == [0, 1, 2]
    assert world.sea.values() == values(3)


@story
async def test_after_an_unknown_outcome_a_named_producer_cannot_continue(world: World) -> None:
    async with world.producer(producer_name="tide", delivery_timeout_ms=500) as producer:
        await warm(producer)
        world.script(*[LATE] * 100)
        unknown, waiting = await send(producer, 2)
        assert isinstance(await outcome(unknown), TidelogError)
        await outcome(waiting)
        with pytest.raises(TidelogError, match=r"cannot continue.*DescribeProducers"):
            await producer.send("sea", b"more")


@story
async def test_batches_after_a_rejected_one_keep_the_id_of_the_name(world: World) -> None:
    async with world.producer(producer_name="tide") as producer:
        await asyncio.gather(*await send(producer, 1))
        world.script(TidelogError(ErrorCode.INVALID_BATCH, "no batch"))
        rejected, *others = await send(producer, 4, first=1)
        assert isinstance(await outcome(rejected), TidelogError)
        assert [await outcome(other) for other in others] == [1, 2, 3]
    assert world.sequences() == [(NAMED, n) for n in range(4)]


@story
async def test_a_sequence_written_before_its_batch_belongs_to_another_producer(
    world: World,
) -> None:
    async with world.producer(producer_name="tide") as producer:
        await asyncio.gather(*await send(producer, 1))
        world.script(TidelogError(ErrorCode.DUPLICATE_SEQUENCE, "long ago"))
        error = await outcome((await send(producer, 1, first=1))[0])
        assert isinstance(error, TidelogError)
        assert "another producer of the name 'tide' has written" in error.message


@story
async def test_a_sequence_written_by_another_while_its_batch_was_in_doubt_is_no_success(
    world: World,
) -> None:
    """After an unclean election has lost the fence, a previous holder may write again."""
    async with world.producer(producer_name="tide") as producer:
        await asyncio.gather(*await send(producer, 1))
        late = TidelogError(ErrorCode.REQUEST_TIMED_OUT, "too late")
        world.script(late, TidelogError(ErrorCode.DUPLICATE_SEQUENCE, "long ago"))
        error = await outcome((await send(producer, 1, first=1))[0])
        assert isinstance(error, TidelogError)
        assert "another producer of the name 'tide' has written" in error.message
        assert error.outcome_unknown


@story
async def test_records_lost_by_an_unclean_election_are_noticed_from_the_position(
    world: World,
) -> None:
    async with world.producer(producer_name="tide") as producer:
        await asyncio.gather(*await send(producer, 3))
        world.cluster.elect_uncleanly("sea", 0, leader=1, end=1)
        assert [await outcome(d) for d in await send(producer, 2, first=3)] == [1, 2]
    assert world.sequences() == [(NAMED, 0), (NAMED, 1), (NAMED, 2)]


def admin(world: World) -> Admin:
    return Admin(
        world.cluster.bootstrap(),
        connections=MemoryConnections(world.cluster),
        clock=virtual_clock(),
    )


@story
async def test_admin_describes_the_positions_of_producers(world: World) -> None:
    async with world.producer(producer_name="tide") as producer, admin(world) as chief:
        await asyncio.gather(*await send(producer, 2))
        found = await chief.describe_producers("sea", producer_ids=[NAMED])
        assert [tuple(p[:3]) for p in found[0]] == [(NAMED, 0, 1)]
        with pytest.raises(TidelogError, match="does not exist"):
            await chief.describe_producers("sea", [7])


@story
async def test_admin_takes_and_fences_a_name(world: World) -> None:
    async with world.producer(producer_name="tide") as producer, admin(world) as chief:
        await asyncio.gather(*await send(producer, 1))
        mine = await chief.init_producer_id("tide")
        assert mine == Identity(NAMED, 1)
        found = await chief.describe_producers("sea", [0], [NAMED], fence=mine)
        assert found[0][0].last_sequence == 0
        error = await outcome((await send(producer, 1))[0])
        assert isinstance(error, TidelogError)
        assert error.code is ErrorCode.FENCED_PRODUCER_EPOCH


@story
async def test_admin_accepts_no_epoch_other_than_the_one_it_names(world: World) -> None:
    """A broker of an older release does not know the field; it increments the epoch no further."""
    async with admin(world) as chief:
        assert await chief.init_producer_id("tide", epoch=3) == Identity(NAMED, 3)
        for broker in world.cluster.brokers.values():
            broker.names_epochs = False
        for epoch in (3, 0):
            with pytest.raises(
                TidelogError, match=f"not give 'tide' epoch {epoch}, which was requested"
            ):
                await chief.init_producer_id("tide", epoch=epoch)
        for broker in world.cluster.brokers.values():
            broker.names_epochs = True
        assert await chief.init_producer_id("tide", epoch=3) == Identity(NAMED, 3)


@story
async def test_admin_requests_an_id_from_the_next_broker(world: World) -> None:
    for broker in world.cluster.brokers.values():
        unavailable = TidelogError(ErrorCode.METADATA_STORE_UNAVAILABLE, "no store")
        broker.script["init_producer_id"].append(unavailable)
    async with admin(world) as chief:
        assert await chief.init_producer_id() == Identity(1, 0)
