"""Limits on batches. Each limit is checked before the work that it bounds, and a batch from
before the limits can still be read, slice by slice."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog import batch_layout, batch_slices, record_batch
from tidelog.batch import new_batch
from tidelog.batch_slices import (
    SLICE_BYTES,
    CostlyBatchError,
    decode_slices,
    is_costly_to_open,
)
from tidelog.client.fetched_batch import OPEN_SLICE_RECORDS, FetchedBatch, OpenedBatch
from tidelog.client.open_batches import MAX_BATCH_RECORDS
from tidelog.client.record_columns import RecordColumns, checked_headers
from tidelog.compression import compress
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Batch, Codec, TopicPartition
from tidelog.record_batch import check, decode, decode_timestamps, encode, to_columns
from tidelog.record_limits import (
    LOWEST_MAX_BATCH_RECORDS,
    MAX_READ_HEADERS_PER_RECORD,
    RecordLimits,
)
from tidelog.wire_fields import encode_varint

SEA = TopicPartition("sea", 0)
VALUE_LENGTHS, HEADERS = b"\x22", b"\x32"
FEW = RecordLimits(
    max_batch_records=4,
    max_headers_per_record=2,
    max_batch_headers=3,
    max_header_name_bytes=5,
    max_key_bytes=6,
)


def field(tag: bytes, content: bytes) -> bytes:
    return tag + encode_varint(len(content)) + content


def sent(plain: bytes, record_count: int, codec: Codec = Codec.NONE) -> Batch:
    """A batch that a foreign client might send."""
    return new_batch(
        compress(codec, plain),
        codec=codec,
        record_count=record_count,
        base_timestamp_ms=1,
        max_timestamp_ms=1,
    )


def rejection(batch: Batch, limits: RecordLimits = FEW) -> str:
    with pytest.raises(TidelogError) as caught:
        check(batch, limits=limits)
    assert caught.value.code is ErrorCode.INVALID_BATCH
    return caught.value.message


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (encode([b"v"] * 5, timestamps_ms=1), r"has 5 records; it has at most 4 \(max_batch_rec"),
        (
            encode([b"v"], timestamps_ms=1, headers={0: [("h", b"")] * 3}),
            r"a record has 3 headers; it has at most 2, a fixed limit",
        ),
        (
            encode([b"v"] * 4, timestamps_ms=1, headers={i: [("h", b"")] for i in range(4)}),
            r"more than 3 headers, a fixed limit",
        ),
        (
            encode([b"v"], timestamps_ms=1, headers={0: [("größe", b"")]}),
            r"the name of a header has 7 bytes; it has at most 5, a fixed limit",
        ),
        (
            encode([b"v"], [b"seven b"], timestamps_ms=1),
            r"a key has 7 bytes; a key has at most 6, a fixed limit",
        ),
    ],
)
def test_a_batch_beyond_a_limit_is_rejected_with_the_name_of_the_limit(
    batch: Batch, message: str
) -> None:
    check(batch)
    with pytest.raises(TidelogError, match=message):
        check(batch, limits=FEW)


def test_a_batch_at_its_limits_is_accepted() -> None:
    headers = {0: [("12345", b""), ("h", b"")], 3: [("h", b"")]}
    check(encode([b"v"] * 4, [b"6 byte"] * 4, timestamps_ms=1, headers=headers), limits=FEW)


def test_too_many_records_are_rejected_before_anything_is_decompressed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_: Any, **__: Any) -> bytes:
        raise AssertionError("it was decompressed")

    monkeypatch.setattr(record_batch, "decompress", never)
    batch = sent(field(VALUE_LENGTHS, bytes(5)), 5, Codec.ZSTD)
    assert "has 5 records" in rejection(batch)


@pytest.mark.parametrize("small_bytes", [0, 1 << 20])
def test_impossible_lengths_are_rejected_before_a_list_is_built(
    monkeypatch: pytest.MonkeyPatch, small_bytes: int
) -> None:
    monkeypatch.setattr(record_batch, "_SMALL_BYTES", small_bytes)
    batch = sent(field(VALUE_LENGTHS, bytes(100)), 2, Codec.ZSTD)
    assert "value_lengths" in rejection(batch)


def test_the_layout_of_a_large_message_is_checked_before_it_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("it was parsed")

    monkeypatch.setattr(record_batch, "_SMALL_BYTES", 0)
    monkeypatch.setattr(batch_layout, "parse", never)
    lengths = sent(field(VALUE_LENGTHS, bytes(100)), 2)
    headers = sent(field(VALUE_LENGTHS, bytes(1)) + field(HEADERS, b"") * 4, 1)
    unknown = sent(field(VALUE_LENGTHS, bytes(1)) + field(HEADERS, b"\x20\x01" * 600), 1)
    fields = sent((VALUE_LENGTHS + b"\x01\x00") * (batch_layout.MAX_COLUMN_FIELDS + 1), 4)
    assert "value_lengths takes 100 bytes but record_count is 2" in rejection(lengths)
    assert "more than 3 headers" in rejection(headers)
    assert "a header holds more than 16 fields" in rejection(unknown)
    assert "more than 10000 fields" in rejection(fields)


@pytest.mark.parametrize("plain", [b"\x22", b"\x22\x05ab", b"\x23", b"\x20\xff\xff", b"\x32\x05"])
def test_a_truncated_large_message_is_not_a_record_batch(
    monkeypatch: pytest.MonkeyPatch, plain: bytes
) -> None:
    monkeypatch.setattr(record_batch, "_SMALL_BYTES", 0)
    assert "are no RecordBatch message" in rejection(sent(plain, 1))


ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=9),
        st.none() | st.binary(max_size=9),
        st.integers(0, 1 << 40),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60)
@given(rows=ROWS, codec=st.sampled_from(Codec), size=st.integers(1, 41), small=st.booleans())
def test_slices_have_the_records_of_the_batch(
    rows: list[tuple[bytes | None, bytes | None, int]], codec: Codec, size: int, small: bool
) -> None:
    keys, values, times = (list(column) for column in zip(*rows, strict=True))
    headers = {i: [("h", b"%d" % i)] * (i % 3) for i in range(0, len(rows), 2)}
    batch = encode(values, keys, timestamps_ms=times, headers=headers, codec=codec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_batch, "_SMALL_BYTES", 1 << 20 if small else 0)
        whole = decode(batch)
        assert list(decode_timestamps(batch)) == times
        pieces = [
            (first, to_columns(joined, batch.header.base_timestamp_ms))
            for first, joined in decode_slices(batch, max_records=size)
        ]
    assert (whole.keys, whole.values, whole.timestamps_ms) == (keys, values, times)
    assert [key for _, piece in pieces for key in piece.keys] == keys
    assert [value for _, piece in pieces for value in piece.values] == values
    assert [time for _, piece in pieces for time in piece.timestamps_ms] == times
    found = {first + i: list(h) for first, piece in pieces for i, h in piece.headers.items()}
    assert found == {i: h for i, h in headers.items() if h}
    assert all(len(piece.values) <= size for _, piece in pieces)


def test_a_batch_of_a_million_empty_records_is_opened_in_slices() -> None:
    count = 1_000_001
    batch = sent(field(VALUE_LENGTHS, bytes(count)), count, Codec.ZSTD)
    fetched = FetchedBatch(SEA, batch, 999_998)
    with pytest.raises(TidelogError, match="open it with record_slices"):
        fetched.records()
    assert [record.offset for record in OpenedBatch(fetched).take(9)] == [999_998, 999_999, 10**6]
    times = decode_timestamps(batch)
    assert (len(times), times[-1]) == (count, 1)


def test_opening_a_batch_creates_few_records_at_once() -> None:
    batch = encode([b"v"] * 20_000, timestamps_ms=1)
    opened = OpenedBatch(FetchedBatch(SEA, batch, 0))
    taken = []
    while records := opened.take(20_000):
        assert len(records) <= OPEN_SLICE_RECORDS
        taken += records
    assert [record.offset for record in taken] == list(range(20_000))


def headers_of_each(record_count: int, headers: int) -> Batch:
    of_record = [(f"h{n}", b"") for n in range(headers)]
    return encode(
        [b"%d" % n for n in range(record_count)],
        timestamps_ms=1,
        headers=dict.fromkeys(range(record_count), of_record),
        codec=Codec.ZSTD,
    )


@pytest.mark.parametrize(("record_count", "headers"), [(150, 1_000), (3_000, 20), (6, 20_000)])
def test_a_slice_has_few_headers_or_a_single_record(record_count: int, headers: int) -> None:
    batch = headers_of_each(record_count, headers)
    slices = list(FetchedBatch(SEA, batch, 0).record_slices(OPEN_SLICE_RECORDS))
    for records in slices:
        assert len(records) == 1 or len(records) * headers <= OPEN_SLICE_RECORDS // 2
    assert [r for records in slices for r in records] == FetchedBatch(SEA, batch, 0).records()


def test_a_slice_has_few_bytes_or_a_single_record() -> None:
    sizes = [0] * (OPEN_SLICE_RECORDS + 1) + [SLICE_BYTES // 3] * 7 + [SLICE_BYTES + 1, 1]
    batch = encode([bytes(size) for size in sizes], timestamps_ms=1, codec=Codec.ZSTD)
    fetched = FetchedBatch(SEA, batch, 0)
    slices = [
        [len(record.value or b"") for record in records]
        for records in fetched.record_slices(OPEN_SLICE_RECORDS)
    ]
    assert [size for of_slice in slices for size in of_slice] == sizes
    assert all(len(of_slice) == 1 or sum(of_slice) <= SLICE_BYTES for of_slice in slices)
    # No smaller than they have to be.
    assert len(slices) == 6


def test_a_batch_of_many_headers_is_not_opened_where_only_cheap_ones_are_allowed() -> None:
    with pytest.raises(CostlyBatchError):
        OpenedBatch(FetchedBatch(SEA, headers_of_each(5, 1_000), 0), cheap_only=True)
    opened = OpenedBatch(FetchedBatch(SEA, headers_of_each(4, 1_000), 0), cheap_only=True)
    assert len(opened.take(9)) == 4


@pytest.mark.parametrize("record_count", [1, 2, OPEN_SLICE_RECORDS + 1])
def test_readers_create_at_most_the_allowed_headers_of_a_record(record_count: int) -> None:
    """The batch takes a few kilobytes on the disk and is older than the limits of producers."""
    lengths = field(VALUE_LENGTHS, bytes(record_count))
    empty = field(HEADERS, b"")
    batch = sent(lengths + empty * (MAX_READ_HEADERS_PER_RECORD + 1), record_count, Codec.ZSTD)
    with pytest.raises(TidelogError, match="record 0 of the batch has more than 100000 headers"):
        OpenedBatch(FetchedBatch(SEA, batch, 0))
    held = sent(lengths + empty * MAX_READ_HEADERS_PER_RECORD, record_count, Codec.ZSTD)
    [record] = OpenedBatch(FetchedBatch(SEA, held, 0)).take(1)
    assert len(record.headers) == MAX_READ_HEADERS_PER_RECORD


def test_readers_stop_at_the_header_limit_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = headers_of_each(110, 1_000)
    monkeypatch.setattr(record_batch, "MAX_READ_HEADERS_AT_ONCE", 109_999)
    with pytest.raises(TidelogError, match="more than 109999 headers: record_slices opens"):
        decode(batch)
    assert len(list(FetchedBatch(SEA, batch, 0).record_slices())) > 0
    monkeypatch.setattr(batch_slices, "MAX_READ_HEADERS", 109_999)
    with pytest.raises(TidelogError, match="more than 109999 headers"):
        list(decode_slices(batch))


def test_the_cost_of_opening_a_batch_is_known_beforehand() -> None:
    assert not is_costly_to_open(encode([b"v" * 1000] * 64, timestamps_ms=1))
    assert not is_costly_to_open(encode([b"v" * 100] * 64, timestamps_ms=1, codec=Codec.ZSTD))
    assert is_costly_to_open(encode([b""] * 5_000, timestamps_ms=1))
    assert is_costly_to_open(encode([bytes(300_000)], timestamps_ms=1))
    for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD):
        assert is_costly_to_open(encode([bytes(300_000)], timestamps_ms=1, codec=codec))
        assert is_costly_to_open(sent(b"", 1)._replace(records=b"no frame")) is False


def operations(batch: Batch) -> int:
    """The number of Python instructions that opening it takes."""
    counted = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal counted
        frame.f_trace_opcodes = True
        counted += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        decode(batch)
    finally:
        sys.settrace(before)
    return counted


@pytest.mark.parametrize("small_bytes", [0, 1 << 20])
def test_the_cost_of_opening_a_batch_is_linear_in_its_headers(
    monkeypatch: pytest.MonkeyPatch, small_bytes: int
) -> None:
    monkeypatch.setattr(record_batch, "_SMALL_BYTES", small_bytes)
    few, many = (
        operations(encode([b"v"], timestamps_ms=1, headers={0: [("", b"")] * count}))
        for count in (100, 400)
    )
    assert many / few < 4.2


def test_producers_apply_the_limits_of_brokers_before_sending() -> None:
    with pytest.raises(TidelogError, match=r"1001 headers; .* a fixed limit"):
        checked_headers([("", b"")] * 1_001)
    with pytest.raises(TidelogError, match=r"the name of a header .* a fixed limit"):
        checked_headers([("n" * 1_025, b"")])
    with pytest.raises(TidelogError, match=r"a key has .* a fixed limit"):
        next(RecordColumns([b"v"], [bytes(65_537)], 1).check_in_slices())
    assert MAX_BATCH_RECORDS <= LOWEST_MAX_BATCH_RECORDS
