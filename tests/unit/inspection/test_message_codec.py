"""Values and messages of `inspect.proto` and `admin.proto` correspond."""

from __future__ import annotations

import dataclasses

import pytest

from tidelog import admin_messages as admin
from tidelog.caller_limits import LimitedClient
from tidelog.errors import unknown_topic
from tidelog.inspection import state_reports
from tidelog.inspection.controller_reports import WaitingController
from tidelog.inspection.gateway_reports import AnnouncedGateway
from tidelog.rpc.event_codec import event_from_wire, event_to_wire
from tidelog.rpc.message_codec import from_wire, to_wire
from tidelog.state_changes.event import Cause, Kind, Stage, StateChange
from tidelog.v1 import admin_pb2 as admin_pb
from tidelog.v1 import inspect_pb2 as pb

PAIRS = [
    (state_reports.StoreHealth, pb.StoreHealth),
    (AnnouncedGateway, pb.AnnouncedGateway),
    (state_reports.RegisteredBroker, pb.RegisteredBroker),
    (state_reports.FollowerProgress, pb.FollowerProgress),
    (state_reports.WaitingConsumer, pb.WaitingConsumer),
    (state_reports.LeaderState, pb.LeaderState),
    (state_reports.FollowerState, pb.FollowerState),
    (state_reports.ReplicaState, pb.ReplicaState),
    (state_reports.BrokerState, pb.BrokerState),
    (state_reports.PendingState, pb.PendingState),
    (state_reports.BrokerBacklog, pb.BrokerBacklog),
    (state_reports.Departure, pb.Departure),
    (state_reports.RejectedStart, pb.RejectedStart),
    (state_reports.WaitingDeletion, pb.WaitingDeletion),
    (state_reports.StandingOperation, pb.StandingOperation),
    (state_reports.InSyncMember, pb.InSyncMember),
    (state_reports.PartitionKeyState, pb.PartitionKeyState),
    (state_reports.ControllerState, pb.ControllerState),
    (WaitingController, pb.WaitingController),
    (LimitedClient, pb.LimitedClient),
    (state_reports.ServiceState, pb.DescribeServiceResponse),
    (state_reports.StateRequest, pb.DescribeServiceRequest),
    (state_reports.Finding, pb.Finding),
    (admin.BrokerDetails, admin_pb.BrokerDetails),
    (admin.BrokerShare, admin_pb.BrokerShare),
    (admin.ConfigChange, admin_pb.ConfigChange),
    (admin.ConfigEntry, admin_pb.ConfigEntry),
    (admin.LeaderChange, admin_pb.LeaderResult),
    (admin.Move, admin_pb.Move),
    (admin.MoveProgress, admin_pb.MoveProgress),
    (admin.Operation, admin_pb.Operation),
    (admin.PartitionDetails, admin_pb.PartitionDetails),
    (admin.PartitionMove, admin_pb.PartitionMove),
    (admin.Plan, admin_pb.Plan),
    (admin.Progress, admin_pb.OperationProgress),
    (admin.RecoveredPartition, admin_pb.RecoverPartitionResult),
    (admin.Recovery, admin_pb.RecoveryDetails),
    (admin.RecoveryChoice, admin_pb.RecoveryChoice),
    (admin.RestartFinding, admin_pb.RestartFinding),
    (admin.Survivor, admin_pb.ReplicaSurvivor),
    (admin.TopicDetails, admin_pb.TopicDetails),
]


@pytest.mark.parametrize(("value", "message"), PAIRS, ids=lambda kind: kind.__name__)
def test_values_and_messages_have_the_same_fields(value: type, message: type) -> None:
    fields = dataclasses.fields(value)
    names = {field.metadata.get("wire_name", field.name) for field in fields}
    assert names == {field.name for field in message.DESCRIPTOR.fields}  # type: ignore[attr-defined]


