import doctest
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog import record_batch
from tidelog.batch import is_fence, new_batch, new_fence
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Batch, Codec
from tidelog.record_batch import check, decode, encode, encode_records, to_records
from tidelog.v1 import record_batch_pb2

LIMIT = 1 << 20
nullable_bytes = st.none() | st.binary(max_size=20)


def batch_of(message: record_batch_pb2.RecordBatch, **header: Any) -> Batch:
    """A batch that a foreign client might send: its CRC is correct, the rest is as given."""
    fields: dict[str, Any] = {
        "codec": Codec.NONE,
        "record_count": 2,
        "base_timestamp_ms": 1000,
        "max_timestamp_ms": 1000,
    }
    return new_batch(message.SerializeToString(), **(fields | header))


def two_records(**fields: Any) -> record_batch_pb2.RecordBatch:
    return record_batch_pb2.RecordBatch(
        **({"values": b"ebbflow", "value_lengths": [3, 4]} | fields)
    )


def rejection(batch: Batch, max_bytes: int = LIMIT) -> TidelogError:
    with pytest.raises(TidelogError) as caught:
        check(batch, max_decompressed_bytes=max_bytes)
    return caught.value


def test_the_examples_of_the_module_hold() -> None:
    assert doctest.testmod(record_batch).failed == 0


@settings(max_examples=60)
@given(
    rows=st.lists(
        st.tuples(nullable_bytes, nullable_bytes, st.integers(0, 1 << 41)), min_size=1, max_size=30
    ),
    codec=st.sampled_from(Codec),
)
def test_records_round_trip(
    rows: list[tuple[bytes | None, bytes | None, int]], codec: Codec
) -> None:
    keys, values, times = (list(column) for column in zip(*rows, strict=True))
    headers = {0: [("a", b"1"), ("a", b"2")], len(rows) - 1: [("b", b"3"), ("c", b"")]}
    batch = encode(values, keys, timestamps_ms=times, headers=headers, codec=codec)
    check(batch, max_decompressed_bytes=LIMIT)
    columns = decode(batch)
    assert (columns.keys, columns.values, columns.timestamps_ms) == (keys, values, times)
    assert {i: list(h) for i, h in columns.headers.items()} == headers


def test_a_minimal_batch_has_only_the_value_column() -> None:
    batch = encode([b"ebb", b"flow"], [None, None], timestamps_ms=[7, 7])
    message = record_batch_pb2.RecordBatch.FromString(batch.records)
    assert not message.key_lengths
    assert not message.timestamp_deltas_ms
    assert decode(batch).keys == [None, None]
    assert decode(batch).timestamps_ms == [7, 7]


def test_the_largest_timestamp_need_not_be_the_last() -> None:
    header = encode([b"a", b"b", b"c"], timestamps_ms=[5, 9, 3]).header
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (5, 9)


def test_a_sequence_can_be_set_after_the_records_are_encoded() -> None:
    batch = encode_records([b"a"], timestamps_ms=1).to_batch(7, 2, 40)
    check(batch, max_decompressed_bytes=LIMIT)
    assert batch.header[-3:] == (7, 2, 40)


def test_records_carry_offsets_headers_and_epoch() -> None:
    batch = encode([b"a", None], [None, b"k"], timestamps_ms=[4, 6], headers={1: [("h", b"v")]})
    header = batch.header._replace(base_offset=10, leader_epoch=3)
    first, second = to_records("sea", 2, header, decode(batch))
    assert first == ("sea", 2, 10, 4, None, b"a", (), 3)
    assert second == ("sea", 2, 11, 6, b"k", None, (("h", b"v"),), 3)


@pytest.mark.parametrize(
    ("values", "keys", "error"),
    [
        (["text"], None, "a value is str; it must be bytes"),
        ([b"a", 3], None, "a value is int"),
        ([b"a"], ["k"], "a key is str"),
    ],
)
def test_values_other_than_bytes_are_a_type_error(values: Any, keys: Any, error: str) -> None:
    with pytest.raises(TypeError, match=error):
        encode(values, keys, timestamps_ms=1)


@pytest.mark.parametrize(
    ("values", "keys", "times"), [([], None, 1), ([b"a"], [], 1), ([b"a"], None, [1, 2])]
)
def test_columns_of_different_lengths_are_a_value_error(values: Any, keys: Any, times: Any) -> None:
    with pytest.raises(ValueError, match=r"at least one|for each"):
        encode(values, keys, timestamps_ms=times)


