"""`make bench-spark-check` (`python -m bench.spark_check`): the duration and memory of the job
`check` on a history of 100 million operations with planted anomalies of every kind. `--quick`
(`make bench-spark-check QUICK=1`) uses one million operations.

Spark generates the history first, in files. The bounds of workers and of the JVM's heap are far
below the memory that the check on one machine needs for such a history. Exit status 1: a bound is
missed, or the anomalies that were found differ from the planted ones."""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from bench import options, report
from bench.report import Measured, at_most
from bench.spark_check.anomaly_plan import AnomalyPlan
from bench.spark_check.generator import Segment, operations_of, segments_of
from tidelog.history import Anomaly
from tidelog.history.history_format import encode_operation, header_line
from tidelog_pipeline.check.history_files import RANGE_BYTES
from tidelog_pipeline.check.plan import CheckResult, check
from tidelog_pipeline.columns import Columns, Row
from tidelog_pipeline.session import spark_session


@dataclass(frozen=True, slots=True)
class Settings:
    """The amount of work.

    - `of_each`: the number of planted anomalies of each kind.
    - `heap_mb`: the heap of the JVM.
    - `worker_mb`: the address space of each of Spark's Python workers, one for each core.
    """

    operations: int
    of_each: int
    seed: int
    cores: int
    heap_mb: int
    worker_mb: int


FULL = Settings(100_000_000, of_each=5, seed=1, cores=2, heap_mb=2_048, worker_mb=2_048)
QUICK = Settings(1_000_000, of_each=5, seed=1, cores=2, heap_mb=2_048, worker_mb=2_048)
# Resident memory; Python and the imports of Spark's workers take about 140 of it.
MAX_WORKER_MB = 400.0
# For a file that holds an operation in 85 bytes, and for Spark's temporary data.
DISK_BYTES_PER_OPERATION = 400

_SEGMENTS = Columns(number="bigint", bytes="bigint")


def main(argv: Sequence[str]) -> int:
    form, settings = options.parse("python -m bench.spark_check", __doc__, FULL, QUICK, argv)
    console = Console()
    plan = AnomalyPlan.of_operations(settings.operations, settings.of_each, settings.seed)
    directory = Path(tempfile.mkdtemp(prefix="tidelog-bench-spark-check-"))
    try:
        needed_bytes = settings.operations * DISK_BYTES_PER_OPERATION
        if lack := report.lack_of_room(directory, needed_bytes, "--operations"):
            console.print(f"[red]{lack}[/]", highlight=False)
            return 1
        return _run(form, settings, plan, directory, console)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _run(
    form: str, settings: Settings, plan: AnomalyPlan, directory: Path, console: Console
) -> int:
    history = directory / "history"
    with spark_session(
        "bench-spark-check", f"local[{settings.cores}]", _conf(settings, directory)
    ) as spark:
        limit = _worker_limit_mb(spark)
        began = time.monotonic()
        size = write_history(spark, plan, history)
        console.print(f"  {size / 1e6:,.0f} MB written in {time.monotonic() - began:.0f} s")
        began = time.monotonic()
        checked = check(spark, str(history), RANGE_BYTES)
        seconds = time.monotonic() - began
    results = _results(checked, seconds, size, limit)
    is_as_planted = checked.report.findings.counts == plan.expected
    path = report.write_form(
        Path("out"), "spark-check", content(form, settings, plan, checked, results)
    )
    if not is_as_planted:
        console.print("[red]The anomalies are not the planted ones: see the file.[/]")
    status = report.finish(results, console, f"The history checker on Spark ({form})", path)
    return status if is_as_planted else 1


def _conf(settings: Settings, directory: Path) -> dict[str, str]:
    return {
        "spark.driver.memory": f"{settings.heap_mb}m",
        # With the master local each worker has all of it.
        "spark.executor.pyspark.memory": f"{settings.worker_mb}m",
        # A busy machine may pause for a while.
        "spark.executor.heartbeatInterval": "60s",
        "spark.network.timeout": "600s",
        "spark.local.dir": str(directory / "spark"),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
    }


def _worker_limit_mb(spark: SparkSession) -> float:
    """Returns the limit of a worker's address space that is in force."""

    def limits(_: object) -> Iterator[int]:
        yield resource.getrlimit(resource.RLIMIT_AS)[0]

    (limit,) = spark.sparkContext.parallelize([0], 1).mapPartitions(limits).collect()
    return float("inf") if limit == resource.RLIM_INFINITY else float(limit) / (1 << 20)


def write_history(spark: SparkSession, plan: AnomalyPlan, directory: Path) -> int:
    """Writes the history in parallel. Returns its size in bytes."""
    directory.mkdir(parents=True)
    segments = segments_of(plan)

    def write(rows: Iterator[Row]) -> Iterator[Row]:
        for number, _ in rows:
            yield number, write_segment(plan, segments[number], directory)

    numbers: list[Row] = [(segment.number, None) for segment in segments]
    frame = spark.createDataFrame(
        spark.sparkContext.parallelize(numbers, len(numbers)), _SEGMENTS.ddl
    )
    return sum(row["bytes"] for row in _SEGMENTS.map(frame, write).collect())


def write_segment(plan: AnomalyPlan, segment: Segment, directory: Path) -> int:
    path = directory / f"part-{segment.number:06}"
    with path.open("wb") as file:
        if segment.number == 0:
            file.write(header_line())
        file.writelines(map(encode_operation, operations_of(plan, segment)))
        return file.tell()


def _results(checked: CheckResult, seconds: float, size: int, limit_mb: float) -> list[Measured]:
    operations = checked.report.operations
    peak_mb = checked.worker_peak_kb / 1024
    return [
        Measured("operations", operations, ""),
        Measured("size of the history", size / 1e6, "MB"),
        Measured("time to check", seconds, "s"),
        Measured("operations a second", operations / seconds, ""),
        at_most("largest Python worker (peak RSS)", peak_mb, MAX_WORKER_MB, "MB"),
        Measured("bound on a worker's address space", limit_mb, "MB"),
    ]


def content(
    form: str,
    settings: Settings,
    plan: AnomalyPlan,
    checked: CheckResult,
    results: list[Measured],
) -> dict[str, object]:
    """Returns the keys of the file.

    - `anomalies`: for each kind, how many were `planted` and `found`.
    """
    found = checked.report.findings.counts
    return {
        **report.document(form, asdict(settings), results),
        "anomalies": {
            kind.value: {"planted": plan.expected[kind], "found": found[kind]} for kind in Anomaly
        },
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
