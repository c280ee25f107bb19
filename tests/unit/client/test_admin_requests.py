"""Requests of the client to controllers, and their retries."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

import pytest

from tidelog.admin_messages import Move, RecoveryChoice
from tidelog.client import Admin
from tidelog.client.admin_api import AdminApi, method_of
from tidelog.client.connections import BrokerApi, GrpcConnections
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.rpc.status import UnreachableError
from tidelog.rpc.trace_context import carried
from tidelog.rpc.wire import error_to_wire
from tidelog.v1 import admin_pb2 as pb
from unit.client.fake_broker import FakeCluster
from unit.client.fake_controller import FakeController

OPERATION = pb.Operation(
    operation_id="op",
    kind=pb.OPERATION_KIND_BROKERS_ADD,
    state=pb.OPERATION_STATE_RUNNING,
    progress=pb.OperationProgress(
        moves=7,
        moves_done=3,
        bytes_to_copy=90,
        bytes_copied=40,
        bytes_per_second=5,
        moves_unmeasured=2,
    ),
    revision=55,
)
MOVE = pb.Move(topic="t", topic_id="id", partition=4, original=[1, 2], target=[3, 2])
PLAN = pb.Plan(moves=[MOVE], move_count=1, replicas_added=1)


class ScriptedController:
    """Answers each call with the next entry of its script; an exception is a missing answer."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.calls: list[str] = []
        self.requests: list[Any] = []
        self.metadata: list[dict[str, str | bytes]] = []

    async def call(self, request: Any, *_: object) -> Any:
        self.calls.append(method_of(request))
        self.requests.append(request)
        self.metadata.append(dict(carried() or ()))
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Scripted:
    """Connections to real brokers and to a scripted controller."""

    def __init__(self, controller: ScriptedController) -> None:
        self._grpc = GrpcConnections()
        self._controller = controller

    def broker(self, address: str) -> BrokerApi:
        return self._grpc.broker(address)

    def controller(self, _: str) -> AdminApi:
        return cast(AdminApi, self._controller)

    async def close(self) -> None:
        await self._grpc.close()


async def admin_of(cluster: FakeCluster, controller: ScriptedController, **settings: Any) -> Admin:
    # The brokers report that there is an active controller.
    if cluster.controller is None:
        cluster.controller = await FakeController(cluster, 1, 1).start()  # type: ignore[abstract]
    return Admin(
        cluster.bootstrap(), connections=Scripted(controller), rng=random.Random(1), **settings
    )


def unanswered() -> UnreachableError:
    return UnreachableError("a:1", "it died")


def rejected(response: Any, code: ErrorCode) -> Any:
    response.error.CopyFrom(error_to_wire(TidelogError(code, "why")))
    return response


async def test_every_attempt_of_an_operation_has_the_same_id(cluster: FakeCluster) -> None:
    controller = ScriptedController(
        unanswered(),
        rejected(pb.RebalanceResponse(), ErrorCode.NOT_CONTROLLER),
        pb.RebalanceResponse(operation=OPERATION, plan=PLAN),
        pb.RebalanceResponse(operation=OPERATION, plan=PLAN),
    )
    async with await admin_of(cluster, controller) as admin:
        begun = await admin.rebalance()
        await admin.rebalance()
    ids = [request.operation_id for request in controller.requests]
    assert begun.operation is not None
    assert begun.operation.operation_id == "op"
    assert ids[0]
    assert ids[0] == ids[1] == ids[2] != ids[3]


async def test_an_operation_id_may_be_chosen_and_a_dry_run_needs_none(
    cluster: FakeCluster,
) -> None:
    controller = ScriptedController(
        pb.RebalanceResponse(operation=OPERATION, plan=PLAN), pb.RebalanceResponse(plan=PLAN)
    )
    async with await admin_of(cluster, controller) as admin:
        await admin.rebalance(operation_id="mine")
        begun = await admin.rebalance(dry_run=True)
    assert [request.operation_id for request in controller.requests] == ["mine", ""]
    assert begun.operation is None


