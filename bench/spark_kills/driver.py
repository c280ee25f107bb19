"""`python -m bench.spark_kills.driver FILE`: the driver of a streaming copy from topic to topic to
Parquet, which ends once everything is copied. FILE has a `DriverSettings` as JSON."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.spark_kills.held_source import HOLDS, NAME, HeldDataSource
from tidelog.spark import register
from tidelog.spark.data_source import register_source

# A Spark process that does not answer for a while is not dead. The death of a killed process is
# detected without this timeout.
PATIENCE = "1800s"


@dataclass(frozen=True)
class DriverSettings:
    """The settings of a driver. `directory`: of checkpoints, the table and the `Holds`."""

    bootstrap: str
    source: str
    target: str
    directory: str
    master: str
    max_offsets_per_trigger: int
    rows_per_arrow_batch: int
    by_key: bool

    @property
    def table(self) -> Path:
        return Path(self.directory) / "table"

    def checkpoint(self, query: str) -> Path:
        return Path(self.directory) / f"checkpoint-{query}"


def home(directory: Path) -> Path:
    """Returns a directory with links to the installed Spark. Executors of a local cluster start in
    it, and store their work files there."""
    directory.mkdir(exist_ok=True)
    for path in Path(pyspark.__file__).parent.iterdir():
        link = directory / path.name
        if path.name != "work" and not link.exists():
            link.symlink_to(path)
    return directory


def session(settings: DriverSettings) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_HOME"] = str(home(Path(settings.directory) / "home"))
    spark = (
        SparkSession.builder.master(settings.master)
        .appName("tidelog-kills")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", f"{settings.directory}/local")
        .config("spark.sql.warehouse.dir", f"{settings.directory}/warehouse")
        .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
        # Executors may be killed any number of times.
        .config("spark.deploy.maxExecutorRetries", "-1")
        .config("spark.python.authenticate.socketTimeout", PATIENCE)
        .config("spark.network.timeout", PATIENCE)
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", str(settings.rows_per_arrow_batch))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("WARN")
    register(spark)
    register_source(spark, HeldDataSource)
    return spark


def read(spark: SparkSession, settings: DriverSettings, topic: str) -> DataFrame:
    return (
        spark.readStream.format("tidelog")
        .option("bootstrap.servers", settings.bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(settings.max_offsets_per_trigger))
        .load()
    )


def copy(spark: SparkSession, settings: DriverSettings) -> StreamingQuery:
    """Starts the copy. Each record keeps its partition, so that the copy has the same order.

    With `by_key`, keys choose the partitions, and each task writes to all of them.
    """
    columns = ("key", "value") if settings.by_key else ("key", "value", "partition")
    return (
        read(spark, settings, settings.source)
        .select(*columns)
        .writeStream.format(NAME)
        .queryName("copy")
        .option("bootstrap.servers", settings.bootstrap)
        .option("topic", settings.target)
        .option(HOLDS, settings.directory)
        .option("checkpointLocation", str(settings.checkpoint("copy")))
        .trigger(availableNow=True)
        .start()
    )


def table(spark: SparkSession, settings: DriverSettings) -> StreamingQuery:
    return (
        read(spark, settings, settings.target)
        .select("key", "value", "partition", "offset")
        .writeStream.format("parquet")
        .queryName("table")
        .option("path", str(settings.table))
        .option("checkpointLocation", str(settings.checkpoint("table")))
        .trigger(processingTime="0 seconds")
        .start()
    )


def main(path: str) -> None:
    settings = DriverSettings(**json.loads(Path(path).read_text()))
    spark = session(settings)
    copying, tabling = copy(spark, settings), table(spark, settings)
    copying.awaitTermination()
    tabling.processAllAvailable()
    tabling.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
