"""The display of changes: cause, duration, and unknown parts."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.cli import trace_view
from tidelog.state_changes.event import Cause, Change, Kind, Stage, StateChange
from tidelog.state_changes.gaps import Memories
from tidelog.state_changes.tracing import TraceScope, trace
from unit.state_changes.planted import BEGAN_MS, late_full_state, leader_death, of_broker, told

SEA_0 = TraceScope("sea", 0)
SHRINK = Change("b1-40-7", Cause.LAG_TIME, BEGAN_MS)
REFUSED = [
    told(at_ms, "broker-1", Kind.ISR_SHRINK, stage, change=SHRINK, cause=cause, revision=9)
    for at_ms, stage, cause in ((0, Stage.REQUESTED, None), (4, Stage.FAILED, Cause.CONFLICT))
]


def _story(events: Sequence[StateChange], memories: Memories | None = None) -> list[str]:
    *_, timeline = trace(events, SEA_0, memories)
    return list(trace_view.story_lines(timeline))


def _condensed(events: Sequence[StateChange]) -> str:
    return trace_view.condensed_lines(trace(events, TraceScope()))[-1]


def test_a_failed_change_shows_the_reason_of_its_failure() -> None:
    headline, *stages = _story(REFUSED)
    assert headline.split("  ")[1:4] == ["isr_shrink", "sea/0", "because lag_time"]
    assert stages == [
        "      +0 ms  broker-1       requested",
        "      +4 ms  broker-1       failed, because conflict",
    ]


def test_a_condensed_failure_shows_the_cause_of_the_request_and_the_failure() -> None:
    words = _condensed(REFUSED).split("  ")
    assert "because lag_time" in words
    assert words[-1] == "FAILED (1 partition) because conflict"


def test_a_lone_failure_event_is_shown_as_a_failure() -> None:
    _, *rest = _story(REFUSED[1:])
    assert rest == ["      +4 ms  broker-1       failed, because conflict"]


def test_a_document_has_the_requested_cause_of_a_failed_change() -> None:
    (timeline,) = trace(REFUSED, SEA_0)
    document = trace_view.document(timeline)
    assert (document["cause"], document["failed"]) == ("lag_time", True)
    assert [stage["cause"] for stage in document["stages"]] == ["lag_time", "conflict"]


def test_completion_does_not_wait_for_brokers_that_return_later() -> None:
    lines = trace_view.condensed_lines(trace(leader_death() + late_full_state(), SEA_0))
    assert lines[-1].endswith("  done +20 ms")


def test_late_full_state_stages_are_shown_separately() -> None:
    assert _story(leader_death() + late_full_state())[-3:] == [
        "    later, by a full state: become_follower of broker 2 (broker epoch 55)",
        "    +18.6 s  broker-2       received, because full_state",
        "    +18.6 s  broker-2       completed, because full_state",
    ]


def test_an_end_beyond_all_memories_is_not_marked() -> None:
    requested = REFUSED[:1]
    assert _story(requested, {"broker-1": BEGAN_MS})[-1].startswith("    ! isr_shrink")
    assert _story(requested, {"broker-1": BEGAN_MS + 1})[-1] == (
        "    - isr_shrink: whether it was completed is not known; broker-1 remembers nothing of it"
    )


def test_a_failed_broker_change_shows_the_reason() -> None:
    failed = of_broker(0, Kind.REGISTRATION, 2, cause=Cause.STORE_UNREACHABLE)
    line = _condensed([failed._replace(stage=Stage.FAILED)])
    assert line.split("  ")[1:] == [
        "registration", "broker 2 (broker epoch 42)", "FAILED because store_unreachable",
    ]  # fmt: skip
