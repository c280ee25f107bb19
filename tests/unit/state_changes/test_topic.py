"""State changes as records of their topic."""

from __future__ import annotations

import pytest

from tidelog.state_changes.json_form import NotAStateChangeError
from tidelog.state_changes.topic import (
    STATE_CHANGES_TOPIC,
    from_value,
    is_internal,
    is_published,
    key_of,
    value_of,
)
from unit.state_changes.planted import elsewhere, leader_death


def test_a_record_has_the_whole_event() -> None:
    events = leader_death() + elsewhere()
    assert [from_value(value_of(event)) for event in events] == events


def test_the_key_is_the_partition_then_the_topic_then_the_service() -> None:
    event = leader_death()[0]
    keys = [
        key_of(event),
        key_of(event._replace(partition=-1)),
        key_of(event._replace(topic="", partition=-1)),
    ]
    assert keys == [b"sea/0", b"sea", b"broker-3"]


def test_the_topic_is_internal_and_has_no_events_about_itself() -> None:
    event = leader_death()[0]
    assert is_internal(STATE_CHANGES_TOPIC)
    assert is_published(event)
    assert not is_published(event._replace(topic=STATE_CHANGES_TOPIC))


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b"[" * 100_000, b"\xff"])
def test_a_foreign_record_is_not_an_event(value: bytes) -> None:
    with pytest.raises(NotAStateChangeError):
        from_value(value)


@pytest.mark.parametrize("half", [b"\\ud800", b"\xed\xa0\x80"])
def test_text_that_utf8_cannot_encode_is_not_an_event(half: bytes) -> None:
    value = value_of(leader_death()[0]._replace(service="broker-HALF"))
    with pytest.raises(NotAStateChangeError):
        from_value(value.replace(b"HALF", half))
