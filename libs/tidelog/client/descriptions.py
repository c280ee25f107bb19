"""Descriptions of a cluster and its topics that `Admin` returns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidelog.rpc.wire import partition_count
from tidelog.v1 import broker_pb2

# Partitions converted between two pauses: a millisecond or two.
PARTITIONS_PER_TURN = 400

# The status of a broker whose registration has ended.
GONE = "gone"


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker. `status`: running, stopping or gone. `version`: of its release; empty: unknown."""

    broker_id: int
    address: str
    rack: str
    broker_epoch: int
    status: str
    version: str = ""

    @property
    def state(self) -> str:
        """Deprecated alias of `status`, for one release."""
        return self.status


@dataclass(frozen=True, slots=True)
class ControllerDescription:
    controller_id: int
    address: str
    controller_epoch: int


@dataclass(frozen=True, slots=True)
class ControllerProcessDescription:
    """A live controller, active or not. `started_at_ms`: wall clock. `version`: of its release;
    empty: unknown."""

    controller_id: int
    address: str
    started_at_ms: int
    version: str = ""


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """Brokers and controllers of a cluster.

    - `controller`: None if no active one is known.
    - `controllers`: all live ones, ordered by id.
    - `feature_level`: 0: the answering broker does not report it.
    """

    cluster_id: str
    controller: ControllerDescription | None
    brokers: tuple[BrokerDescription, ...]
    controllers: tuple[ControllerProcessDescription, ...] = ()
    feature_level: int = 0

    @property
    def standby(self) -> tuple[ControllerProcessDescription, ...]:
        """Controllers that can take over from the active one."""
        active = self.controller.controller_id if self.controller else None
        return tuple(c for c in self.controllers if c.controller_id != active)


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """The fields of `PartitionMetadata`, which broker.proto documents."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible_leader_replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    unclean_leader_epoch: int
    min_isr: int
    moving_operation: str = ""
    original_replicas: tuple[int, ...] = ()
    target_replicas: tuple[int, ...] = ()
    create_revision: int = 0

    @property
    def adding_replicas(self) -> tuple[int, ...]:
        return tuple(b for b in self.target_replicas if b not in self.original_replicas)

    @property
    def leaving_replicas(self) -> tuple[int, ...]:
        return tuple(b for b in self.original_replicas if b not in self.target_replicas)

    @property
    def is_under_replicated(self) -> bool:
        """Replicas that a move adds count as missing only after its switch."""
        return len(self.isr) < len(self.original_replicas or self.replicas)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions.

    - `config`: keys that are set for the topic; absent keys have their defaults.
    - `partitions`: those among `partition_count` that have replicas.
    - `create_revision`: a later topic of the same name has a greater one.
    - `revision`: of the last change of the topic's entry.
    """

    name: str
    topic_id: str
    replication_factor: int
    config: Mapping[str, str]
    partitions: tuple[PartitionDescription, ...]
    partition_count: int
    create_revision: int = 0
    revision: int = 0


def cluster_from_wire(answer: broker_pb2.MetadataResponse) -> ClusterDescription:
    controller = None
    if answer.HasField("controller"):
        controller = ControllerDescription(
            answer.controller.controller_id,
            answer.controller.address,
            answer.controller.controller_epoch,
        )
    brokers = (
        BrokerDescription(b.broker_id, b.address, b.rack, b.broker_epoch, b.state, b.version)
        for b in sorted(answer.brokers, key=lambda b: b.broker_id)
    )
    controllers = (
        ControllerProcessDescription(c.controller_id, c.address, c.started_at_ms, c.version)
        for c in answer.controllers
    )
    return ClusterDescription(
        answer.cluster_id,
        controller,
        tuple(brokers),
        tuple(controllers),
        answer.feature_level,
    )


async def topics_from_wire(
    topics: Iterable[broker_pb2.TopicMetadata],
) -> list[TopicDescription]:
    """Converts topics in slices, between which the event loop runs other tasks: some thousand
    partitions take tens of milliseconds."""
    converted: list[TopicDescription] = []
    since_pause = 0
    for topic in topics:
        partitions: list[PartitionDescription] = []
        for partition in topic.partitions:
            partitions.append(_partition_from_wire(partition))
            since_pause += 1
            if since_pause == PARTITIONS_PER_TURN:
                since_pause = 0
                await asyncio.sleep(0)
        converted.append(_topic_from_wire(topic, partitions))
    return converted


def topic_from_wire(topic: broker_pb2.TopicMetadata) -> TopicDescription:
    return _topic_from_wire(topic, map(_partition_from_wire, topic.partitions))


def _topic_from_wire(
    topic: broker_pb2.TopicMetadata, partitions: Iterable[PartitionDescription]
) -> TopicDescription:
    return TopicDescription(
        topic.name,
        topic.topic_id,
        topic.replication_factor,
        dict(topic.config),
        tuple(partitions),
        partition_count(topic),
        topic.create_revision,
        topic.revision,
    )


def _partition_from_wire(wire: broker_pb2.PartitionMetadata) -> PartitionDescription:
    return PartitionDescription(
        wire.partition,
        wire.leader,
        wire.leader_epoch,
        tuple(wire.replicas),
        tuple(wire.isr),
        tuple(wire.eligible_leader_replicas),
        tuple(wire.offline_replicas),
        wire.unclean_leader_epoch,
        wire.min_isr,
        wire.moving_operation,
        tuple(wire.original_replicas),
        tuple(wire.target_replicas),
        wire.create_revision,
    )
