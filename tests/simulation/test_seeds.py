"""Many seeds, over as many processes as there are cores: nothing is violated, and together
they exercise every rule and every kind of fault."""

from __future__ import annotations

import pytest

from simulation.__main__ import DEFAULT_JOBS, MIN_SEEDS_FOR_COVERAGE, run_all, summary
from simulation.coverage import never_met
from simulation.faults import parse_fault
from simulation.regressions import PLANS, REGRESSIONS
from simulation.scenario import run_seed


@pytest.mark.timeout(900)
def test_no_seed_violates_anything_and_together_they_exercise_every_rule() -> None:
    first = range(1, MIN_SEEDS_FOR_COVERAGE + 1)
    seeds = [*first, *(seed for seed in REGRESSIONS if seed not in first)]
    results = list(run_all(seeds, DEFAULT_JOBS))
    failed = [f"seed {r.seed}: {r.message}" for r in results if r.violation]
    assert not failed, "\n".join([*failed, "again: make sim SEED=n"])
    report = summary(results, seconds=0)
    for what in ("faults", "rules"):
        counts = report[what]
        assert isinstance(counts, dict)
        assert never_met(counts) == [], f"{what} that no seed has met"


@pytest.mark.parametrize(("seed", "faults", "what"), PLANS)
def test_the_shortest_faults_of_an_old_bug_violate_nothing(
    seed: int, faults: tuple[str, ...], what: str
) -> None:
    result = run_seed(seed, [parse_fault(fault) for fault in faults])
    assert result.violation is None, what
