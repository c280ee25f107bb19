"""A topic is deleted and created again under its name. To a client it is another topic, whose
offsets and leader epochs begin at 0.
"""

import asyncio
import random

import pytest

from tidelog.batch import stamp
from tidelog.client.fetch_state import Fetched, FetchPlan, FetchState, OnOutOfRange
from tidelog.client.metadata_cache import MetadataCache
from tidelog.client.retry import Backoff, Leader, Route
from tidelog.client.unclean_elections import UncleanElection, UncleanElections
from tidelog.errors import ErrorCode, TidelogError, UnknownTopicIdError
from tidelog.model import LeaderHint, OffsetPosition, TopicPartition
from tidelog.record_batch import encode
from tidelog.v1 import broker_pb2
from unit.client.idempotent_world import World, milliseconds, story, warm
from unit.client.test_pure_parts import answer
from unit.client.test_unclean_elections import append, read
from unit.metadata.virtual_time import run

SEA = TopicPartition("sea", 0)


def leader_of(topic_id: str, epoch: int, *, unclean_epoch: int = -1) -> Leader:
    return Leader(1, epoch, "one:1", topic_id, unclean_epoch)


# -- reading ----------------------------------------------------------------------------


class Reader:
    """A reader that has read a batch of two records of the previous topic, in leader epoch 5."""

    def __init__(self) -> None:
        self.leader = leader_of("former", 5)
        self.state = FetchState(
            Backoff(random.Random(1), 50, 50),
            prefetch_bytes=1000,
            on_out_of_range=OnOutOfRange.ERROR,
        )
        self.state.assign([SEA], OffsetPosition.EARLIEST)
        self.state.get(SEA).seek(0)
        self.receive()

    def plans(self, now_ms: int = 0) -> list[FetchPlan]:
        return self.state.plan(now_ms, lambda _: self.leader)

    def receive(self) -> None:
        """Receives the next batch from the current leader."""
        [plan] = self.plans()
        ((want, leader),) = plan.wants
        batch = stamp(
            encode([b"x"] * 2, timestamps_ms=1),
            base_offset=want.offset,
            leader_epoch=leader.leader_epoch,
            append_time_ms=1,
        )
        self.state.finish(plan)
        self.state.received(want, leader, Fetched(leader.leader_epoch, 99, 0, [batch]), 0)

    def continues_in_the_new_topic(self) -> None:
        """The leader epoch of the new topic is 0."""
        self.leader = leader_of("new", 0)
        assert self.plans() == []
        assert self.state.take_records(10)
        with pytest.raises(TidelogError, match="deleted and created again"):
            self.state.take_records(10)
        self.state.get(SEA).seek(0)


@pytest.mark.rule("recreated-topic-is-another-topic")
def test_after_a_seek_the_new_topic_is_read_although_its_epochs_are_lower() -> None:
    reader = Reader()
    reader.continues_in_the_new_topic()
    [plan] = reader.plans()
    assert plan.leader == reader.leader
    assert not reader.state.wants_metadata(lambda _: reader.leader)


def test_a_new_topic_is_not_read_before_a_seek() -> None:
    reader = Reader()
    reader.leader = leader_of("new", 0)
    assert reader.plans() == []
    assert reader.plans(9999) == []


def test_a_new_leader_of_the_new_topic_is_compared_with_its_records() -> None:
    reader = Reader()
    reader.continues_in_the_new_topic()
    reader.receive()
    reader.leader = leader_of("new", 2)
    [plan] = reader.plans()
    assert [want.offset for want, _ in plan.wants] == [1]


def test_failures_of_the_previous_topic_do_not_delay_the_new_one() -> None:
    route = Route()
    route.failed(leader_of("former", 5), 0, Backoff(random.Random(1)), stale=True)
    assert not route.open_to(leader_of("former", 5), 1)
    assert route.open_to(leader_of("new", 0), 1)
    assert not route.wants_metadata(leader_of("new", 0))


@story
async def test_a_consumer_reads_the_new_topic_after_a_seek(world: World) -> None:
    for leader in (1, 0, 1, 0):
        world.cluster.elect("sea", 0, leader)
    append(world, b"of the former")
    async with world.consumer() as consumer:
        consumer.assign([SEA])
        await read(consumer, 1)
        world.cluster.create("sea", [1])
        append(world, b"of the new")
        with pytest.raises(TidelogError, match="deleted and created again"):
            await consumer.poll(10_000)
        await consumer.seek(SEA, 0)
        assert await read(consumer, 1) == [b"of the new"]


