"""A topic with more partitions on each broker than one request may name is archived and
repaired."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from pipeline.archives import Act, fill, log_of, positions
from spark.running import Running
from spark.wide_topic import FILLED, PARTITIONS, wide_topic


def test_a_wide_topic_is_archived_reconciled_repaired_and_expired(
    spark: SparkSession, cluster: Running, tmp_path: Path, act: Act
) -> None:
    with wide_topic(cluster) as wide:
        for partition in FILLED:
            fill(cluster, wide, partition, [b"x"])
        act("run", "--topics", wide, "--no-compaction")
        for partition in FILLED:
            fill(cluster, wide, partition, [b"x"], hour=1)
        # It looks for records that are left out in the spans of all partitions.
        act("run", "--topics", wide, "--no-compaction", "--on-data-loss", "continue")
        everything = [(partition, offset) for partition in FILLED for offset in (0, 1)]
        assert positions(spark, tmp_path) == everything
        (tmp_path / "archive" / log_of(tmp_path).load().paths[-1]).unlink()
        assert "rows are restored from the topic" in "\n".join(act("repair"))
        assert positions(spark, tmp_path) == everything
        compared = act("reconcile", "--deep")
        assert len(compared) == PARTITIONS
        assert f"{wide}/{FILLED[-1]}: 2 records in the log and in the archive" in compared
        act("expire", "--before", "2023-11-14T23:00")
        assert positions(spark, tmp_path) == [(partition, 1) for partition in FILLED]
        expired = f"{wide}/{FILLED[-1]}: 1 records in the log and in the archive, 1 were expired"
        assert expired in act("reconcile")
