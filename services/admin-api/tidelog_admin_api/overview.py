"""Data of the console's first page, bounded however many partitions there are. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest

from tidelog.admin_messages import BrokerDetails, Operation
from tidelog.cli.health import SOUND, partition_health
from tidelog.client.descriptions import (
    BrokerDescription,
    ClusterDescription,
    PartitionDescription,
    TopicDescription,
)
from tidelog.inspection.explain.causes import SEVERITIES
from tidelog.inspection.model import Explanation
from tidelog.model import NO_LEADER
from tidelog.state_changes.topic import is_internal
from tidelog_admin_api.bodies.cluster_bodies import (
    BrokerLoad,
    Controller,
    FindingSummary,
    MappedTopic,
    Overview,
    OverviewPart,
    PartitionCounts,
    PartitionMap,
    RunningOperation,
    UnwellPartition,
)

MAX_UNWELL = 100
MAX_FINDINGS = 100
# Without a recent answer for these parts, the health is unknown.
_NEEDED = ("cluster", "topics")
OK, WARNING, CRITICAL, UNKNOWN = "ok", "warning", "critical", "unknown"


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """A summary of all topics, made once for each answer of the cluster and not for each reader."""

    counts: PartitionCounts
    unwell: Sequence[UnwellPartition]
    topics: Sequence[TopicDescription] = ()


NO_FIGURES = TopicFigures(
    PartitionCounts(
        topics=0,
        partitions=0,
        without_leader=0,
        below_min_isr=0,
        under_replicated=0,
        not_led_by_preferred=0,
        moving=0,
    ),
    (),
)


def figures_of(topics: Sequence[TopicDescription]) -> TopicFigures:
    partitions = [(topic.name, partition) for topic in topics for partition in topic.partitions]
    unwell = [named for named in partitions if partition_health(named[1]) != SOUND]
    return TopicFigures(
        PartitionCounts(
            topics=sum(not is_internal(topic.name) for topic in topics),
            partitions=len(partitions),
            without_leader=sum(p.leader == NO_LEADER for _, p in partitions),
            below_min_isr=sum(len(p.isr) < p.min_isr for _, p in partitions),
            under_replicated=sum(p.is_under_replicated for _, p in partitions),
            not_led_by_preferred=sum(
                p.leader not in (NO_LEADER, *p.replicas[:1]) for _, p in partitions
            ),
            moving=sum(bool(p.moving_operation) for _, p in partitions),
        ),
        [_unwell(topic, p) for topic, p in nlargest(MAX_UNWELL, unwell, key=_badness)],
        topics,
    )


def map_of(topics: Sequence[TopicDescription]) -> PartitionMap:
    return PartitionMap(
        topics=[
            MappedTopic(
                topic=topic.name,
                partitions=[(p.leader, list(p.replicas), list(p.isr)) for p in topic.partitions],
            )
            for topic in topics
        ]
    )


def _badness(named: tuple[str, PartitionDescription]) -> tuple[bool, bool, bool]:
    """Returns the sort key: the worst is the highest. Equal ones keep their order."""
    partition = named[1]
    return (
        partition.leader == NO_LEADER,
        len(partition.isr) < partition.min_isr,
        partition.is_under_replicated,
    )


def _unwell(topic: str, partition: PartitionDescription) -> UnwellPartition:
    return UnwellPartition(
        topic=topic,
        partition=partition.partition,
        health=partition_health(partition),
        leader=partition.leader,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        min_isr=partition.min_isr,
    )


def overview_of(
    cluster: ClusterDescription | None,
    figures: TopicFigures | None,
    brokers: Sequence[BrokerDetails] | None,
    operations: Sequence[Operation] | None,
    explained: Explanation | None,
    parts: dict[str, OverviewPart],
) -> Overview:
    """Returns the overview. A part that is None has had no answer yet."""
    controller = cluster.controller if cluster else None
    findings = explained.findings if explained else ()
    return Overview(
        cluster_id=cluster.cluster_id if cluster else "",
        health=_health(cluster, figures, explained, parts),
        controller=Controller.model_validate(controller) if controller else None,
        counts=(figures or NO_FIGURES).counts,
        unwell=list((figures or NO_FIGURES).unwell),
        brokers=_loads(cluster, brokers),
        operations=[_running(operation) for operation in operations or ()],
        findings=[FindingSummary.model_validate(finding) for finding in findings[:MAX_FINDINGS]],
        parts=parts,
    )


def _health(
    cluster: ClusterDescription | None,
    figures: TopicFigures | None,
    explained: Explanation | None,
    parts: Mapping[str, OverviewPart],
) -> str:
    """Returns the worst health that any part shows.

    Good health needs a recent answer: it may have changed since.
    """
    if cluster is None or figures is None:
        return UNKNOWN
    counts = figures.counts
    severities = [finding.severity for finding in explained.findings] if explained else []
    if counts.without_leader or counts.below_min_isr or SEVERITIES[0] in severities:
        return CRITICAL
    if any(name in parts and parts[name].problem for name in _NEEDED):
        return UNKNOWN
    if counts.under_replicated or cluster.controller is None or WARNING in severities:
        return WARNING
    return OK


def _loads(
    cluster: ClusterDescription | None, brokers: Sequence[BrokerDetails] | None
) -> list[BrokerLoad]:
    if brokers is not None:
        return [BrokerLoad.model_validate(broker) for broker in brokers]
    return [_registered(broker) for broker in (cluster.brokers if cluster else ())]


def _registered(broker: BrokerDescription) -> BrokerLoad:
    """Returns a broker as brokers know it, without the load, which the controller knows."""
    return BrokerLoad(
        broker_id=broker.broker_id,
        status=broker.status,
        address=broker.address,
        rack=broker.rack,
        maintenance=False,
        removed=False,
        not_added=False,
        replicas=0,
        leaders=0,
        preferred_leaders=0,
        out_of_sync=0,
        moves_in=0,
        moves_out=0,
        gone_at_ms=0,
    )


def _running(operation: Operation) -> RunningOperation:
    progress = operation.progress
    return RunningOperation(
        operation_id=operation.operation_id,
        kind=operation.kind,
        state=operation.state,
        reason=operation.reason,
        requested_by=operation.requested_by,
        requested_at_ms=operation.requested_at_ms,
        moves=progress.moves,
        moves_done=progress.moves_done,
        moves_active=progress.moves_active,
        replicas_to_add=progress.replicas_to_add,
        replicas_added=progress.replicas_added,
        estimated_end_ms=progress.estimated_end_ms,
        bytes_to_copy=progress.bytes_to_copy,
        bytes_copied=progress.bytes_copied,
        bytes_per_second=progress.bytes_per_second,
    )
