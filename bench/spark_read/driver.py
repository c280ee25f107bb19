"""`python -m bench.spark_read.driver FILE`: a Spark driver that does one task, and ends.

FILE has an `Order` as JSON. The result is written to the order's `result`, as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.spark_read.records import FILLER, KEY_BYTES, Totals, offsets_option
from bench.spark_read.workers import PeakMemory, Spent
from tidelog.spark import register
from tidelog_pipeline.session import spark_session

# This part of a range is read before the measurement.
WARM_SHARE = 10
PATIENCE = "1800s"


class Task(StrEnum):
    BATCH = "batch"
    # Reads the existing records by a stream that ends then.
    STREAM = "stream"
    # Fills the topic of Kafka.
    FILL = "fill"


@dataclass(frozen=True)
class Order:
    """The task of a driver.

    - `options`: of the source or the sink, without the range.
    - `ends`: by partition, the offset before which reading ends; for a stream, the end of the
      topic.
    - `warm`: a tenth is read before the measurement.
    - `watched`: processes by part, whose processor time is measured.
    """

    task: Task
    source: str
    topic: str
    options: Mapping[str, str]
    ends: Sequence[int]
    value_bytes: int
    warm: bool
    cores: int
    jars: Sequence[str]
    watched: Mapping[str, Sequence[int]]
    directory: str
    result: str


@dataclass(frozen=True)
class Answer:
    """The result of a driver.

    - `worker_peak_mb`: resident memory of the largest Python worker; 0: there was none.
    - `processor_seconds`: by part, during the measurement.
    """

    totals: Totals
    seconds: float
    worker_peak_mb: float
    processor_seconds: Mapping[str, float]


def totals_of(rows: DataFrame) -> Totals:
    """Reads key and value of every row; the rows do not leave the tasks."""
    found = rows.agg(
        f.count("*"),
        f.coalesce(f.sum(f.length("key")), f.lit(0)),
        f.coalesce(f.sum(f.length("value")), f.lit(0)),
    ).first()
    assert found is not None, "an aggregate without groups has one row"
    return Totals(*found)


def read_batch(spark: SparkSession, order: Order, ends: Sequence[int]) -> Totals:
    return totals_of(
        spark.read.format(order.source)
        .options(**order.options)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", offsets_option(order.topic, ends))
        .load()
    )


def read_stream(spark: SparkSession, order: Order, starts: Sequence[int], name: str) -> Totals:
    found: list[Totals] = []

    def take(rows: DataFrame, _: int) -> None:
        found.append(totals_of(rows))

    query = (
        spark.readStream.format(order.source)
        .options(**order.options)
        .option("startingOffsets", offsets_option(order.topic, starts))
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", f"{order.directory}/{name}")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return Totals(*map(sum, zip(*found, strict=True)))


def fill(spark: SparkSession, order: Order) -> Totals:
    """Fills the topic of Kafka; each task writes one partition."""
    count = sum(order.ends)
    number = f.col("id").cast("string")
    (
        spark.range(0, count, 1, len(order.ends))
        .select(
            f.lpad(number, KEY_BYTES, "0").cast("binary").alias("key"),
            f.rpad(number, order.value_bytes, FILLER).cast("binary").alias("value"),
            f.spark_partition_id().alias("partition"),
        )
        .write.format(order.source)
        .options(**order.options)
        .save()
    )
    return Totals(count, 0, 0)


def carry_out(spark: SparkSession, order: Order) -> Answer:
    tenth = [end // WARM_SHARE for end in order.ends]
    nothing = [0] * len(order.ends)
    all_but_a_tenth = [end - part for end, part in zip(order.ends, tenth, strict=True)]
    if order.warm and order.task is Task.BATCH:
        read_batch(spark, order, tenth)
    elif order.warm and order.task is Task.STREAM:
        read_stream(spark, order, all_but_a_tenth, "warming")
    with PeakMemory() as peak:
        spent = Spent(order.watched)
        began = time.perf_counter()
        match order.task:
            case Task.BATCH:
                totals = read_batch(spark, order, order.ends)
            case Task.STREAM:
                totals = read_stream(spark, order, nothing, "reading")
            case Task.FILL:
                totals = fill(spark, order)
        seconds = time.perf_counter() - began
        by_part = spent.seconds()
    return Answer(totals, seconds, peak.mb, by_part)


def main(path: str) -> None:
    given = json.loads(Path(path).read_text())
    order = Order(**{**given, "task": Task(given["task"])})
    conf = {
        "spark.jars": ",".join(order.jars),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        # A busy machine may pause for a while, and be slow to start Python.
        "spark.network.timeout": PATIENCE,
        "spark.python.authenticate.socketTimeout": PATIENCE,
        "spark.local.dir": f"{order.directory}/local",
        "spark.sql.warehouse.dir": f"{order.directory}/warehouse",
    }
    with spark_session("bench-spark-read", f"local[{order.cores}]", conf) as spark:
        register(spark)
        answer = carry_out(spark, order)
    document = {
        "totals": answer.totals,
        "seconds": answer.seconds,
        "worker_peak_mb": answer.worker_peak_mb,
        "processor_seconds": answer.processor_seconds,
    }
    Path(order.result).write_text(json.dumps(document))


if __name__ == "__main__":
    main(sys.argv[1])
