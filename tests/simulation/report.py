"""The contents of `out/sim.json`, and how a run adds to those of earlier runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from simulation.coverage import RULES
from simulation.faults import KINDS
from simulation.scenario import EXCEPTION, Result

# Numbers that are summed when reports are combined.
_SUMS = (
    "seeds",
    "violations",
    "exceptions",
    "virtual_seconds",
    "acknowledged",
    "faults_in_all",
    "faults_with_effect",
)


def summary(results: Sequence[Result], seconds: float, commit: str = "") -> dict[str, Any]:
    """Returns the keys of `out/sim.json`.

    - `seeds`: the number of seeds.
    - `violations`: the number of seeds that failed, for any reason.
    - `exceptions`: the number of those that an exception ended, and no invariant.
    - `seconds`, `cpu_seconds`: the wall time of the run; the processor time of a seed, on average.
    - `virtual_seconds`, `acknowledged`: the virtual time and the acknowledged records of all seeds.
    - `faults_in_all`, `faults_with_effect`: the number of planned faults, and of those that had an
      effect. The crash of a dead process has none.
    - `failing_seeds`: the `seed` and the `name` of the violation of each seed that failed.
    - `faults`, `rules`: how often each kind of fault had an effect, and how often each rule was
      exercised.
    - `runs`: the `commit`, `seeds` and `failing_seeds` of each run; this one alone without
      `APPEND=1`.
    """
    faults: Counter[str] = Counter()
    rules: Counter[str] = Counter()
    for result in results:
        faults.update(result.faults)
        rules.update(result.rules)
    failing = sorted((r.seed, r.violation) for r in results if r.violation)
    failing_seeds = [{"seed": seed, "name": name} for seed, name in failing]
    run = {
        "commit": commit,
        "seeds": ranges(result.seed for result in results),
        "failing_seeds": failing_seeds,
    }
    return {
        "seeds": len(results),
        "violations": len(failing),
        "exceptions": sum(1 for _, name in failing if name == EXCEPTION),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(sum(r.cpu_seconds for r in results) / max(1, len(results)), 3),
        "virtual_seconds": sum(r.virtual_ms for r in results) // 1000,
        "acknowledged": sum(r.acknowledged for r in results),
        "faults_in_all": sum(len(r.plan) for r in results),
        "faults_with_effect": faults.total(),
        "failing_seeds": failing_seeds,
        "faults": {kind: faults[kind] for kind in KINDS},
        "rules": {rule: rules[rule] for rule in RULES},
        "runs": [run],
    }


def combined(former: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """Returns one report of both. Kinds of faults and rules that only `former` has are kept."""
    both = {**former, **later}
    for name in _SUMS:
        both[name] = former[name] + later[name]
    both["seconds"] = round(former["seconds"] + later["seconds"], 1)
    cpu_seconds = sum(report["cpu_seconds"] * report["seeds"] for report in (former, later))
    both["cpu_seconds"] = round(cpu_seconds / max(1, both["seeds"]), 3)
    for name in ("failing_seeds", "runs"):
        both[name] = [*former[name], *later[name]]
    for name in ("faults", "rules"):
        kinds = dict.fromkeys([*later[name], *former[name]])
        both[name] = {k: former[name].get(k, 0) + later[name].get(k, 0) for k in kinds}
    return both


def write(path: Path, report: Mapping[str, Any], *, append: bool = False) -> dict[str, Any]:
    """Writes the report, and returns what the file holds then.

    - `append`: add this report to the one in the file
    """
    held = dict(report)
    if append and path.exists():
        held = combined(json.loads(path.read_text()), report)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(held, indent=2) + "\n")
    return held


def ranges(seeds: Iterable[int]) -> str:
    """Returns the seeds as `--seeds` reads them: "3,17,40-60"; a single seed is "3,"."""
    parts = []
    for _, members in groupby(enumerate(sorted(seeds)), lambda pair: pair[1] - pair[0]):
        run = [seed for _, seed in members]
        parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    text = ",".join(parts)
    return f"{text}," if text.isdecimal() else text
