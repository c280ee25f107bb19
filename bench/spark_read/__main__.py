"""`make bench-spark-read` (`python -m bench.spark_read`): how fast Spark reads from Tidelog and
from Kafka on this machine, and how much memory a task takes.

Spark reads ten million records of 100 bytes from three brokers of Tidelog, and by its own source
from three of Kafka, in turn. With `--quick` (`make bench-spark-read QUICK=1`) half a million
records, once.

Needs Java 17, and Maven, which downloads Kafka. Exit status 1: a bound is missed, or a reading
differed from the written records; 2: the measurement failed. `out/bench-spark-read.json` is
documented in docs/reference/make-targets.md."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from bench import options, report
from bench.kafka.cluster import KafkaError
from bench.kafka.maven import MavenError
from bench.spark_read import results
from bench.spark_read.run import DriverError, run
from bench.spark_read.settings import FULL, QUICK, Settings
from tidelog_runtime.local import ClusterError

# Keys, values, and the overhead of the logs.
_DISK_BYTES_PER_RECORD = 130
_COPIES = 6


def main(argv: Sequence[str]) -> int:
    form, settings = options.parse("python -m bench.spark_read", __doc__, FULL, QUICK, argv)
    console = Console()
    directory = Path(tempfile.mkdtemp(prefix="tidelog-bench-spark-read-"))
    try:
        if lack := _lack_of_room(directory, settings):
            console.print(f"[red]{lack}[/]", highlight=False)
            return 2
        outcome = asyncio.run(
            run(
                directory,
                settings,
                lambda line: console.print(f"  {escape(line)}", highlight=False),
            )
        )
    except (ClusterError, MavenError, KafkaError, DriverError) as error:
        console.print(f"[red]Not measured:[/] {escape(str(error))}", highlight=False)
        return 2
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    content = results.content(form, outcome)
    path = results.write(Path("out"), content)
    report.show(results.verdicts(outcome), console, title=f"Reading by Spark ({form}; medians)")
    for line in content["miscounted"]:
        console.print(f"[red]miscounted:[/] {line}", highlight=False)
    console.print(f"written: {path}", highlight=False)
    return 1 if content["not_met"] or content["miscounted"] else 0


def _lack_of_room(directory: Path, settings: Settings) -> str:
    """Why the disk has too little room; empty: it has enough."""
    records = settings.records * _COPIES + settings.task_records
    needed = records * (_DISK_BYTES_PER_RECORD + settings.value_bytes - FULL.value_bytes)
    free = shutil.disk_usage(directory).free
    if free >= needed:
        return ""
    return (
        f"{directory} has {free / 1e9:.0f} GB free, and {needed / 1e9:.0f} GB are needed; set "
        "TMPDIR to where there is room, or lower --records"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
