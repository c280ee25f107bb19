"""How the gateway sends and reads records."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tidelog.client.delivery import Delivery
from tidelog.errors import ErrorCode, RecordsDamagedError, TidelogError
from tidelog.model import Acks, OnDamage, Record, TopicPartition
from tidelog_admin_api.bodies.record_bodies import RecordToSend
from tidelog_admin_api.problems import ProblemError
from tidelog_admin_api.record_collecting import (
    HEADER_BYTES,
    MAX_DAMAGED_RANGES,
    MAX_RECORD_BYTES,
    ReadBound,
)
from tidelog_admin_api.record_reader import (
    AtOffset,
    AtTime,
    Latest,
    read_records,
)
from tidelog_admin_api.record_sender import MAX_TOPIC_NAMES, RecordSender
from unit.admin_api.fake_operations import FakeConsumer, FakeProducer
from unit.admin_api.fakes import FakeCluster
from unit.admin_api.test_event_hub import ManualClock

SEA = TopicPartition("sea", 0)
ALL = ReadBound(max_records=100, max_bytes=1_000, max_scanned=1_000, wait_ms=0, timeout_ms=1_000)
LONG_MS = 60_000


def record(value: bytes | None = b"calm", partition: int | None = None) -> RecordToSend:
    return RecordToSend(value, None, partition, (), None)


class Sending:
    def __init__(self) -> None:
        self.made: list[tuple[Acks, FakeProducer]] = []
        self.sender = RecordSender(self._make)

    def _make(self, acks: Acks) -> FakeProducer:
        producer = FakeProducer()
        self.made.append((acks, producer))
        return producer

    async def codes(
        self, *values: bytes, topic: str = "sea", timeout_ms: int = LONG_MS
    ) -> list[ErrorCode | int]:
        """The offset of each record, or its error code."""
        outcomes = await self.sender.send(topic, [*map(record, values)], Acks.ALL, timeout_ms)
        return [o.code if isinstance(o, TidelogError) else o.offset for o in outcomes]


async def test_each_record_has_its_own_outcome() -> None:
    assert await Sending().codes(b"a", b"large", b"rejected", b"b") == [
        0,
        ErrorCode.BATCH_TOO_LARGE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        2,
    ]


async def test_an_unacknowledged_record_may_have_been_written() -> None:
    assert await Sending().codes(b"lost", b"a", timeout_ms=1) == [ErrorCode.REQUEST_TIMED_OUT, 1]


async def test_an_unsent_record_was_not_written() -> None:
    sending = Sending()
    assert await sending.codes(b"a", b"no room", b"b", timeout_ms=1) == [
        0,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
    ]
    assert [value for value, *_ in sending.made[0][1].sent] == [b"a"]


async def test_a_blocked_topic_delays_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidelog_admin_api.record_sender.MAX_TOPIC_BYTES", 1_000)
    sending = Sending()
    await sending.codes(b"lost", timeout_ms=1)
    large = b"x" * 1_000
    assert await sending.codes(large, timeout_ms=1) == [ErrorCode.LEADER_NOT_AVAILABLE]
    assert await sending.codes(large, large, topic="sea-2") == [1, 2]


async def test_an_unknown_topic_is_looked_up_once() -> None:
    sending = Sending()
    assert set(await sending.codes(*[b"a"] * 100, topic="bay")) == {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    assert sending.made[0][1].lookups == 1


async def test_an_unknown_partition_delays_no_other() -> None:
    sending = Sending()
    records = [record(partition=7), record(partition=0), record(partition=7)]
    wrong, right, again = await sending.sender.send("sea", records, Acks.ALL, LONG_MS)
    assert isinstance(right, Delivery)
    assert wrong is again
    assert sending.made[0][1].lookups == 2


async def test_each_acks_mode_has_one_cached_producer() -> None:
    sending = Sending()
    for acks in (Acks.ALL, Acks.NONE, Acks.ALL):
        await sending.sender.send("sea", [record()], acks, LONG_MS)
    assert [acks for acks, _ in sending.made] == [Acks.ALL, Acks.NONE]
    await sending.sender.close()
    assert all(producer.is_closed for _, producer in sending.made)


async def test_a_stopping_gateway_does_not_wait_for_blocked_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidelog_admin_api.record_sender.FLUSH_TIMEOUT_MS", 0)
    sending = Sending()
    await sending.codes(b"lost", timeout_ms=1)
    sending.made[0][1].cannot_flush = True
    await sending.sender.close()
    assert sending.made[0][1].is_closed


async def test_topic_names_per_producer_are_bounded() -> None:
    sending = Sending()
    for number in range(MAX_TOPIC_NAMES + 1):
        await sending.sender.send(f"sea-{number}", [record()], Acks.ALL, LONG_MS)
    await asyncio.sleep(0)
    assert [producer.is_closed for _, producer in sending.made] == [True, False]


def stored(offset: int, value: bytes = b"calm", key: bytes | None = None) -> Record:
    return Record("sea", 0, offset, 1_000 + offset, key, value, (), 3)


TEN = [stored(offset) for offset in range(10, 20)]


async def read(
    consumer: FakeConsumer, start: AtOffset | AtTime | Latest, bound: ReadBound = ALL
) -> tuple[list[int], int]:
    """The offsets that were read, and the next offset."""
    found = await read_records(consumer, SEA, start, bound, ManualClock())
    assert (found.log_start_offset, found.end_offset) == (consumer.start, consumer.end)
    return [one.offset for one in found.records], found.next_offset


@pytest.mark.parametrize(
    ("start", "offsets"),
    [
        (AtOffset(18), [18, 19]),
        (AtOffset(20), []),
        (AtTime(1_017), [17, 18, 19]),
        (AtTime(9_999), []),
        (Latest(2), [18, 19]),
        (Latest(100), list(range(10, 20))),
    ],
)
async def test_reading_begins_at_the_requested_position(
    start: AtOffset | AtTime | Latest, offsets: list[int]
) -> None:
    assert await read(FakeConsumer(TEN, start=10), start) == (offsets, 20)


@pytest.mark.parametrize("offset", [9, 21])
async def test_an_offset_out_of_range_is_rejected(offset: int) -> None:
    with pytest.raises(TidelogError, match="begins at 10 and ends before 20") as raised:
        await read(FakeConsumer(TEN, start=10), AtOffset(offset))
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_the_number_of_records_is_bounded() -> None:
    bound = ALL._replace(max_records=3)
    assert await read(FakeConsumer(TEN, start=10), AtOffset(10), bound) == ([10, 11, 12], 13)


async def test_the_bytes_of_records_are_bounded() -> None:
    bound = ALL._replace(max_bytes=9)
    assert await read(FakeConsumer(TEN, start=10), AtOffset(10), bound) == ([10, 11], 12)


async def test_a_single_record_is_returned_however_large() -> None:
    bound = ALL._replace(max_bytes=1)
    assert await read(FakeConsumer(TEN, start=10), AtOffset(10), bound) == ([10], 11)


async def test_a_record_too_large_to_show_ends_the_page_or_is_reported() -> None:
    records = [stored(n) for n in range(4)]
    records[2] = records[2]._replace(value=bytes(MAX_RECORD_BYTES + 1))
    bound = ALL._replace(max_bytes=4 * MAX_RECORD_BYTES)
    assert await read(FakeConsumer(records), AtOffset(0), bound) == ([0, 1], 2)
    with pytest.raises(ProblemError) as rejected:
        await read(FakeConsumer(records), AtOffset(2), bound)
    assert rejected.value.code == "RECORD_TOO_LARGE"
    assert "continue with offset=3" in rejected.value.mapping.fix
    assert await read(FakeConsumer(records), AtOffset(3), bound) == ([3], 4)
    assert await read(FakeConsumer(records), Latest(4), bound) == ([3], 4)


async def test_headers_count_more_than_their_bytes() -> None:
    """Thousands of empty headers become thousands of objects in the answer."""
    records = [stored(n)._replace(headers=(("", b""),) * 10) for n in range(9)]
    bound = ALL._replace(max_bytes=25 * HEADER_BYTES)
    assert await read(FakeConsumer(records), AtOffset(0), bound) == ([0, 1], 2)


async def test_a_key_selects_its_records() -> None:
    records = [stored(n, key=b"even" if n % 2 == 0 else b"odd") for n in range(10)]
    bound = ALL._replace(key=b"odd", max_scanned=6)
    assert await read(FakeConsumer(records), AtOffset(0), bound) == ([1, 3, 5], 6)


async def test_the_newest_records_of_a_key_are_found_behind_others() -> None:
    records = [stored(n, key=b"rare" if n < 4 else b"often") for n in range(10)]
    bound = ALL._replace(key=b"rare", max_records=2)
    assert await read(FakeConsumer(records), Latest(2), bound) == ([2, 3], 10)
    too_far = bound._replace(max_scanned=5)
    assert await read(FakeConsumer(records), Latest(2), too_far) == ([], 10)


async def test_the_newest_records_are_returned_within_the_byte_limit() -> None:
    bound = ALL._replace(max_bytes=9)
    assert await read(FakeConsumer(TEN, start=10), Latest(5), bound) == ([18, 19], 20)
    assert await read(FakeConsumer(TEN, start=10), Latest(5), ALL._replace(max_bytes=1)) == (
        [19],
        20,
    )


async def test_offsets_without_a_record_are_skipped() -> None:
    assert await read(FakeConsumer(TEN, start=10, end=23), AtOffset(19)) == ([19], 23)
    assert await read(FakeConsumer(TEN, start=10, end=23), AtOffset(21)) == ([], 23)


async def test_reading_waits_at_the_log_end_only_on_request() -> None:
    consumer = FakeConsumer([], end=0)
    await read(consumer, AtOffset(0))
    await read(consumer, AtOffset(0), ALL._replace(wait_ms=700))
    await read(consumer, AtOffset(0), ALL._replace(wait_ms=700, timeout_ms=300))
    assert consumer.waited_ms == [700, 300]


async def test_a_timed_out_read_returns_the_records_so_far() -> None:
    bound = ALL._replace(timeout_ms=0)
    assert await read(FakeConsumer(TEN, start=10), AtOffset(10), bound) == ([], 10)


DAMAGED = (13, 15)


def damaged_consumer() -> FakeConsumer:
    consumer = FakeConsumer(TEN, start=10)
    consumer.damaged = [DAMAGED]
    return consumer


async def test_intact_records_before_damaged_ones_are_read() -> None:
    assert await read(damaged_consumer(), AtOffset(11)) == ([11, 12], 13)


async def test_a_read_that_waits_to_open_a_batch_ends_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = FakeConsumer(TEN, start=10)
    poll = consumer.poll

    async def first_batch(timeout_ms: int, _: int) -> list[Record]:
        if consumer.at >= 13:
            await asyncio.Event().wait()
        return await poll(timeout_ms, 2)

    monkeypatch.setattr(consumer, "poll", first_batch)
    bound = ALL._replace(timeout_ms=50)
    found = await read_records(consumer, SEA, AtOffset(11), bound, ManualClock())
    assert ([r.offset for r in found.records], found.next_offset) == ([11, 12], 13)


async def test_records_before_an_unreadable_batch_are_read() -> None:
    consumer = FakeConsumer(TEN, start=10)
    consumer.unreadable = 13
    assert await read(consumer, AtOffset(11)) == ([11, 12], 13)
    for start in (AtOffset(13), Latest(8)):
        with pytest.raises(TidelogError) as unreadable:
            await read(consumer, start)
        assert unreadable.value.code is ErrorCode.INVALID_BATCH


@pytest.mark.parametrize("start", [AtOffset(13), AtOffset(14), Latest(8)])
async def test_at_damaged_records_the_offsets_are_reported(
    start: AtOffset | Latest,
) -> None:
    with pytest.raises(RecordsDamagedError) as damaged:
        await read(damaged_consumer(), start)
    assert (damaged.value.first_offset, damaged.value.next_offset) == DAMAGED


@pytest.mark.parametrize(
    ("start", "offsets"),
    [
        (AtOffset(11), [11, 12, *range(15, 20)]),
        (AtOffset(14), [*range(15, 20)]),
        (Latest(8), [12, *range(15, 20)]),
    ],
)
async def test_damaged_records_are_skipped_and_listed(
    start: AtOffset | Latest, offsets: list[int]
) -> None:
    bound = ALL._replace(on_damage=OnDamage.SKIP)
    found = await read_records(damaged_consumer(), SEA, start, bound, ManualClock())
    assert [record.offset for record in found.records] == offsets
    assert (found.next_offset, list(found.damaged)) == (20, [DAMAGED])


async def test_one_read_skips_a_bounded_number_of_damaged_ranges() -> None:
    consumer = FakeConsumer([], end=1_000)
    consumer.damaged = [(n, n + 1) for n in range(1_000)]
    bound = ALL._replace(on_damage=OnDamage.SKIP)
    found = await read_records(consumer, SEA, AtOffset(0), bound, ManualClock())
    assert (found.next_offset, len(found.damaged)) == (MAX_DAMAGED_RANGES, MAX_DAMAGED_RANGES)


async def test_the_gateway_returns_the_next_offset_behind_damaged_records(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    fake_cluster.consumer = damaged_consumer()
    path, at = "/v1/topics/sea/partitions/0/records", {"offset": 13}
    rejected = await gateway.get(path, params=at)
    assert (rejected.status_code, rejected.json()["code"]) == (410, "RECORDS_DAMAGED")
    assert rejected.json()["damaged"] == {"first_offset": 13, "next_offset": 15}
    behind = {"offset": rejected.json()["damaged"]["next_offset"]}
    read_on = (await gateway.get(path, params=behind)).json()
    assert [item["offset"] for item in read_on["items"]] == [*range(15, 20)]
    assert read_on["damaged"] == []
    skipped = (await gateway.get(path, params={**at, "on_damage": "skip"})).json()
    assert skipped["items"] == read_on["items"]
    assert skipped["damaged"] == [{"first_offset": 13, "next_offset": 15}]
