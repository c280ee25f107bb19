"""The tables about the partitions' availability, failovers and ISR."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.model import NO_LEADER, TopicPartition
from tidelog.state_changes.event import Cause, Change, Kind, Stage, StateChange
from tidelog.state_changes.topic import value_of
from tidelog_pipeline.columns import Row
from tidelog_pipeline.state_changes.core.departures import departures_in
from tidelog_pipeline.state_changes.core.event_rows import (
    EVENTS,
    from_log_lines,
    from_topic_values,
    table_rows,
)
from tidelog_pipeline.state_changes.core.incarnations import ObservedPeriod
from tidelog_pipeline.state_changes.core.table_rows import rows_of_partition
from unit.state_changes.sample_events import (
    BEGAN_MS,
    elsewhere,
    late_full_state,
    leader_death,
    state_change,
)

SEA = TopicPartition("sea", 0)
END_MS = 30_000


def tables(
    events: list[StateChange], name: TopicPartition = SEA
) -> dict[str, list[dict[str, Any]]]:
    """The tables of these events. Times count from the start of the events."""
    period = ObservedPeriod(BEGAN_MS - 1_000, BEGAN_MS + END_MS)
    own = [event for event in events if event.topic == name.topic]
    found: dict[str, list[dict[str, Any]]] = {}
    for table, row in rows_of_partition(name, own, departures_in(events), period):
        found.setdefault(table, []).append(
            {
                key: value - BEGAN_MS if key.endswith("_at") and value is not None else value
                for key, value in row.items()
            }
        )
    return found


def intervals(events: list[StateChange], trouble: str) -> list[tuple[int, int, bool]]:
    return [
        (row["begin_at"], row["end_at"], row["is_open"])
        for row in tables(events).get("intervals", [])
        if row["trouble"] == trouble
    ]


def isr_change(at_ms: int, kind: Kind, brokers: list[int], isr: list[int]) -> list[StateChange]:
    change = Change(f"i{at_ms}", Cause.LAG_TIME, BEGAN_MS + at_ms)
    request = state_change(
        at_ms, "broker-3", kind, Stage.REQUESTED, change=change, brokers=brokers, isr=isr, min_isr=2
    )
    done = state_change(
        at_ms + 2, "broker-3", kind, Stage.COMPLETED, change=change, revision=1100 + at_ms
    )
    return [request, done]


def election(at_ms: int, before: int, leader: int, revision: int, kind: Kind) -> StateChange:
    change = Change(f"e{at_ms}", Cause.BROKER_STOPPING, BEGAN_MS + at_ms)
    event = state_change(
        at_ms, "controller-1", kind, Stage.COMPLETED, change=change, revision=revision
    )
    return event._replace(details={"leader_before": before, "leader": leader})


def creation(at_ms: int, leader: int, revision: int, **given: Any) -> StateChange:
    change = Change(f"c{at_ms}", Cause.TOPIC_CREATED, BEGAN_MS + at_ms)
    event = state_change(at_ms, "controller-1", Kind.CREATE, Stage.COMPLETED, change=change)
    details: dict[str, Any] = {"replicas": [1, 2, 3], "leader": leader, "isr": [1, 2, 3]}
    return event._replace(revision=revision, details=details, **given)


def deletion(at_ms: int, leader: int, revision: int, **given: Any) -> list[StateChange]:
    """Deletion of its replicas, then of its key."""
    change = Change(f"d{at_ms}", Cause.TOPIC_DELETED, BEGAN_MS + at_ms)
    stop = state_change(at_ms, "controller-1", Kind.STOP, Stage.COMPLETED, change=change)
    isr = [] if leader == NO_LEADER else [1, 2, 3]
    details: dict[str, Any] = {
        "leader_before": leader, "leader": NO_LEADER, "isr_before": isr, "isr": [],
    }  # fmt: skip
    gone = state_change(at_ms + 20, "controller-1", Kind.DELETE, Stage.COMPLETED, change=change)
    gone = gone._replace(change_id=f"k{at_ms}", revision=revision + 1)
    stop = stop._replace(revision=revision, details=details)
    return [stop._replace(**given), gone._replace(**given)]


@pytest.mark.rule("state-changes-show-leaderless-time")
def test_a_partition_has_no_leader_from_the_first_sign_until_the_next_leader_leads() -> None:
    # The leader's address refused connections at 8, the store had the next leader at 14, and it led
    # at 19.
    assert intervals(leader_death() + elsewhere(), "no leader") == [(8, 19, False)]


@pytest.mark.rule("state-changes-show-leaderless-time")
def test_a_failover_consists_of_its_steps() -> None:
    [failover] = tables(leader_death())["failovers"]
    steps = [failover[f"{step}_ms"] for step in ("noticed", "decided", "told", "taken_up")]
    assert steps == [2, 4, 3, 2]
    assert failover["total_ms"] == sum(steps)
    assert (failover["broker_lost"], failover["leader"], failover["is_whole"]) == (2, 3, True)


def test_a_failover_without_events_of_the_new_leader_ends_with_the_store_write() -> None:
    silent = [event for event in leader_death() if event.service != "broker-3"]
    [failover] = tables(silent)["failovers"]
    assert (failover["total_ms"], failover["told_ms"], failover["is_whole"]) == (6, None, False)


def test_a_late_full_state_does_not_change_the_failover() -> None:
    assert (
        tables(leader_death() + late_full_state())["failovers"]
        == (tables(leader_death())["failovers"])
    )


def test_a_leadership_transfer_costs_no_time_of_the_previous_leader() -> None:
    events = [election(100, 3, 1, 2000, Kind.ELECTION)]
    assert intervals(events, "no leader") == []
    [failover] = tables(events)["failovers"]
    assert (failover["broker_lost"], failover["total_ms"]) == (-1, 0)


def test_a_leader_without_a_replacement_is_missing_until_a_leader_is_back() -> None:
    lost = election(100, 3, -1, 2000, Kind.LEADER_LOST)
    back = election(700, -1, 3, 2001, Kind.UNCLEAN_ELECTION)
    assert intervals([lost], "no leader") == [(100, END_MS, True)]
    assert intervals([lost, back], "no leader") == [(100, 700, False)]
    assert [row["kind"] for row in tables([lost, back])["elections"]] == [
        "leader_lost",
        "unclean_election",
    ]


@pytest.mark.rule("state-changes-separate-recreated-partitions")
def test_a_deleted_partition_is_observed_until_then_and_lacks_nothing() -> None:
    found = tables([creation(10, 1, 1000), *deletion(500, 1, 2000)])
    [observed] = found["observed"]
    assert (observed["begin_at"], observed["end_at"]) == (10, 500)
    assert [name for name in ("intervals", "isr_changes", "failovers") if name in found] == []
    assert [row["kind"] for row in found["changes"]] == ["create", "stop", "delete"]


@pytest.mark.rule("state-changes-separate-recreated-partitions")
def test_an_unavailability_lasts_until_the_partition_is_deleted() -> None:
    shrink = isr_change(100, Kind.ISR_SHRINK, [1, 2], [3])
    lost = election(300, 3, -1, 1500, Kind.LEADER_LOST)
    found = tables([creation(10, 3, 1000), *shrink, lost, *deletion(500, NO_LEADER, 2000)])
    assert [
        (row["trouble"], row["begin_at"], row["end_at"], row["change_id"], row["is_open"])
        for row in found["intervals"]
    ] == [("no leader", 300, 500, "d500", False), ("under min ISR", 102, 500, "d500", False)]


@pytest.mark.rule("state-changes-separate-recreated-partitions")
@pytest.mark.parametrize("is_reported", [True, False])
def test_a_recreated_topic_is_another_topic(is_reported: bool) -> None:
    previous = [creation(10, 1, 1000), *(deletion(500, 1, 2000) if is_reported else [])]
    new = creation(900, 2, 3000, topic_id="id-of-new-sea")
    # A replica of the previous topic that returns late.
    stray = state_change(
        950, "broker-3", Kind.DELETE, Stage.COMPLETED, broker=3, cause=Cause.STRAY, revision=3100
    )
    found = tables([*previous, new, stray])
    assert [(row["topic_id"], row["begin_at"], row["end_at"]) for row in found["observed"]] == [
        ("id-of-sea", 10, 500 if is_reported else 900),
        ("id-of-new-sea", 900, END_MS),
    ]
    assert [name for name in ("intervals", "isr_changes", "failovers") if name in found] == []


@pytest.mark.rule("state-changes-separate-recreated-partitions")
def test_a_removed_and_added_partition_is_another_partition() -> None:
    removed = deletion(500, 1, 2000, cause=Cause.PARTITIONS_REMOVED)
    added = creation(900, 2, 3000, cause=Cause.PARTITIONS_ADDED)
    found = tables([creation(10, 1, 1000), *removed, added])
    periods = [(row["begin_at"], row["end_at"]) for row in found["observed"]]
    assert periods == [(10, 500), (900, END_MS)]
    assert "intervals" not in found
    assert "failovers" not in found


def test_another_topic_of_the_same_name_is_distinguished_by_its_id() -> None:
    """Its creation and the deletion of the previous topic are in logs that are not read."""
    later = election(900, 1, 2, 3000, Kind.ELECTION)._replace(topic_id="id-of-new-sea")
    found = tables([creation(10, 1, 1000), later])
    assert [(row["topic_id"], row["begin_at"], row["end_at"]) for row in found["observed"]] == [
        ("id-of-sea", 10, 900),
        ("id-of-new-sea", 900, END_MS),
    ]


def test_a_leftover_replica_of_a_previous_topic_is_not_an_observed_partition() -> None:
    stray = state_change(
        5, "broker-3", Kind.DELETE, Stage.COMPLETED, broker=3, cause=Cause.STRAY, revision=900
    )
    previous = stray._replace(topic_id="id-of-former-sea")
    [observed] = tables([previous, creation(10, 1, 1000)])["observed"]
    assert (observed["topic_id"], observed["begin_at"]) == ("id-of-sea", 10)


def test_replica_events_alone_imply_a_partition_that_exists_throughout() -> None:
    damaged = state_change(50, "broker-3", Kind.REPLICA_DAMAGED, Stage.COMPLETED, broker=3)
    [observed] = tables([damaged])["observed"]
    assert (observed["begin_at"], observed["end_at"]) == (-1_000, END_MS)


def test_a_partition_is_under_min_isr_while_too_few_replicas_are_in_sync() -> None:
    shrink = isr_change(100, Kind.ISR_SHRINK, [1, 2], [3])
    expand = isr_change(900, Kind.ISR_EXPAND, [1], [1, 3])
    assert intervals([*shrink, *expand], "under min ISR") == [(102, 902, False)]
    assert intervals(shrink, "under min ISR") == [(102, END_MS, True)]
    assert tables(shrink)["observed"][0]["min_isr"] == 2


def test_a_min_isr_logged_later_applies_to_earlier_times() -> None:
    expand = isr_change(900, Kind.ISR_EXPAND, [1], [1, 3])
    down_to_one = [
        event._replace(details={**event.details, "isr": [3]}) if "isr" in event.details else event
        for event in leader_death()
    ]
    assert intervals(down_to_one + expand, "under min ISR") == [(14, 902, False)]
    assert intervals(down_to_one, "under min ISR") == []
    assert tables(down_to_one)["observed"][0]["min_isr"] is None


def test_members_that_left_and_rejoined_the_isr_are_listed() -> None:
    events = [*leader_death(), *isr_change(900, Kind.ISR_EXPAND, [2], [1, 2, 3])]
    assert [(row["broker"], row["joined"]) for row in tables(events)["isr_changes"]] == [
        (2, False),
        (2, True),
    ]


def test_a_failed_change_does_not_change_the_isr() -> None:
    requested, done = isr_change(100, Kind.ISR_SHRINK, [1, 2], [3])
    failed = done._replace(stage=Stage.FAILED, cause=Cause.CONFLICT)
    assert "isr_changes" not in tables([requested, failed])
    [change] = tables([requested, failed])["changes"]
    assert (change["is_failed"], change["cause"]) == (True, "lag_time")


def test_changes_have_their_stages_and_name_missing_ones() -> None:
    unfinished = [
        event
        for event in leader_death()
        if not (event.broker == 1 and event.stage is not Stage.REQUESTED)
    ]
    found = tables(unfinished)
    assert len(found["stages"]) == len([event for event in unfinished if event.topic])
    [missing] = found["unfinished"]
    assert (missing["kind"], missing["broker"], missing["missing"]) == (
        "become_follower",
        1,
        "completed",
    )
    assert found["changes"][0]["is_unfinished"]


def test_events_from_log_lines_and_from_the_topic_are_equal() -> None:
    events = leader_death()
    values: list[Row] = [(value_of(event),) for event in events]
    lines: list[Row] = [
        (value_of(event).replace(b"{", b'{"event": "state_change", "level": "info", ', 1),)
        for event in events
    ]
    noise: list[Row] = [(b"{}",), (b'{"event": "state_change", "kind"',)]
    from_logs, from_topic = (
        list(from_log_lines(iter([*lines, *noise]))),
        list(from_topic_values(iter([*values, (None,)]))),
    )
    assert from_logs[:-1] == from_topic[:-1]
    assert from_logs[-1][-3:] == (len(events) + 2, 1, 1)
    assert from_topic[-1][-3:] == (len(events) + 1, 0, 1)


def test_topic_wide_events_apply_to_its_partitions_and_count_once() -> None:
    """Strays of two partitions are deleted as one, which supersedes the earlier commands."""
    change = Change("b1-aside-7", Cause.STRAY, BEGAN_MS)
    strays = state_change(
        50, "broker-1", Kind.DELETE, Stage.COMPLETED, change=change, partition=-1, broker=1,
        revision=5000, partitions=[0, 1],
    )  # fmt: skip
    unfinished = [event for event in leader_death() if event.service != "broker-1"]
    values: list[Row] = [(value_of(event),) for event in [*unfinished, strays]]
    rows = [row for row in from_topic_values(iter(values)) if row[0] is not None]
    place, borrowed, raw = (EVENTS.names.index(name) for name in ("topic", "is_borrowed", "raw"))
    assert sum(row[borrowed] for row in rows) == 2
    grouped = sorted((*row[place : place + 2], row[raw]) for row in rows)
    run = table_rows({}, ObservedPeriod(BEGAN_MS, BEGAN_MS + END_MS))
    given = [row for table, row in run(iter(grouped)) if table == "changes"]
    assert sum("b1-aside-7" in row for row in given) == 1
