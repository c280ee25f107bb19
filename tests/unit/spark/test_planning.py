"""Which offsets a batch reads, and in how many tasks."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.model import TopicPartition
from tidelog.spark.planning import OffsetRange, limit_sizes, split
from tidelog.spark.stream_offsets import ReadTo

SIZES = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 5)),
    st.integers(0, 10_000),
    max_size=8,
)


def sea(partition: int) -> TopicPartition:
    return TopicPartition("sea", partition)


def range_of(partition: int, first: int, end: int) -> OffsetRange:
    return OffsetRange(sea(partition), "id", 1, ReadTo(first, 3), ReadTo(end, 4))


@settings(deadline=None)
@given(SIZES, st.integers(1, 20_000), st.integers(0, 2**40))
def test_a_batch_takes_up_to_its_limit(
    sizes: dict[TopicPartition, int], most: int, turn: int
) -> None:
    taken = limit_sizes(sizes, most, turn)
    assert taken.keys() == sizes.keys()
    assert sum(taken.values()) == min(most, sum(sizes.values()))
    assert all(0 <= taken[partition] <= sizes[partition] for partition in sizes)


@settings(deadline=None)
@given(SIZES, st.integers(1, 20_000))
def test_each_partition_with_records_gets_a_share(
    sizes: dict[TopicPartition, int], most: int
) -> None:
    waiting = [partition for partition, size in sizes.items() if size]
    taken = limit_sizes(sizes, most, 0)
    if most >= len(waiting):
        assert all(taken[partition] for partition in waiting)


def test_large_partitions_give_proportionally_more() -> None:
    assert limit_sizes({sea(0): 1_000, sea(1): 3_000}, 400, 0) == {sea(0): 100, sea(1): 300}


def test_with_too_few_offsets_partitions_take_turns() -> None:
    sizes = {sea(n): 100 for n in range(5)}
    times: Counter[TopicPartition] = Counter()
    for turn in range(0, 10, 2):
        times.update({p: n for p, n in limit_sizes(sizes, 2, turn).items() if n})
    assert set(times.values()) == {2}


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1_000), st.integers(0, 1_000)), max_size=6),
    st.one_of(st.none(), st.integers(1, 50)),
    st.one_of(st.none(), st.integers(1, 400)),
)
def test_splits_cover_every_offset_once(
    bounds: list[tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = [range_of(n, first, first + size) for n, (first, size) in enumerate(bounds)]
    parts = split(ranges, min_partitions, max_records)
    for one in ranges:
        offsets = [
            offset
            for part in parts
            if part.partition == one.partition
            for offset in range(part.start.offset, part.end.offset)
        ]
        assert offsets == list(range(one.start.offset, one.end.offset))
    assert all(part.size > 0 for part in parts)
    assert max_records is None or all(part.size <= max_records for part in parts)
    assert len(parts) >= min(min_partitions or 0, sum(one.size for one in ranges))


def test_large_ranges_are_split_into_more_tasks() -> None:
    parts = split([range_of(0, 0, 900), range_of(1, 0, 100)], 10, None)
    assert Counter(part.partition.partition for part in parts) == {0: 9, 1: 1}


def test_equal_ranges_are_split_into_at_least_the_requested_number_of_tasks() -> None:
    parts = split([range_of(n, 0, 100) for n in range(3)], 4, None)
    assert Counter(part.partition.partition for part in parts) == {0: 2, 1: 1, 2: 1}


def test_splitting_thousands_of_partitions_takes_less_than_quadratic_time() -> None:
    ranges = [range_of(n, 0, 100) for n in range(20_000)]
    assert len(split(ranges, 29_999, None)) == 29_999


def test_with_as_many_ranges_as_tasks_no_range_is_split() -> None:
    ranges = [range_of(0, 0, 900), range_of(1, 0, 100)]
    assert split(ranges, 2, None) == ranges


def test_the_ends_keep_their_epochs_and_inner_edges_have_none() -> None:
    first, second = split([range_of(0, 0, 10)], 2, None)
    assert (first.start, second.end) == (ReadTo(0, 3), ReadTo(10, 4))
    assert first.end == second.start == ReadTo(5)
