"""`python -m mutants`: plants every bug, and shows by which invariant or anomaly each is found.

Exit status 0: each was found by a name within MAX_SEEDS seeds, or by the model, and nothing
is found where no bug is planted; 1 otherwise. README.md beside this file says what is written.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from commit import checked_out_commit
from mutants.checks import EXCEPTION, MAX_SEEDS, Verdict, explore, replay, simulate
from mutants.planted_bugs import Mutant, all_mutants
from mutants.reach import collect
from mutants.rewrite import PatchError
from mutants.tree import REACHED, ROOT, planted_tree

DEFAULT_JOBS = 2
OUT = Path("out/mutants.json")
# Some mutants alone do not take the place of what all have shown.
PARTIAL_OUT = Path("out/mutants.partial.json")
BASELINE_SEEDS = 60


class Outcome(NamedTuple):
    """`executed`: how often each changed line ran, by "file: code", without those that never
    did."""

    mutant: Mutant
    verdict: Verdict
    seconds: float
    executed: Mapping[str, int]

    @property
    def times_executed(self) -> int:
        return max(self.executed.values(), default=0)

    @property
    def is_found(self) -> bool:
        return bool(self.verdict.found_by) and self.verdict.found_by != EXCEPTION

    @property
    def line(self) -> str:
        found_by, seeds, exceptions = self.verdict[:3]
        if not self.is_found:
            left = f" ({exceptions} by exceptions, which find nothing)" if exceptions else ""
            why = "reached, not judged" if self.executed else "never reached"
            found_by = f"SURVIVES: {why}{left}"
        how = "the model" if self.mutant.model else f"{seeds} seed(s)"
        ran = f"executed {self.times_executed:,} times"
        return f"{self.mutant.name:34} {found_by:52} {how:12} {self.seconds:6.1f} s  {ran}"

    def as_json(self, commit: str) -> dict[str, object]:
        """Returns the keys of a mutant.

        - `name`, `rule`: its name, and the rule that it breaks.
        - `commit`: of the tree; with `RESUME=1` commits may differ between mutants.
        - `found_by`: the name of the invariant or anomaly; null: the bug survived.
        - `checker`: `simulation` or `model`.
        - `seeds`: the number of seeds until it was found; 0 for the model.
        - `seed`: the seed that found it; null: the model did, or nothing.
        - `exceptions`: the number of seeds that ended by an exception.
        - `message`: of the violation; null: the model found it, or nothing did.
        - `times_executed`: the highest count of a changed line; 0: never reached.
        - `executed`: by "file: code", the count of each changed line that ran.
        - `seconds`: the wall time.
        """
        return {
            "name": self.mutant.name,
            "commit": commit,
            "rule": self.mutant.rule,
            "found_by": self.verdict.found_by or None,
            "checker": "model" if self.mutant.model else "simulation",
            "seeds": self.verdict.seeds,
            "seed": self.verdict.seed or None,
            "exceptions": self.verdict.exceptions,
            "message": self.verdict.message or None,
            "times_executed": self.times_executed,
            "executed": dict(self.executed),
            "seconds": round(self.seconds, 1),
        }


def main(argv: Sequence[str] | None = None) -> int:
    options = _parse(argv)
    try:
        planted_bugs = all_mutants()
        mutants = _chosen(planted_bugs, options.only)
    except PatchError as error:
        _say(str(error))
        return 1
    out: Path = options.out or (OUT if len(mutants) == len(planted_bugs) else PARTIAL_OUT)
    former = _read(out) if options.resume else []
    is_done = {entry["name"] for entry in former if entry["found_by"]}
    mutants = [mutant for mutant in mutants if mutant.name not in is_done]
    began = time.monotonic()
    baseline = "" if options.no_baseline else _baseline(mutants, options.jobs)
    if baseline:
        _say(f"without any bug: {baseline}; what is found below shows nothing")
        return 1
    commit = checked_out_commit()
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for future in as_completed([pool.submit(_judge, m, options.seeds) for m in mutants]):
            outcomes.append(future.result())
            _say(outcomes[-1].line)
            _write(out, former, [outcome.as_json(commit) for outcome in outcomes])
    late = [] if options.no_baseline else _also_without(outcomes)
    seconds = time.monotonic() - began
    survivors = [outcome for outcome in outcomes if not outcome.is_found]
    for seed, name in late:
        _say(f"without any bug, seed {seed} shows {name}: what it found above shows nothing")
    _say(f"{len(outcomes) - len(survivors)} of {len(outcomes)} found in {seconds:.0f} s")
    return 1 if survivors or late else 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these alone")
    parser.add_argument("--seeds", type=int, default=MAX_SEEDS, help="of the simulation, at most")
    parser.add_argument("--jobs", type=int, default=DEFAULT_JOBS, help="mutants at a time")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="pass over those that the report says were found, and add to it",
    )
    parser.add_argument("--no-baseline", action="store_true", help="do not run the real rules")
    parser.add_argument("--out", type=Path, help=f"instead of {OUT}, or {PARTIAL_OUT} of some")
    return parser.parse_args(argv)


def _chosen(mutants: list[Mutant], names: Sequence[str] | None) -> list[Mutant]:
    """Raises `PatchError` for a name that there is not."""
    unknown = sorted(set(names or ()) - {mutant.name for mutant in mutants})
    if unknown:
        known = ", ".join(mutant.name for mutant in mutants)
        raise PatchError(f"there is no mutant named {', '.join(unknown)}; there are {known}")
    return [mutant for mutant in mutants if not names or mutant.name in names]


def _judge(mutant: Mutant, seeds: int) -> Outcome:
    began = time.monotonic()
    executed: Mapping[str, int] = {}
    try:
        with planted_tree(mutant) as tree:
            if mutant.model:
                verdict = explore(tree, mutant.model)
            elif mutant.plan:
                verdict = replay(tree, mutant.plan)
            else:
                verdict = simulate(tree, seeds=seeds, faults=mutant.faults, stories=mutant.stories)
            executed = collect(tree / REACHED)
    except PatchError as error:
        _say(str(error))
        verdict = Verdict("")
    return Outcome(mutant, verdict, time.monotonic() - began, executed)


def _baseline(mutants: Sequence[Mutant], jobs: int) -> str:
    """What is found where no bug is planted; '': nothing, as it should be."""
    began = time.monotonic()
    found = simulate(ROOT, seeds=BASELINE_SEEDS, jobs=jobs)
    if found.found_by or found.exceptions:
        return f"seed {found.seeds} shows {found.found_by or EXCEPTION}"
    scenarios = list(dict.fromkeys(mutant.model for mutant in mutants if mutant.model))
    with ThreadPoolExecutor(jobs) as pool:
        verdicts = list(pool.map(lambda scenario: explore(ROOT, scenario), scenarios))
    for scenario, verdict in zip(scenarios, verdicts, strict=True):
        if verdict.found_by:
            return f"the model with {scenario} shows {verdict.found_by}"
        if not verdict.complete:
            return f"the model has not seen every state of {scenario}: give it smaller budgets"
    _say(
        f"without any bug: nothing is found in {BASELINE_SEEDS} seeds and {len(scenarios)} "
        f"scenarios of the model, {time.monotonic() - began:.0f} s"
    )
    return ""


def _also_without(outcomes: Sequence[Outcome]) -> list[tuple[int, str]]:
    """Seeds beyond the baseline that found a bug, and show something without it, too."""
    seeds = sorted({o.verdict.seed for o in outcomes if o.is_found})
    found = []
    for seed in seeds:
        if seed > BASELINE_SEEDS:
            verdict = simulate(ROOT, first=seed, seeds=1)
            if verdict.found_by or verdict.exceptions:
                found.append((seed, verdict.found_by or EXCEPTION))
    return found


def _read(path: Path) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return entries


def _write(
    path: Path, former: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> None:
    """After each, so that a run that is ended can be resumed."""
    entries = {entry["name"]: entry for entry in (*former, *new)}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([entries[name] for name in sorted(entries)], indent=2) + "\n")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
