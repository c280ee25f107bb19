"""`python -m model`: explores every scenario on all cores, and shows that each rule is needed.

README.md beside this file describes the output and the report.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from .findings import Finding, begin_process, explore, explore_without, unexplored
from .profiles import FULL, QUICK
from .scenarios import REMOVALS, Scenario

# Processor time, whatever else runs; more than explorations take, since budgets are meant to be
# exhausted. All together take seven and a half minutes of two cores.
MAX_SECONDS = {"quick": 60, "full": 200}
MAX_SECONDS_IN_ALL = {"quick": 300, "full": 900}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="model", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the smaller bound of make test")
    parser.add_argument("--json", action="store_true", help="print the report and nothing else")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", type=Path, help="also write the report there")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    size = "quick" if options.quick else "full"
    findings = run_all(
        QUICK if options.quick else FULL,
        processes=options.processes,
        max_seconds=MAX_SECONDS[size],
        max_seconds_in_all=MAX_SECONDS_IN_ALL[size],
        show=None if options.json else say,
    )
    report = to_report(findings, time.monotonic() - started)
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(report, indent=2) + "\n")
    if options.json:
        say(json.dumps(report))
    else:
        say(
            f"{report['states']} states, {report['transitions']} transitions, "
            f"{report['seconds']} s ({report['processor_seconds']} s of processor time); "
            f"{len(report['violations'])} violation(s), "
            f"{len(report['rules_caught'])} of {len(REMOVALS)} rules shown to be needed"
        )
    return 0 if all(finding.as_it_should_be for finding in findings) else 1


def run_all(
    scenarios: tuple[Scenario, ...],
    *,
    processes: int,
    max_seconds: float,
    max_seconds_in_all: float,
    show: Callable[[str], None] | None = None,
) -> list[Finding]:
    """Runs explorations in the order in which they are listed, the largest first.

    Descriptions of findings are passed to `show` as they end. Once all together have used
    `max_seconds_in_all`, no further one begins: the rest counts as not exhausted.
    """
    # Forked processes would inherit the caches of their parent.
    context = multiprocessing.get_context("spawn")
    found: dict[int, Finding] = {}
    running: dict[Future[Finding], int] = {}
    jobs = [*scenarios, *range(len(REMOVALS))]
    begun = 0
    with ProcessPoolExecutor(processes, mp_context=context, initializer=begin_process) as pool:
        while True:
            spent = sum(finding.seconds for finding in found.values())
            while begun < len(jobs) and len(running) < processes and spent <= max_seconds_in_all:
                job = jobs[begun]
                future = (
                    pool.submit(explore_without, job, max_seconds)
                    if isinstance(job, int)
                    else pool.submit(explore, job, max_seconds)
                )
                running[future] = begun
                begun += 1
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                finding = found[running.pop(future)] = future.result()
                if show is not None:
                    show(describe(finding))
    return [found[i] if i in found else unexplored(job) for i, job in enumerate(jobs)]


def describe(finding: Finding) -> str:
    b = finding.budgets
    kinds = "+".join(b["kinds"])
    late = f", {b['in_flight']} in flight of {'+'.join(b['late'])}" if b["late"] else ""
    topic = "".join(f", {flag}" for flag in ("synced", "unclean") if b[flag])
    what = f'without the rule "{finding.rule}"' if finding.rule else finding.scenario
    head = (
        f"{what}: {finding.verdict}\n    {b['faults']} fault(s) of {kinds}, {b['records']} "
        f"record(s), {b['epochs']} epoch(s){late}{topic}: {finding.states} states, "
        f"{finding.transitions} transitions, depth {finding.depth}, {finding.seconds} s"
    )
    return "\n    ".join([head, *finding.story])


def to_report(findings: list[Finding], seconds: float) -> dict[str, Any]:
    """Returns the keys of `out/model.json`.

    - `states`, `transitions`: sums over all explorations.
    - `violations`: `scenario`, `invariant` and `story` of each violation of the real rules.
    - `rules_caught`, `rules_not_caught`: the rules that were switched off, by whether an invariant
      broke.
    - `not_exhausted`: the scenarios that a bound on states or time ended, or that did not start.
    - `scenarios`: each exploration of the real rules.
    - `rules`: each exploration without a rule, with this `rule` and the `invariant` that broke;
      empty: none broke.
    - `seconds`: the wall time of the run.
    - `processor_seconds`: the sum of all explorations, in any number of processes.
    """
    real = [finding for finding in findings if not finding.rule]
    removed = [finding for finding in findings if finding.rule]
    return {
        "states": sum(finding.states for finding in findings),
        "transitions": sum(finding.transitions for finding in findings),
        "violations": [
            {"scenario": f.scenario, "invariant": f.invariant, "story": f.story}
            for f in real
            if f.invariant
        ],
        "rules_caught": [f.rule for f in removed if f.invariant],
        "rules_not_caught": [f.rule for f in removed if not f.invariant],
        "not_exhausted": [f.scenario for f in real if not f.complete and not f.invariant],
        "scenarios": [exploration(f) for f in real],
        "rules": [{"rule": f.rule, "invariant": f.invariant, **exploration(f)} for f in removed],
        "seconds": round(seconds, 1),
        "processor_seconds": round(sum(finding.seconds for finding in findings), 1),
    }


def exploration(finding: Finding) -> dict[str, Any]:
    """Returns the keys of an exploration.

    - `scenario`, `budgets`: its name and its bounds: faults, records, epochs, late messages.
    - `states`, `transitions`, `depth`: the number of states and of transitions between them, and
      the number of steps to the farthest state.
    - `seconds`: its processor time.
    - `verdict`: of the real rules, `holds`, `VIOLATED` or `NOT EXHAUSTED`; without a rule, `caught`
      or `NOT CAUGHT`.
    - `story`: the steps to the violation; empty: there is none.
    """
    return {
        "scenario": finding.scenario,
        "budgets": finding.budgets,
        "states": finding.states,
        "transitions": finding.transitions,
        "depth": finding.depth,
        "seconds": finding.seconds,
        "verdict": finding.verdict,
        "story": finding.story,
    }


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
