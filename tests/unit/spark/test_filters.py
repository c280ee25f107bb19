"""Which of Spark's filters a batch reader applies itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from tidelog.model import TopicPartition
from tidelog.spark.filters import Narrowed

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp()) * 1000


def narrowed(*filters: Filter) -> tuple[Narrowed, list[Filter]]:
    left = Narrowed()
    return left, left.apply(filters)


def test_without_filters_everything_is_read() -> None:
    left, rest = narrowed()
    assert (left.first_offset, left.end_offset, left.time_ms, rest) == (0, None, None, [])
    assert left.reads(TopicPartition("sea", 3))


@pytest.mark.parametrize(
    ("one", "read"),
    [
        (EqualTo(("partition",), 1), {1}),
        (EqualNullSafe(("partition",), 1), {1}),
        (In(("partition",), (0, 2)), {0, 2}),
        (GreaterThan(("partition",), 1), {2, 3}),
        (GreaterThanOrEqual(("partition",), 1), {1, 2, 3}),
        (LessThan(("partition",), 1), {0}),
        (LessThanOrEqual(("partition",), 1), {0, 1}),
        (Not(EqualTo(("partition",), 1)), {0, 2, 3}),
        (Not(In(("partition",), (0, 1))), {2, 3}),
    ],
)
def test_partitions_are_selected(one: Filter, read: set[int]) -> None:
    left, rest = narrowed(one)
    assert {p for p in range(4) if left.reads(TopicPartition("sea", p))} == read
    assert rest == []


@pytest.mark.parametrize(
    ("one", "read"),
    [
        (EqualTo(("topic",), "sea"), {"sea"}),
        (StringStartsWith(("topic",), "s"), {"sea", "sand"}),
        (StringEndsWith(("topic",), "d"), {"sand", "land"}),
        (StringContains(("topic",), "an"), {"sand", "land"}),
        (Not(StringContains(("topic",), "an")), {"sea"}),
    ],
)
def test_topics_are_selected(one: Filter, read: set[str]) -> None:
    left, rest = narrowed(one)
    assert {t for t in ("sea", "sand", "land") if left.reads(TopicPartition(t, 0))} == read
    assert rest == []


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ((EqualTo(("offset",), 7),), (7, 8)),
        ((GreaterThan(("offset",), 7),), (8, None)),
        ((GreaterThanOrEqual(("offset",), 7), LessThan(("offset",), 9)), (7, 9)),
        ((LessThanOrEqual(("offset",), 7), LessThan(("offset",), 9)), (0, 8)),
    ],
)
def test_offset_filters_bound_the_range(
    filters: tuple[Filter, ...], bounds: tuple[int, int | None]
) -> None:
    left, rest = narrowed(*filters)
    assert (left.first_offset, left.end_offset) == bounds
    assert rest == []


@pytest.mark.parametrize("kind", [GreaterThan, GreaterThanOrEqual, EqualTo])
def test_a_time_filter_moves_the_start_and_is_left_to_spark_too(
    kind: type[GreaterThan | GreaterThanOrEqual | EqualTo],
) -> None:
    one = kind(("timestamp",), NOON + timedelta(microseconds=1_900))
    left, rest = narrowed(one)
    assert left.time_ms == NOON_MS + 1
    assert rest == [one]


def test_an_upper_time_bound_does_not_end_the_range_as_timestamps_may_be_unordered() -> None:
    one = LessThan(("timestamp",), NOON)
    left, rest = narrowed(one)
    assert (left.end_offset, left.time_ms, rest) == (None, None, [one])


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("value",), b"x"),
        EqualTo(("headers", "key"), "x"),
        In(("offset",), (1, 2)),
        Not(EqualTo(("offset",), 7)),
        Not(GreaterThan(("timestamp",), NOON)),
        GreaterThan(("timestamp",), NOON.replace(tzinfo=None)),
        In(("partition",), (1, None)),
        EqualTo(("partition",), None),
        IsNull(("partition",)),
        IsNotNull(("key",)),
        IsNotNull(("timestamp",)),
        Not(IsNotNull(("offset",))),
    ],
)
def test_all_other_filters_are_left_to_spark(one: Filter) -> None:
    left, rest = narrowed(one)
    assert rest == [one]
    assert (left.first_offset, left.end_offset, left.time_ms) == (0, None, None)
    assert left.reads(TopicPartition("sea", 1))


def test_null_filters_on_non_null_columns_are_dropped() -> None:
    assert narrowed(IsNotNull(("offset",)))[1] == []
