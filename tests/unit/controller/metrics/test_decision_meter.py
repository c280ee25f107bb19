"""Counters and timings of a controller's decisions."""

from __future__ import annotations

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.state_changes.event import Cause, Kind, Stage, StateChange
from tidelog_controller.metrics.decision_meter import REQUEST_NAMES, DecisionMeter, MeteredAdmin
from tidelog_controller.state.commands import AdminReply
from tidelog_controller.state.events import AdminRequest, DeleteTopic
from tidelog_runtime.telemetry.metrics.controller_catalogue import (
    ADMIN_QUERIES,
    ADMIN_REQUESTS,
    CONTROLLER_METRICS,
)
from tidelog_runtime.telemetry.metrics.snapshot import MetricsSnapshot


class Ticking:
    """A clock that advances by a tenth of a second at each reading."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.1
        return self.now


def measured(*changes: StateChange) -> MetricsSnapshot:
    meter, snapshot = DecisionMeter(Ticking()), MetricsSnapshot(CONTROLLER_METRICS)
    for change in changes:
        meter.take(change)
    meter.tell(snapshot)
    return snapshot


def change(kind: Kind, cause: Cause = Cause.NONE, stage: Stage = Stage.COMPLETED) -> StateChange:
    return StateChange(1, "controller-1", kind, stage, cause, controller_epoch=7)


def counted(snapshot: MetricsSnapshot, name: str) -> dict[tuple[str, ...], float]:
    """The series that are not 0."""
    return {labels: value for labels, value in snapshot.values[name].items() if value}


def test_requests_are_timed_by_name_and_all_queries_under_one() -> None:
    changes = {name for name in REQUEST_NAMES.values() if name != ADMIN_QUERIES}
    assert changes == set(ADMIN_REQUESTS) - {ADMIN_QUERIES}


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        (Kind.ELECTION, "clean"),
        (Kind.UNCLEAN_ELECTION, "unclean"),
        (Kind.LEADER_LOST, "nobody"),
    ],
)
def test_an_election_counts_by_its_outcome_and_cause(kind: Kind, outcome: str) -> None:
    snapshot = measured(change(kind, Cause.BROKER_CRASHED))

    assert counted(snapshot, "tidelog_elections_total") == {(outcome, "broker_crashed"): 1}


@pytest.mark.parametrize(("kind", "count"), [(Kind.ELECTION, 0), (Kind.UNCLEAN_ELECTION, 1)])
def test_unclean_elections_have_a_counter(kind: Kind, count: int) -> None:
    assert measured(change(kind)).values["tidelog_unclean_elections_total"] == {(): count}


def test_a_requested_change_does_not_count_before_its_outcome() -> None:
    snapshot = measured(change(Kind.ELECTION, Cause.BROKER_CRASHED, Stage.REQUESTED))

    assert not counted(snapshot, "tidelog_elections_total")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Kind.ISR_SHRINK, "tidelog_controller_isr_shrinks_total"),
        (Kind.BROKER_LEFT, "tidelog_broker_departures_total"),
    ],
)
def test_shrinks_and_departures_count_by_cause(kind: Kind, name: str) -> None:
    snapshot = measured(change(kind, Cause.BROKER_LEASE_ENDED))

    assert counted(snapshot, name) == {("broker_lease_ended",): 1}


def test_overdue_commands_and_terms_are_counted_with_the_latest_epoch() -> None:
    snapshot = measured(change(Kind.COMMAND_OVERDUE), change(Kind.CONTROLLER_ELECTED))

    assert snapshot.values["tidelog_commands_overdue_total"] == {(): 1}
    assert snapshot.values["tidelog_controller_elections_total"] == {(): 1}
    assert snapshot.values["tidelog_controller_epoch"] == {(): 7}


def test_an_event_is_timed_from_begin_to_end() -> None:
    meter, snapshot = DecisionMeter(Ticking()), MetricsSnapshot(CONTROLLER_METRICS)

    meter.end(meter.begin())
    meter.tell(snapshot)

    events = snapshot.distributions["tidelog_controller_event_duration_seconds"][()]
    assert events.total == pytest.approx(0.1)


async def test_an_admin_request_is_timed_and_its_rejection_counted_by_code() -> None:
    class Admin:
        async def submit(self, _: AdminRequest) -> AdminReply:
            return AdminReply(TidelogError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic"))

    meter, snapshot = DecisionMeter(Ticking()), MetricsSnapshot(CONTROLLER_METRICS)

    await MeteredAdmin(Admin(), meter).submit(DeleteTopic(0, "sea", "", 1000))
    meter.tell(snapshot)

    rejected = counted(snapshot, "tidelog_requests_refused_total")
    assert rejected == {("delete_topic", "UNKNOWN_TOPIC_OR_PARTITION"): 1}
    durations = snapshot.distributions["tidelog_request_duration_seconds"]
    assert sum(durations["delete_topic", ""].counts) == 1
