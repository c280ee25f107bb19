"""A real cluster and a real local Spark, which all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import longest_first
from integration.clusters import running_cluster
from spark.running import Running, running
from spark.session import local_spark
from tidelog_runtime.local.cluster import LocalCluster

ROOT = Path(__file__).parents[2]
# The functions of a test run in workers as well, which import its module.
LIBRARIES = os.pathsep.join(str(ROOT / name) for name in ("libs", "tests"))

# `Running.cut` loses records that are not on the disk, however old they are.
NEVER_SYNCED = {"flush_interval_ms": 3_600_000, "checkpoint_interval_ms": 3_600_000}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first job of a session starts Python in Spark's workers, which is slow on a busy machine.

    The hook sees the items of all suites when several run at once."""
    longest_first.order(items)
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Three brokers; a test that kills one starts it again."""

    def start(directory: Path) -> AbstractAsyncContextManager[LocalCluster]:
        return running_cluster(directory, broker_config=NEVER_SYNCED)

    with running(tmp_path_factory.mktemp("cluster"), start) as started:
        yield started


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    # The second number: a task may fail this often before its job does.
    with local_spark("local[2,4]", LIBRARIES, tmp_path_factory.mktemp("warehouse")) as session:
        yield session
