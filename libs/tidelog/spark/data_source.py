"""The data source `tidelog` of Spark."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from tidelog.errors import ErrorCode, TidelogError
from tidelog.spark.batch_reader import BatchReader
from tidelog.spark.cluster_lookups import require_topic
from tidelog.spark.columns import check_written, schema_of
from tidelog.spark.option_values import OptionError
from tidelog.spark.options import ReadOptions, WriteOptions
from tidelog.spark.stream_reader import StreamReader
from tidelog.spark.writer import BatchWriter, StreamWriter

NAME = "tidelog"
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_ADAPTIVE = "spark.sql.adaptive.streaming.stateless.enabled"
_SETTINGS = {_PUSHDOWN: "true", _ADAPTIVE: "false"}
_HARMFUL = {
    _ADAPTIVE: "a micro-batch that is repeated after a shuffle may have other tasks, which write "
    "records again",
    "spark.speculation": "two concurrent attempts of a task make each other fail",
}
# In Spark 4.2 a starting query puts these into a map of variables that all queries of its format
# share (PythonStreamingSourceRunner). If the map grows while tasks of another query are serialized
# with it, they become unreadable (OptionalDataException). A map that has all keys does not grow.
_PUT_BY_QUERIES = {
    "SPARK_LOCAL_DIRS": "",
    "SPARK_AUTH_SOCKET_TIMEOUT": "",
    "SPARK_BUFFER_SIZE": "",
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
}
_log = logging.getLogger(__name__)


class TidelogDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return schema_of(ReadOptions.of_either(self.options).columns)

    def reader(self, schema: StructType) -> BatchReader:
        options = ReadOptions.of_batch(self.options)
        _check_schema(schema, options)
        return BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        options = ReadOptions.of_stream(self.options)
        _check_schema(schema, options)
        return StreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        options = _write_options(self.options, schema, overwrite)
        if options.topic is not None:
            require_topic(options.bootstrap, options.topic)
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        options = _write_options(self.options, schema, overwrite)
        if options.topic is not None:
            _require_unless_unreachable(options.bootstrap, options.topic)
        return StreamWriter(options)


def register(spark: SparkSession) -> None:
    """Registers the format `tidelog` in a session.

    Unless they are set already, it changes two settings, so that Spark pushes filters down to
    Python sources, and a repeated micro-batch keeps its plan. Logs a warning for each setting that
    breaks exactly-once writes of a stream.
    """
    register_source(spark, TidelogDataSource)
    decided = spark.conf.getAll
    for name, value in _SETTINGS.items():
        if name not in decided:
            spark.conf.set(name, value)
    for name, harm in _HARMFUL.items():
        if decided.get(name) == "true":
            _log.warning("%s is true: in a stream that writes to tidelog %s", name, harm)


def register_source(spark: SparkSession, source: type[TidelogDataSource]) -> None:
    """Registers the source as Spark does, but safely for several queries that start at once."""
    if is_remote():
        spark.dataSource.register(source)
        return
    environment = spark.sparkContext.environment
    added = {name: value for name, value in _PUT_BY_QUERIES.items() if name not in environment}
    environment.update(added)
    try:
        spark.dataSource.register(source)
    finally:
        for name in added:
            del environment[name]


def _write_options(given: Mapping[str, str], schema: StructType, overwrite: bool) -> WriteOptions:
    options = WriteOptions.of(given)
    if overwrite:
        raise OptionError(
            'a log is never overwritten: write with mode("append"), or outputMode("append")'
        )
    check_written(schema, options.topic)
    return options


def _require_unless_unreachable(bootstrap: str, topic: str) -> None:
    """Raises `TidelogError` if the topic does not exist.

    An unreachable cluster is no error: each micro-batch requires the topic again, and the cluster
    may answer by then.
    """
    try:
        require_topic(bootstrap, topic)
    except TidelogError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise


def _check_schema(schema: StructType, options: ReadOptions) -> None:
    expected = schema_of(options.columns)
    if schema != expected:
        raise OptionError(
            f"the schema {schema.simpleString()} is not that of tidelog's rows, which is "
            f"{expected.simpleString()}: omit .schema(...), choose columns with the option "
            "columns, and parse values with functions such as from_json"
        )
