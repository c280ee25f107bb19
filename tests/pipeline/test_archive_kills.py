"""`archive run` on a local Spark cluster whose driver and executors are killed: `make
spark-kills`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from bench.spark_kills.driver import PATIENCE, home
from bench.spark_kills.processes import DriverProcess, executor_above, kill
from pipeline.held_archive import POLL_S, HeldSettings, Holds, Point
from spark.running import Running
from tidelog_pipeline.archive import archive_job

MASTER = "local-cluster[2,1,1024]"
ROOT = Path(__file__).parents[2]
PYTHONPATH = os.pathsep.join(
    str(ROOT / folder) for folder in ("libs", "services/pipeline", "tests", ".")
)
PARTITIONS, RECORDS, RECORDS_PER_COMMIT = 2, 1_500, 300
# The time until a point is reached on a busy machine, and the rest of a run: far more than usual.
REACH_S = 900.0


class Archive:
    def __init__(self, directory: Path, bootstrap: str, topic: str) -> None:
        self.output = directory / "archive"
        self.state = directory / "archive.state"
        self.holds = Holds(directory)
        self._directory = directory
        conf = {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.local.dir": directory / "local",
            "spark.sql.warehouse.dir": directory / "warehouse",
            "spark.executorEnv.PYTHONPATH": PYTHONPATH,
            "spark.deploy.maxExecutorRetries": -1,
            "spark.python.authenticate.socketTimeout": PATIENCE,
            "spark.network.timeout": PATIENCE,
            # Several for each task.
            "spark.sql.execution.arrow.maxRecordsPerBatch": 40,
        }
        flags = {
            "--topics": topic,
            "--output": self.output,
            "--bootstrap": bootstrap,
            "--max-offsets": RECORDS_PER_COMMIT,
            "--spark-master": MASTER,
            "--spark-conf": ",".join(f"{name}={value}" for name, value in conf.items()),
        }
        argv = ["run", *(str(part) for pair in flags.items() for part in pair)]
        self._settings = directory / "held.json"
        self._settings.write_text(json.dumps(asdict(HeldSettings(str(directory), argv))))

    @contextmanager
    def driver(self) -> Iterator[DriverProcess]:
        environment = {
            **os.environ,
            "PYTHONPATH": PYTHONPATH,
            "SPARK_HOME": str(home(self._directory / "home")),
        }
        driver = DriverProcess(
            self._settings,
            self._directory / "driver.log",
            environment,
            "pipeline.held_archive",
        )
        try:
            yield driver
        finally:
            driver.end_all()

    def reach(self, point: Point, driver: DriverProcess) -> int:
        """The process that waits at the point."""
        self.holds.arm(point)
        deadline = time.monotonic() + REACH_S
        while (pid := self.holds.held()) is None:
            driver.check()
            assert time.monotonic() < deadline, f"no process came to {point} for {REACH_S:.0f} s"
            time.sleep(POLL_S)
        return pid

    def staged(self) -> list[Path]:
        return list((self.state / "staging").rglob("*.parquet"))

    def commits(self) -> int:
        return len(list((self.state / "log").glob("[0-9]*.json")))

    def positions(self) -> list[tuple[int, int, bytes]]:
        """The offsets as a reader finds them that knows only Parquet."""
        files = [str(path) for path in self.output.rglob("*.parquet")]
        table = ds.dataset(files, partitioning="hive").to_table(
            columns=["partition", "offset", "value"]
        )
        return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def value(partition: int, number: int) -> bytes:
    return b"%d-%d" % (partition, number)


def all_of(partitions: int, records: int) -> list[tuple[int, int, bytes]]:
    return [(p, n, value(p, n)) for p in range(partitions) for n in range(records)]


@pytest.mark.rule("archive-commit-is-one-file")
@pytest.mark.timeout(3_600)
def test_an_archive_is_exact_after_kills_of_any_process_at_any_point(
    spark: SparkSession,  # noqa: ARG001 - the session in which it is reconciled
    cluster: Running,
    tmp_path: Path,
) -> None:
    topic = cluster.new_topic(partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        cluster.fill(topic, partition, [value(partition, n) for n in range(RECORDS)])
    archive = Archive(tmp_path, cluster.bootstrap, topic)
    commits = []
    for point in Point:
        with archive.driver() as driver:
            archive.reach(point, driver)
            commits.append(archive.commits())
            if point is Point.HALF_PUBLISHED:
                assert archive.staged()
            driver.kill()
        archive.holds.release()
    # The fourth run was killed while it finished the commit of the third.
    assert commits == [0, 0, 1, 1, 2]
    with archive.driver() as driver:
        kill(executor_above(archive.reach(Point.WRITING, driver)))
        archive.holds.release()
        deadline = time.monotonic() + REACH_S
        while not driver.has_ended():
            assert time.monotonic() < deadline, f"it did not end in {REACH_S:.0f} s"
            time.sleep(POLL_S)
        assert driver.status == 0, (tmp_path / "driver.log").read_text()[-4_000:]
    assert archive.commits() >= PARTITIONS * RECORDS // RECORDS_PER_COMMIT
    assert archive.positions() == all_of(PARTITIONS, RECORDS)
    flags = ["--output", str(archive.output), "--bootstrap", cluster.bootstrap]
    assert archive_job.main(["reconcile", *flags]) == 0
