"""Searches for the planted bug of a tree, in separate processes, and returns what found it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mutants.tree import environment, found_in

MAX_SEEDS = 500
# Exceptions find nothing, nor do seeds in which too little happened: the search goes on behind
# them, but not for ever.
MAX_EXCEPTIONS = 20
EXCEPTION = "exception"
NO_FINDINGS = (EXCEPTION, "seed_shows_too_little")
TIMEOUT_S = 1_800


class Verdict(NamedTuple):
    """`found_by`: name of the invariant or anomaly; '': nothing was found, and `seed` is the one
    that found it. `seeds`: how many were run; 0: the model found it. `exceptions`: seeds that
    ended by one, and so by nothing. `complete`: of the model, whether it saw every state, where it
    found nothing. `message`: of the violation."""

    found_by: str
    seeds: int = 0
    exceptions: int = 0
    complete: bool = True
    message: str = ""
    seed: int = 0


def simulate(
    tree: Path,
    *,
    seeds: int = MAX_SEEDS,
    first: int = 1,
    jobs: int = 1,
    faults: Sequence[str] = (),
    stories: Sequence[str] = (),
) -> Verdict:
    """The seeds from `first` on, until a named violation is found: all, or those with one of these
    kinds of `faults` and one of these `stories`."""
    run = exceptions = 0
    while run < seeds and exceptions <= MAX_EXCEPTIONS:
        found = _run(
            tree,
            "simulation",
            "--stop-at-first",
            "--json",
            f"--first={first}",
            f"--seeds={seeds - run}",
            f"--jobs={jobs}",
            f"--out={os.devnull}",
            *(f"--with-fault={kind}" for kind in faults),
            *(f"--with-story={story}" for story in stories),
        )
        if found["name"] is None:
            return Verdict("", seeds, exceptions)
        run += found["seeds"]
        if found["name"] not in NO_FINDINGS:
            return Verdict(
                found["name"], run, exceptions, message=found["message"], seed=found["seed"]
            )
        exceptions += 1
        first = found["seed"] + 1
    return Verdict("", run, exceptions)


def replay(tree: Path, plan: str) -> Verdict:
    """The stored plan of this name."""
    path = found_in(tree, f"tests/simulation/regressions/{plan}.txt")
    found = _run(tree, "simulation", "--json", f"--plan={path}")
    if found["name"] in NO_FINDINGS:
        return Verdict("", 1, 1)
    if found["name"] is None:
        return Verdict("", 1)
    return Verdict(found["name"], 1, message=found["message"], seed=found["seed"])


def explore(tree: Path, scenario: str) -> Verdict:
    found = _run(tree, "mutants.explore", *scenario.split())
    return Verdict(found["name"] or "", complete=found.get("complete", False))


def _run(tree: Path, module: str, *arguments: str) -> dict[str, Any]:
    command: Sequence[str] = [sys.executable, "-m", module, *arguments]
    result = subprocess.run(
        command,
        cwd=tree,
        env=environment(tree),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    try:
        found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {
            "name": EXCEPTION,
            "seed": sys.maxsize,
            "seeds": sys.maxsize,
            "message": result.stderr[-2_000:],
        }
    return found
