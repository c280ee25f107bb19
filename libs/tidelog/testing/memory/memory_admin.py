"""AdminService over one broker in memory: topics, their partitions and their configuration.

Requests are checked by the controller's own rules. Everything that needs several brokers, such as
reassignments, is rejected with INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeAlias

import grpc.aio

from tidelog.admin_messages import ConfigEntry
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.request_bounds import check_topic_name
from tidelog.rpc.abort import abort
from tidelog.rpc.message_codec import to_wire
from tidelog.rpc.wire import error_to_wire
from tidelog.testing.memory.memory_cluster import BROKER_ID, MemoryCluster
from tidelog.v1 import admin_pb2 as pb
from tidelog.v1.admin_pb2_grpc import AdminServiceServicer
from tidelog_broker.membership.metadata_cache import LiveTopic
from tidelog_controller.policies.assignment import check_assignment
from tidelog_controller.policies.internal_topics import check_may_create
from tidelog_controller.policies.topic_limits import (
    check_config,
    check_config_change,
    check_partitions,
    check_replication_factor,
)
from tidelog_controller.requests.request_checks import check_operation_id, check_revision
from tidelog_controller.requests.topic_config_admin import config_changes
from tidelog_runtime.topic_config import TopicConfig

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
# Programs create topics for their clusters. The factor is remembered; there is one replica.
MAX_REPLICATION_FACTOR = 3
# Every partition has the only broker.
_PLACES = pb.ReplicaAssignment(replicas=[BROKER_ID])


class MemoryAdmin(AdminServiceServicer):
    def __init__(self, cluster: MemoryCluster) -> None:
        self._cluster = cluster

    async def CreateTopic(  # noqa: N802
        self,
        request: pb.CreateTopicRequest,
        context: _Context,  # noqa: ARG002
    ) -> pb.CreateTopicResponse:
        try:
            partitions = request.partitions or len(request.assignment)
            topic_id = self._begun(request)
            if not topic_id:
                self._check_creation(request, partitions)
            if request.dry_run:
                return pb.CreateTopicResponse(assignment=[_PLACES] * partitions)
            if not topic_id:
                topic_id = self._cluster.create(
                    request.topic,
                    partitions,
                    request.config,
                    replication_factor=request.replication_factor or 1,
                    operation_id=request.operation_id,
                )
        except TidelogError as error:
            return pb.CreateTopicResponse(error=error_to_wire(error))
        return pb.CreateTopicResponse(topic_id=topic_id)

    def _begun(self, request: pb.CreateTopicRequest) -> str:
        """Returns the id of the topic that a request with this operation id has created."""
        check_topic_name(request.topic)
        check_may_create(request.topic)
        if not request.operation_id:
            return ""
        check_operation_id(request.operation_id)
        there = self._cluster.cache.topics.get(request.topic)
        is_same = there is not None and there.entry.operation_id == request.operation_id
        return there.entry.topic_id if there is not None and is_same else ""

    def _check_creation(self, request: pb.CreateTopicRequest, partitions: int) -> None:
        if request.topic in self._cluster.cache.topics:
            raise TidelogError(
                ErrorCode.TOPIC_ALREADY_EXISTS,
                f"a topic named {request.topic} exists; choose another name",
            )
        check_partitions(partitions)
        factor = request.replication_factor or (1 if request.assignment else 0)
        check_replication_factor(factor, MAX_REPLICATION_FACTOR)
        _check_places(request.topic, request.assignment, range(partitions))
        check_config(request.config, factor)

    async def DeleteTopic(  # noqa: N802
        self,
        request: pb.DeleteTopicRequest,
        context: _Context,  # noqa: ARG002
    ) -> pb.DeleteTopicResponse:
        try:
            topic = self._unchanged(request)
        except TidelogError as error:
            return pb.DeleteTopicResponse(error=error_to_wire(error))
        if request.dry_run:
            return pb.DeleteTopicResponse(partitions=topic.entry.partitions, brokers=[BROKER_ID])
        self._cluster.delete(request.topic)
        return pb.DeleteTopicResponse()

    async def AlterTopicConfig(  # noqa: N802
        self,
        request: pb.AlterTopicConfigRequest,
        context: _Context,  # noqa: ARG002
    ) -> pb.AlterTopicConfigResponse:
        try:
            entry = self._cluster.find(request.topic, request.topic_id).entry
            before, after = entry.config, _altered(entry.config, request)
            check_config(after, entry.replication_factor)
            check_config_change(before, after)
            if after != before:
                self._unchanged(request)
        except TidelogError as error:
            return pb.AlterTopicConfigResponse(error=error_to_wire(error))
        if after != before and not request.dry_run:
            self._cluster.alter_config(request.topic, after)
        return pb.AlterTopicConfigResponse(
            changes=[to_wire(change, pb.ConfigChange) for change in config_changes(before, after)],
            revision=self._cluster.find(request.topic).revision,
        )

    async def AddPartitions(  # noqa: N802
        self,
        request: pb.AddPartitionsRequest,
        context: _Context,  # noqa: ARG002
    ) -> pb.AddPartitionsResponse:
        try:
            check_partitions(request.partitions)
            there = self._cluster.find(request.topic, request.topic_id).entry.partitions
            added = request.partitions - there
            if added < 0:
                raise TidelogError(
                    ErrorCode.INVALID_PARTITION_COUNT,
                    f"topic {request.topic} has {there} partitions, and {request.partitions} are "
                    "requested; a memory broker only adds partitions: request more, or create "
                    "another topic",
                )
            if added:
                self._unchanged(request)
                _check_places(request.topic, request.assignment, range(there, request.partitions))
                if not request.dry_run:
                    self._cluster.add_partitions(request.topic, request.partitions)
        except TidelogError as error:
            return pb.AddPartitionsResponse(error=error_to_wire(error))
        return pb.AddPartitionsResponse(
            added=added,
            revision=self._cluster.find(request.topic).revision,
            assignment=[_PLACES] * added if request.dry_run else (),
        )

    async def DescribeTopics(  # noqa: N802
        self,
        request: pb.DescribeTopicsRequest,
        context: _Context,  # noqa: ARG002
    ) -> pb.DescribeTopicsResponse:
        """Describes all topics on one page: a memory broker has few."""
        answer = pb.DescribeTopicsResponse()
        try:
            for name in sorted(set(request.topics)) or sorted(self._cluster.cache.topics):
                self._describe(
                    answer.topics.add(), name, with_partitions=not request.without_partitions
                )
        except TidelogError as error:
            return pb.DescribeTopicsResponse(error=error_to_wire(error))
        return answer

    def _describe(self, wire: pb.TopicDetails, name: str, *, with_partitions: bool) -> None:
        topic = self._cluster.find(name)
        entry = topic.entry
        wire.topic, wire.topic_id = name, entry.topic_id
        wire.partition_count = entry.partitions
        wire.replication_factor = entry.replication_factor
        wire.revision = topic.revision
        wire.config.extend(to_wire(each, pb.ConfigEntry) for each in _config_keys(entry.config))
        if not with_partitions:
            return
        for number in range(entry.partitions):
            known = self._cluster.cache.state_of(TopicPartition(name, number))
            assert known is not None, "each partition of a topic has a state"
            wire.partitions.add(
                partition=number,
                leader=known.state.leader,
                leader_epoch=known.state.leader_epoch,
                replicas=known.state.replicas,
                isr=sorted(known.state.isr_ids),
                min_isr=known.state.min_isr,
                revision=known.revision,
                unclean_leader_epoch=known.state.unclean_leader_epoch,
            )

    def _unchanged(
        self, request: pb.DeleteTopicRequest | pb.AlterTopicConfigRequest | pb.AddPartitionsRequest
    ) -> LiveTopic:
        """Returns the topic. Raises REVISION_CONFLICT if it is not at the expected revision."""
        topic = self._cluster.find(request.topic, request.topic_id)
        check_revision(f"topic {request.topic}", topic.revision, request.expected_revision)
        return topic


def _check_places(topic: str, assignment: Any, numbers: range) -> None:
    """Raises INVALID_ASSIGNMENT unless each partition is placed on the only broker, or none is
    placed by hand."""
    if not assignment:
        return
    if len(assignment) != len(numbers):
        raise TidelogError(
            ErrorCode.INVALID_ASSIGNMENT,
            f"{len(numbers)} partitions of topic {topic} need replicas, and {len(assignment)} are "
            "named; name those of each partition",
        )
    places = zip(numbers, assignment, strict=True)
    check_assignment(topic, {n: list(of.replicas) for n, of in places}, [BROKER_ID], 1)


def _altered(before: Mapping[str, str], request: pb.AlterTopicConfigRequest) -> Mapping[str, str]:
    if not request.set and not request.unset:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST, "no key is set or unset; name at least one key"
        )
    both = sorted(set(request.set) & set(request.unset))
    if both:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST, f"{both[0]} is both set and unset; choose one"
        )
    TopicConfig.check_keys(request.unset)
    return {k: v for k, v in before.items() if k not in request.unset} | dict(request.set)


def _config_keys(config: Mapping[str, str]) -> Iterator[ConfigEntry]:
    in_force, defaults = TopicConfig.parse(config).as_text(), TopicConfig().as_text()
    for key in sorted(in_force):
        description = TopicConfig.model_fields[key].description or ""
        yield ConfigEntry(key, in_force[key], key in config, defaults[key], description)


def _rejecting(name: str) -> Callable[[MemoryAdmin, Any, _Context], Awaitable[Any]]:
    async def reject(_: MemoryAdmin, __: Any, context: _Context) -> Any:
        await abort(
            context,
            TidelogError(
                ErrorCode.INVALID_REQUEST,
                f"a memory broker does not support {name}, which is for clusters of several "
                "brokers; use the fixture tidelog_cluster",
            ),
        )

    return reject


for _method in pb.DESCRIPTOR.services_by_name["AdminService"].methods:
    if _method.name not in vars(MemoryAdmin):
        setattr(MemoryAdmin, _method.name, _rejecting(_method.name))
