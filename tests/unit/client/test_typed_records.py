"""What type checkers know of records: mypy checks the types that `assert_type` names here."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any, NamedTuple, assert_type

import pytest

from tidelog.client import (
    Consumer,
    Record,
    SyncAdmin,
    SyncConsumer,
    SyncProducer,
    serializers,
)
from tidelog.testing import MemoryBroker


class Tide(NamedTuple):
    height_cm: int

    @classmethod
    def parse(cls, content: bytes) -> Tide:
        return cls(int(content))


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with MemoryBroker() as broker:
        with SyncAdmin(broker.bootstrap) as admin, SyncProducer(broker.bootstrap) as producer:
            admin.create_topic("sea")
            producer.send_and_wait("sea", b"250", key=b"north")
        yield broker.bootstrap


async def test_records_without_deserializers_are_bytes(bootstrap: str) -> None:
    async with Consumer(bootstrap) as consumer:
        await consumer.assign_topic("sea")
        (record,) = await consumer.poll(20_000)
        assert_type(consumer, Consumer[bytes, bytes])
        assert_type(record, Record)
        assert_type(record.value, bytes | None)
        assert (record.key, record.value) == (b"north", b"250")


async def test_records_have_what_deserializers_return(bootstrap: str) -> None:
    async with Consumer(
        bootstrap, key_deserializer=serializers.from_text, value_deserializer=Tide.parse
    ) as consumer:
        await consumer.assign_topic("sea")
        async for record in consumer:
            assert_type(record, Record[str, Tide])
            assert_type(record.key, str | None)
            assert record.value is not None
            assert_type(record.value.height_cm, int)
            assert (record.key, record.value) == ("north", Tide(250))
            break


async def test_one_deserializer_leaves_the_other_side_bytes(bootstrap: str) -> None:
    async with Consumer(bootstrap, value_deserializer=Tide.parse) as consumer:
        await consumer.assign_topic("sea")
        (record,) = await consumer.poll(20_000)
        assert_type(record, Record[bytes, Tide])
        assert (record.key, record.value) == (b"north", Tide(250))


async def test_json_may_be_anything(bootstrap: str) -> None:
    async with Consumer(bootstrap, value_deserializer=serializers.from_json) as consumer:
        await consumer.assign_topic("sea")
        (record,) = await consumer.poll(20_000)
        assert_type(record, Record[bytes, Any])
        assert record.value == 250


def test_the_same_without_async(bootstrap: str) -> None:
    with (
        SyncConsumer(bootstrap) as plain,
        SyncConsumer(bootstrap, value_deserializer=Tide.parse) as consumer,
    ):
        plain.assign_topic("sea")
        assert_type(plain.poll(20_000), list[Record])
        consumer.assign_topic("sea")
        for record in consumer:
            assert_type(record, Record[bytes, Tide])
            assert record.value == Tide(250)
            break


def test_a_typed_record_is_a_plain_tuple() -> None:
    record: Record[str, Tide] = Record("sea", 0, 7, 1, "north", Tide(250), (), 3)
    assert record._replace(offset=8).offset == 8
    assert record == ("sea", 0, 7, 1, "north", (250,), (), 3)
    assert pickle.loads(pickle.dumps(record)) == record
