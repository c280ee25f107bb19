from __future__ import annotations

import json

import pytest

from tidelog.state_changes.event import Cause, Detail, Kind, Stage, StateChange
from tidelog.state_changes.json_form import (
    NotAStateChangeError,
    format_time,
    from_object,
    parse_time,
    to_object,
)

CHANGE = StateChange(
    1_700_000_000_123,
    "broker-2",
    Kind.ISR_SHRINK,
    Stage.COMPLETED,
    Cause.LAG_TIME,
    "b2-7-1",
    "sea",
    "id",
    0,
    controller_epoch=3,
    leader_epoch=4,
    revision=99,
    duration_ms=0,
    details={"isr": [2], "left": [1, 3]},
)


def test_a_state_change_round_trips() -> None:
    assert from_object(json.loads(json.dumps(to_object(CHANGE)))) == CHANGE


def test_partition_0_and_duration_0_are_included() -> None:
    document = to_object(CHANGE)
    assert document["partition"] == 0
    assert document["duration_ms"] == 0


def test_inapplicable_fields_are_omitted() -> None:
    document = to_object(StateChange(0, "broker-1", Kind.STORE_LOST, Stage.COMPLETED))
    assert list(document) == ["time", "service", "kind", "stage"]


def test_times_are_in_utc_with_milliseconds() -> None:
    assert format_time(1_700_000_000_007) == "2023-11-14T22:13:20.007Z"
    assert parse_time("2023-11-14T22:13:20.007Z") == 1_700_000_000_007


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"time": "yesterday"},
        {**to_object(CHANGE), "kind": "dance"},
        {**to_object(CHANGE), "stage": "soon"},
    ],
    ids=["nothing", "no time", "no such kind", "no such stage"],
)
def test_an_invalid_state_change_is_reported(broken: dict[str, object]) -> None:
    with pytest.raises(NotAStateChangeError):
        from_object(broken)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("details", None),
        ("details", {"isr": [1, "2"]}),
        ("details", {"lag": 1.5}),
        ("details", {"isr": {}}),
        ("revision", "x"),
        ("revision", None),
        ("partition", 1.0),
        ("broker", True),
        ("topic", 7),
        ("cause", None),
        ("cause", []),
        ("kind", []),
        ("service", None),
        ("time", 1_700_000_000_123),
        ("time", "0001-01-01T00:00:00"),
    ],
)
def test_a_value_of_another_type_is_invalid(name: str, wrong: object) -> None:
    with pytest.raises(NotAStateChangeError):
        from_object({**to_object(CHANGE), name: wrong})


@pytest.mark.parametrize("details", [{}, {"a": [], "b": True, "c": -1, "d": "", "e": ["x"]}])
def test_every_kind_of_detail_round_trips(details: dict[str, Detail]) -> None:
    change = CHANGE._replace(details=details)
    assert from_object(json.loads(json.dumps(to_object(change)))) == change
