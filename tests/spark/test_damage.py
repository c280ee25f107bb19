"""The only replica of a topic has damaged records: a batch and a stream name their offsets, or read
all others."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from spark.running import Running
from spark.test_stream_reading import positions, run

BATCHES, RECORDS = 3, 10
# Of partition 0: the first batch, and so on.
READABLE = [
    (partition, offset)
    for partition in range(BATCHES)
    for offset in range(BATCHES * RECORDS)
    if offset // RECORDS != partition
]
HINT = "to continue behind them, set the option onDamage to skip"


def test_damaged_records_end_a_query_with_their_offsets_or_are_left_out(
    spark: SparkSession, cluster: Running, tmp_path: Path
) -> None:
    topic = f"hurt-{next(cluster.names)}"
    cluster.create(topic, BATCHES, replicas=1)
    for partition in range(BATCHES):
        for _ in range(BATCHES):
            cluster.fill(topic, partition, [b"x" * 100] * RECORDS)
        assert cluster.flip_a_bit(topic, partition, batch=partition) == partition * RECORDS

    # Spark tries each failing task four times: one of them is enough.
    first = (BATCHES - 1) * RECORDS
    message = f"{topic}/{BATCHES - 1} at offsets {first} to {first + RECORDS - 1} were damaged"
    with pytest.raises(PySparkException, match=message) as failed:
        cluster.read(spark, topic).where(f"partition = {BATCHES - 1}").collect()
    assert HINT in str(failed.value)
    rows = cluster.read(spark, topic, onDamage="skip").select("partition", "offset").collect()
    assert sorted(map(tuple, rows)) == READABLE

    # Records read before the failure are not read again.
    limit = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
    with pytest.raises(StreamingQueryException, match="were damaged on the last disk") as ended:
        run(cluster.stream(spark, topic, **limit), tmp_path)
    assert HINT in str(ended.value)
    run(cluster.stream(spark, topic, **limit, onDamage="skip"), tmp_path)
    assert positions(spark, tmp_path) == READABLE
