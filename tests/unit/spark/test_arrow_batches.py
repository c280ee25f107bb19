"""Arrow batches have the records' content, wherever both ends are cut."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from tidelog.batch import stamp
from tidelog.client.fetched_batch import FetchedBatch
from tidelog.errors import InvalidBatchError
from tidelog.model import Codec, TopicPartition
from tidelog.record_batch import encode
from tidelog.spark import arrow_batches
from tidelog.spark.arrow_batches import BATCH_BYTES, HEADER_OBJECTS_BYTES, ArrowBatches
from tidelog.spark.columns import COLUMNS, chosen_columns, schema_of

SEA = TopicPartition("sea", 3)
SCHEMA = to_arrow_schema(schema_of(COLUMNS), timezone="UTC")
CONTENTS = st.one_of(st.none(), st.binary(max_size=6))
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=3)), min_size=1, max_size=2)
RECORD = st.tuples(CONTENTS, CONTENTS, st.integers(0, 2**40), st.one_of(st.just([]), HEADERS))
FAR_END = 2**62

Record = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes]]]


def fetched(records: list[Record], base_offset: int, codec: Codec, skip: int = 0) -> FetchedBatch:
    keys, values, times, headers = zip(*records, strict=True)
    batch = encode(
        values,
        keys,
        timestamps_ms=times,
        headers={index: tuple(h) for index, h in enumerate(headers) if h},
        codec=codec,
    )
    stamped = stamp(batch, base_offset=base_offset, leader_epoch=5, append_time_ms=1)
    return FetchedBatch(SEA, stamped, skip)


def fill(arrow: ArrowBatches, batch: FetchedBatch, end: int) -> None:
    for _ in arrow.add(batch, end):
        pass


def rows_of(batch: pa.RecordBatch | None) -> list[dict[str, object]]:
    return [] if batch is None else batch.to_pylist()


@settings(deadline=None)
@given(
    st.lists(st.lists(RECORD, min_size=1, max_size=8), min_size=1, max_size=4),
    st.sampled_from(Codec),
    st.integers(0, 7),
    st.integers(0, 40),
)
def test_every_record_is_returned_as_it_was_written(
    batches: list[list[Record]], codec: Codec, skip: int, end: int
) -> None:
    arrow = ArrowBatches(SCHEMA, SEA)
    skip = min(skip, len(batches[0]) - 1)
    offset = 0
    expected = []
    for records in batches:
        fill(arrow, fetched(records, offset, codec, skip if not offset else 0), end)
        for key, value, time_ms, headers in records:
            if skip <= offset < end:
                expected.append(
                    {
                        "key": key,
                        "value": value,
                        "topic": "sea",
                        "partition": 3,
                        "offset": offset,
                        "leader_epoch": 5,
                        "timestamp": datetime.fromtimestamp(0, UTC)
                        + timedelta(milliseconds=time_ms),
                        "headers": [{"key": k, "value": v} for k, v in headers] or None,
                    }
                )
            offset += 1
    taken = arrow.take()
    assert rows_of(taken) == expected
    if taken is not None:
        taken.validate(full=True)
        assert taken.schema == SCHEMA


def test_a_time_out_of_range_for_spark_is_null() -> None:
    last_ms = (2**63 - 1) // 1000
    times_ms = [5, last_ms, last_ms + 1, 2**62 - 1]
    arrow = ArrowBatches(SCHEMA, SEA)
    for offset, time_ms in enumerate(times_ms):
        fill(arrow, fetched([(None, b"x", time_ms, [])], offset, Codec.NONE), FAR_END)
    taken = arrow.take()
    assert taken is not None
    micros = taken.column("timestamp").cast(pa.int64()).to_pylist()
    assert micros == [5_000, last_ms * 1000, None, None]


def test_only_requested_columns_are_built() -> None:
    schema = to_arrow_schema(schema_of(chosen_columns(["offset", "value"])), timezone="UTC")
    arrow = ArrowBatches(schema, SEA)
    fill(arrow, fetched([(None, b"x", 1, [])], 9, Codec.NONE), FAR_END)
    assert rows_of(arrow.take()) == [{"offset": 9, "value": b"x"}]


def test_the_buffered_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_batches, "BATCH_BYTES", 10)
    arrow = ArrowBatches(SCHEMA, SEA)
    fill(arrow, fetched([(b"key", b"value", 1, [])], 0, Codec.NONE), FAR_END)
    assert not arrow.is_full
    fill(arrow, fetched([(b"key", b"value", 1, [])], 1, Codec.NONE), FAR_END)
    assert arrow.is_full
    arrow.take()
    assert not arrow.is_full
    assert arrow.take() is None


def test_buffered_headers_count_with_the_size_of_their_objects() -> None:
    bare, rich = ArrowBatches(SCHEMA, SEA), ArrowBatches(SCHEMA, SEA)
    enough = BATCH_BYTES // HEADER_OBJECTS_BYTES
    fill(bare, fetched([(None, None, 1, [])] * enough, 0, Codec.NONE), FAR_END)
    assert not bare.is_full
    fill(rich, fetched([(None, None, 1, [("k", b"")])] * enough, 0, Codec.NONE), FAR_END)
    assert rich.is_full


def test_unrequested_headers_cost_nothing() -> None:
    schema = to_arrow_schema(schema_of(chosen_columns(["offset"])), timezone="UTC")
    batch = fetched([(None, None, 1, [("k", b"v")])] * 5_000, 0, Codec.NONE)
    peaks = []
    for columns in (SCHEMA, schema):
        arrow = ArrowBatches(columns, SEA)
        tracemalloc.start()
        fill(arrow, batch, FAR_END)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    with_them, without = peaks
    assert without < with_them / 3


def test_an_unreadable_batch_is_named() -> None:
    wrong = encode([b"v"], timestamps_ms=1)._replace(records=b"\xff" * 9)
    stamped = stamp(wrong, base_offset=7, leader_epoch=5, append_time_ms=1)
    with pytest.raises(InvalidBatchError) as caught:
        fill(ArrowBatches(SCHEMA, SEA), FetchedBatch(SEA, stamped, 0), FAR_END)
    message = str(caught.value)
    assert message.startswith("the batch at offset 7 of sea/3 cannot be opened: ")
    assert message.endswith("; what follows it begins at offset 8")
