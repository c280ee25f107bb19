"""The controller's gRPC interface and its requests to brokers, over loopback."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tidelog.admin_messages import ConfigChange
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.rpc.channels import new_server, open_channel
from tidelog.rpc.trace_context import trace_id_of
from tidelog.state_changes.event import Change
from tidelog.v1 import admin_pb2, errors_pb2
from tidelog.v1 import replica_control_pb2 as pb
from tidelog.v1.admin_pb2_grpc import AdminServiceStub, add_AdminServiceServicer_to_server
from tidelog.v1.replica_control_pb2_grpc import (
    ReplicaControlServiceServicer,
    add_ReplicaControlServiceServicer_to_server,
)
from tidelog_controller.edge import admin as admin_module
from tidelog_controller.edge.admin import AdminServicer
from tidelog_controller.edge.replica_control_client import GrpcReplicaControl
from tidelog_controller.edge.standard_services import add_standard_services
from tidelog_controller.state.admin_answers import ConfigAnswer, PartitionsAnswer
from tidelog_controller.state.admin_requests import (
    UNKNOWN_CALLER,
    AddPartitions,
    AlterTopicConfig,
    Caller,
    RemovePartitions,
)
from tidelog_controller.state.commands import AdminReply
from tidelog_controller.state.events import (
    AdminRequest,
    CreateTopic,
    DeleteTopic,
    RecoverPartitions,
)
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member
from tidelog_runtime.replica_control import (
    BrokerUnreachableError,
    DescribeReplicasCommand,
    LeaderAddress,
    LeaderAndIsrCommand,
    PartitionCommand,
    ReplicaSummary,
    StopPartition,
    StopReplicaCommand,
)

STATE = LeaderAndIsr("id", (1, 2), 4, 1, 3, (Member(1, 10),), (Member(2, 20),), 2)
LEAD = LeaderAndIsrCommand(
    controller_id=1,
    controller_epoch=4,
    broker_epoch=10,
    full_state=True,
    partitions=[PartitionCommand(TopicPartition("t", 0), STATE, 33, {"segment_ms": "5000"})],
    leaders={1: LeaderAddress("b:1", 10)},
    store_revision=34,
)
STOP = StopReplicaCommand(1, 4, 10, [StopPartition(TopicPartition("t", 0), "id", 3, 33, True)])

DESCRIBE = DescribeReplicasCommand(1, 4, 10, [("id", 0), ("id", 1)])


class FakeAdmin:
    def __init__(self) -> None:
        self.requests: list[AdminRequest] = []
        self.askers: list[Caller] = []
        self.reply = AdminReply(None, "id", (2, 3))
        self.held: asyncio.Event | None = None

    async def submit(self, request: AdminRequest) -> AdminReply:
        # The port is ephemeral.
        self.requests.append(request._replace(caller=UNKNOWN_CALLER))
        self.askers.append(request.caller)
        if self.held is not None:
            await self.held.wait()
        return self.reply


class FakeBrokerServicer(ReplicaControlServiceServicer):
    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.traceparents: list[str | None] = []
        self.watched = asyncio.Event()

    async def LeaderAndIsr(  # noqa: N802
        self, request: pb.LeaderAndIsrRequest, context: Any
    ) -> pb.LeaderAndIsrResponse:
        self._take(request, context)
        result = pb.PartitionStateResult(topic_id="id", partition=0, revision=33)
        return pb.LeaderAndIsrResponse(partitions=[result])

    async def StopReplica(  # noqa: N802
        self, request: pb.StopReplicaRequest, context: Any
    ) -> pb.StopReplicaResponse:
        self._take(request, context)
        code = errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH
        return pb.StopReplicaResponse(error=errors_pb2.Error(code=code, message="a former life"))

    async def DescribeReplicas(  # noqa: N802
        self, request: pb.DescribeReplicasRequest, _: Any
    ) -> pb.DescribeReplicasResponse:
        self.requests.append(request)
        unknown = errors_pb2.Error(code=errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID, message="none")
        found = pb.ReplicaDescription(
            topic_id="id",
            partition=0,
            revision=33,
            log_start_offset=2,
            log_end_offset=7,
            epochs=[pb.LeaderEpochStart(leader_epoch=1, start_offset=2)],
        )
        missing = pb.ReplicaDescription(topic_id="id", partition=1, error=unknown)
        return pb.DescribeReplicasResponse(partitions=[found, missing])

    async def Watch(  # noqa: N802
        self, request: pb.WatchRequest, _: Any
    ) -> AsyncIterator[pb.WatchResponse]:
        yield pb.WatchResponse(broker_epoch=request.broker_epoch)
        self.watched.set()
        await asyncio.Event().wait()

    def _take(self, request: Any, context: Any) -> None:
        self.requests.append(request)
        self.traceparents.append(dict(context.invocation_metadata()).get("traceparent"))


Serve = Callable[[Callable[[grpc.aio.Server], None]], Any]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    servers: list[grpc.aio.Server] = []

    async def start(add: Callable[[grpc.aio.Server], None]) -> tuple[grpc.aio.Server, str]:
        server = new_server()
        servers.append(server)
        add(server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return server, f"127.0.0.1:{port}"

    yield start
    for server in servers:
        await server.stop(0)


@pytest.fixture
async def admin(serve: Serve) -> AsyncIterator[tuple[FakeAdmin, Any]]:
    fake = FakeAdmin()
    _, address = await serve(
        lambda server: add_AdminServiceServicer_to_server(AdminServicer(fake), server)
    )
    channel = open_channel(address)
    yield fake, AdminServiceStub(channel)
    await channel.close()


async def test_a_creation_reaches_the_controller_with_all_its_fields(
    admin: tuple[FakeAdmin, Any],
) -> None:
    fake, stub = admin
    await stub.CreateTopic(
        admin_pb2.CreateTopicRequest(
            topic="t",
            partitions=3,
            replication_factor=2,
            config={"segment_ms": "5000"},
            dry_run=True,
            timeout_ms=700,
        )
    )
    assert fake.requests == [CreateTopic(0, "t", 3, 2, {"segment_ms": "5000"}, True, 700)]


async def test_requests_carry_the_trace_that_they_belong_to(
    admin: tuple[FakeAdmin, Any],
) -> None:
    fake, stub = admin
    trace_id, traced = "4bf92f3577b34da6a3ce929d0e0e4736", "00-{}-00f067aa0ba902b7-01"
    metadata = (("traceparent", traced.format(trace_id)),)
    await stub.CreateTopic(admin_pb2.CreateTopicRequest(), metadata=metadata)
    await stub.DeleteTopic(admin_pb2.DeleteTopicRequest(), metadata=metadata)
    await stub.RecoverPartitions(admin_pb2.RecoverPartitionsRequest(), metadata=metadata)
    assert [request.trace_id for request in fake.requests] == [trace_id] * 3


async def test_requests_name_the_caller_and_its_address(admin: tuple[FakeAdmin, Any]) -> None:
    fake, stub = admin
    metadata = (("tidelog-requested-by", "ann@example.org"),)
    await stub.DeleteTopic(admin_pb2.DeleteTopicRequest(), metadata=metadata)
    await stub.DeleteTopic(admin_pb2.DeleteTopicRequest())
    assert [caller.name for caller in fake.askers] == ["ann@example.org", ""]
    assert fake.askers[0].address.startswith("ipv4:127.0.0.1:")


async def test_a_forwarded_address_is_prefixed_to_the_address_of_the_peer(
    admin: tuple[FakeAdmin, Any],
) -> None:
    fake, stub = admin
    for said in ("10.1.2.3:4711", "10.1.2.3 by way of none"):
        metadata = (("tidelog-requested-from", said),)
        await stub.DeleteTopic(admin_pb2.DeleteTopicRequest(), metadata=metadata)
    first, second = (caller.address for caller in fake.askers)
    assert first.startswith("10.1.2.3:4711 by way of ipv4:127.0.0.1:")
    assert second.startswith("ipv4:127.0.0.1:")


async def test_the_claimed_caller_is_bounded(admin: tuple[FakeAdmin, Any]) -> None:
    fake, stub = admin
    metadata = (("tidelog-requested-by", "x" * 500),)
    await stub.DeleteTopic(admin_pb2.DeleteTopicRequest(), metadata=metadata)
    assert fake.askers[0].name == "x" * 200


async def test_a_creation_with_chosen_replicas_reaches_the_controller(
    admin: tuple[FakeAdmin, Any],
) -> None:
    fake, stub = admin
    fake.reply = AdminReply(None, answer=PartitionsAnswer(2, assignment=((1, 2), (2, 3))))
    answer = await stub.CreateTopic(
        admin_pb2.CreateTopicRequest(
            topic="t",
            assignment=[admin_pb2.ReplicaAssignment(replicas=[1, 2])],
            operation_id="op-1",
        )
    )
    (request,) = fake.requests
    assert request == CreateTopic(0, "t", 0, 0, {}, False, 0, "", ((1, 2),), "op-1")
    assert [list(partition.replicas) for partition in answer.assignment] == [[1, 2], [2, 3]]


async def test_a_configuration_change_reaches_the_controller_and_its_changes_the_client(
    admin: tuple[FakeAdmin, Any],
) -> None:
    fake, stub = admin
    fake.reply = AdminReply(None, answer=ConfigAnswer((ConfigChange("a", "1", "2"),), 44))
    answer = await stub.AlterTopicConfig(
        admin_pb2.AlterTopicConfigRequest(
            topic="t",
            topic_id="id",
            set={"a": "2"},
            unset=["b"],
            expected_revision=33,
            dry_run=True,
            timeout_ms=7,
        )
    )
    assert fake.requests == [AlterTopicConfig(0, "t", "id", {"a": "2"}, ("b",), 33, True, 7)]
    assert [(c.key, c.before, c.after) for c in answer.changes] == [("a", "1", "2")]
    assert answer.revision == 44


async def test_an_addition_reaches_the_controller_and_its_plan_the_client(
    admin: tuple[FakeAdmin, Any],
) -> None:
    fake, stub = admin
    fake.reply = AdminReply(None, "", (3,), answer=PartitionsAnswer(1, 44, ((1, 2),)))
    answer = await stub.AddPartitions(
        admin_pb2.AddPartitionsRequest(
            topic="t",
            topic_id="id",
            partitions=4,
            assignment=[admin_pb2.ReplicaAssignment(replicas=[1, 2])],
            expected_revision=33,
            dry_run=True,
            timeout_ms=7,
        )
    )
    assert fake.requests == [AddPartitions(0, "t", "id", 4, ((1, 2),), 33, True, 7)]
    assert (answer.added, list(answer.pending_brokers), answer.revision) == (1, [3], 44)
    assert [list(partition.replicas) for partition in answer.assignment] == [[1, 2]]


async def test_a_removal_reaches_the_controller_and_the_removed_partitions_the_client(
    admin: tuple[FakeAdmin, Any],
) -> None:
    fake, stub = admin
    fake.reply = AdminReply(None, answer=PartitionsAnswer(2, 44, brokers=(1, 3)))
    answer = await stub.RemovePartitions(
        admin_pb2.RemovePartitionsRequest(
            topic="t",
            topic_id="id",
            partitions=4,
            confirm_topic="t",
            expected_revision=33,
            dry_run=True,
            timeout_ms=7,
        )
    )
    assert fake.requests == [RemovePartitions(0, "t", "id", 4, "t", 33, True, 7)]
    assert (answer.removed, list(answer.brokers), answer.revision) == (2, [1, 3], 44)


async def test_the_reply_to_a_creation_names_id_and_pending_brokers(
    admin: tuple[FakeAdmin, Any],
) -> None:
    _, stub = admin
    answer = await stub.CreateTopic(admin_pb2.CreateTopicRequest(topic="t"))
    assert not answer.HasField("error")
    assert (answer.topic_id, list(answer.pending_brokers)) == ("id", [2, 3])


async def test_a_deletion_reaches_the_controller_and_its_rejection_the_client(
    admin: tuple[FakeAdmin, Any],
) -> None:
    fake, stub = admin
    fake.reply = AdminReply(TidelogError(ErrorCode.NOT_CONTROLLER, "ask controller 2"))
    answer = await stub.DeleteTopic(
        admin_pb2.DeleteTopicRequest(topic="t", topic_id="id", timeout_ms=700, expected_revision=33)
    )
    assert fake.requests == [DeleteTopic(0, "t", "id", 700, expected_revision=33)]
    assert answer.error.code == errors_pb2.ERROR_CODE_NOT_CONTROLLER
    assert answer.error.message == "ask controller 2"


async def test_requests_beyond_the_limit_are_rejected_on_arrival(
    admin: tuple[FakeAdmin, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_module, "MAX_WAITING_REQUESTS", 1)
    fake, stub = admin
    fake.held = asyncio.Event()
    request = admin_pb2.DeleteTopicRequest(topic="t")
    first, second = stub.DeleteTopic(request), stub.DeleteTopic(request)
    done, _ = await asyncio.wait(
        {asyncio.ensure_future(first.code()), asyncio.ensure_future(second.code())},
        return_when=asyncio.FIRST_COMPLETED,
    )
    assert {task.result() for task in done} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    fake.held.set()
    assert {await first.code(), await second.code()} == {
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.OK,
    }


async def test_a_recovery_request_and_its_results_are_converted(serve: Serve) -> None:
    admin = FakeAdmin()
    waits = TidelogError(ErrorCode.REQUEST_TIMED_OUT, "waits")
    admin.reply = AdminReply(None, partitions=((0, None), (3, waits)))
    _, address = await serve(
        lambda server: add_AdminServiceServicer_to_server(AdminServicer(admin), server)
    )
    async with open_channel(address) as channel:
        answer = await AdminServiceStub(channel).RecoverPartitions(
            admin_pb2.RecoverPartitionsRequest(
                topic="t", partitions=[3, 0], from_live_replicas=True, timeout_ms=7
            )
        )
    assert admin.requests == [RecoverPartitions(0, "t", (3, 0), True, 7)]
    assert [p.partition for p in answer.partitions] == [0, 3]
    assert not answer.partitions[0].HasField("error")
    assert answer.partitions[1].error.message == "waits"


async def test_commands_and_their_answers_are_converted_completely(serve: Serve) -> None:
    broker = FakeBrokerServicer()
    _, address = await serve(
        lambda server: add_ReplicaControlServiceServicer_to_server(broker, server)
    )
    control = GrpcReplicaControl(address, 5_000, random.Random(1))
    led = await control.leader_and_isr(LEAD)
    stopped = await control.stop_replica(STOP)
    described = await control.describe_replicas(DESCRIBE)
    await control.close()
    assert broker.requests[0].partitions[0].revision == 33
    assert broker.requests[0].full_state
    assert [tuple(p) for p in led.partitions] == [("id", 0, 33, None)]
    assert stopped.error is not None
    assert stopped.error.code is ErrorCode.STALE_BROKER_EPOCH
    assert [p.partition for p in broker.requests[2].partitions] == [0, 1]
    assert described.replicas == [ReplicaSummary("id", 0, 33, 2, 7, ((1, 2),))]


async def test_a_command_whose_changes_share_a_trace_carries_it_in_a_span_of_its_own(
    serve: Serve,
) -> None:
    broker = FakeBrokerServicer()
    _, address = await serve(
        lambda server: add_ReplicaControlServiceServicer_to_server(broker, server)
    )
    control = GrpcReplicaControl(address, 5_000, random.Random(1))
    first, second = (Change("c4-7", trace_id=each * 32) for each in "ab")
    state = replace(STATE, change=first)
    (led,), (stopped,) = LEAD.partitions, STOP.partitions
    lead = replace(LEAD, partitions=[led, led._replace(state=state)])
    await control.leader_and_isr(lead)
    await control.stop_replica(replace(STOP, partitions=[stopped._replace(change=first)]))
    await control.leader_and_isr(replace(lead, change=second))
    await control.stop_replica(STOP)
    await control.close()
    *traced, of_two, of_none = broker.traceparents
    assert [trace_id_of([("traceparent", each or "")]) for each in traced] == ["a" * 32] * 2
    assert len(set(traced)) == 2
    assert (of_two, of_none) == (None, None)


async def test_a_command_to_a_missing_broker_is_unreachable(serve: Serve) -> None:
    server, address = await serve(lambda _: None)
    await server.stop(0)
    control = GrpcReplicaControl(address, 5_000, random.Random(1))
    with pytest.raises(BrokerUnreachableError, match="UNAVAILABLE"):
        await control.leader_and_isr(LEAD)
    with pytest.raises(BrokerUnreachableError, match="UNAVAILABLE"):
        await control.stop_replica(STOP)
    with pytest.raises(BrokerUnreachableError, match="UNAVAILABLE"):
        await control.describe_replicas(DESCRIBE)
    await control.close()


async def test_a_watch_lasts_until_the_broker_ends(serve: Serve) -> None:
    broker = FakeBrokerServicer()
    server, address = await serve(
        lambda server: add_ReplicaControlServiceServicer_to_server(broker, server)
    )
    control = GrpcReplicaControl(address, 5_000, random.Random(1))
    stands = asyncio.Event()
    watching = asyncio.create_task(control.watch(1, 4, 10, stands.set))
    await asyncio.wait_for(broker.watched.wait(), 5)
    await asyncio.wait_for(stands.wait(), 5)
    assert not watching.done()
    await server.stop(0)
    await asyncio.wait_for(watching, 5)
    await control.close()


async def test_health_and_reflection_list_the_services() -> None:
    server = new_server()
    add_standard_services(server, ["tidelog.v1.AdminService"])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = open_channel(f"127.0.0.1:{port}")
    health = health_pb2_grpc.HealthStub(channel)
    for name in ("", "tidelog.v1.AdminService"):
        answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    async for listed in reflection.ServerReflectionInfo(iter([request])):
        names = {service.name for service in listed.list_services_response.service}
    await channel.close()
    await server.stop(0)
    assert "tidelog.v1.AdminService" in names
