"""Topics as the active controller keeps them: effective configuration, revisions, moves.

admin.proto documents the fields."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tidelog.client.arguments import checks_arguments
from tidelog.client.controller_calls import ControllerCalls
from tidelog.client.request_fields import built
from tidelog.client.request_parts import in_parts, name_bytes
from tidelog.v1 import admin_pb2 as pb

PAGE_SIZE = 1_000
MAX_PAGES = 1_000
TOPICS_FIELD = "tidelog.v1.DescribeTopicsRequest.topics"


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    key: str
    value: str
    is_set: bool
    default_value: str
    description: str


@dataclass(frozen=True, slots=True)
class PartitionMove:
    operation_id: str
    original: tuple[int, ...]
    target: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PartitionDetails:
    """State of a partition. `move`: None: it is not being reassigned."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible: tuple[int, ...]
    min_isr: int
    revision: int
    move: PartitionMove | None
    unclean_leader_epoch: int

    @property
    def is_under_replicated(self) -> bool:
        """Replicas that a move adds count as missing only after its switch."""
        return len(self.isr) < len(self.move.original if self.move else self.replicas)


@dataclass(frozen=True, slots=True)
class TopicDetails:
    """Properties of a topic. `partitions`: empty if they were not requested."""

    topic: str
    topic_id: str
    partition_count: int
    replication_factor: int
    config: tuple[ConfigEntry, ...]
    revision: int
    deleting: bool
    partitions_being_removed: int
    internal: bool
    partitions: tuple[PartitionDetails, ...]


@checks_arguments()
class TopicQuestions:
    _controllers: ControllerCalls

    async def topic_details(
        self,
        topics: Sequence[str] = (),
        *,
        internal: bool = False,
        with_partitions: bool = True,
    ) -> list[TopicDetails]:
        """Returns the topics with these names; without names all topics, and with `internal` the
        cluster's internal ones, too."""
        found: dict[str, TopicDetails] = {}
        for part in in_parts(dict.fromkeys(topics), TOPICS_FIELD, name_bytes):
            await self._add_details(found, part, internal, with_partitions)
        return list(found.values())

    async def _add_details(
        self,
        found: dict[str, TopicDetails],
        topics: Sequence[str],
        internal: bool,
        with_partitions: bool,
    ) -> None:
        token = ""
        for _ in range(MAX_PAGES):
            answer = await self._asked_for_topics(
                built(
                    pb.DescribeTopicsRequest,
                    topics=topics,
                    internal=internal,
                    without_partitions=not with_partitions,
                    page_size=PAGE_SIZE,
                    page_token=token,
                )
            )
            for wire in answer.topics:
                _add(found, details_from_wire(wire))
            token = answer.next_page_token
            if not token:
                break

    async def _asked_for_topics(
        self, request: pb.DescribeTopicsRequest
    ) -> pb.DescribeTopicsResponse:
        return await self._controllers.ask(lambda api, ms: api.describe_topics(request, ms))


def _add(found: dict[str, TopicDetails], details: TopicDetails) -> None:
    """Adds a topic or its continuation from the next page. A topic that was created again meanwhile
    replaces the previous one."""
    before = found.get(details.topic)
    if before is not None and before.topic_id == details.topic_id:
        details = replace(details, partitions=before.partitions + details.partitions)
    found[details.topic] = details


def details_from_wire(wire: pb.TopicDetails) -> TopicDetails:
    return TopicDetails(
        wire.topic,
        wire.topic_id,
        wire.partition_count,
        wire.replication_factor,
        tuple(
            ConfigEntry(e.key, e.value, e.is_set, e.default_value, e.description)
            for e in wire.config
        ),
        wire.revision,
        wire.deleting,
        wire.partitions_being_removed,
        wire.internal,
        tuple(_partitions(wire.partitions)),
    )


def _partitions(wire: Iterable[pb.PartitionDetails]) -> Iterable[PartitionDetails]:
    for p in wire:
        move = None
        if p.HasField("move"):
            move = PartitionMove(p.move.operation_id, tuple(p.move.original), tuple(p.move.target))
        yield PartitionDetails(
            p.partition,
            p.leader,
            p.leader_epoch,
            tuple(p.replicas),
            tuple(p.isr),
            tuple(p.eligible),
            p.min_isr,
            p.revision,
            move,
            p.unclean_leader_epoch,
        )
