"""`make bench-console` (`python -m bench.console`): the web console over a live cluster with 3,000
partitions, in a real browser.

It measures the gateway's time for the overview, the longest task of each page, and the time until a
killed broker is shown. `--quick` (`make bench-console QUICK=1`) uses few partitions and a short
time, as a test of the bench.

Exit status 1: a bound is missed; the last line names it."""

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
from bench.console import results
from bench.console.run import FULL, QUICK, Settings, run_once
from console.browser import PROGRAM


def parse(argv: Sequence[str]) -> tuple[str, Settings]:
    return options.parse("python -m bench.console", __doc__, FULL, QUICK, argv)


def main(argv: Sequence[str]) -> int:
    form, settings = parse(argv)
    console = Console()
    if shutil.which(PROGRAM) is None:
        console.print(f"[red]There is no {PROGRAM}; `make system-deps` installs it.[/]")
        return 1
    directory = Path(tempfile.mkdtemp(prefix="tidelog-bench-console-"))
    try:
        figures = uvloop.run(run_once(directory, settings, console))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    content = results.content(form, asdict(settings), figures)
    path = report.write_form(Path("out"), "bench-console", content)
    return report.finish(results.verdicts(figures), console, f"The web console ({form})", path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
