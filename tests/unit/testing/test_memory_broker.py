"""`MemoryBroker`: its start and end, its limits, and what it does not do.

What clients see of it is compared with a cluster by `contract/client_contract.py`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from tidelog.client import SyncAdmin, SyncConsumer, SyncProducer
from tidelog.errors import (
    ErrorCode,
    InvalidRequestError,
    OffsetOutOfRangeError,
    TidelogError,
    UnknownTopicError,
)
from tidelog.testing import MemoryBroker
from tidelog.testing.memory.memory_cluster import MAX_PARTITIONS


@pytest.fixture(scope="module")
def broker() -> Iterator[MemoryBroker]:
    with MemoryBroker() as running:
        yield running


@pytest.fixture
def topic(broker: MemoryBroker) -> Iterator[str]:
    with SyncAdmin(broker.bootstrap) as admin:
        admin.create_topic("sea")
        yield "sea"
        admin.delete_topic("sea")


def test_records_are_read_as_they_were_sent(broker: MemoryBroker, topic: str) -> None:
    with SyncProducer(broker.bootstrap) as producer, SyncConsumer(broker.bootstrap) as consumer:
        producer.send_and_wait(topic, b"calm", key=b"north", headers=[("tide", b"ebb")])
        consumer.assign_topic(topic)
        (record,) = consumer.poll(20_000)
    assert (record.key, record.value, record.offset) == (b"north", b"calm", 0)
    assert list(record.headers) == [("tide", b"ebb")]


def test_two_brokers_share_nothing(broker: MemoryBroker, topic: str) -> None:
    with MemoryBroker() as other, SyncAdmin(other.bootstrap) as admin:
        assert other.bootstrap != broker.bootstrap
        assert admin.list_topics() == []
        with pytest.raises(UnknownTopicError):
            admin.describe_topic(topic)


def test_readers_behind_removed_records_are_out_of_range(broker: MemoryBroker, topic: str) -> None:
    with SyncProducer(broker.bootstrap) as producer, SyncConsumer(broker.bootstrap) as consumer:
        for value in (b"0", b"1", b"2"):
            producer.send_and_wait(topic, value)
        consumer.assign([(topic, 0)])
        broker.remove_before(topic, 0, 2)
        consumer.seek((topic, 0), 0)
        with pytest.raises(OffsetOutOfRangeError):
            consumer.poll(20_000)
        assert consumer.beginning_offsets([(topic, 0)]) == {(topic, 0): 2}
        consumer.seek_to_beginning()
        assert [record.value for record in consumer.poll(20_000)] == [b"2"]


@pytest.mark.parametrize("offset", [-1, 1])
def test_records_that_are_not_there_cannot_be_removed(
    broker: MemoryBroker, topic: str, offset: int
) -> None:
    with pytest.raises(InvalidRequestError, match="offsets 0 to 0"):
        broker.remove_before(topic, 0, offset)


def test_records_beyond_the_limit_are_rejected_at_once() -> None:
    with (
        MemoryBroker(max_bytes=10_000) as small,
        SyncAdmin(small.bootstrap) as admin,
        SyncProducer(small.bootstrap) as producer,
    ):
        admin.create_topic("sea")
        producer.send_and_wait("sea", bytes(6_000))
        with pytest.raises(InvalidRequestError, match="raise max_bytes"):
            producer.send_and_wait("sea", bytes(6_000))
        small.remove_before("sea", 0, 1)
        producer.send_and_wait("sea", bytes(6_000))
        admin.delete_topic("sea")
        admin.create_topic("sea")
        producer.send_and_wait("sea", bytes(6_000))


def test_partitions_beyond_the_limit_are_rejected(broker: MemoryBroker) -> None:
    with SyncAdmin(broker.bootstrap) as admin:
        with pytest.raises(TidelogError, match=f"takes {MAX_PARTITIONS}") as rejected:
            admin.create_topic("ocean", MAX_PARTITIONS + 1)
        assert rejected.value.code is ErrorCode.INVALID_PARTITION_COUNT
        admin.create_topic("bay", 2)
        with pytest.raises(TidelogError, match="only adds partitions"):
            admin.add_partitions("bay", 1)
        admin.delete_topic("bay")


# Requests for clusters of several brokers.
UNSUPPORTED: dict[str, Callable[[SyncAdmin], object]] = {
    "RemovePartitions": lambda admin: admin.remove_partitions("bay", 1, confirm_topic="bay"),
    "Rebalance": lambda admin: admin.rebalance(),
    "ListOperations": lambda admin: admin.list_operations(),
    "DescribeBrokers": lambda admin: admin.describe_brokers(),
}


@pytest.mark.parametrize("request_name", UNSUPPORTED)
def test_requests_for_several_brokers_name_what_supports_them(
    broker: MemoryBroker, request_name: str
) -> None:
    with (
        SyncAdmin(broker.bootstrap) as admin,
        pytest.raises(InvalidRequestError, match=f"{request_name}.*tidelog_cluster"),
    ):
        UNSUPPORTED[request_name](admin)


def test_a_closed_broker_has_no_thread_and_no_address() -> None:
    before = threading.active_count()
    broker = MemoryBroker().start()
    assert broker.bootstrap.startswith("127.0.0.1:")
    broker.close()
    broker.close()
    assert threading.active_count() <= before + 1  # a thread of gRPC's own may have started
    with pytest.raises(RuntimeError, match="does not run"):
        _ = broker.bootstrap
    with pytest.raises(RuntimeError, match="does not run"):
        broker.remove_before("sea", 0, 0)


def test_a_broker_starts_where_no_event_loop_is_set() -> None:
    # As asyncio.run leaves it.
    asyncio.set_event_loop(None)
    with MemoryBroker() as broker:
        assert broker.bootstrap


def test_a_broker_is_started_once() -> None:
    with MemoryBroker() as broker, pytest.raises(RuntimeError, match="runs already"):
        broker.start()


def test_a_limit_below_one_byte_is_rejected() -> None:
    with pytest.raises(ValueError, match="max_bytes is 0"):
        MemoryBroker(max_bytes=0)
