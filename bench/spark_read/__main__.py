"""`make bench-spark-read` (`python -m bench.spark_read`): the speed at which Spark reads from
Tidelog and from Kafka on this machine, and the memory of a task.

Spark reads ten million records of 100 bytes from three brokers of Tidelog, and with its own source
from three brokers of Kafka, in turn. `--quick` (`make bench-spark-read QUICK=1`) reads half a
million records once.

Needs Java 17, and Maven, which downloads Kafka. Exit status 1: a bound is missed, or a reading
differed from the written records; 2: the measurement failed."""

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
    path = report.write_form(Path("out"), "bench-spark-read", content)
    for line in content["miscounted"]:
        console.print(f"[red]Miscounted:[/] {line}", highlight=False)
    title = f"Reading with Spark ({form}; medians)"
    status = report.finish(results.verdicts(outcome), console, title, path)
    return 1 if content["miscounted"] else status


def _lack_of_room(directory: Path, settings: Settings) -> str:
    records = settings.records * _COPIES + settings.task_records
    record_bytes = _DISK_BYTES_PER_RECORD + settings.value_bytes - FULL.value_bytes
    return report.lack_of_room(directory, records * record_bytes, "--records")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
