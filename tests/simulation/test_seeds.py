"""Many seeds over several processes violate nothing.

Together they exercise every rule and every kind of fault.
"""

from __future__ import annotations

import pytest

from simulation.__main__ import DEFAULT_JOBS, MIN_SEEDS_FOR_COVERAGE, run_all
from simulation.coverage import never_met
from simulation.report import summary
from simulation.scenario import run_seed
from simulation.stored_plans import StoredPlan, stored_plans

# These plans always cover what so few seeds meet only by chance.
COVERING_PLANS = frozenset(
    {
        "answer-lost-while-others-arrive",
        "damaged-leader-alone",
        "members-back-before-leader-lost",
        "shorter-log-of-newer-epoch",
        "unclean-election-brought-back",
    }
)


@pytest.mark.timeout(1_150)
def test_no_seed_violates_anything_and_together_they_exercise_every_rule() -> None:
    seeds = range(1, MIN_SEEDS_FOR_COVERAGE + 1)
    results = list(run_all(seeds, DEFAULT_JOBS))
    results += [
        run_seed(plan.seed, plan.faults)
        for plan in stored_plans()
        if plan.name in COVERING_PLANS and plan.seed is not None
    ]
    failed = [f"seed {r.seed}: {r.message}" for r in results if r.violation]
    assert not failed, "\n".join([*failed, "again: make sim SEED=n"])
    report = summary(results, seconds=0)
    for what in ("faults", "rules"):
        assert never_met(report[what]) == [], f"{what} that no seed has met"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("plan", stored_plans(), ids=lambda plan: plan.name)
def test_the_plan_that_revealed_an_old_bug_violates_nothing(plan: StoredPlan) -> None:
    assert plan.seed is not None
    result = run_seed(plan.seed, plan.faults)
    assert result.violation is None, f"{plan.story}: {result.message}"
