"""Offsets in Spark's checkpoint."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.errors import TidelogError
from tidelog.spark.stream_offsets import (
    ReadTo,
    Split,
    TopicOffsets,
    begins,
    from_value,
    split_of,
    to_value,
    with_begins,
)

NUMBERS = st.integers(min_value=0, max_value=2**62)
PLACES = st.dictionaries(
    st.integers(0, 2**31 - 1),
    st.builds(ReadTo, NUMBERS, st.integers(-1, 2**31 - 1)),
    max_size=4,
)
TOPICS = st.builds(TopicOffsets, st.text(), NUMBERS, PLACES, begun=PLACES)


@settings(deadline=None)
@given(st.dictionaries(st.text(), TOPICS, max_size=3))
def test_stream_offsets_round_trip(offsets: dict[str, TopicOffsets]) -> None:
    assert from_value(json.loads(json.dumps(to_value(offsets)))) == offsets


def test_the_split_of_a_batch_is_written_too() -> None:
    assert split_of(to_value({}, Split(3, None))) == Split(3, None)
    assert split_of(to_value({})) is None


def test_the_start_of_a_batch_is_written_where_it_differs_from_the_previous_end() -> None:
    def sea(topic_id: str, **offsets: int) -> dict[str, TopicOffsets]:
        positions = {int(name[1:]): ReadTo(offset) for name, offset in offsets.items()}
        return {"sea": TopicOffsets(topic_id, 1, positions)}

    start, end = sea("a", p0=5, p1=5), sea("a", p0=9, p1=5, p2=9, p3=0)
    positions = sea("a", p0=7, p1=5, p2=2, p3=0)
    planned = with_begins(end, start, positions)
    assert planned["sea"].begun == {0: ReadTo(7), 2: ReadTo(2)}
    assert begins(start, planned) == positions
    other = with_begins(sea("b", p0=9), start, sea("b", p0=0))
    assert other["sea"].begun == {0: ReadTo(0)}
    assert begins(start, other) == sea("b", p0=0)
    assert with_begins(sea("a", p0=9, p1=5, p2=9, p3=0), planned, end) is planned


def test_equal_offsets_have_equal_texts() -> None:
    one = {"b": TopicOffsets("i", 1, {2: ReadTo(1), 10: ReadTo(2)}), "a": TopicOffsets("j", 2, {})}
    other = {"a": one["a"], "b": TopicOffsets("i", 1, {10: ReadTo(2), 2: ReadTo(1)})}
    assert json.dumps(to_value(one)) == json.dumps(to_value(other))


def test_the_format_is_that_of_existing_checkpoints() -> None:
    """A changed format needs another version, because checkpoints outlive the program."""
    assert to_value({"sea": TopicOffsets("id", 7, {0: ReadTo(3, 2)}, 9)}) == {
        "version": 1,
        "topics": {
            "sea": {
                "id": "id",
                "revision": 7,
                "as_of": 9,
                "partitions": {"0": {"offset": 3, "epoch": 2}},
            }
        },
    }


@pytest.mark.parametrize(
    "value",
    [None, {}, {"version": 2, "topics": {}}, {"version": 1}, {"version": 1, "topics": {"sea": {}}}],
)
def test_offsets_of_another_version_are_rejected(value: object) -> None:
    with pytest.raises(TidelogError, match="begin with a new checkpointLocation"):
        from_value(value)