@story
async def test_a_topic_recreated_before_the_first_fetch_is_answered_is_reported(
    world: World,
) -> None:
    append(world, b"of the former")
    async with world.consumer(max_wait_ms=2000) as consumer:
        assert await consumer.assign_topic("sea") == [SEA]
        world.broker.gate.clear()
        await milliseconds(100)
        world.cluster.create("sea", [1])
        append(world, b"of the new")
        with pytest.raises(TidelogError, match="deleted and created again"):
            await consumer.poll(10_000)
        await consumer.seek(SEA, 0)
        assert await read(consumer, 1) == [b"of the new"]
        world.broker.gate.set()


@pytest.mark.parametrize("seeks", [False, True])
def test_a_reported_offset_is_valid_only_in_its_topic(seeks: bool) -> None:
    async def main() -> None:
        world = World()
        append(world, b"1", b"2")
        async with world.consumer(max_wait_ms=2000) as consumer:
            consumer.assign([SEA], start="earliest" if seeks else "latest")
            if seeks:
                await consumer.seek_to_end()
            else:
                while consumer.position(SEA) is None:
                    await milliseconds(1)
            world.broker.gate.clear()
            await milliseconds(100)
            world.cluster.create("sea", [1])
            append(world, b"of the new", b"2", b"3")
            with pytest.raises(TidelogError, match="deleted and created again"):
                await consumer.poll(10_000)
            await consumer.seek_to_beginning()
            assert await read(consumer, 3) == [b"of the new", b"2", b"3"]
            world.broker.gate.set()

    run(main())


def test_an_assigned_topic_is_read_by_its_id_and_others_by_their_names() -> None:
    state = Reader().state
    bay, calm = TopicPartition("bay", 0), TopicPartition("calm", 0)
    state.assign([SEA, bay, calm], OffsetPosition.EARLIEST, {"sea": "another", "bay": "id"})
    # The topic of records already read does not change.
    assert [state.get(each).topic_id for each in (SEA, bay, calm)] == ["former", "id", ""]


@story
async def test_a_reader_abandons_a_hanging_leader_for_a_new_topic(world: World) -> None:
    world.cluster.elect("sea", 0, leader=0)
    async with world.consumer(max_wait_ms=2000) as consumer:
        consumer.assign([SEA])
        world.broker.gate.clear()
        await milliseconds(100)
        world.cluster.create("sea", [1])
        append(world, b"of the new")
        # No record of the previous topic was read, so there is nothing to report.
        assert [record.value for record in await consumer.poll(4000)] == [b"of the new"]
        world.broker.gate.set()


@story
async def test_a_writer_abandons_a_hanging_leader_for_a_new_topic(world: World) -> None:
    world.cluster.elect("sea", 0, leader=0)
    async with world.producer() as producer:
        await warm(producer)
        world.broker.gate.clear()
        delivery = await producer.send("sea", b"of the new")
        await milliseconds(100)
        world.cluster.create("sea", [1])
        async with asyncio.timeout(3):
            assert (await delivery).offset == 0
        world.broker.gate.set()
    assert world.sea.values() == [b"of the new"]


@story
async def test_a_record_that_may_be_in_the_previous_topic_is_in_doubt(world: World) -> None:
    async with world.producer() as producer:
        await (await producer.send("sea", b"of the former"))
        world.script(TidelogError(ErrorCode.REQUEST_TIMED_OUT, "too late"))
        sent = await producer.send("sea", b"in doubt")
        await milliseconds(4)
        world.cluster.create("sea", [0])
        with pytest.raises(UnknownTopicIdError, match="'sea' was deleted and created again") as end:
            await sent
        assert end.value.outcome_unknown
        assert (await (await producer.send("sea", b"of the new"))).offset == 0
    assert world.sea.values() == [b"of the new"]


# -- the current topic -------------------------------------------------------------------


@pytest.mark.rule("zombie-resets-no-client")
def test_stale_metadata_does_not_restore_the_previous_topic() -> None:
    cache = MetadataCache()
    cache.apply(answer(1, 7, topic_id="former", create_revision=10))
    cache.apply(answer(2, 0, topic_id="new", create_revision=20))
    cache.apply(answer(1, 7, topic_id="former", create_revision=10))
    assert cache.leader(SEA) == Leader(2, 0, "b2:1", "new")


