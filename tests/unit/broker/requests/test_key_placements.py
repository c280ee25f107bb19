from __future__ import annotations

from collections.abc import Sequence

from tidelog.client.partitioner import partition_for_key
from tidelog.inspection.state_reports import SampledKeys
from tidelog.model import Batch, TopicPartition
from tidelog.record_batch import encode
from tidelog_broker.requests.key_placements import (
    BATCHES_PER_INTERVAL,
    KEYS_OF_A_PARTITION,
    MAX_PARTITIONS,
    SAMPLE_INTERVAL_MS,
    SETTLED_AFTER_MS,
    WINDOW_MS,
    KeyPlacements,
)

PARTITIONS = 4
NAME = TopicPartition("sea", 1)


def batch(*keys: bytes | None, size: int = 1) -> Batch:
    return encode([b"x" * size] * len(keys), keys=list(keys), timestamps_ms=0)


def keys_at(partition: int, count: int) -> list[bytes]:
    """The keys that the standard partitioner places there."""
    keys = (b"key-%d" % number for number in range(100 * count))
    return [key for key in keys if partition_for_key(key, PARTITIONS) == partition][:count]


def sampled(placements: KeyPlacements, now_ms: int = 0) -> Sequence[SampledKeys]:
    return list(placements.recent(now_ms))


def noted(*keys: bytes | None, partitions: int = PARTITIONS) -> Sequence[SampledKeys]:
    placements = KeyPlacements()
    placements.note(NAME, partitions, batch(*keys), 0)
    return sampled(placements)


def test_sampled_keys_have_whether_the_standard_partitioner_places_them_here() -> None:
    [own], [other] = keys_at(1, 1), keys_at(2, 1)
    [found] = noted(own, None, other)
    assert (found.topic, found.partition, found.partitions) == ("sea", 1, PARTITIONS)
    assert sorted(key.is_standard for key in found.keys) == [False, True]


def test_records_without_keys_and_topics_of_one_partition_have_no_sample() -> None:
    assert noted(None, None) == []
    assert noted(b"key", partitions=1) == []
    assert noted(b"key", partitions=0) == []


def test_partitions_keep_the_same_keys() -> None:
    keys = [b"key-%d" % number for number in range(60)]
    placements = KeyPlacements()
    placements.note(NAME, PARTITIONS, batch(*keys), 0)
    placements.note(TopicPartition("sea", 2), PARTITIONS, batch(*reversed(keys)), 0)
    here, there = sampled(placements)
    assert [k.key_hash for k in here.keys] == [k.key_hash for k in there.keys]
    assert len(here.keys) == KEYS_OF_A_PARTITION


def test_a_key_is_forgotten_after_the_window() -> None:
    placements = KeyPlacements()
    placements.note(NAME, PARTITIONS, batch(b"key"), 0)
    assert sampled(placements, WINDOW_MS - 1)[0].keys[0].last_ms == WINDOW_MS - 1
    assert sampled(placements, WINDOW_MS) == []


def test_few_batches_are_opened() -> None:
    placements = KeyPlacements()
    for partition in range(2 * BATCHES_PER_INTERVAL):
        placements.note(TopicPartition("sea", partition), PARTITIONS, batch(b"key"), 0)
    assert len(sampled(placements)) == BATCHES_PER_INTERVAL
    placements.note(TopicPartition("sea", 0), PARTITIONS, batch(b"other"), SAMPLE_INTERVAL_MS - 1)
    assert len(sampled(placements)[0].keys) == 1


def test_large_batches_are_not_opened() -> None:
    placements = KeyPlacements()
    placements.note(NAME, PARTITIONS, batch(b"key", size=1 << 20), 0)
    assert sampled(placements) == []


def test_the_number_of_remembered_partitions_is_bounded() -> None:
    placements = KeyPlacements()
    for number in range(MAX_PARTITIONS + 5):
        now_ms = number * SAMPLE_INTERVAL_MS // BATCHES_PER_INTERVAL
        placements.note(TopicPartition("sea", number), PARTITIONS, batch(b"key"), now_ms)
    assert len(sampled(placements)) == MAX_PARTITIONS


def test_after_a_change_of_the_partition_count_clients_have_time_to_learn_of_it() -> None:
    placements = KeyPlacements()
    placements.note(NAME, PARTITIONS, batch(b"key"), 0)
    placements.note(NAME, PARTITIONS + 1, batch(b"key"), SAMPLE_INTERVAL_MS)
    assert sampled(placements, SAMPLE_INTERVAL_MS) == []
    later = SAMPLE_INTERVAL_MS + SETTLED_AFTER_MS
    placements.note(NAME, PARTITIONS + 1, batch(b"key"), later)
    [found] = sampled(placements, later)
    assert found.partitions == PARTITIONS + 1
