"""`make bench` (`python -m bench`): Tidelog measured against the no-op gRPC ceiling of the same
machine, its latencies, its durability, and the growth of its cost with partitions. `--quick`
(`make bench QUICK=1`) measures a diagonal through all cases in two minutes. Named parts run alone.

Exit status 1: a bound is missed; the last lines name it."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop
from rich.console import Console

from bench import report
from bench.scale import alone, cluster
from bench.suite import document, durability, estimate, latency, others, reading, throughput
from bench.suite.bed import bed
from bench.suite.outcome import Outcome
from bench.suite.progress import Display
from bench.suite.settings import (
    FULL,
    FULL_FORM,
    ON_ONE_CLUSTER,
    PARTS,
    QUICK_FORM,
    Settings,
    as_json,
    chosen,
    parts_of,
    tuple_fields,
)
from bench.suite.tables import show

OUT = Path("out")
_ON_BED = {
    "throughput": throughput.run,
    "reading": reading.run,
    "latency": latency.run,
    "durability": durability.run,
}


class Suite:
    def __init__(self, settings: Settings, directory: Path, display: Display) -> None:
        self._settings = settings
        self._directory = directory
        self._display = display
        self.outcomes: dict[str, Outcome] = {}
        self.seconds: dict[str, float] = {}
        self.measured: dict[str, dict[str, str]] = {}
        # Read at the start, because files may change during the hour of a run.
        self._commit = report.commit()

    async def run(self, parts: Sequence[str]) -> None:
        shared = [part for part in parts if part in ON_ONE_CLUSTER]
        if shared:
            async with bed(self._directory / "bed") as on:
                for part in shared:
                    began = time.monotonic()
                    found = await _ON_BED[part](on, self._settings, self._display)
                    self._end(part, found, began)
        for part in parts:
            if part not in shared:
                began = time.monotonic()
                self._end(part, await self._own(part), began)

    async def _own(self, part: str) -> Outcome:
        match part:
            case "scale":
                return await cluster.run(self._directory, self._settings, self._display)
            case "alone":
                return await alone.run(self._settings, self._display)
            case "restart":
                return await others.start_of_a_cluster(self._directory, self._display)
            case "rolling":
                return await others.rolling_restarts(self._directory, self._display)
            case _:
                return others.checked_history(self._directory, self._display)

    def _end(self, part: str, found: Outcome, began: float) -> None:
        self.outcomes[part] = found
        self.seconds[part] = round(time.monotonic() - began, 1)
        self.measured[part] = report.measured(self._commit)
        missed = len(report.missed_names(found.results))
        verdict = f", [red]{missed} missed[/]" if missed else ""
        self._display.note(f"{part}: {estimate.text(self.seconds[part])}{verdict}")
        self._display.end()


def parse(argv: Sequence[str]) -> tuple[str, Settings, tuple[str, ...]]:
    """Returns form, settings and parts. Exits with status 2 if they are invalid."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument(
        "--quick", action="store_true", help="a diagonal through all cases, in two minutes"
    )
    several = tuple_fields()
    for name, default in as_json(FULL).items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(default, bool):
            parser.add_argument(option, action=argparse.BooleanOptionalAction)
        elif name in several:
            parser.add_argument(option, type=_numbers, metavar="N,N", help=f"default: {default}")
        else:
            parser.add_argument(option, type=type(default), help=f"default: {default:g}")
    arguments = vars(parser.parse_args(argv))
    form = QUICK_FORM if arguments.pop("quick") else FULL_FORM
    requested = arguments.pop("parts")
    unknown = [part for part in requested if part not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]}; there are: {', '.join(PARTS)}")
    try:
        form_of_run, settings = chosen(form, arguments)
    except ValueError as wrong:
        parser.error(str(wrong))
    return form_of_run, settings, parts_of(form, requested)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def announce(form: str, settings: Settings, parts: Sequence[str], console: Console) -> None:
    times = {part: estimate.seconds(part, settings) for part in parts}
    total_s = sum(times.values())
    if set(parts) & set(ON_ONE_CLUSTER):
        total_s += estimate.CLUSTER_S
    each = ", ".join(f"{part} {estimate.text(seconds)}" for part, seconds in times.items())
    console.print(f"The {form} form takes about {estimate.text(total_s)}: {each}", highlight=False)


def save(form: str, settings: Settings, suite: Suite) -> Sequence[Path]:
    """Returns the written files."""
    # Imported here: processes of the load import this module, and draw nothing.
    from bench.plots.page import write_page

    path = OUT / f"{document.name_of(form)}.json"
    content = document.content(
        form, settings, suite.outcomes, suite.seconds, suite.measured, document.read(path)
    )
    report.write_json(path, content)
    return path, write_page(content, path.with_suffix(".html"))


def main(argv: Sequence[str]) -> int:
    form, settings, parts = parse(argv)
    console = Console()
    announce(form, settings, parts, console)
    directory = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))
    with Display(console, len(parts)) as display:
        suite = Suite(settings, directory, display)
        try:
            uvloop.run(suite.run(parts))
        finally:
            # Also after an interrupted or failed run, which may have taken an hour.
            written = save(form, settings, suite)
            shutil.rmtree(directory, ignore_errors=True)
    for part, found in suite.outcomes.items():
        show(found.results, console, f"Tidelog bench: {part} ({form})")
    console.print(f"Written: {', '.join(map(str, written))}", highlight=False)
    missed = [
        name for found in suite.outcomes.values() for name in report.missed_names(found.results)
    ]
    if missed:
        console.print(f"[red]Missed ({len(missed)}):[/]", highlight=False)
        for name in missed:
            console.print(f"  {name}", highlight=False)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
