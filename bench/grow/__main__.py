"""`make bench-grow` (`python -m bench.grow`): the latency of clients while a cluster of real
processes grows from three brokers to five and shrinks to four, and the data that this moves.

`--quick` (`make bench-grow QUICK=1`) runs once with little data, as a test of the bench: its
latencies are of a short time, and not reliable on a busy machine.

Exit status 1: a bound is missed; the last line names it."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import uvloop
from rich.console import Console

from bench import options, report
from bench.grow import figures
from bench.grow.figures import RunFigures
from bench.grow.run import FULL, QUICK, REPLICATION_FACTOR, Settings, run_once

# The disk usage of a run: brokers delete moved replicas only after a while.
ROOM = 2.5


async def run_all(settings: Settings, directory: Path, console: Console) -> list[RunFigures]:
    found = []
    for number in range(1, settings.runs + 1):
        console.print(f"Run {number} of {settings.runs}", highlight=False)
        of_run = directory / f"run-{number}"
        try:
            found.append(await run_once(of_run, settings, console))
        finally:
            shutil.rmtree(of_run, ignore_errors=True)
    return found


def content(
    form: str, settings: Mapping[str, object], runs: Sequence[RunFigures]
) -> dict[str, object]:
    """Returns the keys of the file.

    - `runs`: the values of each run; see below.
    """
    return {
        **report.document(form, settings, figures.verdicts(runs)),
        "runs": [run.as_json() for run in runs],
    }


def parse(argv: Sequence[str]) -> tuple[str, Settings]:
    return options.parse("python -m bench.grow", __doc__, FULL, QUICK, argv)


def main(argv: Sequence[str]) -> int:
    form, settings = parse(argv)
    console = Console()
    directory = Path(tempfile.mkdtemp(prefix="tidelog-bench-grow-"))
    try:
        needed_bytes = ROOM * REPLICATION_FACTOR * settings.data_mb * 1e6
        if lack := report.lack_of_room(directory, needed_bytes, "--data-mb"):
            console.print(f"[red]{lack}[/]", highlight=False)
            return 1
        runs = uvloop.run(run_all(settings, directory, console))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    path = report.write_form(Path("out"), "bench-grow", content(form, asdict(settings), runs))
    title = f"Growing and shrinking under load ({form}, {settings.runs} runs)"
    return report.finish(figures.verdicts(runs), console, title, path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
