"""The partitions of each topic that have no replicas yet.

Maintained as keys change and not searched for: it is read after every event while a topic is
created or grows.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.model import TopicPartition
from tidelog_controller.state.metadata_records import Partition, Topic


class UnplacedPartitions:
    def __init__(self) -> None:
        self._numbers: dict[str, set[int]] = {}  # by topic; topics without any are absent

    def snapshot(self) -> UnplacedPartitions:
        copy = UnplacedPartitions()
        copy._numbers = {topic: set(numbers) for topic, numbers in self._numbers.items()}
        return copy

    def topics(self) -> list[str]:
        """The topics that have such partitions, in the order in which they got them."""
        return list(self._numbers)

    def of(self, topic: str) -> list[int]:
        return sorted(self._numbers.get(topic, ()))

    def count(self, topic: str) -> int:
        return len(self._numbers.get(topic, ()))

    def topic_changed(
        self, topic: str, old: Topic | None, new: Topic | None, held: Mapping[int, Partition]
    ) -> None:
        """Updates the topic's numbers.

        `held`: its partitions that have a key, which may belong to a previous topic of this name.
        """
        if new is None:
            self._numbers.pop(topic, None)
            return
        first, end = 0, new.entry.partitions
        numbers: set[int] = set()
        if old is not None and old.entry.topic_id == new.entry.topic_id:
            first = old.entry.partitions
            numbers = self._numbers.get(topic, numbers)
        if end < first:
            numbers = {number for number in numbers if number < end}
        added = set(range(first, end))
        # Few new partitions have a key, so that few are compared.
        placed = (n for n in added.intersection(held) if _is_of(held[n], new))
        self._set(topic, numbers | added.difference(placed))

    def partition_changed(
        self, partition: TopicPartition, held: Partition | None, topic: Topic | None
    ) -> None:
        if topic is None:
            return
        name, number = partition
        if held is not None and _is_of(held, topic):
            numbers = self._numbers.get(name)
            if numbers is not None:
                numbers.discard(number)
                self._set(name, numbers)
        elif number < topic.entry.partitions:
            self._numbers.setdefault(name, set()).add(number)

    def _set(self, topic: str, numbers: set[int]) -> None:
        if numbers:
            self._numbers[topic] = numbers
        else:
            self._numbers.pop(topic, None)


def _is_of(held: Partition, topic: Topic) -> bool:
    return held.state.topic_id == topic.entry.topic_id
