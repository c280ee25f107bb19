"""The order of state changes: by revision, and by time for events without one."""

from __future__ import annotations

from tidelog.state_changes.event import Cause, Change, Kind, Stage, StateChange
from tidelog.state_changes.tracing import TraceScope, trace
from unit.state_changes.planted import BEGAN_MS, late_full_state, of_broker, told

SEA_0 = TraceScope("sea", 0)


def _kinds(*events: StateChange) -> list[Kind]:
    orders = [
        [each.headline.kind for each in trace(given, SEA_0)] for given in (events, events[::-1])
    ]
    assert orders[0] == orders[1]
    return orders[0]


def _at(at_ms: int, kind: Kind, revision: int = 0) -> StateChange:
    return told(at_ms, "broker-2", kind, Stage.COMPLETED, broker=2, revision=revision)


def test_revisions_take_precedence_over_clocks() -> None:
    late_clock = told(900, "broker-1", Kind.ISR_SHRINK, Stage.COMPLETED, revision=7)
    early_clock = told(100, "broker-2", Kind.ISR_EXPAND, Stage.COMPLETED, revision=8)
    assert _kinds(early_clock, late_clock) == [Kind.ISR_SHRINK, Kind.ISR_EXPAND]


def test_a_change_is_placed_at_its_write_and_not_at_its_request() -> None:
    change = Change("b1-40-1", Cause.CAUGHT_UP, BEGAN_MS)
    requested, completed = (
        told(at_ms, "broker-1", Kind.ISR_EXPAND, stage, change=change, revision=revision)
        for at_ms, stage, revision in ((0, Stage.REQUESTED, 7), (4, Stage.COMPLETED, 9))
    )
    other = told(3, "broker-2", Kind.ISR_SHRINK, Stage.COMPLETED, revision=8)
    assert _kinds(requested, completed, other) == [Kind.ISR_SHRINK, Kind.ISR_EXPAND]


def test_an_event_without_a_revision_is_placed_by_its_time() -> None:
    assert _kinds(
        told(100, "broker-1", Kind.ISR_SHRINK, Stage.COMPLETED, revision=7),
        told(150, "broker-1", Kind.HW_STALLED, Stage.COMPLETED),
        told(200, "broker-1", Kind.ISR_EXPAND, Stage.COMPLETED, revision=8),
    ) == [Kind.ISR_SHRINK, Kind.HW_STALLED, Kind.ISR_EXPAND]


def test_an_event_without_a_revision_is_not_pulled_before_an_earlier_change_by_a_fast_clock() -> (
    None
):
    assert _kinds(
        told(18_700, "broker-1", Kind.ISR_SHRINK, Stage.COMPLETED, revision=7),
        told(18_600, "broker-3", Kind.DISK_REFUSED, Stage.COMPLETED),
        told(100, "controller-1", Kind.ELECTION, Stage.COMPLETED, revision=8),
    ) == [Kind.ISR_SHRINK, Kind.ELECTION, Kind.DISK_REFUSED]


def test_an_observation_of_a_resumed_broker_is_placed_after_meanwhile_decided_changes() -> None:
    assert _kinds(
        of_broker(100, Kind.BROKER_LEFT, 2, revision=330),
        of_broker(18_600, Kind.LEADER_UNREACHABLE, 2),
        # The revision of the cache in which it looked up its key.
        of_broker(18_700, Kind.REGISTRATION_LOST, 2, revision=331),
        told(100, "controller-1", Kind.ELECTION, Stage.COMPLETED, revision=331, leader_before=2),
        told(18_800, "broker-1", Kind.ISR_EXPAND, Stage.COMPLETED, revision=332),
    ) == [
        Kind.BROKER_LEFT,
        Kind.ELECTION,
        Kind.LEADER_UNREACHABLE,
        Kind.REGISTRATION_LOST,
        Kind.ISR_EXPAND,
    ]


def test_a_repair_is_placed_after_the_departure_from_the_isr_despite_an_older_revision() -> None:
    assert _kinds(
        _at(900, Kind.REPLICA_DAMAGED, 328),
        _at(910, Kind.RESIGNATION, 329),
        told(925, "controller-1", Kind.ELECTION, Stage.COMPLETED, revision=330),
        _at(951, Kind.REPLICA_REPAIRED, 328),
    ) == [Kind.REPLICA_DAMAGED, Kind.RESIGNATION, Kind.ELECTION, Kind.REPLICA_REPAIRED]


def test_an_observation_is_placed_after_its_known_revision_whatever_its_clock() -> None:
    assert _kinds(
        _at(50, Kind.HW_STALLED, 7),
        told(100, "controller-1", Kind.ELECTION, Stage.COMPLETED, revision=7),
        told(200, "broker-1", Kind.ISR_SHRINK, Stage.COMPLETED, revision=8),
    ) == [Kind.ELECTION, Kind.HW_STALLED, Kind.ISR_SHRINK]


def test_an_old_decision_in_a_full_state_is_placed_where_it_arrived() -> None:
    assert _kinds(
        *late_full_state(),
        told(100, "controller-1", Kind.ISR_SHRINK, Stage.COMPLETED, revision=1044),
        told(18_800, "broker-1", Kind.ISR_EXPAND, Stage.COMPLETED, revision=1045),
    ) == [Kind.ISR_SHRINK, Kind.BECOME_FOLLOWER, Kind.ISR_EXPAND]
