"""Plans are reproducible, stay within their bounds, and have faults of every kind."""

from __future__ import annotations

from collections import Counter

import pytest

from simulation.faults import KINDS, LAST_END_MS, parse_fault
from simulation.injector import FaultInjector
from simulation.plans import MIN_FAULTS, draw_plan
from simulation.world import Settings, World

PLANS = [draw_plan(seed, Settings()) for seed in range(300)]


def test_a_seed_draws_the_same_plan_again() -> None:
    assert draw_plan(7, Settings()) == PLANS[7]


def test_plans_have_enough_faults_and_end_in_time() -> None:
    for plan in PLANS:
        assert len(plan) >= MIN_FAULTS
        assert max(fault.end_ms for fault in plan) <= LAST_END_MS
        assert plan == sorted(plan)


def test_every_kind_is_drawn() -> None:
    assert set(Counter(fault.kind for plan in PLANS for fault in plan)) == set(KINDS)


def test_only_one_machine_loses_data_unless_all_reboot() -> None:
    losing = {"reboot", "empty_disk", "bit_flip", "bad_sector", "failed_fsync"}
    for plan in PLANS:
        assert len({fault.args[0] for fault in plan if fault.kind in losing}) <= 1


def test_a_fault_is_read_as_it_is_written() -> None:
    for plan in PLANS:
        assert [parse_fault(f"  {fault}") for fault in plan] == plan
    with pytest.raises(ValueError, match="is no fault"):
        parse_fault("7 ms: unknown() for 1 ms")


def test_every_kind_can_be_applied() -> None:
    world = World(1)
    assert set(FaultInjector(world).kinds) == set(KINDS)
    world.close()
