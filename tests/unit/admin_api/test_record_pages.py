"""Pages of records lead to the pages before and after them; a single record has an address."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tidelog.errors import ErrorCode, RecordsDamagedError, TidelogError
from tidelog.model import OnDamage, Record, TopicPartition
from tidelog_admin_api.problems import ProblemError
from tidelog_admin_api.record_collecting import MAX_DAMAGED_RANGES, MAX_RECORD_BYTES, ReadBound
from tidelog_admin_api.record_reader import AtOffset, Before, Latest, Read, read_records
from unit.admin_api.fake_operations import FakeConsumer
from unit.admin_api.fakes import FakeCluster
from unit.admin_api.test_event_hub import ManualClock

SEA = TopicPartition("sea", 0)
PATH = "/v1/topics/sea/partitions/0/records"
BOUND = ReadBound(max_records=3, max_bytes=1_000, max_scanned=100, wait_ms=0, timeout_ms=1_000)
SKIP = BOUND._replace(on_damage=OnDamage.SKIP)


def stored(offset: int, value: bytes = b"calm", key: bytes | None = None) -> Record:
    return Record("sea", 0, offset, 1_000 + offset, key, value, (), 3)


def consumer(*offsets: int, start: int = 0, end: int | None = None) -> FakeConsumer:
    last = max(offsets, default=start - 1)
    return FakeConsumer([stored(n) for n in offsets], start, last + 1 if end is None else end)


async def before(reading: FakeConsumer, offset: int, bound: ReadBound = BOUND) -> Read:
    return await read_records(reading, SEA, Before(offset), bound, ManualClock())


def offsets_of(read: Read) -> list[int]:
    return [record.offset for record in read.records]


@pytest.mark.parametrize(
    ("offset", "read", "first"),
    [
        (20, [17, 18, 19], 17),
        (15, [12, 13, 14], 12),
        # At the log's start there are fewer, and then none.
        (12, [10, 11], 10),
        (10, [], 10),
    ],
)
async def test_the_records_before_an_offset_are_read_in_order(
    offset: int, read: list[int], first: int
) -> None:
    page = await before(consumer(*range(10, 20), start=10), offset)
    assert (offsets_of(page), page.first_offset, page.next_offset) == (read, first, offset)


@pytest.mark.parametrize("offset", [9, 21])
async def test_a_page_before_an_offset_that_the_log_does_not_have_is_rejected(offset: int) -> None:
    with pytest.raises(TidelogError, match="begins at 10 and ends before 20") as raised:
        await before(consumer(*range(10, 20), start=10), offset)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_page_behind_a_gap_has_the_records_before_the_gap() -> None:
    read = await before(consumer(0, 1, 2, 90, 91), 90)
    assert (offsets_of(read), read.next_offset) == ([0, 1, 2], 90)


async def test_a_page_before_an_offset_in_a_gap_ends_with_the_last_record_before_it() -> None:
    assert offsets_of(await before(consumer(0, 1, 2, 90), 50)) == [0, 1, 2]


async def test_a_log_without_records_has_an_empty_page_before_its_end() -> None:
    read = await before(consumer(start=5, end=40), 40)
    assert (offsets_of(read), read.first_offset) == ([], 5)


async def test_a_page_backwards_has_the_nearest_records_within_the_byte_limit() -> None:
    read = await before(consumer(*range(10)), 10, BOUND._replace(max_bytes=9))
    assert (offsets_of(read), read.first_offset) == ([8, 9], 8)


async def test_a_page_backwards_has_records_with_the_key_among_the_last_scanned() -> None:
    records = [stored(n, key=b"even" if n % 2 == 0 else b"odd") for n in range(20)]
    bound = BOUND._replace(key=b"odd", max_scanned=8)
    read = await before(FakeConsumer(records), 20, bound)
    assert (offsets_of(read), read.first_offset) == ([15, 17, 19], 15)
    rare = FakeConsumer([record._replace(key=b"even") for record in records])
    assert (await before(rare, 20, bound)).first_offset == 12


async def test_a_record_too_large_to_show_ends_a_page_backwards_or_is_reported() -> None:
    records = [stored(n) for n in range(5)]
    records[2] = records[2]._replace(value=bytes(MAX_RECORD_BYTES + 1))
    read = await before(FakeConsumer(records), 5)
    assert (offsets_of(read), read.first_offset) == ([3, 4], 3)
    with pytest.raises(ProblemError) as rejected:
        await before(FakeConsumer(records), 3)
    assert rejected.value.code == "RECORD_TOO_LARGE"
    assert "before_offset=2" in rejected.value.mapping.fix
    assert offsets_of(await before(FakeConsumer(records), 2)) == [0, 1]


async def test_a_page_backwards_ends_behind_damaged_records() -> None:
    reading = consumer(*range(10))
    reading.damaged = [(5, 8)]
    read = await before(reading, 10)
    assert (offsets_of(read), read.first_offset) == ([8, 9], 8)
    with pytest.raises(RecordsDamagedError) as damaged:
        await before(reading, 8)
    assert damaged.value.first_offset == 5
    assert offsets_of(await before(reading, 5)) == [2, 3, 4]


async def test_a_page_backwards_skips_damaged_records_and_lists_them() -> None:
    reading = consumer(*range(10))
    reading.damaged = [(7, 9)]
    read = await before(reading, 10, SKIP._replace(max_records=5))
    assert (offsets_of(read), list(read.damaged)) == ([5, 6, 9], [(7, 9)])


async def test_a_page_backwards_lists_a_bounded_number_of_damaged_ranges() -> None:
    reading = consumer(end=1_000)
    reading.damaged = [(n, n + 1) for n in range(1_000)]
    bound = SKIP._replace(max_records=1_000, max_scanned=1_000)
    read = await before(reading, 1_000, bound)
    assert len(read.damaged) == MAX_DAMAGED_RANGES
    assert read.first_offset == read.damaged[0].first_offset == 1_000 - MAX_DAMAGED_RANGES


async def test_an_incomplete_page_backwards_is_an_error() -> None:
    """The nearest records would be missing, and no earlier page has them."""
    with pytest.raises(TidelogError, match="longer timeout_ms") as late:
        await before(consumer(*range(9)), 9, BOUND._replace(timeout_ms=0))
    assert late.value.code is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize(
    "reading",
    [
        consumer(*range(20)),
        consumer(*range(10, 20), start=10),
        consumer(0, 1, 7, 8, 9, 40, 41, end=60),
        consumer(*range(3, 9), 30, start=3, end=90),
    ],
)
async def test_pages_in_both_directions_have_each_record_once(reading: FakeConsumer) -> None:
    stored_offsets = [record.offset for record in reading.records]
    found: list[int] = []
    read = await read_records(reading, SEA, Latest(3), BOUND, ManualClock())
    found = offsets_of(read)
    while read.first_offset > read.log_start_offset:
        read = await before(reading, read.first_offset)
        found = offsets_of(read) + found
    assert found == stored_offsets
    found = []
    while read.next_offset < read.end_offset or not found:
        at = reading.start if not found else read.next_offset
        read = await read_records(reading, SEA, AtOffset(at), BOUND, ManualClock())
        found += offsets_of(read)
    assert found == stored_offsets


async def page(gateway: httpx.AsyncClient, path: str) -> dict[str, Any]:
    answer = await gateway.get(path)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def test_a_page_has_the_paths_of_its_neighbours(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    fake_cluster.consumer = consumer(*range(10, 20), start=10)
    newest = await page(gateway, f"{PATH}?latest=4&encoding=text")
    assert newest["next"] is None
    assert newest["previous"] == f"{PATH}?encoding=text&max_records=4&before_offset=16"
    older = await page(gateway, newest["previous"])
    assert [item["offset"] for item in older["items"]] == [12, 13, 14, 15]
    assert older["items"][0]["value_encoding"] == "text"
    assert (older["first_offset"], older["next_offset"]) == (12, 16)
    oldest = await page(gateway, older["previous"])
    assert (oldest["previous"], oldest["first_offset"]) == (None, 10)
    assert (await page(gateway, oldest["next"]))["items"] == older["items"]


async def test_a_page_from_a_time_has_a_previous_page(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    fake_cluster.consumer = consumer(*range(10))
    read = await page(gateway, f"{PATH}?timestamp_ms=1007&max_records=2")
    assert [item["offset"] for item in read["items"]] == [7, 8]
    assert read["previous"] == f"{PATH}?max_records=2&before_offset=7"
    assert read["next"] == f"{PATH}?max_records=2&offset=9"


@pytest.mark.parametrize(
    "query", ["offset=1&before_offset=2", "before_offset=1&latest=2", "timestamp_ms=1&offset=2"]
)
async def test_starts_of_a_page_exclude_each_other(gateway: httpx.AsyncClient, query: str) -> None:
    answer = await gateway.get(f"{PATH}?{query}")
    assert answer.status_code == 422
    assert "exclude each other" in answer.json()["detail"]


async def test_a_single_record_is_read_by_its_offset(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    fake_cluster.consumer = consumer(*range(10, 20), start=10)
    record = await page(gateway, f"{PATH}/12?encoding=base64")
    assert (record["offset"], record["value"]) == (12, "Y2FsbQ==")
    assert fake_cluster.consumer.is_closed


@pytest.mark.parametrize(
    ("offset", "detail", "following"),
    [
        (9, "its records are at offsets 10 to 29", 10),
        (15, "there is a gap, and the next record is at offset 25", 25),
        (30, "its records are at offsets 10 to 29", 29),
    ],
)
async def test_an_offset_without_a_record_is_not_found(
    gateway: httpx.AsyncClient,
    fake_cluster: FakeCluster,
    offset: int,
    detail: str,
    following: int,
) -> None:
    fake_cluster.consumer = consumer(10, 11, 25, 29, start=10)
    answer = await gateway.get(f"{PATH}/{offset}")
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (404, "NO_SUCH_RECORD")
    assert problem["detail"] == f"sea/0 has no record at offset {offset}; {detail}"
    assert f"{PATH}?offset={following} " in problem["fix"]


async def test_an_empty_partition_has_no_record(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    fake_cluster.consumer = consumer(start=4, end=4)
    problem = (await gateway.get(f"{PATH}/4")).json()
    assert problem["detail"].endswith("it has none, and the next one gets offset 4")


async def test_a_damaged_record_is_gone(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    fake_cluster.consumer = consumer(*range(10))
    fake_cluster.consumer.damaged = [(3, 5)]
    answer = await gateway.get(f"{PATH}/4")
    assert (answer.status_code, answer.json()["damaged"]["next_offset"]) == (410, 5)
