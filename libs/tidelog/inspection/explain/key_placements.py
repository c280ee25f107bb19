"""Producers of one topic that place the same keys in different partitions."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.inspection.explain import causes
from tidelog.inspection.explain.cluster_view import ClusterView
from tidelog.inspection.explain.formatting import MAX_NAMED, listed, span
from tidelog.inspection.state_reports import Finding, KeyPlacement
from tidelog.phrases import plural

# Sampled keys of a topic in two partitions; fewer may be records that were placed explicitly.
MANY_KEYS = 3
# The deviating producer has ended after this time without another record.
OVER_AFTER_MS = 30_000
# In a topic with this many partitions, a key in two of them is in all. Other keys that are in only
# one partition show that this is not on purpose.
FEW_PARTITIONS = 2

# Placements of a key by partition, by hash of the key.
_Keys = dict[int, dict[int, KeyPlacement]]


def partitioners_differ(view: ClusterView) -> Iterator[Finding]:
    topics: dict[tuple[str, int], _Keys] = {}
    for state in view.observed.reporters:
        for sampled in state.broker.sampled_keys if state.broker else ():
            keys = topics.setdefault((sampled.topic, sampled.partitions), {})
            for placement in sampled.keys:
                keys.setdefault(placement.key_hash, {})[sampled.partition] = placement
    for (topic, partitions), keys in sorted(topics.items()):
        twice = [placed for placed in keys.values() if _is_placed_twice(placed)]
        once = sum(1 for placed in keys.values() if len(placed) == 1)
        if len(twice) < MANY_KEYS or (partitions <= FEW_PARTITIONS and once < MANY_KEYS):
            continue
        yield _finding(topic, partitions, len(keys), twice)


def _is_placed_twice(placed: dict[int, KeyPlacement]) -> bool:
    """Whether a key is in the partition of the standard partitioner and, lately, in one other. A
    key in more partitions is written there on purpose."""
    if len(placed) != 2 or sum(p.is_standard for p in placed.values()) != 1:
        return False
    return all(p.last_ms <= OVER_AFTER_MS for p in placed.values())


def _finding(
    topic: str, partitions: int, sampled: int, twice: list[dict[int, KeyPlacement]]
) -> Finding:
    pairs = set()
    for placed in twice:
        standard = next(p for p, placement in placed.items() if placement.is_standard)
        other = next(p for p in placed if p != standard)
        pairs.add((standard, other))
    elsewhere = sorted({f"{topic}/{other}" for _, other in pairs})
    last_ms = min(p.last_ms for placed in twice for p in placed.values() if not p.is_standard)
    return Finding(
        causes.PARTITIONERS_DIFFER,
        causes.WARNING,
        f"producers of topic {topic!r} place the same keys in different partitions: "
        f"{len(twice)} of {plural(sampled, 'sampled key')} are in the partition of the standard "
        "partitioner and in another one, so that records of one key have no order",
        (
            f"the last was written {span(last_ms)} ago where the standard partitioner does not "
            f"put it; such keys are in {listed(elsewhere)}",
            *(
                f"keys that belong in {topic}/{standard} are also in {topic}/{other}"
                for standard, other in sorted(pairs)[:3]
            ),
        ),
        "Find the producer that chooses partitions by another rule (another client, or a partition "
        "that it names itself), and let it use the one of the others: CRC32C of the key, modulo "
        f"{partitions} partitions. Nothing is lost.",
        topic,
        partitions=tuple(elsewhere[:MAX_NAMED]),
        partition_count=len(elsewhere),
    )
