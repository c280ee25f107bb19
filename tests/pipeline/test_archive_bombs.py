"""A topic has batches that no reader can open."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.archives import Act, positions
from spark.running import Running
from spark.test_batches_beyond_limits import TIME_MS, ZEROS, segment_of, three_records
from tidelog.compression import compress
from tidelog.model import Codec
from tidelog.record_batch import encode
from tidelog_pipeline.job_runner import EXIT_FAULT, EXIT_FOUND

CONTINUE = ("--on-data-loss", "continue")


def test_records_of_a_batch_that_cannot_be_opened_are_listed_and_left_out(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    topic = f"bomb-{next(cluster.names)}"
    cluster.create(topic, 1, replicas=1)
    cluster.fill(topic, 0, [b"x"])
    sound = encode([b"y"] * 10, timestamps_ms=TIME_MS)
    bomb = three_records(compress(Codec.ZSTD, ZEROS))
    cluster.rewrite(topic, 0, segment_of(sound, bomb, sound))
    output = "\n".join(act("run", "--topics", topic, fails=EXIT_FAULT))
    assert f"the batch at offset 10 of {topic}/0 cannot be opened" in output
    assert "set --on-data-loss to continue" in output
    act("run", "--topics", topic, *CONTINUE)
    assert positions(spark, tmp_path) == [(0, n) for n in (*range(10), *range(13, 23))]
    # They are not reported as lost: the log has them, even if no reader can open them.
    [line] = act("reconcile", *CONTINUE, fails=EXIT_FOUND)
    assert "offsets 10 to 12 have records and were never archived" in line
    assert line.endswith("offsets 10 to 12 were damaged before they were archived")
