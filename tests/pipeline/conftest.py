"""A real cluster and a real local Spark, which all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import longest_first
from pipeline.archives import Act
from spark.running import Running, running
from spark.session import local_spark
from tidelog_pipeline.archive import archive_job
from tidelog_pipeline.job_runner import EXIT_FAULT

ROOT = Path(__file__).parents[2]
LONG = ("test_archive_kills.py", "test_readme.py")
LIBRARIES = os.pathsep.join(str(ROOT / folder) for folder in ("libs", "services/pipeline"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="what starts Spark many times, too")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Spark starts at least four times: too slow for every change."""
    is_long = collection_path.name in LONG
    return True if is_long and not config.getoption("--long", default=False) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first job of a session starts Python in Spark's workers, which is slow on a busy machine.

    The hook sees the items of all suites when several run at once."""
    longest_first.order(items)
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with local_spark("local[2]", LIBRARIES, tmp_path_factory.mktemp("warehouse")) as session:
        yield session


@pytest.fixture
def act(
    spark: SparkSession,  # noqa: ARG001 - the session that the job finds
    cluster: Running,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Act:
    """Runs the job; returns its output, or raises the problem that it reports."""

    def act(action: str, *flags: str, fails: int = 0) -> list[str]:
        brokers = [] if action in ("compact", "expire") else ["--bootstrap", cluster.bootstrap]
        capsys.readouterr()
        status = archive_job.main([action, "--output", str(tmp_path / "archive"), *brokers, *flags])
        output = capsys.readouterr()
        assert status == fails, output.err or output.out
        return (output.err if fails == EXIT_FAULT else output.out).splitlines()

    return act
