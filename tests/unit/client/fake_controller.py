"""A controller of the cluster in memory, behind a gRPC server on loopback."""

from __future__ import annotations

from collections import deque

import grpc
import grpc.aio

from tidelog.errors import ErrorCode, TidelogError, unknown_topic
from tidelog.model import NO_LEADER
from tidelog.rpc.channels import new_server
from tidelog.rpc.trace_context import trace_id_of
from tidelog.rpc.wire import error_to_wire
from tidelog.v1 import admin_pb2, admin_pb2_grpc
from unit.client.fake_broker import NO_GRACE, FakeCluster, Script, ServicerContext


class FakeController(admin_pb2_grpc.AdminServiceServicer):
    """Creates topics with all leaders on broker 0; `script` works as in FakeBroker."""

    def __init__(self, cluster: FakeCluster, controller_id: int, epoch: int = 1) -> None:
        self.cluster = cluster
        self.controller_id = controller_id
        self.epoch = epoch
        self.address = ""
        self.script: deque[Script] = deque()
        self.calls = 0
        self.trace_ids: list[str] = []
        self._server: grpc.aio.Server | None = None

    async def start(self) -> FakeController:
        self._server = new_server()
        admin_pb2_grpc.add_AdminServiceServicer_to_server(self, self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        self.address = f"127.0.0.1:{port}"
        await self._server.start()
        return self

    async def close(self) -> None:
        if self._server is not None:
            await self._server.stop(NO_GRACE)

    async def CreateTopic(  # noqa: N802
        self, request: admin_pb2.CreateTopicRequest, context: ServicerContext
    ) -> admin_pb2.CreateTopicResponse:
        self.calls += 1
        self.trace_ids.append(trace_id_of(context.invocation_metadata()))
        scripted = self.script.popleft() if self.script else None
        error = scripted if isinstance(scripted, TidelogError) else None
        if error is None and request.topic in self.cluster.topics:
            error = TidelogError(ErrorCode.TOPIC_ALREADY_EXISTS, "there is one already")
        if error is not None:
            return admin_pb2.CreateTopicResponse(error=error_to_wire(error))
        topic = self.cluster.create(request.topic, [0] * request.partitions, **request.config)
        if scripted is not None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "died after creating")
        return admin_pb2.CreateTopicResponse(topic_id=topic.topic_id)

    async def DeleteTopic(  # noqa: N802
        self, request: admin_pb2.DeleteTopicRequest, context: ServicerContext
    ) -> admin_pb2.DeleteTopicResponse:
        self.calls += 1
        self.trace_ids.append(trace_id_of(context.invocation_metadata()))
        if self.script:
            self.script.popleft()
            self.cluster.topics.pop(request.topic, None)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "died after deleting")
        if self.cluster.topics.pop(request.topic, None) is None:
            error = unknown_topic(request.topic)
            return admin_pb2.DeleteTopicResponse(error=error_to_wire(error))
        return admin_pb2.DeleteTopicResponse()

    async def DescribeTopics(  # noqa: N802
        self,
        request: admin_pb2.DescribeTopicsRequest,
        context: ServicerContext,  # noqa: ARG002
    ) -> admin_pb2.DescribeTopicsResponse:
        """Describes the named topics, each at revision 1 and with all its partitions."""
        answer = admin_pb2.DescribeTopicsResponse()
        for name in request.topics:
            topic = self.cluster.topics.get(name)
            if topic is None:
                error = error_to_wire(unknown_topic(name))
                return admin_pb2.DescribeTopicsResponse(error=error)
            described = answer.topics.add(
                topic=name,
                topic_id=topic.topic_id,
                partition_count=len(topic.partitions),
                revision=1,
            )
            for number, partition in enumerate(topic.partitions):
                led = partition.leader != NO_LEADER
                described.partitions.add(
                    partition=number,
                    leader=partition.leader,
                    leader_epoch=partition.leader_epoch,
                    isr=[partition.leader] if led else [],
                )
        return answer

    async def RecoverPartitions(  # noqa: N802
        self,
        request: admin_pb2.RecoverPartitionsRequest,
        context: ServicerContext,  # noqa: ARG002
    ) -> admin_pb2.RecoverPartitionsResponse:
        """Broker 0 becomes the leader of all leaderless partitions; a scripted error applies to
        each partition.
        """
        self.calls += 1
        topic = self.cluster.topics.get(request.topic)
        if topic is None:
            error = unknown_topic(request.topic)
            return admin_pb2.RecoverPartitionsResponse(error=error_to_wire(error))
        scripted = self.script.popleft() if self.script else None
        failure = error_to_wire(scripted) if isinstance(scripted, TidelogError) else None
        numbers = list(request.partitions) or [
            number for number, p in enumerate(topic.partitions) if p.leader == NO_LEADER
        ]
        for number in numbers:
            if failure is None and topic.partitions[number].leader == NO_LEADER:
                topic.partitions[number].leader = 0
        return admin_pb2.RecoverPartitionsResponse(
            partitions=[
                admin_pb2.RecoverPartitionResult(partition=number, error=failure)
                for number in numbers
            ]
        )
