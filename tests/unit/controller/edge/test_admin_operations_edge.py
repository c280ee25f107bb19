"""Operations over gRPC: decoding of requests and encoding of answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tidelog.admin_messages import BrokerShare, Progress
from tidelog.model import TopicPartition
from tidelog.rpc.channels import new_server, open_channel
from tidelog.v1 import admin_pb2 as pb
from tidelog.v1 import errors_pb2
from tidelog.v1.admin_pb2_grpc import AdminServiceStub, add_AdminServiceServicer_to_server
from tidelog_controller.edge.admin import AdminServicer
from tidelog_controller.state.admin_answers import (
    Answer,
    MoveView,
    OperationAnswer,
    OperationMovesAnswer,
    OperationsAnswer,
    OperationView,
    PlanSummary,
    ThrottleAnswer,
)
from tidelog_controller.state.admin_requests import (
    UNKNOWN_CALLER,
    AddedBrokers,
    BeginOperation,
    CancelOperation,
    DescribeOperation,
    DescribeThrottle,
    ListOperations,
    OtherFactor,
    Reassignment,
    Rebalancing,
    RemovedBrokers,
    RequestedOperation,
    RequestedReplicas,
    Reversal,
    SetThrottle,
)
from tidelog_controller.state.commands import AdminReply
from tidelog_controller.state.events import AdminRequest
from tidelog_controller.state.operation_registry import MoveState
from tidelog_runtime.metadata.operations import (
    OperationEntry,
    OperationKind,
    OperationMove,
    OperationState,
)

MOVE = OperationMove("t", "id", 4, (1, 2), (3, 2))
ENTRY = OperationEntry(
    OperationKind.REBALANCE,
    "{}",
    "ann",
    "ipv4:10.1.1.1:99",
    1_000,
    "a1",
    OperationState.CANCELLING,
    "cancelled by ann",
    0,
    7,
    1,
    9,
)
VIEW = OperationView("op", ENTRY, 55, Progress(7, 1, 2, 3, 9, 4, 8_000, 90, 40, 5, 2))
PLAN = PlanSummary((MOVE,), 1, 1, 1, 0, (BrokerShare(3, 0, 1, 0, 1),), ("a rack",), "d1")


class FakeAdmin:
    def __init__(self) -> None:
        self.requests: list[AdminRequest] = []
        self.answer: Answer | None = None

    async def submit(self, request: AdminRequest) -> AdminReply:
        self.requests.append(request._replace(caller=UNKNOWN_CALLER))
        return AdminReply(None, answer=self.answer)


@pytest.fixture
async def admin() -> AsyncIterator[tuple[FakeAdmin, Any]]:
    fake, server = FakeAdmin(), new_server()
    add_AdminServiceServicer_to_server(AdminServicer(fake), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with open_channel(f"127.0.0.1:{port}") as channel:
        yield fake, AdminServiceStub(channel)
    await server.stop(0)


@pytest.mark.parametrize(
    ("call", "request_", "operation"),
    [
        (
            "Reassign",
            pb.ReassignRequest(
                moves=[
                    pb.Move(topic="t", topic_id="id", partition=4, original=[1, 2], target=[3, 2])
                ],
                operation_id="op",
                dry_run=True,
            ),
            Reassignment((RequestedReplicas(TopicPartition("t", 4), (3, 2), (1, 2), "id"),)),
        ),
        ("Rebalance", pb.RebalanceRequest(operation_id="op", dry_run=True), Rebalancing()),
        (
            "AddBrokers",
            pb.AddBrokersRequest(broker_ids=[4, 5], operation_id="op", dry_run=True),
            AddedBrokers((4, 5)),
        ),
        (
            "RemoveBrokers",
            pb.RemoveBrokersRequest(broker_ids=[4, 5], operation_id="op", dry_run=True),
            RemovedBrokers((4, 5)),
        ),
        (
            "SetReplicationFactor",
            pb.SetReplicationFactorRequest(
                topics=["t", "u"], replication_factor=3, operation_id="op", dry_run=True
            ),
            OtherFactor(("t", "u"), 3),
        ),
        (
            "ReverseOperation",
            pb.ReverseOperationRequest(
                reversed_operation_id="former", operation_id="op", dry_run=True
            ),
            Reversal("former"),
        ),
    ],
)
async def test_a_request_for_an_operation_reaches_the_controller_and_its_plan_the_client(
    admin: tuple[FakeAdmin, Any], call: str, request_: Any, operation: RequestedOperation
) -> None:
    fake, stub = admin
    fake.answer = OperationAnswer(None, PLAN)
    request_.expected_plan = "d0"
    answer = await getattr(stub, call)(request_)
    assert fake.requests == [BeginOperation(0, operation, "op", dry_run=True, expected_plan="d0")]
    assert not answer.HasField("operation")
    assert answer.plan.digest == "d1"
    assert list(answer.plan.moves) == [
        pb.Move(topic="t", topic_id="id", partition=4, original=[1, 2], target=[3, 2])
    ]
    assert (answer.plan.move_count, answer.plan.replicas_added) == (1, 1)
    assert (answer.plan.leaders_changed, answer.plan.minimum_replicas_added) == (1, 0)
    assert list(answer.plan.brokers) == [
        pb.BrokerShare(
            broker_id=3, replicas_before=0, replicas_after=1, leaders_before=0, leaders_after=1
        )
    ]


async def test_an_operation_is_sent_with_all_fields(admin: tuple[FakeAdmin, Any]) -> None:
    fake, stub = admin
    fake.answer = OperationAnswer(VIEW, PLAN._replace(moves=(), minimum=None))
    answer = await stub.Rebalance(pb.RebalanceRequest())
    assert answer.operation == pb.Operation(
        operation_id="op",
        kind=pb.OPERATION_KIND_REBALANCE,
        state=pb.OPERATION_STATE_CANCELLING,
        reason="cancelled by ann",
        request="{}",
        requested_by="ann",
        requested_from="ipv4:10.1.1.1:99",
        requested_at_ms=1_000,
        ended_at_ms=0,
        trace_id="a1",
        progress=pb.OperationProgress(
            moves=7,
            moves_done=1,
            moves_active=2,
            moves_dropped=3,
            replicas_to_add=9,
            replicas_added=4,
            estimated_end_ms=8_000,
            bytes_to_copy=90,
            bytes_copied=40,
            bytes_per_second=5,
            moves_unmeasured=2,
        ),
        revision=55,
    )
    assert not answer.plan.HasField("minimum_replicas_added")
    assert list(answer.plan.warnings) == ["a rack"]


async def test_a_cancellation_reaches_the_controller(admin: tuple[FakeAdmin, Any]) -> None:
    fake, stub = admin
    fake.answer = OperationAnswer(VIEW)
    request = pb.CancelOperationRequest(operation_id="op", expected_revision=55, dry_run=True)
    answer = await stub.CancelOperation(request)
    assert fake.requests == [CancelOperation(0, "op", 55, dry_run=True)]
    assert answer.operation.operation_id == "op"


async def test_operations_are_listed_by_state_and_kind_in_pages(
    admin: tuple[FakeAdmin, Any],
) -> None:
    fake, stub = admin
    fake.answer = OperationsAnswer((VIEW,), "9")
    answer = await stub.ListOperations(
        pb.ListOperationsRequest(
            states=[pb.OPERATION_STATE_DONE],
            kinds=[pb.OPERATION_KIND_REVERSAL],
            page_size=3,
            page_token="12",
        )
    )
    states, kinds = (OperationState.DONE,), (OperationKind.REVERSAL,)
    assert fake.requests == [ListOperations(0, states, kinds, 3, "12")]
    assert [operation.operation_id for operation in answer.operations] == ["op"]
    assert answer.next_page_token == "9"


@pytest.mark.parametrize("filters", [{"states": [0]}, {"states": [1, 77]}, {"kinds": [77]}])
async def test_an_unknown_filter_is_not_read_as_no_filter(
    admin: tuple[FakeAdmin, Any], filters: dict[str, Any]
) -> None:
    fake, stub = admin
    answer = await stub.ListOperations(pb.ListOperationsRequest(**filters))
    assert answer.error.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert "it knows [1, 2" in answer.error.message
    assert fake.requests == []


async def test_an_operation_is_described_with_its_moves(admin: tuple[FakeAdmin, Any]) -> None:
    fake, stub = admin
    view = MoveView(MOVE, MoveState.ACTIVE, (3,), 900, 0)
    fake.answer = OperationMovesAnswer(VIEW, (view,), "7")
    answer = await stub.DescribeOperation(
        pb.DescribeOperationRequest(operation_id="op", page_size=3, page_token="4")
    )
    assert fake.requests == [DescribeOperation(0, "op", 3, "4")]
    (move,) = answer.moves
    assert (move.move.partition, move.state) == (4, pb.MOVE_STATE_ACTIVE)
    assert (list(move.waits_for), answer.next_page_token) == ([3], "7")
    assert (move.bytes_to_copy, move.bytes_copied) == (900, 0)
    assert move.HasField("bytes_copied")
    progress = answer.operation.progress
    assert (progress.bytes_to_copy, progress.bytes_copied) == (90, 40)
    assert (progress.bytes_per_second, progress.moves_unmeasured) == (5, 2)


@pytest.mark.parametrize("bound", [None, 5_000])
async def test_a_throttle_is_converted_in_both_directions(
    admin: tuple[FakeAdmin, Any], bound: int | None
) -> None:
    fake, stub = admin
    fake.answer = ThrottleAnswer(bound, bound, 44)
    request = pb.SetThrottleRequest(
        throttle=pb.Throttle(bytes_per_second=bound), expected_revision=33, dry_run=True
    )
    was = await stub.SetThrottle(request)
    stands = await stub.DescribeThrottle(pb.DescribeThrottleRequest())
    assert fake.requests == [SetThrottle(0, bound, 33, dry_run=True), DescribeThrottle(0)]
    assert was.before == stands.throttle == pb.Throttle(bytes_per_second=bound)
    assert (was.revision, stands.revision) == (44, 44)
