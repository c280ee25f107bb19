"""The purpose, cause and duration of a change, and which of its events are not missing."""

from __future__ import annotations

from tidelog.state_changes.change_trace import ChangeTrace, MissingStage
from tidelog.state_changes.event import NO_BROKER, Cause, Change, Kind, Stage, StateChange
from tidelog.state_changes.gaps import Memories
from tidelog.state_changes.tracing import TraceScope, trace
from unit.state_changes.sample_events import (
    BEGAN_MS,
    late_full_state,
    leader_death,
    replica,
    state_change,
)

SEA_0 = TraceScope("sea", 0)
SHRINK = Change("b1-40-7", Cause.LAG_TIME, BEGAN_MS)


def _timeline(events: list[StateChange], memories: Memories | None = None) -> ChangeTrace:
    *_, timeline = trace(events, SEA_0, memories)
    return timeline


def _shrink(at_ms: int, stage: Stage, cause: Cause | None = None) -> StateChange:
    return state_change(
        at_ms, "broker-1", Kind.ISR_SHRINK, stage, change=SHRINK, cause=cause, revision=9
    )


# Causes.


def test_a_failed_change_has_the_cause_of_its_request() -> None:
    failed = _shrink(4, Stage.FAILED, Cause.CONFLICT)
    timeline = _timeline([_shrink(0, Stage.REQUESTED), failed])
    assert (timeline.cause, timeline.headline) == (Cause.LAG_TIME, failed)


def test_a_change_known_only_as_failed_has_no_known_cause() -> None:
    assert _timeline([_shrink(4, Stage.FAILED, Cause.CONFLICT)]).cause is Cause.NONE


def test_an_ignored_change_has_a_cause() -> None:
    ignored = _shrink(4, Stage.IGNORED, Cause.STALE_REVISION)
    assert _timeline([ignored]).cause is Cause.STALE_REVISION


# Durations.


def test_a_full_state_for_a_returning_broker_does_not_count_in_the_duration() -> None:
    assert _timeline(leader_death() + late_full_state()).took_ms == 20


def test_late_full_state_stages_come_last_and_separately() -> None:
    again = [event._replace(broker=1, service="broker-1") for event in late_full_state()]
    parts = _timeline(leader_death() + again).parts
    assert [(part.kind, part.broker, part.is_late) for part in parts] == [
        (Kind.ELECTION, NO_BROKER, False),
        (Kind.BECOME_LEADER, 3, False),
        (Kind.BECOME_FOLLOWER, 1, False),
        (Kind.BECOME_FOLLOWER, 1, True),
    ]
    assert [change.stage for change in parts[-1].stages] == [Stage.RECEIVED, Stage.COMPLETED]


def test_a_change_commanded_by_a_full_state_lasts_until_that_is_done() -> None:
    commanded = late_full_state()[0]._replace(
        service="controller-1", stage=Stage.REQUESTED, time_ms=BEGAN_MS + 15
    )
    timeline = _timeline([*leader_death(), commanded, *late_full_state()])
    assert timeline.took_ms == 18_602 - 10
    assert not any(part.is_late for part in timeline.parts)


def test_a_later_truncation_does_not_prolong_the_change() -> None:
    cut = replica(3_498, "broker-1", 1, Stage.COMPLETED, kind=Kind.TRUNCATION)
    assert _timeline([*leader_death(), cut]).took_ms == 20


def test_a_lasting_condition_has_its_duration() -> None:
    standing = Change("broker-3-hw", Cause.NO_FOLLOWER_PROGRESS, BEGAN_MS)
    stalled, moves = (
        state_change(at_ms, "broker-3", kind, Stage.COMPLETED, change=standing, broker=3)
        for at_ms, kind in ((2_000, Kind.HW_STALLED), (12_000, Kind.HIGH_WATERMARK_RESUMED))
    )
    assert _timeline([stalled, moves]).took_ms == 12_000


# Events that are not missing.


def _forgotten(events: list[StateChange], memories: Memories) -> list[tuple[MissingStage, bool]]:
    timeline = _timeline(events, memories)
    return [(gap, gap in timeline.unfinished) for gap in timeline.gaps]


def _gap(missing: Stage, forgotten_by: str = "") -> tuple[MissingStage, bool]:
    return (MissingStage(Kind.BECOME_FOLLOWER, 1, missing, "", forgotten_by), not forgotten_by)


def _without(*stages: Stage) -> list[StateChange]:
    return [e for e in leader_death() if (e.stage, e.broker) not in [(s, 1) for s in stages]]


def test_an_end_is_missing_if_its_reporter_remembers_that_time() -> None:
    requested = [_shrink(0, Stage.REQUESTED)]
    (gap,) = _timeline(requested, {"broker-1": BEGAN_MS}).unfinished
    assert (gap.missing, gap.forgotten_by) == (Stage.COMPLETED, "")


def test_an_end_is_not_missing_if_it_predates_the_memory_of_its_reporter() -> None:
    timeline = _timeline([_shrink(0, Stage.REQUESTED)], {"broker-1": BEGAN_MS + 1, "broker-2": 0})
    assert timeline.gaps == (
        MissingStage(Kind.ISR_SHRINK, NO_BROKER, Stage.COMPLETED, "", "broker-1"),
    )
    assert timeline.unfinished == ()


def test_an_end_is_not_missing_if_its_reporter_did_not_answer() -> None:
    assert _timeline([_shrink(0, Stage.REQUESTED)], {}).gaps[0].forgotten_by == "broker-1"


def test_a_command_is_missing_if_only_the_controller_remembers_it() -> None:
    events = _without(Stage.COMPLETED, Stage.ACKNOWLEDGED)
    memories = {"controller-1": BEGAN_MS, "broker-1": BEGAN_MS + 900}
    assert _forgotten(events, memories) == [_gap(Stage.COMPLETED)]


def test_a_missing_acknowledgement_depends_only_on_the_memory_of_the_controller() -> None:
    events = _without(Stage.ACKNOWLEDGED)
    assert _forgotten(events, {"controller-1": BEGAN_MS}) == [_gap(Stage.ACKNOWLEDGED)]
    assert _forgotten(events, {"broker-1": 0, "controller-1": BEGAN_MS + 16}) == [
        _gap(Stage.ACKNOWLEDGED, "controller-1")
    ]


def test_log_files_count_as_complete_memory() -> None:
    assert _timeline(_without(Stage.ACKNOWLEDGED)).unfinished[0].missing is Stage.ACKNOWLEDGED
