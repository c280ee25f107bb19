"""`python -m simulation`: runs seeds in several processes and writes `out/sim.json`.

It shows what fails and which rules were exercised. A single seed writes `out/sim.partial.json`.

Exit status 0: nothing was violated, and with MIN_SEEDS_FOR_COVERAGE seeds or more every rule
and every kind of fault occurred; 1 otherwise.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from commit import checked_out_commit
from simulation.coverage import never_met
from simulation.fault_effects import struck
from simulation.faults import KINDS, Fault
from simulation.report import summary, write
from simulation.scenario import (
    EXCEPTION,
    MIN_ACKNOWLEDGED,
    MIN_FAULTS,
    MIN_WORK_MS,
    Result,
    run_seed,
)
from simulation.seeds import PlanFilter, SeedChoice, parse_seeds
from simulation.shrink import shrink
from simulation.stored_plans import StoredPlan, read_plan
from simulation.stories import STORY_NAMES

DEFAULT_JOBS = 2
OUT = Path("out/sim.json")
# The report of one seed does not replace the report of many.
PARTIAL_OUT = Path("out/sim.partial.json")
# A worker collects no garbage, which would take a tenth of its time; it ends after so many seeds.
SEEDS_PER_WORKER = 20
# CPU time, much more than any seed takes: beyond it, a step is an endless loop.
SEED_TIMEOUT_S = 120
MIN_SEEDS_FOR_COVERAGE = 120
MAX_SHRUNK = 3
MAX_SHRINK_RUNS = 40
PROGRESS_INTERVAL_S = 5.0
# How many seeds are lost if a run with --append is interrupted.
PORTION_SEEDS = 50
TRACE_LINES = 60
# A drawn seed has to do enough to show anything; a given plan may do less.
THIN = "seed_shows_too_little"


class _TooLongError(BaseException):
    """A `BaseException`, which no `except Exception` of the simulated code catches."""


def main(argv: Sequence[str] | None = None) -> int:
    options = _parse(argv)
    if options.seed is not None:
        if options.json:
            return judge_one(options.seed, options.plan)
        return show_one(options.seed, options.plan, shrinks=options.shrink)
    seeds = options.seeds.chosen(options.first, PlanFilter(options.with_fault, options.with_story))
    results: list[Result] = []
    report: Mapping[str, Any] = {}
    for portion in _portions(seeds, PORTION_SEEDS if options.append else len(seeds)):
        found, seconds = _run_portion(portion, options)
        results += found
        out: Path = options.out or (OUT if len(seeds) > 1 or options.append else PARTIAL_OUT)
        report = write(out, summary(found, seconds, checked_out_commit()), append=options.append)
        if options.stop_at_first and any(result.violation for result in found):
            break
    if options.json:
        failed = next((r for r in results if r.violation), None)
        sys.stdout.write(json.dumps(verdict(failed, len(results))) + "\n")
        return 1 if failed else 0
    return print_results(results, report)


def _portions(seeds: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for first in range(0, len(seeds), size):
        yield seeds[first : first + size]


def _run_portion(seeds: Sequence[int], options: argparse.Namespace) -> tuple[list[Result], float]:
    """Returns the results, and how many seconds they took."""
    began = time.monotonic()
    results: list[Result] = []
    for result in _progress(run_all(seeds, options.jobs), len(seeds), quiet=options.json):
        results.append(result)
        if options.stop_at_first and result.violation:
            break
    return results, time.monotonic() - began


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument(
        "--seeds",
        type=parse_seeds,
        default=SeedChoice(200),
        help="how many, from --first on; or a list of seeds and ranges, as in 3,17,40-60",
    )
    parser.add_argument("--first", type=int, default=1, help="the first seed, default 1")
    parser.add_argument(
        "--with-fault",
        action="append",
        default=[],
        choices=[*KINDS],
        metavar="KIND",
        help="only seeds whose plan has a fault of this kind; may be repeated, and then a seed "
        f"needs one of them. Kinds: {', '.join(KINDS)}",
    )
    parser.add_argument(
        "--with-story",
        action="append",
        default=[],
        choices=STORY_NAMES,
        metavar="STORY",
        help="only seeds whose plan has this story; may be repeated, and then a seed needs one of "
        f"them. Stories: {', '.join(STORY_NAMES)}",
    )
    parser.add_argument("--seed", type=int, help="this one alone, with its whole trace")
    parser.add_argument(
        "--plan",
        type=_read_plan,
        help="a file of faults, as a failure lists them; for the seed that its line '# Seed: n' "
        "names, or --seed",
    )
    parser.add_argument(
        "--shrink",
        action="store_true",
        help="with --seed: instead of the trace, the fewest faults that still lead to its "
        "failure, and the events around it; as is printed for seeds that fail among many",
    )
    parser.add_argument("--jobs", type=int, default=DEFAULT_JOBS, help="processes")
    parser.add_argument("--stop-at-first", action="store_true", help="failure, that is")
    parser.add_argument("--json", action="store_true", help="one line on stdout")
    parser.add_argument(
        "--append",
        action="store_true",
        help=f"add to the report instead of replacing it, after every {PORTION_SEEDS} seeds",
    )
    parser.add_argument("--out", type=Path, help=f"instead of {OUT}, or {PARTIAL_OUT} of one seed")
    options = parser.parse_args(argv)
    if options.jobs < 1:
        parser.error("--jobs is at least 1")
    if options.plan is not None:
        options.seed, options.plan = options.seed or options.plan.seed, options.plan.faults
    if options.seed is None and (options.shrink or options.plan is not None):
        parser.error("--shrink and --plan are for one seed: name it by --seed")
    return options


def _read_plan(path: str) -> StoredPlan:
    try:
        return read_plan(Path(path))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from error


# -- running -------------------------------------------------------------------------------


def run_all(seeds: Sequence[int], jobs: int) -> Iterator[Result]:
    """Yields results as they are done. Workers end with the iterator."""
    if jobs == 1:
        yield from map(run_bounded, seeds)
        return
    gc.collect()
    gc.freeze()
    context = multiprocessing.get_context("fork")
    with context.Pool(jobs, initializer=gc.disable, maxtasksperchild=SEEDS_PER_WORKER) as pool:
        yield from pool.imap_unordered(run_bounded, seeds)


def run_bounded(seed: int, plan: Sequence[Fault] | None = None) -> Result:
    """Runs a seed; one that does not end has failed."""
    with _time_limit():
        try:
            result = run_seed(seed, plan)
        except _TooLongError:
            why = f"one step did not end within {SEED_TIMEOUT_S} s of CPU"
            return Result(seed, list(plan or ()), violation=EXCEPTION, message=why)
    if plan is None:
        require_enough(result)
    return result


def require_enough(result: Result) -> None:
    """Marks a result that shows too little as failed, unless it has failed already."""
    if result.violation is not None:
        return
    lacking = [
        f"{is_} {what}, at least {least} are wanted"
        for is_, least, what in (
            (result.acknowledged, MIN_ACKNOWLEDGED, "records acknowledged"),
            (result.virtual_ms, MIN_WORK_MS, "virtual ms"),
            (struck(result.faults), MIN_FAULTS, "faults that had an effect"),
        )
        if is_ < least
    ]
    if lacking:
        result.violation, result.message = THIN, f"{THIN}: {'; '.join(lacking)}"


@contextmanager
def _time_limit() -> Iterator[None]:
    def give_up(*_: object) -> None:
        raise _TooLongError

    former = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, SEED_TIMEOUT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, former)


def verdict(failed: Result | None, seeds: int) -> dict[str, object]:
    """Returns what `--json` prints; `name` is null if nothing was violated in that many seeds."""
    if failed is None:
        return {"name": None, "seeds": seeds}
    return {
        "name": failed.violation,
        "message": failed.message,
        "seed": failed.seed,
        "seeds": seeds,
    }


# -- output --------------------------------------------------------------------------------


def print_results(results: Sequence[Result], report: Mapping[str, Any]) -> int:
    """Prints the results and returns the exit status.

    - `report`: of these results, and with --append of those of earlier runs
    """
    failed = sorted((r for r in results if r.violation), key=lambda r: r.seed)
    missing: list[str] = []
    for what in ("faults", "rules"):
        counts = report[what]
        _say(f"\n{what}:")
        for name, times in counts.items():
            _say(f"  {times:9,} {name}")
        missing += never_met(counts)
    for result in failed[:MAX_SHRUNK]:
        _print_failed(result)
    _say(
        f"\n{report['seeds']} seeds in {report['seconds']} s ({report['cpu_seconds']} s of CPU "
        f"each), {report['virtual_seconds']:,} virtual seconds, {report['faults_in_all']:,} "
        f"faults ({report['faults_with_effect']:,} had an effect), "
        f"{report['acknowledged']:,} records acknowledged: {report['violations']} failed"
    )
    is_incomplete = bool(missing) and report["seeds"] >= MIN_SEEDS_FOR_COVERAGE
    if is_incomplete:
        _say(f"never met: {', '.join(missing)}")
    return 1 if failed or is_incomplete else 0


def _print_failed(result: Result) -> None:
    """Prints a failed seed with the fewest faults that still cause its failure."""
    _say(f"\nseed {result.seed}: {result.message}")
    if result.violation == THIN:
        _say(f"again: make sim SEED={result.seed}")
        return
    plan = shrink(
        result.plan,
        lambda plan: run_bounded(result.seed, plan).violation == result.violation,
        MAX_SHRINK_RUNS,
    )
    again = run_bounded(result.seed, plan)
    if again.violation != result.violation:
        # The faults with which the seed continued depend on everything before them.
        _say("what follows is the seed itself: run from a list of its faults it does not fail")
        plan, again = result.plan, result
    for fault in plan:
        _say(f"  {fault}")
    for line in events_around(again.trace):
        _say(f"    {line}")
    _say(f"again: make sim SEED={result.seed}")


def events_around(trace: Sequence[str]) -> list[str]:
    """Returns the last lines of a trace, and the beginnings and ends of earlier faults.

    An event that all services receive is followed by hundreds of lines.
    """
    faults = [line for line in trace[:-TRACE_LINES] if " fault_" in line]
    return [*faults, *trace[-TRACE_LINES:]]


def judge_one(seed: int, plan: Sequence[Fault] | None) -> int:
    """Prints the line of `--json` for one seed."""
    result = run_bounded(seed, plan)
    failed = result if result.violation else None
    _say(json.dumps(verdict(failed, seeds=1)))
    return 1 if failed else 0


def show_one(seed: int, plan: Sequence[Fault] | None = None, *, shrinks: bool = False) -> int:
    """Prints a seed with its trace, which is the same in every run, byte for byte.

    - `shrinks`: print a failure as if the seed were one of many
    """
    result = run_seed(seed, plan, keep_trace=True)
    if plan is None:
        require_enough(result)
    if shrinks and result.violation:
        _print_failed(result)
        return 1
    for fault in result.plan:
        _say(str(fault))
    for line in () if shrinks else result.trace:
        _say(line)
    _say(
        f"seed {seed}: {result.message or 'nothing was violated'}; {result.acknowledged} records "
        f"acknowledged, {result.virtual_ms} virtual ms, {result.steps:,} steps, digest "
        f"{result.digest}"
    )
    return 1 if result.violation else 0


def _progress(results: Iterator[Result], count: int, *, quiet: bool) -> Iterator[Result]:
    began = said = time.monotonic()
    failed = 0
    for number, result in enumerate(results, 1):
        yield result
        if result.violation is not None:
            failed += 1
            if not quiet:
                _say(f"seed {result.seed}: {result.message}")
        now = time.monotonic()
        if not quiet and (now - said >= PROGRESS_INTERVAL_S or number == count):
            said = now
            _say(f"{number} of {count} seeds, {failed} failed, {now - began:.0f} s")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
