"""A local Spark for the tests of a session."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from tidelog.spark import register

# Java is tuned for a process that lives for minutes with a small heap. It reads the variable
# itself, also where a test starts other Spark processes.
JAVA_OPTIONS_VARIABLE = "JDK_JAVA_OPTIONS"
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def _workers_python(libraries: str, directory: Path) -> Path:
    """Python with the installed PySpark.

    Spark puts an archive with the same modules in front of it, which Python compiles each time a
    worker starts: 1.5 s of processor time instead of 0.5. Spark waits only 10 s for the worker of a
    stream, however busy the machine is."""
    script = directory / "python"
    python = shlex.quote(sys.executable)
    script.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(libraries)} exec {python} "$@"\n')
    script.chmod(0o755)
    return script


@contextmanager
def local_spark(master: str, libraries: str, warehouse: Path) -> Iterator[SparkSession]:
    """`libraries`: where the Python of workers finds modules that are not installed. The data
    source is registered."""
    assert shutil.which("java"), "Spark needs Java 17: apt-get install openjdk-17-jre-headless"
    os.environ["PYSPARK_PYTHON"] = str(_workers_python(libraries, warehouse))
    os.environ.setdefault(JAVA_OPTIONS_VARIABLE, JAVA_OPTIONS)
    # Otherwise it takes an address of any network of the machine, which may disappear.
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = (
        SparkSession.builder.master(master)
        .appName("tidelog-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        # A busy machine may take long to start Python in a worker.
        .config("spark.python.authenticate.socketTimeout", "600s")
        # After a pause of two minutes Spark would end its own process.
        .config("spark.network.timeout", "1800s")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .config("spark.executorEnv.PYTHONPATH", libraries)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    yield session
    session.stop()
