"""What programs see of brokers through their clients. `MemoryBroker` has to behave as a cluster.

The tests of a subclass run on the broker or cluster that its fixture `bootstrap` names."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from crc32c import crc32c

from integration.topics import new_name
from tidelog.client import Acks, Admin, Codec, Consumer, Producer
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import OffsetPosition, Record, TopicPartition

# A record that is not there is not waited for any longer.
QUIET_MS = 300


class Place(NamedTuple):
    """`topic`: a new one with two partitions."""

    bootstrap: str
    topic: str


async def read(place: Place, count: int, **settings: Any) -> list[Record]:
    """Reads so many records of the topic, ordered by partition and offset."""
    async with Consumer(place.bootstrap, **settings) as consumer:
        await consumer.assign_topic(place.topic)
        records: list[Record] = []
        while len(records) < count:
            polled = await consumer.poll(20_000)
            assert polled, f"{len(records)} of {count} records"
            records += polled
    return sorted(records, key=lambda record: (record.partition, record.offset))


async def code_of(call: Awaitable[object]) -> ErrorCode | None:
    """Returns the code of the error that a call raises."""
    try:
        await call
    except TidelogError as error:
        return error.code
    return None


async def until_config(admin: Admin, topic: str, key: str, value: str) -> None:
    """Brokers of a cluster get the change a moment later."""
    for _ in range(100):
        if (await admin.describe_topic(topic)).config.get(key) == value:
            break
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.2)


Attempt = Callable[[Place, Admin, Producer], Awaitable[object]]
FUTURE_MS = 4_000_000_000_000
REJECTED: dict[str, tuple[ErrorCode, Attempt]] = {
    "topic exists": (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        lambda place, admin, _: admin.create_topic(place.topic, 2),
    ),
    "invalid name": (
        ErrorCode.INVALID_TOPIC_NAME,
        lambda _, admin, __: admin.create_topic("sea/bay"),
    ),
    "internal name": (
        ErrorCode.INVALID_TOPIC_NAME,
        lambda _, admin, __: admin.create_topic("__bay"),
    ),
    "no partitions": (
        ErrorCode.INVALID_PARTITION_COUNT,
        lambda _, admin, __: admin.create_topic(new_name("bay"), 0),
    ),
    "too many replicas": (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        lambda _, admin, __: admin.create_topic(new_name("bay"), 1, 9),
    ),
    "unknown configuration": (
        ErrorCode.INVALID_CONFIG,
        lambda _, admin, __: admin.create_topic(new_name("bay"), 1, 1, {"retention": "1"}),
    ),
    "invalid configuration": (
        ErrorCode.INVALID_CONFIG,
        lambda place, admin, _: admin.alter_topic_config(place.topic, {"retention_ms": "week"}),
    ),
    "impossible min ISR": (
        ErrorCode.INVALID_CONFIG,
        lambda _, admin, __: admin.create_topic(
            new_name("bay"), 1, 1, {"min_insync_replicas": "2"}
        ),
    ),
    "wrong topic id": (
        ErrorCode.UNKNOWN_TOPIC_ID,
        lambda place, admin, _: admin.delete_topic(place.topic, topic_id="A" * 22),
    ),
    "wrong revision": (
        ErrorCode.REVISION_CONFLICT,
        lambda place, admin, _: admin.delete_topic(place.topic, expected_revision=1 << 40),
    ),
    "deletion of no topic": (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        lambda _, admin, __: admin.delete_topic("bay"),
    ),
    "description of no topic": (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        lambda _, admin, __: admin.describe_topic("bay"),
    ),
    "timestamp in the future": (
        ErrorCode.INVALID_TIMESTAMP,
        lambda place, _, producer: producer.send_and_wait(
            place.topic, b"v", timestamp_ms=FUTURE_MS
        ),
    ),
    "large record": (
        ErrorCode.BATCH_TOO_LARGE,
        lambda place, _, producer: producer.send_and_wait(place.topic, bytes(2 << 20)),
    ),
}


@pytest.mark.asyncio(loop_scope="module")
class ClientContract:
    @pytest_asyncio.fixture(loop_scope="module")
    async def place(self, bootstrap: str) -> AsyncIterator[Place]:
        found = Place(bootstrap, new_name("sea"))
        async with Admin(found.bootstrap) as admin:
            await admin.create_topic(found.topic, 2)
            yield found
            await admin.delete_topic(found.topic)

    # -- records ---------------------------------------------------------------------------

    async def test_records_keep_keys_values_headers_and_timestamps(self, place: Place) -> None:
        async with Producer(place.bootstrap) as producer:
            for value, key in [(b"calm", b"north"), (None, None), (b"", b"")]:
                await producer.send_and_wait(
                    place.topic,
                    value,
                    key,
                    partition=0,
                    timestamp_ms=1_700_000_000_000,
                    headers=[("trace", b"1"), ("trace", b"2"), ("empty", b"")],
                )
        found = await read(place, 3)
        assert [(r.partition, r.offset, r.key, r.value) for r in found] == [
            (0, 0, b"north", b"calm"),
            (0, 1, None, None),
            (0, 2, b"", b""),
        ]
        assert {r.timestamp_ms for r in found} == {1_700_000_000_000}
        assert [list(r.headers) for r in found] == [
            [("trace", b"1"), ("trace", b"2"), ("empty", b"")]
        ] * 3

    async def test_a_key_chooses_the_partition(self, place: Place) -> None:
        keys = [b"north", b"south", b"east", b"west", b"north"]
        async with Producer(place.bootstrap) as producer:
            placed = [
                (await producer.send_and_wait(place.topic, b"v", key)).partition for key in keys
            ]
        assert placed == [crc32c(key) % 2 for key in keys]

    @pytest.mark.parametrize("codec", list(Codec))
    async def test_every_codec_is_read_back(self, place: Place, codec: Codec) -> None:
        values: list[bytes | None] = [b"%d" % n * 100 for n in range(50)]
        async with Producer(place.bootstrap, codec=codec) as producer:
            (report,) = await (await producer.send_many(place.topic, values, partition=1))
        assert (report.base_offset, report.record_count) == (0, 50)
        assert [record.value for record in await read(place, 50)] == values

    @pytest.mark.parametrize("acks", list(Acks))
    async def test_all_acks_deliver(self, place: Place, acks: Acks) -> None:
        async with Producer(place.bootstrap, acks=acks) as producer:
            await producer.send_and_wait(place.topic, b"calm", partition=0)
            await producer.flush()
        assert [record.value for record in await read(place, 1)] == [b"calm"]

    async def test_append_time_replaces_the_timestamps_of_producers(self, place: Place) -> None:
        before_ms = time.time_ns() // 1_000_000 - 60_000
        async with Admin(place.bootstrap) as admin, Producer(place.bootstrap) as producer:
            await admin.alter_topic_config(place.topic, {"timestamp_type": "append"})
            await until_config(admin, place.topic, "timestamp_type", "append")
            await producer.send_and_wait(place.topic, b"calm", partition=0, timestamp_ms=1)
        (record,) = await read(place, 1)
        assert record.timestamp_ms > before_ms

    # -- positions -------------------------------------------------------------------------

    async def test_offsets_are_found_by_position_and_time(self, place: Place) -> None:
        name = TopicPartition(place.topic, 0)
        async with Producer(place.bootstrap, linger_ms=0) as producer:
            for number in range(5):
                await producer.send_and_wait(
                    place.topic, b"v", partition=0, timestamp_ms=1_700_000_000_000 + number
                )
        async with Consumer(place.bootstrap) as consumer:
            assert await consumer.beginning_offsets([name]) == {name: 0}
            assert await consumer.end_offsets([name, (place.topic, 1)]) == {
                name: 5,
                TopicPartition(place.topic, 1): 0,
            }
            assert await consumer.offsets_at_time(1_700_000_000_003, [name]) == {name: 3}
            assert await consumer.offsets_at_time(1_800_000_000_000, [name]) == {name: 5}
            found = await consumer.offsets_with_epochs(OffsetPosition.LATEST, [name])
            assert found[name].offset == 5

    async def test_a_consumer_seeks_and_continues(self, place: Place) -> None:
        name = TopicPartition(place.topic, 0)
        async with Producer(place.bootstrap) as producer, Consumer(place.bootstrap) as consumer:
            await (await producer.send_many(place.topic, [b"0", b"1", b"2", b"3"], partition=0))
            consumer.assign([name])
            consumer.seek(name, 2)
            assert [r.value for r in await consumer.poll(20_000)] == [b"2", b"3"]
            assert consumer.position(name) == 4
            await consumer.seek_to_end()
            assert await consumer.poll(QUIET_MS) == []
            await producer.send_and_wait(place.topic, b"4", partition=0)
            assert [r.offset for r in await consumer.poll(20_000)] == [4]

    async def test_a_waiting_poll_returns_when_a_record_arrives(self, place: Place) -> None:
        async with Producer(place.bootstrap) as producer, Consumer(place.bootstrap) as consumer:
            await consumer.assign_topic(place.topic)
            polling = asyncio.create_task(consumer.poll(20_000))
            assert await code_of(asyncio.sleep(0.2)) is None
            assert not polling.done()
            await producer.send_and_wait(place.topic, b"calm")
            assert [record.value for record in await polling] == [b"calm"]

    async def test_an_offset_out_of_range_is_an_error_or_a_new_position(self, place: Place) -> None:
        name = TopicPartition(place.topic, 0)
        async with Consumer(place.bootstrap) as consumer:
            consumer.assign([name])
            consumer.seek(name, 7)
            assert await code_of(consumer.poll(20_000)) is ErrorCode.OFFSET_OUT_OF_RANGE
        async with (
            Consumer(place.bootstrap, on_out_of_range="earliest") as consumer,
            Producer(place.bootstrap) as producer,
        ):
            await producer.send_and_wait(place.topic, b"calm", partition=0)
            consumer.assign([name])
            consumer.seek(name, 7)
            assert [r.offset for r in await consumer.poll(20_000)] == [0]

    # -- errors ----------------------------------------------------------------------------

    @pytest.mark.parametrize("case", REJECTED)
    async def test_the_same_requests_are_rejected(self, place: Place, case: str) -> None:
        expected, attempt = REJECTED[case]
        async with (
            Admin(place.bootstrap) as admin,
            Producer(place.bootstrap, max_request_bytes=4 << 20) as producer,
        ):
            assert await code_of(attempt(place, admin, producer)) is expected

    # -- producers -------------------------------------------------------------------------

    async def test_a_new_holder_of_a_name_fences_the_previous_one(self, place: Place) -> None:
        name = new_name("holder")
        async with (
            Producer(place.bootstrap, producer_name=name) as former,
            Producer(place.bootstrap, producer_name=name) as latter,
        ):
            await former.send_and_wait(place.topic, b"former", partition=0)
            await latter.send_and_wait(place.topic, b"latter", partition=0)
            fenced = await code_of(former.send_and_wait(place.topic, b"late", partition=0))
        assert fenced is ErrorCode.FENCED_PRODUCER_EPOCH
        assert [record.value for record in await read(place, 2)] == [b"former", b"latter"]

    async def test_records_of_one_partition_keep_their_order(self, place: Place) -> None:
        async with Producer(place.bootstrap, linger_ms=0) as producer:
            for number in range(300):
                await producer.send(place.topic, b"%d" % number, partition=0)
            await producer.flush()
        found = await read(place, 300)
        assert [record.value for record in found] == [b"%d" % number for number in range(300)]
        assert [record.offset for record in found] == list(range(300))

    # -- topics ----------------------------------------------------------------------------

    async def test_a_topic_is_described_as_it_was_created(self, place: Place) -> None:
        name = new_name("bay")
        async with Admin(place.bootstrap) as admin:
            created = await admin.create_topic(name, 3, 1, {"retention_ms": "-1"})
            found = await admin.describe_topic(name)
            assert (found.topic_id, found.partition_count) == (created.topic_id, 3)
            assert (found.replication_factor, dict(found.config)) == (1, {"retention_ms": "-1"})
            assert name in [topic.name for topic in await admin.list_topics()]
            assert [topic.name for topic in await admin.find_topics([name, "bay"])] == [name]
            (details,) = await admin.topic_details([name])
            config = {entry.key: (entry.value, entry.is_set) for entry in details.config}
            assert config["retention_ms"] == ("-1", True)
            assert config["max_batch_bytes"] == ("1048576", False)
            await admin.delete_topic(name)
            assert name not in [topic.name for topic in await admin.list_topics()]

    async def test_added_partitions_are_noticed(self, place: Place) -> None:
        async with Admin(place.bootstrap) as admin, Producer(place.bootstrap) as producer:
            assert (await admin.add_partitions(place.topic, 4)).partitions == 2
            report = await producer.send_and_wait(place.topic, b"calm", partition=3)
        assert (report.partition, report.offset) == (3, 0)
        assert [(r.partition, r.value) for r in await read(place, 1)] == [(3, b"calm")]

    async def test_a_changed_configuration_is_applied(self, place: Place) -> None:
        async with Admin(place.bootstrap) as admin:
            altered = await admin.alter_topic_config(place.topic, {"max_batch_bytes": "1024"})
            assert [(c.key, c.before, c.after) for c in altered.changes] == [
                ("max_batch_bytes", "1048576", "1024")
            ]
            await until_config(admin, place.topic, "max_batch_bytes", "1024")
            async with Producer(place.bootstrap) as producer:
                sent = code_of(producer.send_and_wait(place.topic, bytes(5_000)))
                assert await sent is ErrorCode.BATCH_TOO_LARGE
            await admin.alter_topic_config(place.topic, {}, ["max_batch_bytes"])
            again = await admin.alter_topic_config(place.topic, {}, ["max_batch_bytes"])
            assert again.changes == ()

    async def test_a_topic_of_the_same_name_is_another_topic(self, place: Place) -> None:
        name = new_name("bay")
        async with Admin(place.bootstrap) as admin, Consumer(place.bootstrap) as consumer:
            first = await admin.create_topic(name)
            await consumer.assign_topic(name)
            assert await consumer.poll(QUIET_MS) == []
            await admin.delete_topic(name)
            second = await admin.create_topic(name)
            assert first.topic_id != second.topic_id
            codes = set()
            for _ in itertools.repeat(None, 20):
                codes.add(await code_of(consumer.poll(1_000)))
                if codes & {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:
                    break
            assert codes & {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            await admin.delete_topic(name)
