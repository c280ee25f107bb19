"""`python -m tidelog_runtime.demo`

Exit status 0 means that no record was lost and none was written twice.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tidelog.missing_extras import exit_not_installed, is_installed

if not is_installed("rich"):
    exit_not_installed("tidelog_runtime.demo", "tidelog-services[local]")

import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tidelog_runtime.demo.report import DemoResult
from tidelog_runtime.demo.scenario import Scenario, result_path
from tidelog_runtime.demo.source import Source
from tidelog_runtime.local.cluster import LocalCluster


async def run(directory: Path, console: Console) -> DemoResult:
    source = Source()
    console.print(
        f"Input: the {len(source.files):,} Python files of the standard library, "
        f"{source.passes} times: {source.records:,} records, {source.total_bytes / 1e6:.0f} MB"
    )
    cluster = LocalCluster(directory, usual_ports=False)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    ) as display:
        task = display.add_task("acknowledged", total=source.records)
        try:
            await cluster.start()
            await cluster.ready()
            console.print(
                "Cluster: etcd, 2 controllers and 3 brokers, each a process of its own; logs in "
                f"{directory / 'logs'}"
            )
            scenario = Scenario(
                cluster,
                source,
                say=lambda text: console.print(f"  {text}"),
                progress=lambda count: display.update(task, completed=count),
            )
            return await scenario.run()
        finally:
            await cluster.stop()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tidelog_runtime.demo",
        description="Shows the main job on real input, with real kills.",
    )
    parser.add_argument(
        "--directory",
        type=Path,
        help="directory of the cluster, which is kept; default: a temporary one",
    )
    arguments = parser.parse_args()
    console = Console()
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="tidelog-demo-"))
    # A result of an earlier run must not be taken for this one's if this run does not end.
    result_path().unlink(missing_ok=True)
    try:
        result = uvloop.run(run(directory, console))
    except BaseException:
        console.print(f"[red]The demo was not completed.[/] Data and logs: {directory}")
        raise
    result.write(result_path())
    result.print(console)
    if result.ok and arguments.directory is None:
        shutil.rmtree(directory)
    elif not result.ok:
        console.print(f"Data and logs are kept in {directory}")
    return 0 if result.ok else 1


if __name__ == "__main__":
    sys.exit(main())
