"""Serializers of producers and deserializers of consumers."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tidelog.client import (
    ArgumentTypeError,
    Consumer,
    DeserializationError,
    Producer,
    Record,
    SerializationError,
    SyncConsumer,
    SyncProducer,
    serializers,
)
from tidelog.client.record_columns import SLICE_RECORDS
from tidelog.model import TopicPartition
from tidelog.v1 import errors_pb2
from unit.client.fake_broker import FakeCluster
from unit.client.idempotent_world import World, story
from unit.client.memory_connections import MemoryConnections

SEA = TopicPartition("sea", 0)
JSON: dict[str, Any] = {"value_serializer": serializers.to_json}
FROM_JSON: dict[str, Any] = {"value_deserializer": serializers.from_json}
OBJECTS: list[Any] = [{"height_m": 2.5}, [1, "höher"], "calm", 7, True]

Send = Callable[[Producer, Any], Any]
SENDS: dict[str, Send] = {
    "send": lambda producer, value: producer.send("sea", value),
    "send_and_wait": lambda producer, value: producer.send_and_wait("sea", value),
    "send_many": lambda producer, value: producer.send_many("sea", [7, value]),
}
each_send = pytest.mark.parametrize("send", SENDS)


def values(records: list[Record]) -> list[Any]:
    return [record.value for record in records]


async def read(consumer: Consumer, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        records = await consumer.poll(2_000)
        assert records, f"{len(found)} of {count} records"
        found += values(records)
    return found


@story
async def test_objects_are_sent_and_read(world: World) -> None:
    async with world.producer(**JSON) as producer, world.consumer(**FROM_JSON) as consumer:
        for value in OBJECTS[:2]:
            await producer.send("sea", value)
        await producer.send_and_wait("sea", OBJECTS[2])
        await (await producer.send_many("sea", OBJECTS[3:]))
        await consumer.assign_topic("sea")
        assert await read(consumer, len(OBJECTS)) == OBJECTS
    assert world.sea.values()[1] == '[1,"höher"]'.encode()


@story
async def test_keys_have_a_function_of_their_own(world: World) -> None:
    to_text = {"key_serializer": serializers.to_text}
    from_text = {"key_deserializer": serializers.from_text}
    async with world.producer(**to_text) as producer, world.consumer(**from_text) as consumer:
        await producer.send_and_wait("sea", b"calm", "nörd")
        await (await producer.send_many("sea", [b"ebb"], ["south"]))
        await consumer.assign_topic("sea")
        records: list[Any] = [*await consumer.poll(2_000, 1), *await consumer.poll(2_000, 1)]
        assert [(r.key, r.value) for r in records] == [("nörd", b"calm"), ("south", b"ebb")]


@story
async def test_null_keys_and_values_stay_none(world: World) -> None:
    both = {"key_serializer": serializers.to_json, **JSON}
    readers = {"key_deserializer": serializers.from_json, **FROM_JSON}
    async with world.producer(**both) as producer, world.consumer(**readers) as consumer:
        await producer.send_and_wait("sea", None, None)
        await (await producer.send_many("sea", [None], [None]))
        await consumer.assign_topic("sea")
        for _ in range(2):
            (record,) = await consumer.poll(2_000, 1)
            assert (record.key, record.value) == (None, None)
    assert world.sea.values() == [None, None]


@each_send
@pytest.mark.parametrize(
    ("serializer", "problem"),
    [
        (serializers.to_json, "TypeError"),
        (lambda value: str(value), "returned str instead of bytes"),
    ],
    ids=["raises", "returns text"],
)
def test_a_serializer_that_fails_is_an_error_of_the_call(
    send: str, serializer: Any, problem: str
) -> None:
    @story
    async def test(world: World) -> None:
        async with world.producer(value_serializer=serializer) as producer:
            free = producer.free_bytes
            with pytest.raises(SerializationError, match=problem) as failed:
                await SENDS[send](producer, {1, 2})
            assert (failed.value.field, failed.value.topic) == ("value", "sea")
            assert isinstance(failed.value, ValueError)
            assert producer.free_bytes == free
        assert world.sea.values() == []

    test()


@story
async def test_an_error_in_a_column_names_its_record(world: World) -> None:
    column: list[Any] = [1] * (SLICE_RECORDS + 2)
    column[-1] = math.nan
    async with world.producer(**JSON) as producer:
        with pytest.raises(SerializationError, match=f"at index {SLICE_RECORDS + 1}") as failed:
            await producer.send_many("sea", column)
        assert failed.value.index == SLICE_RECORDS + 1
    assert world.sea.values() == []
    assert math.isnan(column[-1]), "the list of the caller is unchanged"


@each_send
def test_without_a_serializer_only_bytes_are_sent(send: str) -> None:
    @story
    async def test(world: World) -> None:
        async with world.producer(key_serializer=serializers.to_text) as producer:
            with pytest.raises(ArgumentTypeError, match="must be bytes or None"):
                await SENDS[send](producer, "text")

    test()


async def send_raw(world: World, *contents: bytes, partition: int = 0) -> None:
    async with world.producer() as producer:
        for value in contents:
            await producer.send_and_wait("sea", value, partition=partition)


async def send_in_one_batch(world: World, *contents: bytes) -> None:
    async with world.producer(batch_bytes=1 << 20) as producer:
        await (await producer.send_many("sea", contents))


@pytest.mark.parametrize("write", [send_raw, send_in_one_batch])
def test_a_deserializer_that_fails_keeps_the_position(write: Any) -> None:
    @story
    async def test(world: World) -> None:
        await write(world, b"1", b"2", b"wrong", b"4")
        async with world.consumer(**FROM_JSON) as consumer:
            await consumer.assign_topic("sea")
            assert await read(consumer, 2) == [1, 2]
            for _ in range(2):
                with pytest.raises(DeserializationError) as failed:
                    await consumer.poll(2_000)
                assert consumer.position(SEA) == 2
            error = failed.value
            assert (error.topic, error.partition, error.offset) == ("sea", SEA, 2)
            assert (error.field, error.record.value) == ("value", b"wrong")
            assert isinstance(error.__cause__, ValueError)
            consumer.seek(error.partition, error.offset + 1)
            assert await read(consumer, 1) == [4]

    test()


@story
async def test_an_iteration_raises_the_error_and_continues_after_a_seek(world: World) -> None:
    await send_in_one_batch(world, b"1", b"wrong", b"3")
    async with world.consumer(**FROM_JSON) as consumer:
        await consumer.assign_topic("sea")
        first: Any = await anext(consumer)
        assert first.value == 1
        with pytest.raises(DeserializationError) as failed:
            await anext(consumer)
        consumer.seek(failed.value.partition, failed.value.offset + 1)
        last: Any = await anext(consumer)
        assert last.value == 3


@story
async def test_other_partitions_are_read_while_one_cannot_be_deserialized(world: World) -> None:
    world.cluster.create("sea", [0, 0])
    await send_raw(world, b"wrong")
    await send_raw(world, *[b"%d" % number for number in range(20)], partition=1)
    async with world.consumer(**FROM_JSON) as consumer:
        await consumer.assign_topic("sea")
        read: list[Any] = []
        errors = 0
        while len(read) < 20 and errors < 10:
            try:
                read += values(await consumer.poll(2_000, 3))
            except DeserializationError:
                errors += 1
        assert read == [*range(20)]
        assert errors > 0


@story
async def test_batches_are_returned_as_they_are_stored(world: World) -> None:
    await send_raw(world, b"wrong")
    async with world.consumer(**FROM_JSON) as consumer:
        await consumer.assign_topic("sea")
        (batch,) = await consumer.poll_batches(2_000)
        assert batch.columns().values == [b"wrong"]


def test_sync_clients_serialize_and_deserialize() -> None:
    cluster = FakeCluster().in_memory()
    cluster.create("sea", [0])
    connections = MemoryConnections(cluster)
    with SyncProducer(cluster.bootstrap(), connections=connections, **JSON) as producer:
        producer.send("sea", {"height_m": 1})
        with pytest.raises(SerializationError):
            producer.send("sea", {1})
        producer.send_many("sea", [2])
        producer.ask(lambda client: client.send_and_wait("sea", 3))
    with SyncConsumer(cluster.bootstrap(), connections=connections, **FROM_JSON) as consumer:
        consumer.assign_topic("sea")
        records = iter(consumer)
        assert [next(records).value for _ in range(3)] == [{"height_m": 1}, 2, 3]


def test_a_sync_consumer_continues_after_the_record_that_failed() -> None:
    cluster = FakeCluster().in_memory()
    cluster.create("sea", [0])
    connections = MemoryConnections(cluster)
    with SyncProducer(cluster.bootstrap(), connections=connections) as producer:
        producer.send_many("sea", [b"1", b"wrong", b"3"])
    with SyncConsumer(cluster.bootstrap(), connections=connections, **FROM_JSON) as consumer:
        consumer.assign_topic("sea")
        assert values(consumer.poll(2_000)) == [1]
        for _ in range(2):
            with pytest.raises(DeserializationError) as failed:
                consumer.poll(2_000)
            assert consumer.position(SEA) == 1
        consumer.seek(failed.value.partition, failed.value.offset + 1)
        assert values(consumer.poll(2_000)) == [3]


def test_an_error_can_be_pickled() -> None:
    with pytest.raises(SerializationError) as failed:
        Producer("broker:1", **JSON)._serializer.key_and_value("sea", None, {1})
    copy = pickle.loads(pickle.dumps(failed.value))
    assert (str(copy), copy.field) == (str(failed.value), "value")


@pytest.mark.parametrize("value", [math.nan, math.inf, {1}, b"bytes", object()])
def test_json_rejects_what_it_cannot_hold(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        serializers.to_json(value)


def test_protobuf_messages_are_sent_and_read() -> None:
    message = errors_pb2.Error(message="rough")
    content = serializers.to_protobuf(errors_pb2.Error)(message)
    assert serializers.from_protobuf(errors_pb2.Error)(content) == message


def test_a_message_of_another_class_is_rejected() -> None:
    serialize: Any = serializers.to_protobuf(errors_pb2.Error)
    with pytest.raises(TypeError, match=r"dict is no tidelog\.v1\.Error"):
        serialize({})