@pytest.mark.parametrize(
    "change",
    [
        {"crc32c": 1},
        {"record_count": 3},
        {"max_timestamp_ms": 5},
        {"base_timestamp_ms": 5},
        {"producer_id": 5},
        {"base_sequence": 5},
    ],
)
def test_a_modified_header_is_corrupt(change: dict[str, int]) -> None:
    batch = encode([b"ebb", b"flow"], timestamps_ms=1)
    error = rejection(Batch(batch.header._replace(**change), batch.records))
    assert error.code is ErrorCode.CORRUPT_BATCH
    assert "send the batch again" in error.message


def test_a_flipped_bit_is_corrupt() -> None:
    batch = encode([b"ebb", b"flow"], timestamps_ms=1)
    flipped = bytes([batch.records[0] ^ 1]) + batch.records[1:]
    assert rejection(Batch(batch.header, flipped)).code is ErrorCode.CORRUPT_BATCH


@pytest.mark.parametrize(
    ("fields", "header", "message"),
    [
        ({}, {"codec": 9}, "codec 9 is not known"),
        ({}, {"record_count": 0}, "at least 1 record"),
        ({}, {"record_count": -1}, "at least 1 record"),
        ({}, {"record_count": 3}, "value_lengths has 2 entries but record_count is 3"),
        ({"value_lengths": [3, 3]}, {}, "add up to 6 but values holds 7 bytes"),
        ({"value_lengths": [9, -2]}, {}, "value_lengths has -2"),
        ({"key_lengths": [1]}, {}, "key_lengths has 1 entries but record_count is 2"),
        ({"keys": b"k"}, {}, "key_lengths is empty"),
        ({"keys": b"k", "key_lengths": [-1, -1]}, {}, "add up to 0 but keys holds 1 bytes"),
        ({"timestamp_deltas_ms": [0]}, {}, "timestamp_deltas_ms has 1 entries"),
        ({"timestamp_deltas_ms": [1, 0]}, {"max_timestamp_ms": 1001}, "first timestamp delta is 1"),
        ({"timestamp_deltas_ms": [0, 5]}, {}, "largest timestamp is 1005"),
        ({}, {"max_timestamp_ms": 1001}, "largest timestamp is 1000"),
        ({}, {"base_timestamp_ms": -1, "max_timestamp_ms": -1}, "at least 0"),
        ({"headers": [{"record_index": 2}]}, {}, "from 0 to 1"),
        ({"headers": [{"record_index": -1}]}, {}, "from 0 to 1"),
        ({"headers": [{"record_index": 1}, {"record_index": 0}]}, {}, "indexes ascend"),
    ],
)
def test_a_header_that_contradicts_its_records_is_rejected(
    fields: dict[str, Any], header: dict[str, Any], message: str
) -> None:
    error = rejection(batch_of(two_records(**fields), **header))
    assert error.code is ErrorCode.INVALID_BATCH
    assert message in error.message


def test_nulls_have_no_size() -> None:
    message = two_records(
        values=b"flow", value_lengths=[-1, 4], keys=b"", key_lengths=[0, -1], headers=[]
    )
    check(batch_of(message), max_decompressed_bytes=LIMIT)
    columns = decode(batch_of(message))
    assert columns.values == [None, b"flow"]
    assert columns.keys == [b"", None]


def test_bytes_other_than_a_record_batch_are_rejected() -> None:
    batch = new_batch(
        b"\xff\xff\xff", codec=Codec.NONE, record_count=1, base_timestamp_ms=1, max_timestamp_ms=1
    )
    assert "are no RecordBatch message" in rejection(batch).message
    with pytest.raises(TidelogError, match="are no RecordBatch message"):
        decode(batch)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_grows_beyond_the_limit_is_rejected(codec: Codec) -> None:
    batch = encode([bytes(LIMIT)], timestamps_ms=1, codec=codec)
    assert rejection(batch).code is ErrorCode.INVALID_BATCH


def test_a_fence_is_a_valid_batch_of_one_record_without_key_and_value() -> None:
    fence = new_fence(1 << 62, 3, now_ms=5)
    check(fence, max_decompressed_bytes=LIMIT)
    columns = decode(fence)
    assert (columns.keys, columns.values, columns.timestamps_ms) == ([None], [None], [5])
    assert is_fence(fence.header)


def test_no_ordinary_batch_is_a_fence() -> None:
    records = encode_records([b"v"], timestamps_ms=1)
    assert not is_fence(records.to_batch().header)
    assert not is_fence(records.to_batch(7, 0, 0).header)


def test_a_record_from_before_1970_is_rejected_on_append_and_readable() -> None:
    batch = encode([b"a", b"b"], timestamps_ms=[5, 0])
    check(batch)
    earlier = encode([b"a", b"b"], timestamps_ms=[5, -1])
    assert (
        "a record has timestamp -1; timestamps are milliseconds since 1970"
        in rejection(earlier).message
    )
    assert decode(earlier).timestamps_ms == [5, -1]
