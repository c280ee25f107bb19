"""`python -m faults.planted`: bugs of `make mutants` that real faults have to find as well.

Each is planted in a copy of the code, whose processes are then struck as `python -m faults
--local` does it, by the faults that bring it about. Exit status 0: each was found by an anomaly of
the history, within MAX_RUNS runs; a gap that is too long finds nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from faults.verdict import COUNTED
from mutants.planted import all_mutants
from mutants.tree import IMPORTED_FROM, planted

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
    by_name = {mutant.name: mutant for mutant in all_mutants()}
    survivors = []
    for name in options.only:
        with planted(by_name[name]) as tree:
            found = ""
            for seed in range(1, MAX_RUNS + 1):
                found = found or _find(tree, PLANTED[name], seed, options.minutes, options.rate)
        _say(f"{name:34} {found or 'SURVIVES'}")
        survivors += [] if found else [name]
    _say(f"{len(options.only) - len(survivors)} of {len(options.only)} found")
    return 1 if survivors else 0


def _find(tree: Path, only: str, seed: int, minutes: float, rate: int) -> str:
    """What the history shows; empty: nothing."""
    out = tree / "faults.json"
    arguments = ["--local", "--runs", "1", "--minutes", str(minutes), "--seed", str(seed)]
    arguments += ["--only", only, "--rate", str(rate), "--out", str(out)]
    path = os.pathsep.join(str(tree / part) for part in IMPORTED_FROM)
    done = subprocess.run(
        [sys.executable, "-m", "faults", *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if not out.exists():
        _say(f"no verdict: {done.stdout[-400:]}{done.stderr[-400:]}")
        return ""
    counts = json.loads(out.read_text())
    shown = [f"{counts[key]} {key}" for key in COUNTED if counts[key]]
    others = [line.partition("× ")[2] for line in done.stdout.splitlines() if " × " in line]
    return ", ".join(shown or others)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
