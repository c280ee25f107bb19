"""Plans that take long to make, and changes meanwhile."""

from __future__ import annotations

import pytest

from tidelog.errors import ErrorCode
from tidelog_controller.requests import plan_queue
from tidelog_controller.requests.request_checks import DEFAULT_TIMEOUT_MS
from tidelog_controller.state.admin_requests import (
    AddedBrokers,
    OtherFactor,
    Rebalancing,
    RemovedBrokers,
    RequestedOperation,
)
from tidelog_runtime.metadata.operations import OperationState
from unit.controller.driver import KEYS, Driver
from unit.controller.operated import (
    by_hand,
    catch_up,
    code_of,
    operation_of,
    plan_keys,
    plan_of,
    state_of,
    with_topic,
)


def held_back(
    operation: RequestedOperation, *, partitions: int = 12, dry_run: bool = False
) -> Driver:
    """The operation `op`, whose plan is being made; its request has the number 2."""
    driver = with_topic(partitions)
    driver.hold_plans = True
    driver.begin_operation(operation, "op", dry_run=dry_run)
    return driver


def test_nothing_is_written_or_answered_before_the_plan_is_made() -> None:
    driver = held_back(AddedBrokers((4,)))
    assert (plan_keys(driver), len(driver.replies)) == ([], 1)
    driver.make_plan()
    assert code_of(driver, 2) is None
    assert KEYS.operation("op") in driver.store.items


def test_a_plan_uses_the_state_known_when_it_was_begun() -> None:
    driver = held_back(Rebalancing(), dry_run=True)
    driver.alter_config({"min_insync_replicas": "1"})
    driver.create_topic("new", partitions=12, replication_factor=1, assignment=((1,),) * 12)
    driver.make_plan()
    assert {move.topic for move in plan_of(driver, 2).moves} <= {"t"}


def test_one_plan_is_made_at_a_time_and_in_order() -> None:
    driver = held_back(by_hand((0, (4, 1))))
    driver.begin_operation(by_hand((1, (4, 2))), "next")
    assert len(driver.plans) == 1
    driver.make_plan()
    assert len(driver.plans) == 2
    assert code_of(driver, 3) is None


def test_a_move_of_a_planned_partition_meanwhile_makes_the_plan_again() -> None:
    driver = held_back(RemovedBrokers((1,)))
    name = next(n for n, state in enumerate(driver.states()) if 1 in state.replicas)
    target = tuple(4 if b == 1 else b for b in driver.state(name).replicas)
    driver.request_move(*target, partition=name)
    driver.leader_writes_isr(name, *driver.state(name).replicas)
    driver.watch()
    driver.make_plan()
    assert len(driver.plans) == 2
    assert code_of(driver, 2) is None
    catch_up(driver)
    assert state_of(driver) is OperationState.DONE


def test_a_partition_placed_on_a_removed_broker_meanwhile_is_moved_off_it_too() -> None:
    driver = held_back(RemovedBrokers((1,)))
    driver.create_topic("new", partitions=1, replication_factor=1, assignment=((1,),))
    driver.make_plan()
    driver.begin_operation(Rebalancing(), "other")
    assert driver.state(0, "new").moving is not None


def test_a_partition_added_meanwhile_gets_the_new_factor_too() -> None:
    driver = held_back(OtherFactor(("t",), 3), partitions=2)
    driver.add_partitions(3)
    driver.make_plan()
    catch_up(driver)
    assert [len(state.replicas) for state in driver.states()] == [3, 3, 3]


def test_the_departure_of_a_planned_broker_meanwhile_makes_the_plan_again() -> None:
    driver = held_back(Rebalancing())
    driver.kill_broker(3)
    driver.watch()
    driver.make_plan()
    assert len(driver.plans) == 2


def test_changes_that_a_plan_does_not_depend_on_are_allowed() -> None:
    driver = held_back(AddedBrokers((4,)))
    driver.leader_writes_isr(0, driver.state(0).leader)
    driver.watch()
    driver.make_plan()
    assert len(driver.plans) == 1


def test_a_plan_invalidated_repeatedly_is_rejected() -> None:
    driver = held_back(AddedBrokers((4,)))
    for round_ in range(plan_queue.MAX_ATTEMPTS):
        kill = round_ % 2 == 0
        driver.kill_broker(3) if kill else driver.start_broker(3)
        driver.watch()
        driver.feed(driver._planned(driver.plans[-1]))
    assert code_of(driver, 2) is ErrorCode.REVISION_CONFLICT
    assert KEYS.operation("op") not in driver.store.items


def test_a_change_while_a_plan_is_written_is_noticed_before_it_begins() -> None:
    driver = with_topic()
    driver.hold_transactions = True
    request = driver.begin_operation(by_hand((0, (4, 1))), "op")
    chunk, driver.held = driver.held, []
    driver.request_move(4, 2)
    driver.release()
    driver.held = chunk
    driver.release()
    assert code_of(driver, request) is ErrorCode.REVISION_CONFLICT
    assert plan_keys(driver) == []


def test_a_plan_that_is_not_made_in_time_begins_nothing() -> None:
    driver = held_back(AddedBrokers((4,)))
    driver.pass_time(DEFAULT_TIMEOUT_MS)
    assert code_of(driver, 2) is ErrorCode.REQUEST_TIMED_OUT
    driver.make_plan()
    assert KEYS.operation("op") not in driver.store.items


def test_the_number_of_waiting_plans_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_queue, "MAX_PLANS_WAITING", 2)
    driver = held_back(by_hand((0, (4, 1))))
    driver.begin_operation(by_hand((1, (4, 2))), "next")
    third = driver.begin_operation(by_hand((2, (4, 2))), "last")
    assert code_of(driver, third) is ErrorCode.REQUEST_TIMED_OUT


def test_a_repeated_request_is_one_operation_also_while_it_is_planned() -> None:
    driver = held_back(AddedBrokers((4,)))
    driver.begin_operation(AddedBrokers((4,)), "op")
    driver.make_plan()
    assert [operation_of(driver, number).operation_id for number in (2, 3)] == ["op", "op"]


def test_a_different_request_with_its_id_is_rejected_while_it_is_planned() -> None:
    driver = held_back(AddedBrokers((4,)))
    for other in (Rebalancing(), RemovedBrokers((4,))):
        request = driver.begin_operation(other, "op")
        assert code_of(driver, request) is ErrorCode.OPERATION_ID_IN_USE


def test_two_plans_for_one_partition_do_not_both_begin() -> None:
    driver = held_back(by_hand((0, (4, 1))))
    second = driver.begin_operation(by_hand((0, (4, 2))), "next")
    driver.make_plan()
    assert code_of(driver, 2) is None
    assert code_of(driver, second) is ErrorCode.PARTITION_BUSY


def test_a_plan_from_a_previous_controller_term_is_discarded() -> None:
    driver = held_back(AddedBrokers((4,)))
    driver.take_over()
    driver.make_plan()
    assert KEYS.operation("op") not in driver.store.items
