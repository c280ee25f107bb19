"""Producers that place the same keys in different partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tidelog.inspection.explain.key_placements import MANY_KEYS, OVER_AFTER_MS
from tidelog.inspection.state_reports import KeyPlacement, SampledKeys
from unit.inspection.explain.described import DescribedCluster, causes_of, found, text_of

# For each partition, keys with whether they belong there.
Placed = Mapping[int, Mapping[int, bool]]
SIX = range(6)


def explain(placed: Placed, partitions: int = 6, last_ms: int = 500) -> DescribedCluster:
    """Broker 1 leads the even partitions, broker 2 the odd ones."""
    cluster = DescribedCluster()
    for broker_id in (1, 2):
        samples = tuple(
            SampledKeys(
                "sea",
                partition,
                partitions,
                tuple(KeyPlacement(key, is_standard, last_ms) for key, is_standard in keys.items()),
            )
            for partition, keys in placed.items()
            if partition % 2 == broker_id - 1
        )
        cluster.brokers[broker_id] = replace(cluster.brokers[broker_id], sampled_keys=samples)
    return cluster


def both(keys: range) -> Placed:
    return {1: dict.fromkeys(keys, True), 4: dict.fromkeys(keys, False)}


def test_keys_in_two_partitions_are_reported_with_their_expected_partition() -> None:
    findings = explain(both(SIX)).explain()
    assert causes_of(findings) == ["partitioners_differ"]
    differ = found(findings, "partitioners_differ")
    assert (differ.severity, differ.topic, differ.partitions) == ("warning", "sea", ("sea/4",))
    assert "6 of 6 sampled keys" in differ.summary
    assert "keys that belong in sea/1 are also in sea/4" in text_of(differ)
    assert "modulo 6 partitions" in differ.next_step


@pytest.mark.parametrize(
    "placed",
    [
        {1: dict.fromkeys(SIX, True)},
        # All producers use another partitioner, or choose partitions by hand.
        {1: dict.fromkeys(SIX, False), 4: dict.fromkeys(range(6, 12), False)},
        {1: dict.fromkeys(SIX, False), 4: dict.fromkeys(SIX, False)},
        # The same keys everywhere, intentionally.
        {1: dict.fromkeys(SIX, True), 4: dict.fromkeys(SIX, False), 5: dict.fromkeys(SIX, False)},
        both(range(MANY_KEYS - 1)),
    ],
    ids=["all standard", "none standard", "twice by another rule", "in all", "few"],
)
def test_possibly_intended_placements_are_no_finding(placed: Placed) -> None:
    assert explain(placed).explain() == []


def test_keys_in_only_one_of_two_partitions_show_a_mistake() -> None:
    twice = {0: dict.fromkeys(SIX, True), 1: dict.fromkeys(SIX, False)}
    assert explain(twice, partitions=2).explain() == []
    once = {0: {**twice[0], **dict.fromkeys(range(10, 14), True)}, 1: twice[1]}
    assert causes_of(explain(once, partitions=2).explain()) == ["partitioners_differ"]


def test_a_producer_that_has_ended_is_no_finding() -> None:
    assert explain(both(SIX), last_ms=OVER_AFTER_MS + 1).explain() == []