async def test_requests_name_the_caller(cluster: FakeCluster) -> None:
    controller = ScriptedController(pb.RebalanceResponse(), pb.DescribeThrottleResponse())
    async with await admin_of(cluster, controller, requested_by="ann") as admin:
        await admin.rebalance(dry_run=True)
    async with await admin_of(cluster, controller) as admin:
        await admin.describe_throttle()
    said = [metadata.get("tidelog-requested-by") for metadata in controller.metadata]
    assert said == ["ann", None]
    assert all("traceparent" in metadata for metadata in controller.metadata)


@pytest.mark.parametrize("name", ["J\xfcrgen", "a\nb", "a" * 201])
def test_an_invalid_caller_name_is_rejected_at_once(name: str) -> None:
    with pytest.raises(TidelogError, match="printable characters of ASCII") as caught:
        Admin("127.0.0.1:1", requested_by=name)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


async def test_a_rejection_is_raised_with_its_code(cluster: FakeCluster) -> None:
    controller = ScriptedController(
        rejected(pb.CancelOperationResponse(), ErrorCode.OPERATION_ENDED)
    )
    async with await admin_of(cluster, controller) as admin:
        with pytest.raises(TidelogError) as caught:
            await admin.cancel_operation("op")
    assert caught.value.code is ErrorCode.OPERATION_ENDED


async def test_a_plan_can_be_requested_exactly_as_it_was_shown(cluster: FakeCluster) -> None:
    begun = pb.ReassignResponse(operation=OPERATION, plan=PLAN)
    controller = ScriptedController(pb.RebalanceResponse(plan=PLAN), begun)
    async with await admin_of(cluster, controller) as admin:
        shown = await admin.rebalance(dry_run=True)
        await admin.reassign(shown.plan.moves)
    assert shown.plan.moves == (Move("t", 4, (3, 2), (1, 2), "id"),)
    assert shown.plan.minimum_replicas_added is None
    assert list(controller.requests[1].moves) == [MOVE]


@pytest.mark.parametrize(
    ("ask", "call", "request_"),
    [
        (
            lambda admin: admin.add_brokers([4, 5], operation_id="op"),
            "AddBrokers",
            pb.AddBrokersRequest(broker_ids=[4, 5], operation_id="op"),
        ),
        (
            lambda admin: admin.remove_brokers([4], operation_id="op"),
            "RemoveBrokers",
            pb.RemoveBrokersRequest(broker_ids=[4], operation_id="op"),
        ),
        (
            lambda admin: admin.set_replication_factor(["t"], 3, operation_id="op"),
            "SetReplicationFactor",
            pb.SetReplicationFactorRequest(topics=["t"], replication_factor=3, operation_id="op"),
        ),
        (
            lambda admin: admin.reverse_operation("former", operation_id="op"),
            "ReverseOperation",
            pb.ReverseOperationRequest(reversed_operation_id="former", operation_id="op"),
        ),
    ],
)
async def test_operations_are_requested_with_all_their_fields(
    cluster: FakeCluster, ask: Callable[[Admin], Any], call: str, request_: object
) -> None:
    answer = getattr(pb, f"{call}Response")(operation=OPERATION, plan=PLAN)
    controller = ScriptedController(answer)
    async with await admin_of(cluster, controller) as admin:
        begun = await ask(admin)
    assert (controller.calls, controller.requests) == ([call], [request_])
    assert (begun.operation.kind, begun.operation.state) == ("brokers_add", "running")
    assert (begun.operation.progress.moves_done, begun.operation.revision) == (3, 55)
    progress = begun.operation.progress
    assert (progress.bytes_to_copy, progress.bytes_copied) == (90, 40)
    assert (progress.bytes_per_second, progress.moves_unmeasured) == (5, 2)
    assert not begun.operation.has_ended


