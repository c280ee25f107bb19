"""The orders of rolls."""

from __future__ import annotations

from collections import Counter

import pytest

from upgrade.orders import DOCUMENTED, ORDERS, Step, orders_of, rolled_back, without_stops


@pytest.mark.parametrize("order", list(ORDERS))
def test_each_order_changes_every_part_and_stops_twice(order: str) -> None:
    steps = Counter(ORDERS[order])
    assert steps[Step.CONTROLLER] == 2
    assert {steps[step] for step in Step if step is not Step.CONTROLLER} == {1}


@pytest.mark.parametrize("order", list(ORDERS))
def test_a_stop_comes_while_its_parts_are_mixed(order: str) -> None:
    steps = list(ORDERS[order])
    before = steps[: steps.index(Step.STOP_WITH_MIXED_CONTROLLERS)]
    assert before.count(Step.CONTROLLER) == 1
    before = steps[: steps.index(Step.STOP_WITH_MIXED_BROKERS)]
    assert sum(step.startswith("broker-") for step in before) in (1, 2)


def test_a_roll_back_reverses_the_order() -> None:
    steps = ORDERS[DOCUMENTED]
    assert rolled_back(steps)[::-1] == without_stops(steps)


def test_runs_take_the_orders_in_turn_or_repeat_one() -> None:
    assert orders_of(len(ORDERS) + 1) == [*ORDERS, next(iter(ORDERS))]
    assert orders_of(2, DOCUMENTED) == [DOCUMENTED, DOCUMENTED]
