"""What a search finds in a record."""

from __future__ import annotations

import doctest
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.model import Record
from tidelog_admin_api import known_names, record_criteria
from tidelog_admin_api.record_criteria import (
    MAX_EXAMINED_BYTES,
    MAX_EXAMINED_ENTRIES,
    MAX_PATH_STEPS,
    Criteria,
    Verdict,
    WrongPathError,
    parse_path,
)
from tidelog_runtime.cooperative import finished

ORDER = {"id": 7, "open": True, "note": None, "items": [{"name": "buoy"}, {"net.price": 1.5}]}


def record(value: bytes | None = b"calm", **fields: Any) -> Record:
    made = Record("sea", 0, 0, 1_000, b"buoy-7", value, (("source", b"gps"), ("raw", b"\xff")), 3)
    return made._replace(**fields)


def examine(criteria: Criteria, value: bytes | None) -> Verdict:
    return finished(criteria.examining(record(value)))


def matches(criteria: Criteria, value: bytes | None = b"calm", **fields: Any) -> bool:
    return finished(criteria.examining(record(value, **fields))) is Verdict.MATCH


@pytest.mark.parametrize("module", [record_criteria, known_names])
def test_the_examples_of_the_module_hold(module: Any) -> None:
    assert doctest.testmod(module).failed == 0


def test_without_criteria_each_record_matches() -> None:
    assert matches(Criteria())
    assert matches(Criteria(), None, key=None)


@pytest.mark.parametrize(
    ("criteria", "is_match"),
    [
        (Criteria(key=b"buoy-7"), True),
        (Criteria(key=b"buoy"), False),
        (Criteria(key_has=b"uoy"), True),
        (Criteria(key_has=b"Buoy"), False),
        (Criteria(value_has=b"al"), True),
        (Criteria(value_has=b"AL"), False),
        (Criteria(header="source"), True),
        (Criteria(header="origin"), False),
        (Criteria(header="source", header_value=b"gps"), True),
        (Criteria(header="source", header_value=b"gp"), False),
        # Another header has this value.
        (Criteria(header="raw", header_value=b"gps"), False),
        (Criteria(key=b"buoy-7", value_has=b"storm"), False),
        (Criteria(key=b"buoy-7", value_has=b"calm", header="source"), True),
    ],
)
def test_a_record_matches_all_criteria(criteria: Criteria, is_match: bool) -> None:
    assert matches(criteria) is is_match


@pytest.mark.parametrize(
    "criteria", [Criteria(key=b""), Criteria(key_has=b"a"), Criteria(value_has=b"")]
)
def test_a_record_without_key_and_value_matches_no_text(criteria: Criteria) -> None:
    assert not matches(criteria, None, key=None)


@pytest.mark.parametrize(
    ("path", "equals", "is_match"),
    [
        ("id", None, True),
        ("note", None, True),
        ("missing", None, False),
        ("id", "7", True),
        ("id", "7.0", True),
        ("id", "8", False),
        ("open", "true", True),
        ("open", "1", False),
        ("note", "null", True),
        ("items[0].name", "buoy", True),
        ("items[0].name", '"buoy"', True),
        ('items[1]["net.price"]', "1.5", True),
        ("items[2]", None, False),
        ("items.name", None, False),
        ("id.deeper", None, False),
        ("items", "[]", False),
        ("$.items[0]", None, True),
        ("$id", None, False),
    ],
)
def test_an_element_of_a_json_value_is_compared(
    path: str, equals: str | None, is_match: bool
) -> None:
    criteria = Criteria(path=parse_path(path), equals=equals)
    assert matches(criteria, json.dumps(ORDER).encode()) is is_match


@pytest.mark.parametrize("value", [b"calm", b"\xff", b"", b"[" * 15_000, b"9" * 5_000])
def test_a_value_that_is_not_json_has_no_element(value: bytes) -> None:
    assert examine(Criteria(path=("id",)), value) is Verdict.NO_MATCH


def test_a_text_that_resembles_a_number_equals_that_text() -> None:
    assert matches(Criteria(path=("id",), equals="7"), b'{"id": "7"}')


@pytest.mark.parametrize(
    "value", [bytes(MAX_EXAMINED_BYTES + 1), b"[" + b"1," * MAX_EXAMINED_ENTRIES + b"1]"]
)
def test_a_value_that_is_expensive_to_examine_is_counted_instead(value: bytes) -> None:
    assert examine(Criteria(path=(0,)), value) is Verdict.NOT_EXAMINED


def test_a_large_value_is_not_examined_if_the_key_differs() -> None:
    large = bytes(MAX_EXAMINED_BYTES + 1)
    assert examine(Criteria(key=b"other", value_has=b"a"), large) is Verdict.NO_MATCH


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "0 steps"),
        ("$", "0 steps"),
        ("a..b", "character 1"),
        ("a.", "character 1"),
        ("a[-1]", "character 1"),
        ("a[b]", "character 1"),
        ('["a"', "character 0"),
        ('["\\x"]', "not a JSON string"),
        (".".join("a" * (MAX_PATH_STEPS + 1)), "21 steps"),
    ],
)
def test_a_wrong_path_is_rejected_with_the_place(text: str, message: str) -> None:
    with pytest.raises(WrongPathError, match=message):
        parse_path(text)


@given(st.lists(st.text(min_size=1) | st.integers(0, 999), min_size=1, max_size=9))
def test_any_names_and_indexes_can_be_written_as_a_path(steps: list[str | int]) -> None:
    written = "".join(f"[{json.dumps(step)}]" for step in steps)
    assert parse_path(written) == tuple(steps)


@given(st.text(max_size=200))
def test_any_text_is_a_path_or_rejected(text: str) -> None:
    with suppress(WrongPathError):
        assert parse_path(text)
