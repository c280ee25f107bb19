"""`python -m faults.bug_hunt`: real faults have to find bugs of `make mutants` as well.

Each bug is planted in a copy of the code, whose processes are struck as by `python -m faults
--local`, by the faults that trigger it. Exit status 0: the history of each bug shows an anomaly
within MAX_RUNS runs. A gap that is too long is no anomaly. Before that, a control strikes the
unchanged code by the same steps and as many seeds, and must show no anomaly. Writes
`out/faults-planted.json`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from faults.result import COUNTED
from mutants.planted_bugs import all_mutants
from mutants.tree import ROOT, environment, planted_tree

# Each bug with the step that triggers it.
PLANTED = {
    "ack-before-high-watermark": "lagging_follower",
    "ack-from-log-end": "lagging_follower",
    "serve-uncommitted": "lagging_follower",
    "forget-producers-at-failover": "kill_leader",
    "count-shrink-before-store": "unreported_shrink",
}
OUT = Path("out/faults-planted.json")
PARTIAL_OUT = Path("out/faults-planted.partial.json")
MAX_RUNS = 3
MINUTES = 2.0
# The duration of the control's further runs.
BRIEF_MINUTES = 0.7
TIMEOUT_S = 1_200
# No run begins after this time, so that everything ends within three quarters of an hour.
LAST_BEGIN_S = 2_400


class Shown(NamedTuple):
    """What one run has shown.

    `anomalies`: as words; empty if there are none.
    `no_verdict`: why the run shows nothing."""

    anomalies: str = ""
    no_verdict: str = ""


class Run(NamedTuple):
    step: str
    seed: int
    shown: Shown

    @property
    def wrong(self) -> str:
        """Why a run without a bug failed. Empty: it completed without an anomaly."""
        if self.shown.no_verdict:
            return f"no verdict of {self.step}, seed {self.seed}: {self.shown.no_verdict}"
        if self.shown.anomalies:
            return f"{self.step}, seed {self.seed}, shows {self.shown.anomalies}"
        return ""

    def as_json(self) -> dict[str, object]:
        return {"step": self.step, "seed": self.seed, **self.shown._asdict()}


# Strikes the code of a tree by the step of a seed.
Strike = Callable[[Path, str, int], Shown]
HasTime = Callable[[], bool]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m faults.bug_hunt", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PLANTED, default=list(PLANTED))
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of each run")
    parser.add_argument("--rate", type=int, default=1_200, help="records per second")
    parser.add_argument("--out", type=Path, help=f"instead of {OUT}, or {PARTIAL_OUT} of some")
    options = parser.parse_args(argv)
    began_s = time.monotonic()
    strike = partial(_strike, minutes=options.minutes, rate=options.rate)
    brief = partial(_strike, minutes=min(options.minutes, BRIEF_MINUTES), rate=options.rate)
    runs = control([PLANTED[name] for name in options.only], strike, brief)
    hunts: dict[str, list[Run]] = {}
    if not any(run.wrong for run in runs):
        last_begin_s = began_s + LAST_BEGIN_S
        hunts = _hunts(options.only, strike, lambda: time.monotonic() < last_begin_s)
    out: Path = options.out or (OUT if set(options.only) == set(PLANTED) else PARTIAL_OUT)
    out.parent.mkdir(parents=True, exist_ok=True)
    document = report(runs, hunts, time.monotonic() - began_s)
    out.write_text(json.dumps(document, indent=2) + "\n")
    found = sum(bool(_found(hunted)) for hunted in hunts.values())
    _print(f"{found} of {len(options.only)} found; {out}")
    return 0 if found == len(options.only) else 1


def _hunts(names: Sequence[str], strike: Strike, has_time: HasTime) -> dict[str, list[Run]]:
    by_name = {mutant.name: mutant for mutant in all_mutants()}
    hunts = {}
    for name in names:
        with planted_tree(by_name[name]) as tree:
            hunts[name] = hunt(tree, PLANTED[name], strike, has_time)
        _print(f"{name:34} {_found(hunts[name]) or 'SURVIVES'}")
    return hunts


def _found(runs: Sequence[Run]) -> str:
    """Whether the last run, which no other follows, found it."""
    return runs[-1].shown.anomalies if runs else ""


def report(
    runs: Sequence[Run], hunts: Mapping[str, Sequence[Run]], seconds: float
) -> dict[str, object]:
    """Returns the content of `out/faults-planted.json`.

    - `control`: the runs without a bug.
    - `bugs`: by name, the runs with the bug, each with `step`, `seed`, `anomalies`, and
      `no_verdict`: why a run shows nothing. The last run has found the bug if it has anomalies.
    - `seconds`: the duration; after 2,400 no further run starts, so it ends within 45 minutes.
    """
    return {
        "control": [run.as_json() for run in runs],
        "bugs": {name: [run.as_json() for run in hunted] for name, hunted in hunts.items()},
        "seconds": round(seconds),
    }


def control(steps: Sequence[str], strike: Strike, brief: Strike) -> list[Run]:
    """Runs each step without a bug, with as many seeds as a hunt has; all but the first are short.

    Ends with the first run that fails."""
    runs: list[Run] = []
    for seed in range(1, MAX_RUNS + 1):
        for step in dict.fromkeys(steps):
            shown = (strike if seed == 1 else brief)(ROOT, step, seed)
            run = Run(step, seed, shown)
            runs.append(run)
            if run.wrong:
                _print(f"without any bug: {run.wrong}; the hunts would prove nothing")
                return runs
            _print(f"{'without any bug':34} {step}, seed {seed}: no anomaly")
    return runs


def hunt(tree: Path, step: str, strike: Strike, has_time: HasTime) -> list[Run]:
    """Runs until one run shows anomalies, at most MAX_RUNS times."""
    runs: list[Run] = []
    for seed in range(1, MAX_RUNS + 1):
        if not has_time():
            _print(f"no time is left to hunt by {step}")
            break
        runs.append(Run(step, seed, strike(tree, step, seed)))
        if runs[-1].shown.no_verdict:
            _print(runs[-1].wrong)
        if runs[-1].shown.anomalies:
            break
    return runs


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


def judge(counts: Mapping[str, Any], output: str) -> Shown:
    """`counts`: the result that a run has written.
    `output`: its output, for classes of anomalies that are not counted."""
    shown = [f"{counts[key]} {key}" for key in COUNTED if counts[key]]
    others = [line.partition("× ")[2] for line in output.splitlines() if " × " in line]
    if shown or others:
        return Shown(", ".join(shown or others))
    without_effect = [
        kind for kind, struck in counts["faults"].items() if not struck["with_effect"]
    ]
    if without_effect or not counts["faults"]:
        return Shown(no_verdict=f"no effect of {', '.join(without_effect) or 'any fault'}")
    if not counts["acknowledged"]:
        return Shown(no_verdict="no record was acknowledged")
    return Shown()


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
