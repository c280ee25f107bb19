"""Finds the partition of a request, or the error that sends the client elsewhere."""

from __future__ import annotations

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog_broker.core.command_decisions import newer_address
from tidelog_broker.core.not_led_here import not_led_here
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.producer_state import fenced
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.core.replica_registry import ReplicaRegistry
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.replicas.topic_configs import BatchLimits, TopicConfigs
from tidelog_runtime.replica_control import LeaderAddress


class ReplicaLookup(ReplicaRegistry):
    """The replicas of this broker, with what the metadata says about their topics and leaders."""

    def __init__(self, broker_id: int, cache: MetadataCache) -> None:
        super().__init__()
        self.broker_id = broker_id
        # The newest addresses that commands have named.
        self.leader_addresses: dict[int, LeaderAddress] = {}
        self._cache = cache
        self._configs = TopicConfigs(cache)

    def replica(self, key: ReplicaKey) -> Partition:
        """Returns a replica for a follower. Raises UNKNOWN_TOPIC_ID."""
        partition = self._by_key.get(key)
        if partition is None:
            raise TidelogError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"broker {self.broker_id} has no replica of partition {key.partition} of the "
                f"topic with id {key.topic_id}",
            )
        return partition

    def partition(self, name: TopicPartition, topic_id: str = "") -> Partition:
        """Returns a partition for a client. Raises the client's error if it is not led here."""
        partition = self._by_name.get(name)
        known_id = self._cache.id_of(name.topic) if partition is None else partition.topic_id
        if topic_id and known_id and known_id != topic_id:
            raise TidelogError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"topic {name.topic!r} has the id {known_id} here, not {topic_id}: it was "
                "deleted and created again",
            )
        if partition is None or partition.leading is None:
            raise self.not_led_here(name, partition)
        return partition

    def not_led_here(self, name: TopicPartition, partition: Partition | None) -> TidelogError:
        """Returns why a client's request cannot be served here, and where it can."""
        live = self._cache.topics.get(name.topic)
        return not_led_here(
            self.broker_id,
            name,
            partition,
            live.entry if live is not None else None,
            self._cache.leader_hint(name, partition.topic_id if partition is not None else ""),
        )

    def partition_count(self, topic: str) -> int:
        """Returns 0 if the topic is not known."""
        live = self._cache.topics.get(topic)
        return 0 if live is None else live.entry.partitions

    def batch_limits(self, partition: Partition) -> BatchLimits:
        return BatchLimits.of(self._configs.of(partition.name))

    def fence_previous_holder(self, producer_id: int, producer_epoch: int) -> None:
        """Raises FENCED_PRODUCER_EPOCH if the store has given a newer epoch to another holder of
        the producer's name, which may not have written here yet."""
        newest_epoch = self._cache.producer_epochs.get(producer_id, producer_epoch)
        if producer_epoch < newest_epoch:
            raise fenced(producer_id, producer_epoch, newest_epoch)

    def address_of(self, broker_id: int) -> LeaderAddress | None:
        """Returns the address of a leader, by the newest command or store entry."""
        live = self._cache.brokers.get(broker_id)
        registered = live and LeaderAddress(live.registration.address, live.broker_epoch)
        return newer_address(self.leader_addresses.get(broker_id), registered)
