"""`python -m faults.planted`: bugs of `make mutants` that real faults have to find as well.

Each is planted in a copy of the code, whose processes are then struck as `python -m faults
--local` does it, by the faults that bring it about. Exit status 0: each was found by an anomaly of
the history, within MAX_RUNS runs; a gap that is too long finds nothing. First the same steps strike
the code without any bug, which has to show no anomaly: what finds one there finds nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from faults.verdict import COUNTED
from mutants.planted import all_mutants
from mutants.tree import ROOT, environment, planted

# Each with the step that brings it about.
PLANTED = {
    "ack-before-high-watermark": "lagging_follower",
    "ack-from-log-end": "lagging_follower",
    "serve-uncommitted": "lagging_follower",
    "forget-producers-at-failover": "kill_leader",
    "count-shrink-before-store": "untold_shrink",
}
MAX_RUNS = 3
MINUTES = 2.0
TIMEOUT_S = 1_200


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m faults.planted", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PLANTED, default=list(PLANTED))
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of each run")
    parser.add_argument("--rate", type=int, default=1_200, help="records a second")
    options = parser.parse_args(argv)
    strike = partial(_strike, minutes=options.minutes, rate=options.rate)
    wrong = control([PLANTED[name] for name in options.only], strike)
    if wrong:
        _say(f"without any bug: {wrong}; what is found then shows nothing")
        return 1
    by_name = {mutant.name: mutant for mutant in all_mutants()}
    survivors = []
    for name in options.only:
        with planted(by_name[name]) as tree:
            found = hunt(tree, PLANTED[name], strike)
        _say(f"{name:34} {found or 'SURVIVES'}")
        survivors += [] if found else [name]
    _say(f"{len(options.only) - len(survivors)} of {len(options.only)} found")
    return 1 if survivors else 0


class Shown(NamedTuple):
    """Of one run: `anomalies` as words, empty: none; or `no_verdict`, why it shows nothing."""

    anomalies: str = ""
    no_verdict: str = ""


# Strikes the code of a tree by a step, as a seed has it.
Strike = Callable[[Path, str, int], Shown]


def control(steps: Sequence[str], strike: Strike) -> str:
    """What is wrong where no bug is planted; empty: nothing, each step was carried out and showed
    no anomaly."""
    for step in dict.fromkeys(steps):
        shown = strike(ROOT, step, 1)
        if shown.no_verdict:
            return f"no verdict of {step}: {shown.no_verdict}"
        if shown.anomalies:
            return f"{step} shows {shown.anomalies}"
        _say(f"{'without any bug':34} {step}: no anomaly")
    return ""


def hunt(tree: Path, step: str, strike: Strike) -> str:
    """The first anomalies of at most MAX_RUNS runs; empty: none."""
    for seed in range(1, MAX_RUNS + 1):
        shown = strike(tree, step, seed)
        if shown.no_verdict:
            _say(f"no verdict of {step}: {shown.no_verdict}")
        if shown.anomalies:
            return shown.anomalies
    return ""


def _strike(tree: Path, step: str, seed: int, *, minutes: float, rate: int) -> Shown:
    with tempfile.TemporaryDirectory(prefix="planted-faults-") as scratch:
        out = Path(scratch) / "faults.json"
        arguments = ["--local", "--runs", "1", "--minutes", str(minutes), "--seed", str(seed)]
        arguments += ["--only", step, "--rate", str(rate), "--out", str(out)]
        done = subprocess.run(
            [sys.executable, "-m", "faults", *arguments],
            cwd=tree,
            env=environment(tree),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if not out.exists():
            return Shown(no_verdict=f"{done.stdout[-400:]}{done.stderr[-400:]}")
        return judge(json.loads(out.read_text()), done.stdout)


def judge(counts: Mapping[str, Any], said: str) -> Shown:
    """`counts`: what a run has written. `said`: what it has said, where classes of anomalies stand
    that are not counted."""
    shown = [f"{counts[key]} {key}" for key in COUNTED if counts[key]]
    others = [line.partition("× ")[2] for line in said.splitlines() if " × " in line]
    if shown or others:
        return Shown(", ".join(shown or others))
    lacking = [kind for kind, came in counts["faults"].items() if not came["with_effect"]]
    if lacking or not counts["faults"]:
        return Shown(no_verdict=f"no effect of {', '.join(lacking) or 'any fault'}")
    if not counts["acknowledged"]:
        return Shown(no_verdict="no record was acknowledged")
    return Shown()


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
