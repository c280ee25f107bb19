"""Leaders, restarts, topics and brokers over gRPC: decoding of requests and encoding of answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tidelog.admin_messages import ConfigEntry, RecoveryChoice
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.rpc.channels import new_server, open_channel
from tidelog.state_changes.event import Cause
from tidelog.v1 import admin_pb2 as pb
from tidelog.v1 import errors_pb2
from tidelog.v1.admin_pb2_grpc import AdminServiceStub, add_AdminServiceServicer_to_server
from tidelog_controller.edge.admin import AdminServicer
from tidelog_controller.policies.restart_check import Effect, Finding
from tidelog_controller.state.admin_answers import (
    Answer,
    BrokersAnswer,
    BrokerView,
    LeaderResult,
    LeadersAnswer,
    RecoveryAnswer,
    RecoveryView,
    RestartAnswer,
    SurvivorView,
    TopicsAnswer,
    TopicView,
)
from tidelog_controller.state.admin_requests import (
    UNKNOWN_CALLER,
    CheckRestart,
    DescribeBrokers,
    DescribeRecovery,
    DescribeTopics,
    ElectPreferredLeaders,
    MoveLeaders,
    PartitionSelector,
    SetMaintenance,
)
from tidelog_controller.state.commands import AdminReply
from tidelog_controller.state.events import AdminRequest, RecoverPartitions
from tidelog_controller.state.known import Partition
from tidelog_runtime.metadata.schema import (
    BrokerRegistration,
    Departure,
    LeaderAndIsr,
    Member,
    Moving,
    TopicEntry,
)
from tidelog_runtime.replica_control import ReplicaSummary

NAME = TopicPartition("t", 4)


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


def led() -> LeadersAnswer:
    why = TidelogError(ErrorCode.NOT_ELIGIBLE_LEADER, "not in sync")
    return LeadersAnswer((LeaderResult(NAME, -1, 3, why),), 5)


def assert_led(results: Any) -> None:
    (result,) = results
    assert (result.topic, result.partition) == NAME
    assert (result.leader_before, result.leader) == (-1, 3)
    assert result.error.code == errors_pb2.ERROR_CODE_NOT_ELIGIBLE_LEADER


async def test_preferred_elections_and_their_results_are_converted(
    admin: tuple[FakeAdmin, Any],
) -> None:
    fake, stub = admin
    fake.answer = led()
    selectors = [pb.PartitionSelector(topic="t", partitions=[4]), pb.PartitionSelector(topic="u")]
    request = pb.ElectPreferredLeadersRequest(partitions=selectors, dry_run=True, timeout_ms=7)
    answer = await stub.ElectPreferredLeaders(request)
    wanted = (PartitionSelector("t", (4,)), PartitionSelector("u"))
    assert fake.requests == [ElectPreferredLeaders(0, wanted, True, 7)]
    assert_led(answer.partitions)


async def test_leadership_transfers_and_their_results_are_converted(
    admin: tuple[FakeAdmin, Any],
) -> None:
    fake, stub = admin
    fake.answer = led()
    moves = [pb.LeaderMove(topic="t", partition=4, leader=3)]
    answer = await stub.MoveLeaders(pb.MoveLeadersRequest(moves=moves, dry_run=True, timeout_ms=7))
    assert fake.requests == [MoveLeaders(0, ((NAME, 3),), True, 7)]
    assert_led(answer.partitions)


async def test_maintenance_requests_and_their_leaders_are_converted(
    admin: tuple[FakeAdmin, Any],
) -> None:
    fake, stub = admin
    fake.answer = led()
    answer = await stub.SetMaintenance(
        pb.SetMaintenanceRequest(broker_ids=[3, 4], maintenance=True, dry_run=True, timeout_ms=7)
    )
    assert fake.requests == [SetMaintenance(0, (3, 4), True, True, 7)]
    assert_led(answer.leaders)
    assert answer.leaders_kept == 5


async def test_restart_checks_and_their_findings_are_converted(
    admin: tuple[FakeAdmin, Any],
) -> None:
    fake, stub = admin
    counts = {effect: int(effect) for effect in Effect}
    findings = (Finding(NAME, Effect.UNDER_MIN_ISR, "why"),)
    fake.answer = RestartAnswer(False, counts, findings, "9")
    answer = await stub.CheckRestart(
        pb.CheckRestartRequest(broker_id=3, page_size=8, page_token="6")
    )
    assert fake.requests == [CheckRestart(0, 3, 8, "6")]
    assert answer == pb.CheckRestartResponse(
        safe=False,
        unavailable=1,
        under_min_isr=2,
        last_replica=3,
        leader_moves=4,
        findings=[
            pb.RestartFinding(
                topic="t", partition=4, effect=pb.RESTART_EFFECT_UNDER_MIN_ISR, reason="why"
            )
        ],
        next_page_token="9",
    )


async def test_topic_descriptions_are_sent_with_all_fields(
    admin: tuple[FakeAdmin, Any],
) -> None:
    fake, stub = admin
    state = LeaderAndIsr(
        "id",
        (1, 2, 3),
        1,
        1,
        6,
        (Member(1, 10),),
        (Member(2, 11),),
        2,
        5,
        Moving("op", (1, 2), (1, 3)),
    )
    view = TopicView(
        "t",
        TopicEntry("id", 6, 2),
        (ConfigEntry("segment_ms", "5", True, "7", "what"),),
        44,
        True,
        1,
        ((4, Partition(state, 33)), (5, None)),
        False,
    )
    fake.answer = TopicsAnswer((view,), "t:6")
    answer = await stub.DescribeTopics(
        pb.DescribeTopicsRequest(
            topics=["t"], internal=True, without_partitions=True, page_size=2, page_token="t:4"
        )
    )
    assert fake.requests == [DescribeTopics(0, ("t",), True, True, 2, "t:4")]
    moved = pb.PartitionMove(operation_id="op", original=[1, 2], target=[1, 3])
    assert list(answer.topics) == [
        pb.TopicDetails(
            topic="t",
            topic_id="id",
            partition_count=6,
            replication_factor=2,
            config=[
                pb.ConfigEntry(
                    key="segment_ms",
                    value="5",
                    is_set=True,
                    default_value="7",
                    description="what",
                )
            ],
            revision=44,
            deleting=True,
            partitions_being_removed=1,
            partitions=[
                pb.PartitionDetails(
                    partition=4,
                    leader=1,
                    leader_epoch=6,
                    replicas=[1, 2, 3],
                    isr=[1],
                    eligible=[2],
                    min_isr=2,
                    revision=33,
                    move=moved,
                    unclean_leader_epoch=5,
                ),
                pb.PartitionDetails(
                    partition=5, leader=-1, leader_epoch=-1, unclean_leader_epoch=-1
                ),
            ],
        )
    ]
    assert answer.next_page_token == "t:6"


async def test_broker_descriptions_are_sent_with_all_fields(
    admin: tuple[FakeAdmin, Any],
) -> None:
    fake, stub = admin
    registration = BrokerRegistration("a:1", "r1", "uuid", "stopping", 0, 0)
    departure = Departure(9, Cause.BROKER_CRASHED, 77, "b:2")
    there = BrokerView(3, registration, 12, departure, True, False, 1, 2, 3, 4, 5, 6)
    gone = BrokerView(4, None, 0, departure, False, True, 1, 0, 0, 1, 0, 0)
    fake.answer = BrokersAnswer((there, gone))
    answer = await stub.DescribeBrokers(pb.DescribeBrokersRequest(broker_ids=[3, 4]))
    assert fake.requests == [DescribeBrokers(0, (3, 4))]
    assert list(answer.brokers) == [
        pb.BrokerDetails(
            broker_id=3,
            status=pb.BROKER_STATUS_STOPPING,
            address="a:1",
            rack="r1",
            broker_epoch=12,
            maintenance=True,
            replicas=1,
            leaders=2,
            preferred_leaders=3,
            out_of_sync=4,
            moves_in=5,
            moves_out=6,
        ),
        pb.BrokerDetails(
            broker_id=4,
            status=pb.BROKER_STATUS_GONE,
            address="b:2",
            removed=True,
            replicas=1,
            out_of_sync=1,
            gone_at_ms=77,
        ),
    ]


async def test_survivors_are_sent_with_all_fields(
    admin: tuple[FakeAdmin, Any],
) -> None:
    fake, stub = admin
    state = LeaderAndIsr("id", (1, 2), 1, -1, 6, (Member(1, 10),), (), 2)
    log = ReplicaSummary("id", 4, 33, 5, 9, ((1, 0), (3, 7)))
    survivors = (
        SurvivorView(1, "", log._replace(high_watermark=0), True, 2),
        SurvivorView(2, "", log._replace(epochs=()), False, -1),
        SurvivorView(3, "why", None, False, -1),
    )
    view = RecoveryView(NAME, Partition(state, 33), (1,), "somebody", survivors)
    fake.answer = RecoveryAnswer((view,), "7")
    answer = await stub.DescribeRecovery(
        pb.DescribeRecoveryRequest(
            topic="t",
            partitions=[4],
            timeout_ms=8,
            page_size=2,
            page_token="5",
            choices=[pb.RecoveryChoice(partition=1, broker_id=3, expected_revision=33)],
        )
    )
    choices = (RecoveryChoice(1, 3, 33),)
    assert fake.requests == [DescribeRecovery(0, "t", (4,), 8, 2, "5", choices=choices)]
    first = pb.ReplicaSurvivor(
        broker_id=1,
        described=True,
        last_epoch=3,
        log_start_offset=5,
        log_end_offset=9,
        high_watermark=0,
        whole=True,
        lost_records=2,
    )
    second = pb.ReplicaSurvivor(
        broker_id=2, described=True, last_epoch=-1, log_start_offset=5, log_end_offset=9
    )
    assert list(answer.partitions) == [
        pb.RecoveryDetails(
            topic="t",
            topic_id="id",
            partition=4,
            revision=33,
            last_known=[1],
            waits_for="somebody",
            replicas=[first, second, pb.ReplicaSurvivor(broker_id=3, problem="why", last_epoch=-1)],
        )
    ]
    assert answer.next_page_token == "7"


async def test_choices_of_leaders_are_decoded(admin: tuple[FakeAdmin, Any]) -> None:
    fake, stub = admin
    choices = [pb.RecoveryChoice(partition=4, broker_id=2, expected_revision=33)]
    await stub.RecoverPartitions(pb.RecoverPartitionsRequest(topic="t", choices=choices))
    wanted = (RecoveryChoice(4, 2, 33),)
    assert fake.requests == [RecoverPartitions(0, "t", (), False, 0, choices=wanted)]
