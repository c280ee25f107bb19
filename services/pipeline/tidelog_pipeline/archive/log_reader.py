"""Reads ranges of logs as rows of the data source."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from tidelog.spark.options import BOOTSTRAP
from tidelog_pipeline.archive.core.ranges import assigned, by_partition
from tidelog_pipeline.archive.core.spans import LogId, Span
from tidelog_pipeline.archive.rows import is_dated


def loss_options(on_data_loss: str) -> dict[str, str]:
    """`on_data_loss`: "fail" or "continue"."""
    fails = on_data_loss == "fail"
    return {
        "failOnDataLoss": str(fails).lower(),
        "onDamage": "fail" if fails else "skip",
    }


def read_ranges_of_logs(
    spark: SparkSession, bootstrap: str, ranges: Mapping[LogId, Span], **options: str
) -> DataFrame:
    """`options`: further options of the data source."""
    return (
        spark.read.format("tidelog")
        .options(
            **{
                BOOTSTRAP: bootstrap,
                "assign": assigned(ranges),
                "startingOffsets": by_partition({log: s.first for log, s in ranges.items()}),
                "endingOffsets": by_partition({log: s.end for log, s in ranges.items()}),
                **options,
            }
        )
        .load()
    )


def without_expired(frame: DataFrame, before_ms: int) -> DataFrame:
    """Returns the rows that no `expire` concerns. `frame`: of the log, or of files."""
    return frame.where(~_is_expired(before_ms)) if before_ms else frame


def _is_expired(before_ms: int) -> Column:
    """Rows without a date belong to no hour."""
    before = sf.timestamp_millis(sf.lit(before_ms))
    is_before = is_dated() & (sf.col("timestamp") < before)
    return sf.coalesce(is_before, sf.lit(False))
