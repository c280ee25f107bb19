"""Event filters, event ids and the retention of events in the gateway."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.client.event_streams import Silent
from tidelog.state_changes.event import Kind, Stage, StateChange
from tidelog_admin_api.event_filter import EventFilter, newest
from tidelog_admin_api.event_messages import EventRing, event_id, time_ms_of


def change(time_ms: int = 1_000, **fields: Any) -> StateChange:
    given = {"service": "controller-1", "kind": Kind.ELECTION, "stage": Stage.COMPLETED, **fields}
    return StateChange(time_ms, **given)


SEA = change(topic="sea", partition=3, broker=2)


@pytest.mark.parametrize(
    ("event_filter", "taken"),
    [
        (EventFilter(), True),
        (EventFilter(topic="sea"), True),
        (EventFilter(topic="bay"), False),
        (EventFilter(topic="sea", partition=3), True),
        (EventFilter(topic="sea", partition=2), False),
        (EventFilter(broker=2), True),
        (EventFilter(broker=1), False),
        (EventFilter(kinds=(Kind.ELECTION, Kind.STOP)), True),
        (EventFilter(kinds=(Kind.STOP,)), False),
        (EventFilter(since_ms=1_000), True),
        (EventFilter(since_ms=1_001), False),
        (EventFilter(before_ms=1_001), True),
        (EventFilter(before_ms=1_000), False),
        (EventFilter(topic="sea", broker=1), False),
    ],
)
def test_filters_join_by_and(event_filter: EventFilter, taken: bool) -> None:
    assert event_filter.matches(SEA) is taken


def test_an_event_of_a_topic_belongs_to_each_partition() -> None:
    assert EventFilter(topic="sea", partition=2).matches(change(topic="sea"))


def test_a_broker_filter_matches_events_that_the_broker_logged() -> None:
    assert EventFilter(broker=2).matches(change(service="broker-2"))
    assert not EventFilter(broker=2).matches(change(service="broker-22"))


def test_the_newest_events_are_listed_oldest_first_without_duplicates() -> None:
    events = [change(time_ms) for time_ms in (5, 3, 9, 7, 9)]
    found = newest(events, EventFilter(), 3)
    assert [one.time_ms for one in found.changes] == [5, 7, 9]
    assert found.left_out == 1


def test_a_page_does_not_split_a_millisecond() -> None:
    """The next page has the events before the first one of this page."""
    events = [change(5), *(change(7, broker=broker) for broker in (1, 2, 3)), change(9)]
    found = newest(events, EventFilter(), 3)
    assert ([one.time_ms for one in found.changes], found.left_out) == ([9], 4)
    rest = newest(events, EventFilter(before_ms=9), 3)
    assert [one.time_ms for one in rest.changes] == [7, 7, 7]


def test_an_id_encodes_the_time_and_differs_for_any_other_field() -> None:
    names = {event_id(change(details={"leader": leader})) for leader in range(50)}
    assert len(names) == 50
    assert {time_ms_of(name) for name in names} == {1_000}


def test_ids_are_stable_across_gateway_restarts() -> None:
    assert event_id(SEA) == "1000-2c2dc24fc1df"


@pytest.mark.parametrize("text", ["", "7", "x-0123456789ab", "7-", "9" * 20 + "-0123456789ab"])
def test_an_invalid_id_has_no_time(text: str) -> None:
    assert time_ms_of(text) is None


def test_a_reader_continues_at_its_position() -> None:
    ring = EventRing()
    ring.add([change(1), change(2), change(3)])
    first = ring.take(0, 2)
    second = ring.take(first.position, 2)
    assert [[one.what for one in t.entries] for t in (first, second)] == [
        [change(1), change(2)],
        [change(3)],
    ]
    assert ring.take(second.position, 2) == ([], 3, 0)


def test_a_slow_reader_is_informed_how_many_events_it_missed() -> None:
    ring = EventRing(max_kept=10)
    ring.add([change(time_ms) for time_ms in range(1_000)])
    taken = ring.take(980, 100)
    assert (taken.missed, len(taken.entries), taken.position) == (10, 10, 1_000)


def test_at_most_twice_the_listed_number_of_events_is_kept() -> None:
    ring = EventRing(max_kept=10)
    for time_ms in range(1_000):
        ring.add([change(time_ms), Silent("127.0.0.1:7501", "gone")])
    assert len(ring._entries) <= 20
    assert len(ring._positions) <= 20


def test_a_stream_resumes_by_its_last_event_while_that_is_kept() -> None:
    ring = EventRing(max_kept=10)
    ring.add([change(time_ms) for time_ms in range(15)])
    assert ring.after(event_id(change(14))) == 15
    assert ring.after(event_id(change(5))) == 6
    assert ring.after(event_id(change(4))) is None
    assert ring.after("7-0123456789ab") is None


def test_a_duplicate_event_is_known_by_its_later_position() -> None:
    ring = EventRing(max_kept=2)
    ring.add([change(1), change(2), change(3), change(1)])
    ring.add([change(4)])
    assert ring.after(event_id(change(1))) == 4
