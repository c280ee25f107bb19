"""JSON encoding of keys and values in both directions."""

from __future__ import annotations

import doctest
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.model import Record
from tidelog_admin_api import entry_counter, event_messages, record_encoding
from tidelog_admin_api.bodies.record_bodies import (
    MAX_PAGE_ENTRIES,
    ProduceRequest,
    read_records,
    records_to_send,
)
from tidelog_admin_api.record_encoding import (
    MAX_DEPTH,
    Encoding,
    WrongEncodingError,
    from_bytes,
    to_bytes,
)
from tidelog_runtime.cooperative import TimeSlices

JSON_VALUES = st.recursive(
    st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner | st.none()) | st.dictionaries(st.text(), inner | st.none()),
    max_leaves=10,
)


@pytest.mark.parametrize("module", [entry_counter, record_encoding, event_messages])
def test_the_examples_of_the_module_hold(module: Any) -> None:
    assert doctest.testmod(module).failed == 0


@given(JSON_VALUES)
def test_a_json_value_round_trips(value: Any) -> None:
    assert from_bytes(to_bytes(value, Encoding.JSON), Encoding.JSON) == (value, Encoding.JSON)


@given(st.binary(), st.sampled_from(list(Encoding)))
def test_any_bytes_round_trip_with_the_returned_encoding(data: bytes, requested: Encoding) -> None:
    value, encoding = from_bytes(data, requested)
    again = to_bytes(value, encoding)
    # The JSON may have been written with other whitespace.
    assert again == data or (
        encoding is Encoding.JSON and from_bytes(again, Encoding.JSON).value == value
    )


@pytest.mark.parametrize("encoding", list(Encoding))
def test_null_means_no_value(encoding: Encoding) -> None:
    assert to_bytes(None, encoding) is None
    assert from_bytes(None, encoding).value is None


@pytest.mark.parametrize(
    "data",
    [
        *(b"null", b"NaN", b"-Infinity", b'"\\ud800"', b"[" * 100_000, b"1e999", b"ebb"),
        *(b'[{"a": 1e999}]', b"[" + b"9" * 400 + b"]", b"9" * 5_000),
    ],
)
def test_values_that_json_cannot_carry_are_returned_as_text(data: bytes) -> None:
    assert from_bytes(data, Encoding.JSON) == (data.decode(), Encoding.TEXT)


@pytest.mark.parametrize(
    ("value", "encoding"),
    [
        (float("nan"), Encoding.JSON),
        ({"tide": "\ud800"}, Encoding.JSON),
        ([10**400], Encoding.JSON),
        ([10**400, [float("inf")]], Encoding.JSON),
        (7, Encoding.TEXT),
        ("\ud800", Encoding.TEXT),
        ("no base64!", Encoding.BASE64),
        ("YWI", Encoding.BASE64),
        ("ünï", Encoding.BASE64),
        ([1], Encoding.BASE64),
    ],
)
def test_a_value_that_does_not_fit_its_encoding_is_rejected(
    value: object, encoding: Encoding
) -> None:
    with pytest.raises(WrongEncodingError):
        to_bytes(value, encoding)


@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}"), ('[[],{"a":', "}]")])
def test_nesting_up_to_the_limit_round_trips_and_deeper_values_are_text(
    opened: str, closed: str
) -> None:
    levels = opened.count("[", 0, 1) + opened.count("{")
    most = MAX_DEPTH // levels
    deepest = opened * most + "1" + closed * most
    read = from_bytes(deepest.encode(), Encoding.JSON)
    assert read.encoding is Encoding.JSON
    assert to_bytes(read.value, Encoding.JSON) == deepest.encode()
    deeper = f"[{deepest}]"
    assert from_bytes(deeper.encode(), Encoding.JSON) == (deeper, Encoding.TEXT)
    with pytest.raises(WrongEncodingError, match="nested more than 100 deep"):
        to_bytes([read.value], Encoding.JSON)


async def test_every_invalid_value_is_reported_with_its_position() -> None:
    request = ProduceRequest.model_validate(
        {
            "records": [
                {"value": "calm", "key": 7},
                {"value": "calm"},
                {"value": 1, "value_encoding": "text", "headers": [{"key": "h", "value": "v"}]},
                {"headers": [{"key": "h", "value": "!", "value_encoding": "base64"}]},
            ]
        }
    )
    sound, wrong = records_to_send(request)
    assert sound == []
    assert [one.field for one in wrong] == [
        "records[0].key",
        "records[2].value",
        "records[3].headers[0].value",
    ]


async def test_the_encoding_of_a_record_overrides_that_of_the_request() -> None:
    request = ProduceRequest.model_validate(
        {"encoding": "text", "records": [{"value": "7"}, {"value": 7, "value_encoding": "json"}]}
    )
    sound, _ = records_to_send(request)
    assert [record.value for record in sound] == [b"7", b"7"]


async def test_read_records_can_be_produced_again() -> None:
    record = Record(
        "sea", 0, 17, 1_000, b"\xff", b'{"tide":"ebb"}', (("a", b"b"), ("a", b"\xff")), 3
    )
    (read,) = await read_records([record], Encoding.JSON, TimeSlices())
    again = read.model_dump(exclude={"topic", "offset"})
    sound, wrong = records_to_send(ProduceRequest.model_validate({"records": [again]}))
    assert wrong == []
    assert sound[0] == (record.value, record.key, 0, record.headers, 1_000)


async def test_values_beyond_the_json_limit_of_a_page_are_text() -> None:
    value = b"[" + b"[]," * (MAX_PAGE_ENTRIES // 4) + b"0]"
    records = [Record("sea", 0, n, 1_000, None, value, (), 3) for n in range(3)]
    read = await read_records(records, Encoding.JSON, TimeSlices())
    assert [each.value_encoding for each in read] == ["json", "text", "text"]
    assert read[2].value == value.decode()
