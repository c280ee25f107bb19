import random

from simulation.shrink import shrink


def test_only_the_faults_that_cause_the_failure_remain() -> None:
    assert shrink(range(20), lambda plan: 13 in plan) == [13]


def test_faults_that_fail_only_together_all_remain_in_order() -> None:
    assert shrink(range(30), lambda plan: {3, 17, 29} <= set(plan)) == [3, 17, 29]


def test_a_seed_that_fails_without_any_fault_needs_none() -> None:
    assert shrink(range(5), lambda _: True) == []


def test_a_single_fault_is_kept() -> None:
    assert shrink([1], lambda plan: plan == [1]) == [1]


def test_the_result_is_minimal() -> None:
    for seed in range(50):
        rng = random.Random(seed)
        plan = list(range(rng.randint(1, 25)))
        needed = set(rng.sample(plan, rng.randint(1, len(plan))))
        assert shrink(plan, needed.issubset) == sorted(needed)


def test_the_search_ends_after_its_runs_and_keeps_its_best_result() -> None:
    runs = []

    def fails(plan: list[int]) -> bool:
        runs.append(plan)
        return {2, 9, 14} <= set(plan)

    shortest = shrink(range(16), fails, max_runs=5)
    assert len(runs) == 5
    assert {2, 9, 14} <= set(shortest)
    assert len(shortest) < 16
