"""A log holds intact batches beyond the limits of a reader: decompression bombs.

Brokers reject them, but an older release or a damaged backup may have left them there."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from spark.running import Running
from spark.test_damage import HINT
from spark.test_stream_reading import positions, run
from tidelog.batch import new_batch, stamp
from tidelog.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, compress
from tidelog.log_format import encode_frame_header
from tidelog.model import Batch, Codec
from tidelog.record_batch import encode

TIME_MS = 1_700_000_000_000
ZEROS = bytes(DEFAULT_MAX_DECOMPRESSED_BYTES + 1)


def unstated() -> bytes:
    """A frame that does not state its decompressed size."""
    compressor = zstandard.ZstdCompressor().compressobj()
    return compressor.compress(ZEROS) + compressor.flush()


def three_records(packed: bytes) -> Batch:
    return new_batch(
        packed,
        codec=Codec.ZSTD,
        record_count=3,
        base_timestamp_ms=TIME_MS,
        max_timestamp_ms=TIME_MS,
    )


def segment_of(*batches: Batch) -> bytes:
    content, offset = b"", 0
    for batch in batches:
        placed = stamp(batch, base_offset=offset, leader_epoch=0, append_time_ms=TIME_MS)
        content += encode_frame_header(placed) + placed.records
        offset = placed.header.next_offset
    return content


def test_decompression_bombs_end_a_query_or_are_left_out(
    spark: SparkSession, cluster: Running, tmp_path: Path
) -> None:
    topic = f"bomb-{next(cluster.names)}"
    cluster.create(topic, 1, replicas=1)
    cluster.fill(topic, 0, [b"x"])
    sound = encode([b"y"] * 10, timestamps_ms=TIME_MS)
    bombs = three_records(compress(Codec.ZSTD, ZEROS)), three_records(unstated())
    cluster.rewrite(topic, 0, segment_of(sound, *bombs, sound))
    readable = [(0, offset) for offset in (*range(10), *range(16, 26))]

    message = f"the batch at offset 10 of {topic}/0 cannot be opened"
    with pytest.raises(PySparkException, match=message) as failed:
        cluster.read(spark, topic).collect()
    assert HINT in str(failed.value)
    rows = cluster.read(spark, topic, onDamage="skip").select("partition", "offset").collect()
    assert sorted(map(tuple, rows)) == readable

    earliest = {"startingOffsets": "earliest"}
    with pytest.raises(StreamingQueryException, match=message) as ended:
        run(cluster.stream(spark, topic, **earliest), tmp_path)
    assert HINT in str(ended.value)
    run(cluster.stream(spark, topic, **earliest, onDamage="skip"), tmp_path)
    assert positions(spark, tmp_path) == readable
