"""Consumers that retention outruns."""

from __future__ import annotations

from tidelog.model import TopicPartition
from tidelog_broker.core.outrun_consumers import MAX_PARTITIONS, WINDOW_MS, OutrunConsumers

SEA = TopicPartition("sea", 0)


def counts(outrun: OutrunConsumers, now_ms: int) -> list[tuple[str, int, int]]:
    return [(entry.topic, entry.count, entry.last_ms) for entry in outrun.recent(now_ms)]


def test_the_worst_partition_of_each_topic_counts() -> None:
    outrun = OutrunConsumers()
    for partition in range(20):
        outrun.note(TopicPartition("bay", partition), 5, "m", 1_000)
    for at_ms in (1_000, 31_000, 61_000):
        outrun.note(SEA, at_ms, f"at {at_ms}", at_ms)
    assert counts(outrun, 70_000) == [("bay", 1, 69_000), ("sea", 3, 9_000)]
    [_, sea] = outrun.recent(70_000)
    assert (sea.reason, sea.message) == ("OFFSET_OUT_OF_RANGE", "at 61000")


def test_counts_expire_after_the_window() -> None:
    outrun = OutrunConsumers()
    outrun.note(SEA, 5, "m", 1_000)
    outrun.note(SEA, 6, "m", 2_000)
    assert counts(outrun, WINDOW_MS + 1_500) == [("sea", 1, WINDOW_MS - 500)]
    assert counts(outrun, WINDOW_MS + 2_000) == []


def test_the_least_recently_counted_partition_is_evicted() -> None:
    outrun = OutrunConsumers()
    for number in range(MAX_PARTITIONS + 1):
        outrun.note(TopicPartition(f"t{number:03}", 0), 5, "m", 1_000)
    topics = [topic for topic, _, _ in counts(outrun, 2_000)]
    assert len(topics) == MAX_PARTITIONS
    assert "t000" not in topics


def test_a_client_that_repeats_one_fetch_is_counted_once() -> None:
    outrun = OutrunConsumers()
    for at_ms in (1_000, 1_100, 1_200):
        outrun.note(SEA, 5, "m", at_ms)
    assert counts(outrun, 2_000) == [("sea", 1, 1_000)]