def test_metadata_without_a_creation_revision_does_not_restore_the_previous_topic() -> None:
    cache = MetadataCache()
    cache.apply(answer(2, 0, topic_id="new", create_revision=20))
    cache.apply(answer(2, 0, topic_id="new", create_revision=0))
    cache.apply(answer(1, 7, topic_id="former", create_revision=0))
    assert cache.leader(SEA) == Leader(2, 0, "b2:1", "new")


def test_a_hint_for_the_previous_topic_does_not_apply_to_the_new_one() -> None:
    cache = MetadataCache()
    cache.apply(answer(2, 0, topic_id="new", create_revision=20))
    assert not cache.apply_hint(SEA, "former", LeaderHint(1, 7, "b1:1"))
    assert cache.leader(SEA) == Leader(2, 0, "b2:1", "new")


def test_another_cluster_at_the_same_addresses_resets_the_metadata() -> None:
    cache = MetadataCache()
    controller = broker_pb2.ControllerEndpoint(address="c:1", controller_epoch=9)
    cache.apply(answer(1, 7, create_revision=100, cluster_id="first", controller=controller))
    controller = broker_pb2.ControllerEndpoint(address="d:1", controller_epoch=1)
    second = answer(
        2, 0, topic_id="new", create_revision=5, cluster_id="second", controller=controller
    )
    cache.apply(second)
    assert cache.leader(SEA) == Leader(2, 0, "b2:1", "new")
    assert cache.controller_address == "d:1"


def previous_topic_in_stale_metadata_of_broker_0(world: World) -> None:
    """Broker 0 led the previous topic, in epoch 5, and has stale metadata."""
    for leader in (1, 0, 1, 0):
        world.cluster.elect("sea", 0, leader)
    stale = world.broker.metadata(broker_pb2.MetadataRequest(topics=["sea"]))
    world.broker.metadata_of = lambda: stale
    world.cluster.create("sea", [1])


@story
async def test_a_consumer_of_the_new_topic_is_not_sent_back_to_the_previous_one(
    world: World,
) -> None:
    previous_topic_in_stale_metadata_of_broker_0(world)
    async with world.consumer() as consumer:
        consumer.assign([SEA])
        for number in range(6):
            append(world, b"%d" % number)
            assert await read(consumer, 1) == [b"%d" % number]
            await consumer._metadata.refresh()


@story
async def test_a_producer_of_the_new_topic_is_not_sent_back_to_the_previous_one(
    world: World,
) -> None:
    previous_topic_in_stale_metadata_of_broker_0(world)
    async with world.producer() as producer:
        await (await producer.send("sea", b"0"))
        world.broker.seen["produce"].clear()
        for number in range(1, 6):
            await producer._metadata.refresh()
            await (await producer.send("sea", b"%d" % number))
    assert world.broker.seen["produce"] == []
    assert world.sea.values() == [b"%d" % number for number in range(6)]


# -- a topic that is being created ---------------------------------------------------------


@story
async def test_a_topic_whose_partitions_appear_later_can_be_read(world: World) -> None:
    topic = world.cluster.topics["sea"]
    topic.partitions, coming = [], topic.partitions
    async with world.consumer() as consumer:
        with pytest.raises(TidelogError, match="does not exist"):
            await consumer.beginning_offsets([SEA])
        topic.partitions = coming
        assert await consumer.beginning_offsets([SEA]) == {SEA: 0}


@story
async def test_a_partition_that_appears_later_can_be_read(world: World) -> None:
    topic = world.cluster.create("lake", [0, 0])
    second = TopicPartition("lake", 1)
    last = topic.partitions.pop()
    async with world.consumer() as consumer:
        with pytest.raises(TidelogError, match="partitions are 0 to 0"):
            await consumer.beginning_offsets([second])
        topic.partitions.append(last)
        assert await consumer.beginning_offsets([second]) == {second: 0}


# -- unclean elections -------------------------------------------------------------------


def test_an_unclean_election_is_reported_although_the_previous_topic_had_a_later_one() -> None:
    elections = UncleanElections()
    elections.reached(SEA, "former", 5, 100)
    assert elections.new_elections(lambda _: leader_of("former", 6, unclean_epoch=6))
    elections.reached(SEA, "new", 1, 10)
    found = elections.new_elections(lambda _: leader_of("new", 2, unclean_epoch=2))
    assert found == [UncleanElection(SEA, 2, 10, 1)]


def test_positions_in_the_previous_topic_are_not_lost_in_the_new_one() -> None:
    elections = UncleanElections()
    elections.reached(SEA, "former", 1, 100)
    assert elections.new_elections(lambda _: leader_of("new", 2, unclean_epoch=2)) == []