def test_a_service_round_trips() -> None:
    state = state_reports.ServiceState(
        "broker",
        2,
        "127.0.0.1:7502",
        "0.1.0",
        1,
        2,
        state_reports.StoreHealth(unreachable_ms=300, problem="no answer"),
        broker=state_reports.BrokerState(
            7,
            "running",
            has_full_state=True,
            controller_epoch=3,
            registered=(state_reports.RegisteredBroker(1, 5, "127.0.0.1:7501", "running", "a"),),
            replicas=(
                state_reports.ReplicaState(
                    "sea",
                    "id",
                    0,
                    "leader",
                    4,
                    99,
                    leader=state_reports.LeaderState(
                        hw_stalled_ms=20,
                        maximal_isr=(1, 2),
                        followers=(state_reports.FollowerProgress(1, 5, in_isr=True, lag_ms=3),),
                        waiting_consumers=(state_reports.WaitingConsumer(8, 2, 1),),
                    ),
                ),
                state_reports.ReplicaState(
                    "sea", "id", 1, "follower", 4, 98, follower=state_reports.FollowerState(1)
                ),
            ),
        ),
    )
    assert (
        from_wire(to_wire(state, pb.DescribeServiceResponse), state_reports.ServiceState) == state
    )


def test_an_error_travels_beside_the_state() -> None:
    store = state_reports.StoreHealth()
    state = state_reports.ServiceState(
        "broker", 2, "a:1", "0", 1, 2, store, error=unknown_topic("sea")
    )
    arrived = from_wire(to_wire(state, pb.DescribeServiceResponse), state_reports.ServiceState)
    assert arrived.error is not None
    assert state.error is not None
    assert (arrived.error.code, arrived.error.message) == (state.error.code, state.error.message)


def test_omitted_parts_stay_unset() -> None:
    assert (
        from_wire(pb.DescribeServiceRequest(topic="sea"), state_reports.StateRequest).partition
        is None
    )
    request = pb.DescribeServiceRequest(topic="sea", partition=0)
    assert from_wire(request, state_reports.StateRequest).partition == 0


def test_a_state_change_round_trips() -> None:
    change = StateChange(
        5,
        "controller-1",
        Kind.ELECTION,
        Stage.COMPLETED,
        Cause.BROKER_CRASHED,
        "c3-7",
        "sea",
        "id",
        0,
        2,
        11,
        3,
        4,
        99,
        12,
        "ab" * 16,
        {"from": 1, "isr": [2, 3]},
    )
    assert event_from_wire(event_to_wire(change)) == change


def test_a_minimal_state_change_round_trips() -> None:
    change = StateChange(5, "broker-1", Kind.STORE_LOST, Stage.COMPLETED)
    assert event_from_wire(event_to_wire(change)) == change


def test_an_unknown_cause_of_a_newer_version_becomes_none() -> None:
    wire = event_to_wire(StateChange(5, "broker-1", Kind.STORE_LOST, Stage.COMPLETED))
    wire.cause = "moonlight"
    assert event_from_wire(wire).cause is Cause.NONE


def test_words_stand_for_the_numbers_of_enums() -> None:
    wire = admin_pb.Operation(kind=admin_pb.OPERATION_KIND_BROKERS_ADD, state=3)  # type: ignore[arg-type]
    value = from_wire(wire, admin.Operation)
    assert (value.kind, value.state) == ("brokers_add", "done")
    assert (wire.kind, wire.state) == (to_wire(value, admin_pb.Operation).kind, 3)


def test_given_fields_and_defaults_take_the_place_of_what_a_message_lacks() -> None:
    wire = admin_pb.AddPartitionsResponse(
        added=2, revision=7, assignment=[admin_pb.ReplicaAssignment(replicas=[1, 2])]
    )
    value = from_wire(wire, admin.ResizedTopic, partitions=wire.added)
    assert value == admin.ResizedTopic(2, 7, (), ((1, 2),), ())


@dataclasses.dataclass(frozen=True)
class Renamed:
    """A value whose field the message does not have."""

    no_such_field: int


def test_a_field_that_the_message_lacks_is_an_error_where_it_is_read() -> None:
    with pytest.raises(KeyError, match="no_such_field"):
        from_wire(pb.StoreHealth(), Renamed)
    assert from_wire(pb.StoreHealth(), Renamed, no_such_field=3) == Renamed(3)
