"""The keys of the metadata store and their meaning ("Metadata" in docs/internals/protocol.md)."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from tidelog.model import TopicPartition

# Size of the cache of parsed keys: a failover parses each of thousands of keys repeatedly.
KEYS_REMEMBERED = 1 << 17


class Keys:
    """The keys of one cluster."""

    def __init__(self, cluster: str) -> None:
        self.root = f"/tidelog/{cluster}/"
        self.controller = self.root + "controller"
        self.controller_epoch = self.root + "controller_epoch"
        # Shares the prefix `controller`, so a watch of that prefix covers these keys, too.
        self.controller_processes = self.root + "controllers/ids/"
        self.known_controllers = self.root + "controllers/known/"
        self.controller_pressures = self.root + "controllers/pressures/"
        self.waiting_controllers = self.root + "controllers/waiting/"
        self.cluster = self.root + "cluster"
        # Written by each registration, so that a change of the level can exclude new ones.
        self.last_registration = self.root + "last_registration"
        self.brokers = self.root + "brokers/ids/"
        self.departures = self.root + "brokers/departures/"
        self.directories = self.root + "brokers/directories/"
        self.rejected_starts = self.root + "brokers/rejected_starts/"
        self.pressures = self.root + "brokers/pressures/"
        self.topics = self.root + "brokers/topics/"
        self.topic_deletions = self.root + "admin/topics_delete/"
        self.partition_additions = self.root + "admin/partitions_add/"
        self.partition_removals = self.root + "admin/partitions_remove/"
        self.recoveries = self.root + "admin/recoveries/"
        self.operations = self.root + "admin/operations/"
        self.operation_plans = self.root + "admin/operation_plans/"
        self.broker_removals = self.root + "admin/brokers_remove/"
        self.broker_additions = self.root + "admin/brokers_add/"
        self.maintenances = self.root + "admin/maintenance/"
        self.throttle = self.root + "admin/throttles"
        self.producer_ids = self.root + "producer_ids"
        self.producers = self.root + "producers/"
        self.partition_counts = self.root + "partition_counts/"
        self.passed_time = self.root + "passed_time"
        self._single: dict[str, ParsedKey] = {
            self.controller: ControllerKey(),
            self.controller_epoch: ControllerEpochKey(),
            self.cluster: ClusterKey(),
            self.last_registration: LastRegistrationKey(),
            self.throttle: ThrottleKey(),
        }
        self._parse = lru_cache(KEYS_REMEMBERED)(self._parse_uncached)

    def controller_process(self, controller_id: int) -> str:
        return f"{self.controller_processes}{controller_id}"

    def known_controller(self, controller_id: int) -> str:
        return f"{self.known_controllers}{controller_id}"

    def controller_pressure(self, controller_id: int) -> str:
        return f"{self.controller_pressures}{controller_id}"

    def waiting_controller(self, controller_id: int) -> str:
        return f"{self.waiting_controllers}{controller_id}"

    def broker(self, broker_id: int) -> str:
        return f"{self.brokers}{broker_id}"

    def departure(self, broker_id: int) -> str:
        return f"{self.departures}{broker_id}"

    def directory(self, broker_id: int) -> str:
        return f"{self.directories}{broker_id}"

    def rejected_start(self, broker_id: int) -> str:
        return f"{self.rejected_starts}{broker_id}"

    def pressure(self, broker_id: int) -> str:
        return f"{self.pressures}{broker_id}"

    def topic(self, topic: str) -> str:
        return self.topics + topic

    def leader_and_isr(self, partition: TopicPartition) -> str:
        return f"{self.topics}{partition.topic}/{partition.partition}/leaderAndISR"

    def topic_deletion(self, topic: str) -> str:
        return self.topic_deletions + topic

    def partition_addition(self, topic: str) -> str:
        return self.partition_additions + topic

    def partition_removal(self, topic: str) -> str:
        return self.partition_removals + topic

    def recovery(self, partition: TopicPartition) -> str:
        return f"{self.recoveries}{partition.topic}/{partition.partition}"

    def operation(self, operation_id: str) -> str:
        return self.operations + operation_id

    def operation_plan(self, operation_id: str, chunk: int) -> str:
        return f"{self.operation_plans}{operation_id}/{chunk}"

    def broker_removal(self, broker_id: int) -> str:
        return f"{self.broker_removals}{broker_id}"

    def broker_addition(self, broker_id: int) -> str:
        return f"{self.broker_additions}{broker_id}"

    def maintenance(self, broker_id: int) -> str:
        return f"{self.maintenances}{broker_id}"

    def producer(self, name: str) -> str:
        return self.producers + name

    def partition_counts_of(self, name: str) -> str:
        return self.partition_counts + name

    def parse(self, key: str) -> ParsedKey | None:
        """Parses a key; None: this version does not know it.

        Raises ValueError for a malformed key.
        """
        return self._parse(key)

    def _parse_uncached(self, key: str) -> ParsedKey | None:
        if key in self._single:
            return self._single[key]
        if key.startswith(self.controller_processes):
            return ControllerProcessKey(int(key.removeprefix(self.controller_processes)))
        if key.startswith(self.brokers):
            return BrokerKey(int(key.removeprefix(self.brokers)))
        if key.startswith(self.departures):
            return DepartureKey(int(key.removeprefix(self.departures)))
        if key.startswith(self.directories):
            return BrokerDirectoryKey(int(key.removeprefix(self.directories)))
        if key.startswith(self.rejected_starts):
            return RejectedStartKey(int(key.removeprefix(self.rejected_starts)))
        if key.startswith(self.pressures):
            return BrokerPressureKey(int(key.removeprefix(self.pressures)))
        if key.startswith(self.topics):
            parts = key.removeprefix(self.topics).split("/")
            if len(parts) == 1:
                return TopicKey(parts[0])
            if len(parts) == 3 and parts[2] == "leaderAndISR":
                return PartitionKey(TopicPartition(parts[0], int(parts[1])))
        if key.startswith(self.producers):
            return NamedProducerKey(key.removeprefix(self.producers))
        return self._parse_intent(key)

    def _parse_intent(self, key: str) -> ParsedKey | None:
        if key.startswith(self.topic_deletions):
            return TopicDeletionKey(key.removeprefix(self.topic_deletions))
        if key.startswith(self.partition_additions):
            return PartitionsAdditionKey(key.removeprefix(self.partition_additions))
        if key.startswith(self.partition_removals):
            return PartitionsRemovalKey(key.removeprefix(self.partition_removals))
        if key.startswith(self.recoveries):
            topic, number = key.removeprefix(self.recoveries).split("/")
            return RecoveryKey(TopicPartition(topic, int(number)))
        return self._parse_operation(key)

    def _parse_operation(self, key: str) -> ParsedKey | None:
        if key.startswith(self.operations):
            return OperationKey(key.removeprefix(self.operations))
        if key.startswith(self.operation_plans):
            operation_id, chunk = key.removeprefix(self.operation_plans).split("/")
            return OperationPlanKey(operation_id, int(chunk))
        if key.startswith(self.broker_removals):
            return BrokerRemovalKey(int(key.removeprefix(self.broker_removals)))
        if key.startswith(self.broker_additions):
            return BrokerAdditionKey(int(key.removeprefix(self.broker_additions)))
        if key.startswith(self.maintenances):
            return MaintenanceKey(int(key.removeprefix(self.maintenances)))
        return None


class ControllerKey(NamedTuple):
    pass


class ControllerEpochKey(NamedTuple):
    pass


class ControllerProcessKey(NamedTuple):
    controller_id: int


class ClusterKey(NamedTuple):
    pass


class LastRegistrationKey(NamedTuple):
    pass


class ThrottleKey(NamedTuple):
    pass


class BrokerKey(NamedTuple):
    broker_id: int


class DepartureKey(NamedTuple):
    broker_id: int


class BrokerDirectoryKey(NamedTuple):
    broker_id: int


class RejectedStartKey(NamedTuple):
    broker_id: int


class BrokerPressureKey(NamedTuple):
    broker_id: int


class TopicKey(NamedTuple):
    topic: str


class PartitionKey(NamedTuple):
    partition: TopicPartition


class TopicDeletionKey(NamedTuple):
    topic: str


class PartitionsAdditionKey(NamedTuple):
    topic: str


class PartitionsRemovalKey(NamedTuple):
    topic: str


class RecoveryKey(NamedTuple):
    partition: TopicPartition


class OperationKey(NamedTuple):
    operation_id: str


class OperationPlanKey(NamedTuple):
    operation_id: str
    chunk: int


class BrokerRemovalKey(NamedTuple):
    broker_id: int


class BrokerAdditionKey(NamedTuple):
    broker_id: int


class MaintenanceKey(NamedTuple):
    broker_id: int


class NamedProducerKey(NamedTuple):
    name: str


ParsedKey = (
    ControllerKey
    | ControllerEpochKey
    | ControllerProcessKey
    | ClusterKey
    | LastRegistrationKey
    | ThrottleKey
    | BrokerKey
    | DepartureKey
    | BrokerDirectoryKey
    | RejectedStartKey
    | BrokerPressureKey
    | TopicKey
    | PartitionKey
    | TopicDeletionKey
    | PartitionsAdditionKey
    | PartitionsRemovalKey
    | RecoveryKey
    | OperationKey
    | OperationPlanKey
    | BrokerRemovalKey
    | BrokerAdditionKey
    | MaintenanceKey
    | NamedProducerKey
)
