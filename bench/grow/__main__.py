"""`make bench-grow` (`python -m bench.grow`): the latency of clients while a cluster of real
processes grows from three brokers to five and shrinks to four, and the data that this moves.

With `--quick` (`make bench-grow QUICK=1`) once and with little data, as a test of the bench: its
latencies are over a short time, and not reliable on a busy machine.

Exit status 1: a bound is missed; the last line says which. `bench/grow/results.py` documents the
file that is written."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import uvloop
from rich.console import Console

from bench import options, report
from bench.grow import figures, results
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


def parse(argv: Sequence[str]) -> tuple[str, Settings]:
    return options.parse("python -m bench.grow", __doc__, FULL, QUICK, argv)


def main(argv: Sequence[str]) -> int:
    form, settings = parse(argv)
    console = Console()
    directory = Path(tempfile.mkdtemp(prefix="tidelog-bench-grow-"))
    try:
        needed = int(ROOM * REPLICATION_FACTOR * settings.data_mb * 1e6)
        free = shutil.disk_usage(directory).free
        if free < needed:
            console.print(
                f"[red]{directory.parent} has {free / 1e9:.1f} GB free, and {needed / 1e9:.1f} GB "
                "are needed; set TMPDIR to where there is room, or lower --data-mb[/]",
                highlight=False,
            )
            return 1
        runs = uvloop.run(run_all(settings, directory, console))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    content = results.content(form, asdict(settings), runs)
    path = results.write(Path("out"), content)
    found = figures.verdicts(runs)
    title = f"Growing and shrinking under load ({form}, {settings.runs} runs)"
    report.show(found, console, title=title)
    missed = report.not_met(found)
    console.print(f"Written: {path}", highlight=False)
    if missed:
        console.print(f"[red]Not met:[/] {'; '.join(missed)}", highlight=False)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
