"""`make spark-kills` (`python -m bench.spark_kills`): copies five million records from topic to
topic to Parquet, exactly once each.

Meanwhile the driver and the executors of a local Spark cluster are killed 20 times each, five times
at each point of a micro-batch. `--quick` (`make spark-kills QUICK=1`) copies 24,000 records with
one kill at each point, and writes out/spark-kills.partial.json. `--by-key` (`BY_KEY=1`) lets keys
choose the partitions of the copy, and writes out/spark-kills-by-key.json.

Exit status 1: a record was lost or duplicated, or a kill was not made."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bench.spark_kills import results
from bench.spark_kills.run import FULL, QUICK, Settings, run
from tidelog_runtime.local.cluster import LocalCluster


async def on_a_cluster(directory: Path, settings: Settings, console: Console) -> results.Outcome:
    cluster = LocalCluster(directory / "cluster", usual_ports=False)
    await cluster.start()
    try:
        await cluster.ready()
        (directory / "copy").mkdir()
        return await asyncio.to_thread(
            run,
            cluster.bootstrap,
            directory / "copy",
            settings,
            lambda line: console.print(line, highlight=False),
        )
    finally:
        await cluster.stop()


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_kills", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few records, one kill of each kind")
    parser.add_argument("--by-key", action="store_true", help="keys choose the copy's partitions")
    given = parser.parse_args(argv)
    quick = given.quick
    settings = replace(QUICK if quick else FULL, by_key=given.by_key)
    console = Console()
    directory = Path(tempfile.mkdtemp(prefix="tidelog-spark-kills-"))
    is_kept = False
    try:
        outcome = asyncio.run(on_a_cluster(directory, settings, console))
    except Exception:
        is_kept = True
        console.print(f"[red]Failed:[/] {directory} has all logs of Spark and the cluster")
        raise
    finally:
        if not is_kept:
            shutil.rmtree(directory, ignore_errors=True)
    content = results.content(outcome, settings.schedule)
    path = results.write(Path("out"), content, "partial" if quick else "full")
    console.print(
        f"{len(outcome.kills)} kills in {outcome.seconds:.0f} s; lost {content['lost']}, "
        f"duplicated {content['duplicated']}; written: {path}",
        highlight=False,
    )
    if not content["passed"]:
        console.print("[red]Failed:[/] the copies differ from the source, or a kill is missing")
    return 0 if content["passed"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
