"""Stages of a failover, a takeover and a shutdown, from state changes."""

import pytest

from bench.scale import stages
from bench.scale.stages import Failover, MissingEventsError, Takeover
from tidelog.state_changes.event import Kind, Stage, StateChange


def logged(
    time_ms: int,
    kind: Kind,
    stage: Stage,
    *,
    service: str = "controller-1",
    topic: str = "",
    broker: int = -1,
) -> StateChange:
    return StateChange(time_ms, service, kind, stage, topic=topic, broker=broker)


def elected(partition: int) -> list[StateChange]:
    late = partition * 10
    leads = {"service": "broker-1", "topic": "sea"}
    return [
        logged(1_100 + late, Kind.ELECTION, Stage.REQUESTED, topic="sea"),
        logged(1_150 + late, Kind.ELECTION, Stage.COMPLETED, topic="sea"),
        logged(1_180 + late, Kind.BECOME_LEADER, Stage.RECEIVED, **leads),  # type: ignore[arg-type]
        logged(1_190 + late, Kind.BECOME_LEADER, Stage.COMPLETED, **leads),  # type: ignore[arg-type]
    ]


FENCED = logged(1_080, Kind.BROKER_FENCED, Stage.REQUESTED, broker=3)


def test_stages_are_contiguous_and_end_with_the_last_partition() -> None:
    events = [FENCED, *elected(0), *elected(5)]

    found = stages.failover(events, ["sea"], 2, 1_000)

    assert found == Failover(2, detected=80, decided=70, stored=120, received=30, writable=10)
    assert found.after_detection == 160


def test_other_topics_and_earlier_events_do_not_count() -> None:
    events = [
        logged(500, Kind.BROKER_FENCED, Stage.REQUESTED, broker=2),
        FENCED,
        *elected(0),
        logged(9_000, Kind.ELECTION, Stage.COMPLETED, topic="__state_changes"),
    ]

    assert stages.failover(events, ["sea"], 1, 1_000).stored == 70


def test_a_partial_failover_is_none() -> None:
    with pytest.raises(MissingEventsError, match="1 events election requested, not 2"):
        stages.failover([FENCED, *elected(0)], ["sea"], 2, 1_000)
    with pytest.raises(MissingEventsError, match="loss of the broker"):
        stages.failover(elected(0), ["sea"], 1, 1_000)


def test_a_takeover_begins_with_the_election_of_the_next_controller() -> None:
    of_next = "controller-2"
    events = [
        logged(900, Kind.COMMAND, Stage.REQUESTED),
        logged(4_000, Kind.CONTROLLER_ELECTED, Stage.COMPLETED, service=of_next),
        logged(4_200, Kind.CONTROLLER_LOADED, Stage.COMPLETED, service=of_next),
        logged(4_250, Kind.COMMAND, Stage.REQUESTED, service=of_next),
        logged(4_280, Kind.COMMAND, Stage.COMPLETED, service="broker-1"),
        logged(4_300, Kind.COMMAND, Stage.ACKNOWLEDGED, service=of_next),
        logged(4_400, Kind.COMMAND, Stage.ACKNOWLEDGED, service=of_next),
    ]

    assert stages.takeover(events, 1_000, 2) == Takeover(3_000, 200, 250, 400)
    with pytest.raises(MissingEventsError):
        stages.takeover(events, 1_000, 3)


def test_a_shutdown_that_timed_out_transferred_no_leadership() -> None:
    done = logged(1_700, Kind.BROKER_STOPPING, Stage.COMPLETED, service="broker-1", broker=1)

    assert stages.handed_over([done], 1, 1_000) == 700
    with pytest.raises(MissingEventsError):
        stages.handed_over([done._replace(stage=Stage.FAILED)], 1, 1_000)


def test_a_restart_ends_with_the_last_in_sync_replica() -> None:
    events = [
        logged(at, Kind.ISR_EXPAND, Stage.COMPLETED, service="broker-1", topic="sea")
        for at in (1_200, 1_900)
    ]

    assert stages.last_in_sync(events, ["sea"], 1_000) == 900