async def test_all_pages_of_operations_and_of_their_moves_are_read(cluster: FakeCluster) -> None:
    progress = pb.MoveProgress(
        move=MOVE, state=pb.MOVE_STATE_ACTIVE, waits_for=[3], bytes_to_copy=9, bytes_copied=0
    )
    controller = ScriptedController(
        pb.ListOperationsResponse(operations=[OPERATION], next_page_token="9"),
        pb.ListOperationsResponse(operations=[OPERATION]),
        pb.DescribeOperationResponse(operation=OPERATION, moves=[progress], next_page_token="1"),
        pb.DescribeOperationResponse(operation=OPERATION, moves=[progress]),
    )
    async with await admin_of(cluster, controller) as admin:
        listed = await admin.list_operations()
        moves = await admin.operation_moves("op")
    assert [operation.operation_id for operation in listed] == ["op", "op"]
    assert [(move.state, move.waits_for) for move in moves] == [("active", (3,))] * 2
    assert [(move.bytes_to_copy, move.bytes_copied) for move in moves] == [(9, 0)] * 2
    assert [request.page_token for request in controller.requests] == ["", "9", "", "1"]


async def test_operations_are_requested_by_state_and_kind(cluster: FakeCluster) -> None:
    controller = ScriptedController(pb.ListOperationsResponse(operations=[OPERATION]))
    async with await admin_of(cluster, controller) as admin:
        await admin.list_operations(["running", "cancelling"], ["brokers_add"])
    (asked,) = controller.requests
    assert list(asked.states) == [pb.OPERATION_STATE_RUNNING, pb.OPERATION_STATE_CANCELLING]
    assert list(asked.kinds) == [pb.OPERATION_KIND_BROKERS_ADD]


async def test_an_unknown_state_is_rejected_with_the_known_ones(cluster: FakeCluster) -> None:
    controller = ScriptedController()
    async with await admin_of(cluster, controller) as admin:
        with pytest.raises(TidelogError, match="running, cancelling, done, cancelled, failed"):
            await admin.list_operations(["runing"])
    assert controller.calls == []


async def test_requests_without_a_timeout_use_that_of_the_client(
    cluster: FakeCluster,
) -> None:
    controller = ScriptedController(unanswered(), unanswered(), unanswered())
    async with await admin_of(cluster, controller, timeout_ms=1) as admin:
        with pytest.raises(TidelogError) as caught:
            await admin.rebalance()
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    assert len(controller.calls) < 3


async def test_a_topic_that_continues_on_the_next_page_is_one_topic(cluster: FakeCluster) -> None:
    def page(topic: str, number: int, token: str) -> pb.DescribeTopicsResponse:
        partition = pb.PartitionDetails(
            partition=number,
            replicas=[1, 2, 3],
            isr=[1, 2],
            move=pb.PartitionMove(operation_id="op", original=[1, 2], target=[2, 3]),
        )
        details = pb.TopicDetails(
            topic=topic,
            topic_id=f"id-of-{topic}",
            config=[pb.ConfigEntry(key="retention_ms", value="5", is_set=True)],
            revision=9,
            partitions=[partition],
        )
        return pb.DescribeTopicsResponse(topics=[details], next_page_token=token)

    controller = ScriptedController(page("sea", 0, "1"), page("sea", 1, "2"), page("sky", 0, ""))
    async with await admin_of(cluster, controller) as admin:
        sea, sky = await admin.topic_details(internal=True)
    assert [p.partition for p in sea.partitions] == [0, 1]
    assert sea.partitions[0].move is not None
    assert not sea.partitions[0].is_under_replicated
    assert (sky.topic, sky.revision, sky.config[0].value) == ("sky", 9, "5")
    assert [request.page_token for request in controller.requests] == ["", "1", "2"]
    assert controller.requests[0].internal


