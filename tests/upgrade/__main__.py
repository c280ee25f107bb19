"""`python -m upgrade`: rolls clusters from the previous release to this one, and back, and forward,
under load, in several orders.

Exit status 0: every record with acks=all was acknowledged and exists once, and every answer between
the releases was clear. Exit status 1: otherwise, or a run could not be done."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.report import commit, machine, write_json
from tidelog.errors import TidelogError
from tidelog_runtime.local import ClusterError
from tidelog_runtime.metadata.store import StoreError
from upgrade.client_process import ClientsFailedError
from upgrade.mixed_cluster import MixedClusterError
from upgrade.orders import ORDERS, orders_of
from upgrade.releases import (
    RELEASES_FILE,
    Release,
    ReleaseError,
    known_releases,
    previous_release,
    this_release,
)
from upgrade.result import FULL_RUNS, content, of_run
from upgrade.run import FinishedRun, Run

OUT = Path("out/upgrade-test.json")
# Fewer runs, or one order, do not replace the file of all of them.
PARTIAL_OUT = Path("out/upgrade-test.partial.json")
MAX_RUNS = 100
# What ends a run early; the results of earlier ones are kept.
UNFINISHED = (
    MixedClusterError,
    ClientsFailedError,
    ClusterError,
    StoreError,
    TidelogError,
    TimeoutError,
)


def main(argv: Sequence[str] | None = None) -> int:
    options = _parse(argv)
    try:
        releases = previous_release(), this_release()
    except ReleaseError as error:
        _say(f"FAILED: {error}")
        return 1
    with tempfile.TemporaryDirectory(prefix="tidelog-upgrade-") as scratch:
        kept = options.out.parent / "upgrade-failed"
        status = asyncio.run(_runs(options, releases, Path(scratch)))
        shutil.rmtree(kept, ignore_errors=True)
        if status:
            shutil.move(scratch, kept)
            Path(scratch).mkdir()
            _say(f"histories, logs and data: {kept}")
        return status


async def _runs(
    options: argparse.Namespace, releases: tuple[Release, Release], scratch: Path
) -> int:
    """Writes the result after each run, so that what was done is kept."""
    finished: list[FinishedRun] = []
    failed = ""
    for number, order in enumerate(orders_of(options.runs, options.order), 1):
        _say(f"run {number} of {options.runs}: {order}")
        directory = scratch / f"run-{number}"
        directory.mkdir()
        try:
            run = await Run(order, releases, directory, _say, is_short=options.short).run()
        except UNFINISHED as error:
            failed = f"run {number} ({order}) could not be finished: {error!r}"
            break
        finished.append(run)
        figures = of_run(run)
        _say(", ".join(f"{key}: {figures[key]}" for key in figures if key != "problems"))
        _write(options.out, finished, releases, failed)
    document = _write(options.out, finished, releases, failed)
    problems = [str(problem) for problem in document["problems"]]  # type: ignore[attr-defined]
    for problem in problems:
        _say(f"PROBLEM: {problem}")
    _say(f"{'failed' if problems else 'all is well'}; {options.out}")
    return 1 if problems else 0


def _write(
    out: Path, finished: Sequence[FinishedRun], releases: tuple[Release, Release], failed: str
) -> dict[str, object]:
    old, new = releases
    commits = known_releases(RELEASES_FILE)[-1].commit, commit()
    document = content(finished, (old.version, new.version), commits, machine(), failed)
    write_json(out, document)
    return document


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m upgrade", description=__doc__)
    parser.add_argument(
        "--runs", type=int, help=f"default: {FULL_RUNS}, one for each order; 1 with --order"
    )
    parser.add_argument("--order", choices=list(ORDERS), default="", help="only this order")
    parser.add_argument(
        "--short", action="store_true", help="forward and back alone, without stops in between"
    )
    parser.add_argument("--out", type=Path, help=f"default: {OUT}, or {PARTIAL_OUT}")
    options = parser.parse_args(argv)
    if options.runs is None:
        options.runs = 1 if options.order else FULL_RUNS
    if not 1 <= options.runs <= MAX_RUNS:
        parser.error(f"--runs is {options.runs}; give a number from 1 to {MAX_RUNS}")
    if options.out is None:
        is_full = options.runs >= FULL_RUNS and not options.order and not options.short
        options.out = OUT if is_full else PARTIAL_OUT
    return options


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
