"""Headers in `send_many`: the same for all records, or others for each."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.client import ArgumentTypeError, InvalidArgumentError, InvalidBatchError
from tidelog.client.open_batches import MAX_BATCH_HEADERS
from tidelog.client.record_columns import RecordColumns, cut, split_by_key
from unit.client.idempotent_world import World, story

METRES = [("unit", b"m")]
KNOTS = [("unit", b"kn"), ("tool", b"log")]


async def sent(world: World, values: list[bytes], **more: Any) -> list[tuple[Any, Any]]:
    """Values and headers as a consumer reads them."""
    async with world.producer(batch_bytes=more.pop("batch_bytes", 1 << 16)) as producer:
        await (await producer.send_many("sea", values, **more))
    async with world.consumer() as consumer:
        await consumer.assign_topic("sea")
        records: list[Any] = []
        while len(records) < len(values):
            records += await consumer.poll(2_000)
    return [(record.value, record.headers) for record in records]


@story
async def test_headers_of_one_record_apply_to_all(world: World) -> None:
    found = await sent(world, [b"1", b"2"], headers=METRES)
    assert found == [(b"1", tuple(METRES)), (b"2", tuple(METRES))]


@story
async def test_each_record_may_have_its_own(world: World) -> None:
    column = [METRES, (), tuple(KNOTS)]
    found = await sent(world, [b"1", b"2", b"3"], headers=column)
    assert found == [(b"1", tuple(METRES)), (b"2", ()), (b"3", tuple(KNOTS))]


@story
async def test_headers_stay_with_their_records_in_several_batches(world: World) -> None:
    values = [b"%d" % number for number in range(20)]
    column = [[("number", value)] for value in values]
    found = await sent(world, values, headers=column, batch_bytes=30)
    assert len(world.sea.batches) > 5
    assert found == [(value, (("number", value),)) for value in values]


def test_headers_stay_with_their_records_when_keys_split_them() -> None:
    columns = RecordColumns([b"1", b"2", b"3"], [b"a", b"b", b"a"], 5, [METRES, (), KNOTS])
    split = dict(part for part in split_by_key(columns, lambda key: key[0]) if part is not None)
    assert split[ord("a")].headers_by_index() == {0: METRES, 1: KNOTS}
    assert split[ord("b")].headers_by_index() == {}


def test_the_size_of_a_record_includes_its_headers() -> None:
    columns = RecordColumns([b"1", b"2"], [b"key", None], 5, [METRES, ()])
    assert columns.sizes() == [1 + 3 + len("unit") + len(b"m"), 1]


def test_a_batch_has_no_more_headers_than_its_limit() -> None:
    many = [("", b"")] * 1_000
    columns = RecordColumns([b""] * 250, None, 5, [many] * 250)
    pieces = [len(piece.values) for piece, _ in cut(columns, columns.sizes(), 1 << 20)]
    assert pieces == [MAX_BATCH_HEADERS // 1_000] * 2 + [50]


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ([METRES], InvalidArgumentError),
        ([METRES] * 3, InvalidArgumentError),
        ([("unit", "m")], ArgumentTypeError),
        ([METRES, [("unit", "m")]], ArgumentTypeError),
        ([METRES, None], ArgumentTypeError),
        ({"unit": b"m"}, ArgumentTypeError),
        ("unit", ArgumentTypeError),
        (None, ArgumentTypeError),
        ([METRES, [("n", b"")] * 1_001], InvalidBatchError),
    ],
)
def test_headers_that_cannot_be_sent_are_rejected_before_any_record(
    headers: Any, error: type[Exception]
) -> None:
    @story
    async def test(world: World) -> None:
        async with world.producer() as producer:
            with pytest.raises(error):
                await producer.send_many("sea", [b"1", b"2"], headers=headers)
        assert world.sea.values() == []

    test()


@story
async def test_later_changes_by_the_caller_are_not_sent(world: World) -> None:
    own = [("unit", b"m")]
    async with world.producer() as producer:
        delivery = await producer.send_many("sea", [b"1", b"2"], headers=[own, own])
        own.append(("unit", b"wrong"))
        await delivery
    async with world.consumer() as consumer:
        await consumer.assign_topic("sea")
        assert {record.headers for record in await consumer.poll(2_000)} == {(("unit", b"m"),)}
