"""Each stored plan that a planted bug names still finds that bug.

The order of events in a run changes with the code. A plan may then miss what it is for, and shows
nothing: without the bug it is as clean as before.
"""

from __future__ import annotations

import pytest

from mutants.checks import replay
from mutants.planted_bugs import Mutant, all_mutants
from mutants.reach import collect
from mutants.tree import REACHED, changed_parts, planted_tree

PLANNED = [mutant for mutant in all_mutants() if mutant.plan]
# The bugs that random seeds do not find.
MIN_PLANNED = 15


def test_there_are_bugs_with_a_plan() -> None:
    assert len(PLANNED) >= MIN_PLANNED


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", PLANNED, ids=lambda mutant: mutant.name)
def test_the_plan_of_a_planted_bug_finds_it_by_the_name_of_an_invariant(mutant: Mutant) -> None:
    with planted_tree(mutant, changed_parts(mutant)) as tree:
        verdict = replay(tree, mutant.plan)
        executed = collect(tree / REACHED)
    assert verdict.found_by, (
        f"the plan {mutant.plan} misses it ({'reached' if executed else 'never reached'}, "
        f"{verdict.exceptions} exceptions); plan a directed fault that aims at it, as in "
        "simulation/damage_faults.py"
    )
