"""Rolls up samples of lag by minute, hour and day, in Spark.

Each level is computed from the samples, because percentiles cannot be computed from
percentiles.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from tidelog_pipeline.lag.samples import REPLICA, SAMPLE_SCHEMA

LEVELS = ("minute", "hour", "day")
PERCENTILES = (50, 90, 99)
_MEASURES = ("lag_records", "lag_ms")
# A broker that does not answer has no lag; its samples are only counted.
_SOURCE = ("kind", "who")


def samples_of(records: DataFrame) -> DataFrame:
    """Parses samples from the topic's values. A record that is not a sample has no kind."""
    parsed = sf.from_json(sf.col("value").cast("string"), SAMPLE_SCHEMA)
    return records.select(parsed.alias("parsed")).select("parsed.*")


def partition_lag(samples: DataFrame, level: str) -> DataFrame:
    """Returns a row for each window, follower or query, and partition.

    Percentiles are exact.
    """
    return (
        samples.where(sf.col("kind").isNotNull())
        .groupBy(_window(level), *_SOURCE, "topic", "partition")
        .agg(sf.count("*").alias("samples"), *_measures(), _in_sync_share())
        .withColumn("date", sf.date_format("at", "yyyy-MM-dd"))
    )


def worst_followers(samples: DataFrame, level: str) -> DataFrame:
    """Returns a row for each window and follower, over all partitions that it follows.

    The broker with the highest lag in time has rank 1.
    """
    order = [sf.desc_nulls_last("lag_ms_p99"), sf.desc_nulls_last("lag_records_max"), sf.asc("who")]
    worst = sf.max_by(
        sf.struct("topic", "partition"),
        sf.struct(sf.coalesce("lag_ms", sf.lit(-1)), sf.coalesce("lag_records", sf.lit(-1))),
    )
    return (
        samples.where(sf.col("kind") == REPLICA)
        .groupBy(_window(level), "who")
        .agg(
            sf.count("*").alias("samples"),
            sf.count_distinct("topic", "partition").alias("partitions"),
            *_measures(),
            _in_sync_share(),
            worst.alias("worst"),
        )
        .withColumn("rank", sf.row_number().over(Window.partitionBy("at").orderBy(*order)))
        .withColumn("date", sf.date_format("at", "yyyy-MM-dd"))
    )


def _window(level: str) -> Column:
    return sf.date_trunc(level, sf.timestamp_millis("at_ms")).alias("at")


def _measures() -> list[Column]:
    found = []
    for measure in _MEASURES:
        shares = sf.array(*(sf.lit(percent / 100) for percent in PERCENTILES))
        ranks = sf.percentile(measure, shares)
        found += [sf.max(measure).alias(f"{measure}_max"), sf.avg(measure).alias(f"{measure}_avg")]
        found += [ranks[n].alias(f"{measure}_p{p}") for n, p in enumerate(PERCENTILES)]
    return [*found, sf.max("lag_bytes").alias("lag_bytes_max")]


def _in_sync_share() -> Column:
    return sf.avg(sf.col("in_sync").cast("double")).alias("in_sync_share")
