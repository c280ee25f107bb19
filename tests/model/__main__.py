"""`python -m model`: explores every scenario on all cores, and shows that each rule is needed.

README.md beside this file says what is printed and written.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

from .findings import Finding, explore, explore_without
from .profiles import FULL, QUICK
from .scenarios import REMOVALS, Scenario

# Of processor time, and far above what a scenario takes: budgets are meant to be exhausted.
MAX_SECONDS = {"quick": 60, "full": 400}


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
        tell=None if options.json else say,
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
            f"{report['seconds']} s; {len(report['violations'])} violation(s), "
            f"{len(report['rules_caught'])} of {len(REMOVALS)} rules shown to be needed"
        )
    return 0 if all(finding.as_it_should_be for finding in findings) else 1


def run_all(
    scenarios: tuple[Scenario, ...],
    *,
    processes: int,
    max_seconds: float,
    tell: Any = None,
) -> list[Finding]:
    """In the order in which they are listed; the largest should come first."""
    # Forked processes would carry over what their parent remembers.
    context = multiprocessing.get_context("spawn")
    findings = []
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        futures: list[Future[Finding]] = [
            pool.submit(explore, scenario, max_seconds) for scenario in scenarios
        ]
        futures += [
            pool.submit(explore_without, index, max_seconds) for index in range(len(REMOVALS))
        ]
        for future in futures:
            finding = future.result()
            findings.append(finding)
            if tell is not None:
                tell(told(finding))
    return findings


def told(finding: Finding) -> str:
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
        "scenarios": [_summary(f) for f in real],
        "rules": [{"rule": f.rule, "invariant": f.invariant, **_summary(f)} for f in removed],
        "seconds": round(seconds, 1),
    }


def _summary(finding: Finding) -> dict[str, Any]:
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