async def test_one_page_of_moves_is_read_without_the_others(cluster: FakeCluster) -> None:
    progress = pb.MoveProgress(move=MOVE, state=pb.MOVE_STATE_ACTIVE, waits_for=[3])
    controller = ScriptedController(
        pb.DescribeOperationResponse(operation=OPERATION, moves=[progress], next_page_token="2")
    )
    async with await admin_of(cluster, controller) as admin:
        moves, token = await admin.operation_moves_page("op", 50, "1")
    assert ([move.state for move in moves], token) == (["active"], "2")
    assert (controller.requests[0].page_size, controller.requests[0].page_token) == (50, "1")


async def test_a_throttle_is_set_lifted_and_read(cluster: FakeCluster) -> None:
    controller = ScriptedController(
        pb.SetThrottleResponse(revision=44),
        pb.SetThrottleResponse(revision=45),
        pb.DescribeThrottleResponse(throttle=pb.Throttle(bytes_per_second=5_000), revision=44),
    )
    async with await admin_of(cluster, controller) as admin:
        assert (await admin.set_throttle(5_000, expected_revision=33)).revision == 44
        assert (await admin.set_throttle(None)).bytes_per_second is None
        assert (await admin.describe_throttle()).bytes_per_second == 5_000
    assert controller.requests[0].throttle.bytes_per_second == 5_000
    assert not controller.requests[1].throttle.HasField("bytes_per_second")


async def test_the_feature_level_is_raised_and_read(cluster: FakeCluster) -> None:
    process = pb.ProcessVersion(
        role="broker", id=3, address="h:1", version="0.1.0", oldest_level=1, newest_level=2
    )
    controller = ScriptedController(
        pb.DescribeFeatureLevelResponse(level=1, newest_level=2, revision=44, processes=[process]),
        pb.RaiseFeatureLevelResponse(before=1, revision=45),
    )
    async with await admin_of(cluster, controller) as admin:
        known = await admin.describe_feature_level()
        assert (known.level, known.raisable_level, str(known.processes[0])) == (1, 2, "broker 3")
        assert await admin.raise_feature_level(2, expected_revision=known.revision) == 1
    raised = controller.requests[1]
    assert (raised.level, raised.expected_revision, raised.dry_run) == (2, 44, False)


async def test_topics_are_changed_with_all_fields(cluster: FakeCluster) -> None:
    controller = ScriptedController(
        pb.CreateTopicResponse(assignment=[pb.ReplicaAssignment(replicas=[1, 2])]),
        pb.AlterTopicConfigResponse(
            changes=[pb.ConfigChange(key="recovery", after="balanced")], revision=44
        ),
        pb.AddPartitionsResponse(added=2, pending_brokers=[3], revision=45),
        pb.RemovePartitionsResponse(removed=2, brokers=[1], revision=46),
        pb.DeleteTopicResponse(partitions=3, brokers=[1, 2]),
    )
    async with await admin_of(cluster, controller) as admin:
        created = await admin.create_topic("t", assignment=[(1, 2), (2, 3)], dry_run=True)
        altered = await admin.alter_topic_config("t", {"a": "2"}, ["b"], expected_revision=33)
        added = await admin.add_partitions("t", 5, assignment=[(1, 2)], topic_id="id")
        removed = await admin.remove_partitions("t", 3, confirm_topic="t")
        deleted = await admin.plan_deletion("t")
    create, alter, add, remove, delete = controller.requests
    assert (create.partitions, create.replication_factor, create.dry_run) == (2, 2, True)
    assert create.operation_id
    assert created.assignment == ((1, 2),)
    assert (dict(alter.set), list(alter.unset), alter.expected_revision) == ({"a": "2"}, ["b"], 33)
    assert ([c.after for c in altered.changes], altered.revision) == (["balanced"], 44)
    assert "is elected without consent" in altered.warnings[0]
    assert (add.partitions, add.topic_id, len(add.assignment)) == (5, "id", 1)
    assert (added.partitions, added.pending_brokers) == (2, (3,))
    assert "Records with a key go to other partitions" in added.warnings[0]
    assert (remove.partitions, remove.confirm_topic) == (3, "t")
    assert (removed.partitions, removed.brokers) == (2, (1,))
    assert removed.warnings[0].startswith("2 partitions (on brokers 1) and all their records")
    assert delete.dry_run
    assert (deleted.partitions, deleted.brokers) == (3, (1, 2))


