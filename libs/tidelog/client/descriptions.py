"""What `Admin` tells about a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.rpc.wire import partition_count
from tidelog.v1 import broker_pb2


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    broker_id: int
    address: str
    rack: str
    broker_epoch: int
    state: str


@dataclass(frozen=True, slots=True)
class ControllerDescription:
    controller_id: int
    address: str
    controller_epoch: int


@dataclass(frozen=True, slots=True)
class ControllerProcessDescription:
    """A controller that lives, active or not. `started_at_ms`: wall clock."""

    controller_id: int
    address: str
    started_at_ms: int


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """`controller` is None where no active one is known. `controllers`: all that live, ordered
    by id."""

    cluster_id: str
    controller: ControllerDescription | None
    brokers: tuple[BrokerDescription, ...]
    controllers: tuple[ControllerProcessDescription, ...] = ()

    @property
    def standby(self) -> tuple[ControllerProcessDescription, ...]:
        """Those that would take over from the active one."""
        active = self.controller.controller_id if self.controller else None
        return tuple(c for c in self.controllers if c.controller_id != active)


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """`broker.proto` documents the fields (PartitionMetadata)."""

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
        """Those that a move adds are not missing before it has switched."""
        return len(self.isr) < len(self.original_replicas or self.replicas)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """`config` holds what was set for the topic; what is absent has its default. `partitions`:
    those that have replicas, of `partition_count`. `create_revision`: a later topic of the same
    name has a greater one. `revision`: at which its entry changed last."""

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
        BrokerDescription(b.broker_id, b.address, b.rack, b.broker_epoch, b.state)
        for b in sorted(answer.brokers, key=lambda b: b.broker_id)
    )
    controllers = (
        ControllerProcessDescription(c.controller_id, c.address, c.started_at_ms)
        for c in answer.controllers
    )
    return ClusterDescription(answer.cluster_id, controller, tuple(brokers), tuple(controllers))


def topic_from_wire(topic: broker_pb2.TopicMetadata) -> TopicDescription:
    return TopicDescription(
        topic.name,
        topic.topic_id,
        topic.replication_factor,
        dict(topic.config),
        tuple(
            PartitionDescription(
                p.partition,
                p.leader,
                p.leader_epoch,
                tuple(p.replicas),
                tuple(p.isr),
                tuple(p.eligible_leader_replicas),
                tuple(p.offline_replicas),
                p.unclean_leader_epoch,
                p.min_isr,
                p.moving_operation,
                tuple(p.original_replicas),
                tuple(p.target_replicas),
                p.create_revision,
            )
            for p in topic.partitions
        ),
        partition_count(topic),
        topic.create_revision,
        topic.revision,
    )
