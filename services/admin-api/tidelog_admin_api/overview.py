"""The data of the console's first page, bounded for any number of partitions. Pure."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from heapq import nlargest

from tidelog.admin_messages import BrokerDetails, Operation
from tidelog.cli.partition_health import SOUND, HealthCounts, partition_health
from tidelog.client.descriptions import (
    PARTITIONS_PER_TURN,
    BrokerDescription,
    ClusterDescription,
    PartitionDescription,
    TopicDescription,
)
from tidelog.inspection.explain.causes import SEVERITIES
from tidelog.inspection.state_reports import Explanation
from tidelog.model import NO_LEADER
from tidelog.state_changes.topic import is_internal
from tidelog_admin_api.bodies.broker_bodies import BrokerLoad
from tidelog_admin_api.bodies.cluster_bodies import (
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
class TopicsSummary:
    """A summary of all topics, computed once for each refresh and not for each reader."""

    counts: PartitionCounts
    unwell: Sequence[UnwellPartition]
    topics: Sequence[TopicDescription] = ()


async def summary_of(topics: Sequence[TopicDescription]) -> TopicsSummary:
    counts: Counter[str] = Counter(dict.fromkeys(PartitionCounts.model_fields, 0))
    unwell: list[tuple[str, PartitionDescription]] = []
    async for topic, partitions in _slices(topics):
        counts.update(asdict(HealthCounts.of_partitions(partitions)))
        counts["not_led_by_preferred"] += sum(
            p.leader not in (NO_LEADER, *p.replicas[:1]) for p in partitions
        )
        counts["moving"] += sum(bool(p.moving_operation) for p in partitions)
        unwell += ((topic.name, p) for p in partitions if partition_health(p) != SOUND)
    counts["topics"] = sum(not is_internal(topic.name) for topic in topics)
    return TopicsSummary(
        PartitionCounts(**counts),
        [_unwell(topic, p) for topic, p in nlargest(MAX_UNWELL, unwell, key=_badness)],
        topics,
    )


async def map_of(topics: Sequence[TopicDescription]) -> PartitionMap:
    mapped = {topic.name: MappedTopic(topic=topic.name, partitions=[]) for topic in topics}
    async for topic, partitions in _slices(topics):
        some = MappedTopic(
            topic=topic.name,
            partitions=[(p.leader, list(p.replicas), list(p.isr)) for p in partitions],
        )
        mapped[topic.name].partitions += some.partitions
    return PartitionMap(topics=list(mapped.values()))


async def _slices(
    topics: Iterable[TopicDescription],
) -> AsyncIterator[tuple[TopicDescription, Sequence[PartitionDescription]]]:
    """Yields some partitions at a time. The event loop runs other tasks between
    PARTITIONS_PER_TURN."""
    since_pause = 0
    for topic in topics:
        for start in range(0, len(topic.partitions), PARTITIONS_PER_TURN):
            some = topic.partitions[start : start + PARTITIONS_PER_TURN]
            yield topic, some
            since_pause += len(some)
            if since_pause >= PARTITIONS_PER_TURN:
                since_pause = 0
                await asyncio.sleep(0)


def _badness(named: tuple[str, PartitionDescription]) -> tuple[bool, bool, bool]:
    """Returns the sort key, which is highest for the worst partition."""
    partition = named[1]
    return (
        partition.leader == NO_LEADER,
        len(partition.isr) < partition.min_isr,
        partition.is_under_replicated,
    )


def _unwell(topic: str, partition: PartitionDescription) -> UnwellPartition:
    return UnwellPartition.of(partition, topic=topic, health=partition_health(partition))


_NO_TOPICS = TopicsSummary(
    PartitionCounts(**dict.fromkeys(PartitionCounts.model_fields, 0)), unwell=()
)


def overview_of(
    cluster: ClusterDescription | None,
    topics: TopicsSummary | None,
    brokers: Sequence[BrokerDetails] | None,
    operations: Sequence[Operation] | None,
    explained: Explanation | None,
    parts: dict[str, OverviewPart],
) -> Overview:
    """Returns the overview. None: the part has not had an answer yet."""
    controller = cluster.controller if cluster else None
    findings = explained.findings if explained else ()
    return Overview(
        cluster_id=cluster.cluster_id if cluster else "",
        health=_health(cluster, topics, explained, parts),
        controller=Controller.model_validate(controller) if controller else None,
        counts=(topics or _NO_TOPICS).counts,
        unwell=list((topics or _NO_TOPICS).unwell),
        brokers=_loads(cluster, brokers),
        operations=[_running(operation) for operation in operations or ()],
        findings=[FindingSummary.model_validate(finding) for finding in findings[:MAX_FINDINGS]],
        parts=parts,
    )


def _health(
    cluster: ClusterDescription | None,
    topics: TopicsSummary | None,
    explained: Explanation | None,
    parts: Mapping[str, OverviewPart],
) -> str:
    """Returns the worst health that any part shows. Health is good only if answers are recent."""
    if cluster is None or topics is None:
        return UNKNOWN
    counts = topics.counts
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
    """Returns a broker from the metadata of brokers, without its load: only controllers know it."""
    flags = dict.fromkeys(("maintenance", "removed", "not_added"), False)
    load = ("replicas", "leaders", "preferred_leaders", "out_of_sync", "moves_in", "moves_out")
    return BrokerLoad.of(broker, **flags, **dict.fromkeys(load, 0), gone_at_ms=0)


def _running(operation: Operation) -> RunningOperation:
    return RunningOperation.of(operation, **asdict(operation.progress))