async def test_requests_about_leaders_and_brokers_have_all_fields(cluster: FakeCluster) -> None:
    why = error_to_wire(TidelogError(ErrorCode.NOT_ELIGIBLE_LEADER, "why"))
    result = pb.LeaderResult(topic="t", partition=4, leader_before=-1, leader=3, error=why)
    finding = pb.RestartFinding(
        topic="t", partition=4, effect=pb.RESTART_EFFECT_UNDER_MIN_ISR, reason="why"
    )
    controller = ScriptedController(
        pb.ElectPreferredLeadersResponse(partitions=[result]),
        pb.MoveLeadersResponse(partitions=[result]),
        pb.SetMaintenanceResponse(leaders=[result], leaders_kept=2),
        pb.CheckRestartResponse(under_min_isr=2, findings=[finding], next_page_token="1"),
        pb.CheckRestartResponse(under_min_isr=2, findings=[finding]),
        pb.DescribeBrokersResponse(
            brokers=[pb.BrokerDetails(broker_id=3, status=pb.BROKER_STATUS_GONE, replicas=7)]
        ),
    )
    async with await admin_of(cluster, controller) as admin:
        (elected,) = await admin.elect_preferred_leaders({"t": [4], "u": []})
        (moved,) = await admin.move_leaders({TopicPartition("t", 4): 3})
        led, kept = await admin.set_maintenance([3], maintenance=True)
        check = await admin.check_restart(3)
        (broker,) = await admin.describe_brokers([3])
    assert [str(change.error) for change in (elected, moved, *led)] == ["why"] * 3
    assert (elected.leader_before, elected.leader, kept) == (-1, 3, 2)
    assert [found.effect for found in check.findings] == ["under_min_isr"] * 2
    assert (check.safe, check.under_min_isr) == (False, 2)
    assert (broker.status, broker.replicas) == ("gone", 7)
    elect, move = controller.requests[:2]
    assert [(s.topic, list(s.partitions)) for s in elect.partitions] == [("t", [4]), ("u", [])]
    assert list(move.moves) == [pb.LeaderMove(topic="t", partition=4, leader=3)]


async def test_survivors_are_requested_and_one_of_them_is_chosen(cluster: FakeCluster) -> None:
    survivor = pb.ReplicaSurvivor(broker_id=2, described=True, log_end_offset=9, lost_records=0)
    survivor.high_watermark = 7
    unknown = pb.ReplicaSurvivor(broker_id=3, problem="why", last_epoch=-1)
    details = pb.RecoveryDetails(topic="t", partition=4, revision=33, replicas=[survivor, unknown])
    controller = ScriptedController(
        pb.DescribeRecoveryResponse(partitions=[details], next_page_token="1"),
        pb.DescribeRecoveryResponse(partitions=[details]),
        pb.RecoverPartitionsResponse(partitions=[pb.RecoverPartitionResult(partition=4)]),
    )
    async with await admin_of(cluster, controller) as admin:
        first, _ = await admin.describe_recovery("t")
        choice = RecoveryChoice(first.partition, first.survivors[0].broker_id, first.revision)
        (recovered,) = await admin.recover_partitions("t", choices=[choice])
    assert [s.lost_records for s in first.survivors] == [0, None]
    assert [s.high_watermark for s in first.survivors] == [7, None]
    assert first.survivors[1].problem == "why"
    assert list(controller.requests[2].choices) == [
        pb.RecoveryChoice(partition=4, broker_id=2, expected_revision=33)
    ]
    assert recovered.error is None
