"""The differences between declared topics and those of a cluster. Pure functions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tidelog.cli.applying.declarations import DeclaredTopic
from tidelog.units import format_setting

if TYPE_CHECKING:
    from tidelog.admin_messages import PartitionDetails, TopicDetails

Action = Literal["create", "change", "delete"]

TOPIC, PARTITIONS, FACTOR = "topic", "partitions", "replication_factor"
MIN_ISR = "min_insync_replicas"
_COUNTS = (TOPIC, PARTITIONS, FACTOR)
# Before and after in a difference of a topic that does not exist, or of a value that is not set.
NONE = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that differs.

    - `field`: topic (it exists or not), partitions, replication_factor, or a configuration key.
    - `before`, `after`: as text; empty: there is none.
    - `is_set`: of a configuration key: whether it is set afterwards; otherwise it is reset.
    """

    field: str
    before: str
    after: str
    is_set: bool = True


@dataclass(frozen=True, slots=True)
class TopicChange:
    """What has to change at one topic.

    - `topic_id`, `revision`: of the topic that was compared; a change of another one is rejected.
    - `declared`: None for a deletion.
    """

    action: Action
    topic: str
    differences: tuple[Difference, ...]
    topic_id: str = ""
    revision: int = 0
    declared: DeclaredTopic | None = None

    def of(self, field: str) -> Difference | None:
        return next((found for found in self.differences if found.field == field), None)

    @property
    def config(self) -> list[Difference]:
        return [found for found in self.differences if found.field not in _COUNTS]

    @property
    def shrinks(self) -> bool:
        """Whether partitions are removed with their records."""
        found = self.of(PARTITIONS)
        return self.action == "change" and found is not None and _is_fewer(found)


def topic_changes(
    declared: Iterable[DeclaredTopic],
    existing: Collection[TopicDetails],
    *,
    prune: bool = False,
    moving: Collection[str] = (),
) -> list[TopicChange]:
    """Returns the changes that make the topics as declared, ordered by name; deletions come last.

    - `prune`: whether topics that are not declared are deleted. Internal topics never are.
    - `moving`: topics whose partitions an operation changes now: their single partitions need not
      have the topic's replication factor yet.
    """
    declared = sorted(declared, key=lambda topic: topic.name)
    there = {topic.topic: topic for topic in existing if not topic.internal}
    changes: list[TopicChange] = []
    for topic in declared:
        found = there.get(topic.name)
        if found is None or found.deleting:
            changes.append(_creation(topic))
            continue
        differences = tuple(_differences(topic, found, is_moving=topic.name in moving))
        if differences:
            changes.append(
                TopicChange(
                    "change", topic.name, differences, found.topic_id, found.revision, topic
                )
            )
    if prune:
        kept = {topic.name for topic in declared}
        changes += [
            _deletion(found)
            for name, found in sorted(there.items())
            if name not in kept and not found.deleting
        ]
    return changes


def confirmed_config(change: TopicChange, altered: Mapping[str, tuple[str, str]]) -> TopicChange:
    """Returns the change without values that only look different.

    `altered`: before and after by key, as the controller would change them. A key that is set to
    its default value changes nothing now, and is kept as a difference: the default may change.
    """
    kept: list[Difference] = []
    for found in change.differences:
        if found.field in _COUNTS:
            kept.append(found)
        elif found.field in altered:
            before, after = altered[found.field]
            kept.append(replace(found, before=before, after=after))
        elif not found.is_set or found.before.startswith(_DEFAULT):
            kept.append(found)
    return replace(change, differences=tuple(kept))


def plan_digest(changes: Sequence[TopicChange]) -> str:
    """Returns the digest of a plan: of what changes, and in which topics."""
    content = [
        [c.action, c.topic, c.topic_id, [[d.field, d.before, d.after] for d in c.differences]]
        for c in changes
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def _creation(topic: DeclaredTopic) -> TopicChange:
    counts = ((PARTITIONS, topic.partitions), (FACTOR, topic.replication_factor))
    differences = [
        Difference(TOPIC, NONE, topic.name),
        *(Difference(name, NONE, str(count)) for name, count in counts if count is not None),
        *(Difference(key, NONE, value) for key, value in sorted((topic.config or {}).items())),
    ]
    return TopicChange("create", topic.name, tuple(differences), declared=topic)


def _deletion(found: TopicDetails) -> TopicChange:
    gone = Difference(TOPIC, found.topic, NONE)
    return TopicChange("delete", found.topic, (gone,), found.topic_id, found.revision)


def _differences(
    declared: DeclaredTopic, found: TopicDetails, *, is_moving: bool
) -> Iterator[Difference]:
    if declared.partitions is not None:
        yield from _partitions(declared.partitions, found)
    if declared.replication_factor is not None:
        yield from _factor(declared.replication_factor, found, is_moving=is_moving)
    if declared.config is not None:
        yield from _config(declared.config, found)


def _partitions(count: int, found: TopicDetails) -> Iterator[Difference]:
    """An addition or a removal that has not been completed counts as a difference, too: the same
    request again waits for its end."""
    going = found.partitions_being_removed
    unplaced = sum(not partition.replicas for partition in found.partitions)
    if found.partition_count != count or going or unplaced:
        before = f"{found.partition_count + going - unplaced}"
        yield Difference(PARTITIONS, before, str(count))


def _factor(factor: int, found: TopicDetails, *, is_moving: bool) -> Iterator[Difference]:
    factors = {found.replication_factor}
    if not is_moving:
        factors |= {count for partition in found.partitions if (count := _settled(partition))}
    if factors != {factor}:
        # Without the declared one, unless partitions differ among each other.
        before = sorted(factors - {factor}) if len(factors) == 1 else sorted(factors)
        yield Difference(FACTOR, ",".join(map(str, before)), str(factor))


def _settled(partition: PartitionDetails) -> int:
    """The number of replicas after the present move; 0: the partition is not placed yet."""
    return len(partition.move.target if partition.move else partition.replicas)


_DEFAULT = "default"


def _config(config: Mapping[str, str], found: TopicDetails) -> Iterator[Difference]:
    entries = {entry.key: entry for entry in found.config}
    for key in sorted(config.keys() | entries.keys()):
        entry, declared = entries.get(key), config.get(key)
        if declared is None:
            if entry is not None and entry.is_set:
                after = f"{_DEFAULT} {entry.default_value}".rstrip()
                yield Difference(key, entry.value, after, is_set=False)
        elif entry is None or not entry.is_set:
            before = f"{_DEFAULT} {entry.default_value if entry else NONE}".rstrip()
            yield Difference(key, before, declared)
        elif entry.value != declared:
            yield Difference(key, entry.value, declared)


def shown_value(found: Difference, text: str) -> str:
    """Returns a value of the difference for people: durations and sizes with units."""
    if text.startswith(f"{_DEFAULT} "):
        return f"{_DEFAULT} {format_setting(found.field, text.removeprefix(f'{_DEFAULT} '))}"
    return format_setting(found.field, text)


def _is_fewer(found: Difference) -> bool:
    return int(found.after) < int(found.before)
