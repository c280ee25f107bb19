"""State changes read from log files."""

from __future__ import annotations

import json

from tidelog.state_changes.event import StateChange
from tidelog.state_changes.json_form import EVENT, to_object
from tidelog.state_changes.log_lines import LogLines
from tidelog.state_changes.tracing import TraceScope
from unit.state_changes.planted import elsewhere, leader_death


def line(change: StateChange) -> bytes:
    return json.dumps({"level": "info", "event": EVENT, **to_object(change)}).encode() + b"\n"


def test_a_log_line_becomes_its_event() -> None:
    lines = LogLines()
    lines.take(line(change) for change in leader_death())
    assert lines.events == leader_death()


def test_other_lines_are_counted_and_skipped() -> None:
    lines = LogLines()
    lines.take([b"plain text\n", b'{"event":"serving"}\n', b'{"event":"say","x":"state_change"}\n'])
    assert (lines.lines, lines.skipped, lines.malformed, lines.events) == (3, 3, 0, [])


def test_a_truncated_state_change_is_counted_separately() -> None:
    whole = line(leader_death()[0])
    lines = LogLines()
    lines.take([whole[:-20], whole.replace(b"become_leader", b"become_admiral")])
    assert (lines.malformed, lines.events) == (2, [])


def test_other_topics_are_skipped_at_once_and_broker_events_are_kept() -> None:
    lines = LogLines(TraceScope("sea"))
    lines.take(line(change) for change in elsewhere())
    assert [change.topic for change in lines.events] == ["sea", ""]


def test_the_newest_events_are_kept_and_the_rest_is_counted() -> None:
    """This holds whichever file is read first."""
    events = leader_death()
    newest = sorted(events, key=lambda change: change.time_ms)[-3:]
    for order in (events, events[::-1]):
        lines = LogLines(max_events=3)
        lines.take(line(change) for change in order)
        assert sorted(lines.events, key=lambda change: change.time_ms) == newest
        assert lines.left_out == len(events) - 3


def test_other_partitions_and_earlier_events_take_no_room() -> None:
    own = [change for change in leader_death() if change.topic]
    oldest = own[0]._replace(time_ms=5_000)
    others = [change._replace(partition=change.partition + 1) for change in own]
    before = oldest._replace(time_ms=4_000)
    lines = LogLines(TraceScope("sea", oldest.partition, since_ms=5_000), max_events=2)
    lines.take(line(change) for change in [before, oldest, *others])
    assert lines.events == [oldest]
    assert lines.left_out == 0


def test_a_field_of_another_type_is_malformed() -> None:
    lines = LogLines()
    whole = to_object(leader_death()[0])
    for name, wrong in (("details", None), ("revision", "x"), ("time", 7)):
        lines.take([json.dumps({"event": EVENT, **whole, name: wrong}).encode()])
    assert (lines.malformed, lines.events) == (3, [])


def test_a_line_nested_too_deeply_is_malformed() -> None:
    lines = LogLines()
    lines.take([b'{"event": "state_change", "details": ' + b"[" * 100_000])
    assert lines.malformed == 1
