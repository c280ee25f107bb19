"""Which replicas a broker has, and which it has stopped."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from tidelog.model import TopicPartition
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_runtime.replica_control import PartitionCommand, ReplicaSummary

# The oldest is forgotten first. A command is late by one timeout at most, and no controller stops
# this many replicas of one broker in that time without sending its full state.
MAX_REMEMBERED = 10_000


class StoppedReplicas:
    """The revision at which each replica was stopped.

    A command from before that must not bring it back (rule `decisions-ordered-by-revision`).
    """

    def __init__(self) -> None:
        self._revisions: dict[ReplicaKey, int] = {}

    def stopped(self, key: ReplicaKey, revision: int) -> None:
        known = self._revisions.pop(key, 0)
        self._revisions[key] = max(known, revision)
        if len(self._revisions) > MAX_REMEMBERED:
            del self._revisions[next(iter(self._revisions))]

    def started(self, key: ReplicaKey) -> None:
        """The replica exists again, with a revision of its own."""
        self._revisions.pop(key, None)

    def is_late(self, key: ReplicaKey, revision: int) -> bool:
        """Whether a command of this revision is from before the replica was stopped."""
        return revision <= self._revisions.get(key, 0)


class ReplicaRegistry:
    """The replicas of one broker, by name and by key.

    A name has one replica at most. That of a deleted topic is removed before that of the topic
    which has the name now is added.
    """

    def __init__(self) -> None:
        self._by_name: dict[TopicPartition, Partition] = {}
        self._by_key: dict[ReplicaKey, Partition] = {}
        self.stopped = StoppedReplicas()

    def all(self) -> Collection[Partition]:
        return self._by_name.values()

    def led(self) -> Iterator[Partition]:
        return (p for p in self._by_name.values() if p.leading is not None)

    def find(self, key: ReplicaKey) -> Partition | None:
        return self._by_key.get(key)

    def find_named(self, name: TopicPartition) -> Partition | None:
        return self._by_name.get(name)

    def find_led(self, name: TopicPartition) -> Partition | None:
        partition = self._by_name.get(name)
        return None if partition is None or partition.leading is None else partition

    def register(self, partition: Partition) -> None:
        self._by_name[partition.name] = partition
        self._by_key[partition.key] = partition
        self.stopped.started(partition.key)

    def unregister(self, partition: Partition) -> bool:
        """Returns whether the partition's name has no replica now."""
        self._by_key.pop(partition.key, None)
        if self._by_name.get(partition.name) is not partition:
            return False
        del self._by_name[partition.name]
        return True

    def new_replicas(
        self,
        commands: Iterable[PartitionCommand],
        is_valid: Callable[[str, Mapping[str, str]], bool],
    ) -> Iterator[tuple[TopicPartition, ReplicaKey]]:
        """Yields the replicas that the commands will create, as far as that is known before.

        Left out are replicas that exist, replicas that were stopped since, and replicas whose
        topic and configuration are not `is_valid`.
        """
        for command in commands:
            name, topic_id = command.partition, command.state.topic_id
            known = self._by_name.get(name)
            if known is not None and (
                known.topic_id == topic_id or command.revision <= known.revision
            ):
                continue
            key = key_of(command)
            is_late = self.stopped.is_late(key, command.revision)
            if not is_late and is_valid(name.topic, command.config):
                yield name, key

    def summary(self, key: tuple[str, int]) -> ReplicaSummary | None:
        """Returns how far a replica's log reaches; None: it is not in service here."""
        partition = self._by_key.get(ReplicaKey(*key))
        if partition is None or not partition.in_service:
            return None
        log = partition.log
        return ReplicaSummary(
            partition.topic_id,
            partition.name.partition,
            partition.revision,
            log.log_start_offset,
            log.log_end_offset,
            tuple((epoch, start) for epoch, start in log.leader_epochs),
            partition.before_cut,
            partition.high_watermark,
            log.bytes_from(log.log_start_offset),
            partition.bytes_lacking(),
        )


def key_of(command: PartitionCommand) -> ReplicaKey:
    return ReplicaKey(command.state.topic_id, command.partition.partition)
