"""The session of a job: on this machine, or on any master."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

# What a query that failed raises: PySpark has classes for some errors of Java only, and for none of
# a file that cannot be read.
QUERY_ERRORS = (PySparkException, Py4JError)

_USUAL = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def spark_session(
    name: str, master: str | None = None, conf: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """`master`: None for what Spark's own configuration says, or else all cores of this machine.
    One that is there already is used, without `conf`, and left running."""
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    # Workers run what the driver runs, not whatever python3 is first in their path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    builder = builder.master(master or SparkConf().get("spark.master") or "local[*]")
    for key, value in {**_USUAL, **(conf or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()
