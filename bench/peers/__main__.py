"""`make bench-peers` (`python -m bench.peers`): the same work on Tidelog, on Apache Kafka (three
brokers without ZooKeeper, by its own tools and by confluent-kafka) and on NATS JetStream (three
servers, three replicas), on this machine, in turn. `--quick` (`make bench-peers QUICK=1`) runs
once, for a time that is too short for reliable results.

Needs Java 17, Maven, which downloads Kafka, and nats-server. Exit status 1: a bound is missed; 2:
the measurement failed."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import uvloop
from rich.console import Console
from rich.markup import escape

from bench import options, report
from bench.kafka.cluster import KafkaError
from bench.kafka.maven import MavenError
from bench.peers import results
from bench.peers.kafka_tools import ToolError
from bench.peers.nats_cluster import NatsError
from bench.peers.run import run
from bench.peers.settings import FULL, QUICK
from bench.worker import WorkerError
from tidelog_runtime.local import ClusterError


def main(argv: Sequence[str]) -> int:
    form, settings = options.parse("python -m bench.peers", __doc__, FULL, QUICK, argv)
    console = Console()

    def print_line(text: str) -> None:
        console.print(f"  {escape(text)}", highlight=False)

    directory = Path(tempfile.mkdtemp(prefix="tidelog-bench-peers-"))
    try:
        found = uvloop.run(run(directory, settings, print_line))
    except (ClusterError, MavenError, KafkaError, NatsError, ToolError, WorkerError) as error:
        console.print(f"[red]Not measured:[/] {escape(str(error))}", highlight=False)
        return 2
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    content = results.content(form, settings, *found)
    path = report.write_form(Path("out"), "bench-peers", content)
    verdicts = results.verdicts(settings, found.done, found.ceilings)
    return report.finish(verdicts, console, f"Tidelog and its peers ({form}; medians)", path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
