"""The Spark session of a job, on this machine or on any master."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

# Errors of a failed query. PySpark has classes for some Java errors only, and none for a file that
# cannot be read.
QUERY_ERRORS = (PySparkException, Py4JError)

# Spark reads a path with these characters as a pattern.
_OF_PATTERNS = re.compile(r"[\\{}\[\]*?]")

_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}


@contextmanager
def spark_session(
    name: str, master: str | None = None, conf: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Yields a session.

    An existing one is used as it is, without `conf`, and is not stopped.

    - `master`: None: the master of Spark's own configuration, or else all cores of this
      machine.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    # Workers run the same Python as the driver, not the first python3 in their path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    builder = builder.master(master or SparkConf().get("spark.master") or "local[*]")
    for key, value in {**_DEFAULTS, **(conf or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def to_read(path: Path | str) -> str:
    """Returns the text by which Spark reads exactly this path. It writes to any path as it is."""
    return _OF_PATTERNS.sub(r"\\\g<0>", str(path))
