"""Changes besides moves that a cancellation or a reversal reverts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.errors import ErrorCode
from tidelog.state_changes.event import Kind
from tidelog_controller.state.admin_requests import (
    AddedBrokers,
    OtherFactor,
    RemovedBrokers,
    Reversal,
)
from tidelog_runtime.metadata.operations import OperationState, decode_operation
from tidelog_runtime.metadata.schema import decode_topic, encode
from unit.controller.driver import KEYS, Driver
from unit.controller.operated import by_hand, catch_up, code_of, plan_of, state_of, with_topic


def factor(driver: Driver) -> int:
    return decode_topic(driver.store.items[KEYS.topic("t")].value).replication_factor


def marks(driver: Driver, broker_id: int) -> list[str]:
    both = (KEYS.broker_addition(broker_id), KEYS.broker_removal(broker_id))
    return [key.split("/")[-2] for key in both if key in driver.store.items]


def test_a_cancellation_restores_the_replication_factor_of_a_topic() -> None:
    driver = with_topic()
    driver.begin_operation(OtherFactor(("t",), 3), "op")
    assert factor(driver) == 3
    driver.cancel_operation("op")
    assert factor(driver) == 2
    catch_up(driver)
    assert state_of(driver) is OperationState.CANCELLED


def test_completed_partitions_keep_the_new_factor() -> None:
    driver = with_topic()
    driver.begin_operation(OtherFactor(("t",), 3), "op")
    driver.leader_writes_isr(0, *driver.state(0).replicas)
    driver.watch()
    driver.cancel_operation("op")
    catch_up(driver)
    assert [len(state.replicas) for state in driver.states()] == [3, 2, 2]
    assert factor(driver) == 2


def test_a_factor_set_by_another_request_since_then_stays() -> None:
    driver = with_topic()
    driver.begin_operation(OtherFactor(("t",), 3), "op")
    entry = decode_topic(driver.store.items[KEYS.topic("t")].value)
    driver.store.put(KEYS.topic("t"), encode(replace(entry, replication_factor=1)))
    driver.watch()
    driver.cancel_operation("op")
    assert factor(driver) == 1


def test_a_factor_below_the_min_isr_of_the_topic_is_not_restored() -> None:
    driver = with_topic()
    driver.begin_operation(OtherFactor(("t",), 3), "op")
    entry = decode_topic(driver.store.items[KEYS.topic("t")].value)
    asking = replace(entry, config={"min_insync_replicas": "3"})
    driver.store.put(KEYS.topic("t"), encode(asking))
    driver.watch()
    driver.cancel_operation("op")
    assert factor(driver) == 3


def test_a_broker_whose_removal_is_cancelled_takes_replicas_again() -> None:
    driver = with_topic()
    driver.begin_operation(RemovedBrokers((1,)), "op")
    assert marks(driver, 1) == ["brokers_remove"]
    driver.cancel_operation("op")
    assert marks(driver, 1) == []


def test_a_removed_broker_that_had_been_added_is_marked_as_added_again() -> None:
    driver = with_topic(12)
    driver.begin_operation(AddedBrokers((4,)), "add")
    catch_up(driver)
    driver.begin_operation(RemovedBrokers((4,)), "op")
    driver.cancel_operation("op")
    assert marks(driver, 4) == ["brokers_add"]


def test_a_broker_whose_addition_is_cancelled_is_as_before() -> None:
    driver = with_topic(12)
    driver.begin_operation(AddedBrokers((4,)), "op")
    driver.cancel_operation("op")
    assert marks(driver, 4) == []
    catch_up(driver)
    driver.begin_operation(RemovedBrokers((3,)), "out")
    catch_up(driver)
    driver.begin_operation(AddedBrokers((3,)), "back")
    driver.cancel_operation("back")
    assert marks(driver, 3) == ["brokers_remove"]


def test_a_mark_set_by_another_operation_since_then_stays() -> None:
    driver = with_topic(1)
    idle = next(b for b in (1, 2, 3) if b not in driver.state().replicas)
    first = driver.state().replicas[0]
    driver.begin_operation(RemovedBrokers((first, idle)), "op")
    driver.begin_operation(AddedBrokers((idle,)), "other")
    driver.cancel_operation("op")
    assert (marks(driver, first), marks(driver, idle)) == ([], ["brokers_add"])


def test_the_changes_are_written_with_the_cancellation() -> None:
    driver = with_topic()
    driver.begin_operation(RemovedBrokers((1,)), "op")
    driver.unanswered_transactions, driver.apply_unanswered = 1, True
    request = driver.cancel_operation("op")
    assert code_of(driver, request) is None
    written = [
        {change.key for change in transaction.changes}
        for transaction in driver.transactions
        if KEYS.broker_removal(1) in {change.key for change in transaction.changes}
    ]
    assert written[-1] == {KEYS.operation("op"), KEYS.broker_removal(1)}


def test_a_new_controller_knows_what_to_revert() -> None:
    driver = with_topic()
    driver.begin_operation(OtherFactor(("t",), 3), "op")
    driver.take_over()
    driver.cancel_operation("op")
    assert factor(driver) == 2


@pytest.mark.parametrize("operation", [OtherFactor(("t",), 3), RemovedBrokers((1,))])
def test_previous_marks_are_encoded_in_the_store(operation: object) -> None:
    driver = with_topic()
    driver.begin_operation(operation, "op")  # type: ignore[arg-type]
    entry = decode_operation(driver.store.items[KEYS.operation("op")].value)
    topic_id = decode_topic(driver.store.items[KEYS.topic("t")].value).topic_id
    factors = (
        ((("t", topic_id, 2),), ()) if isinstance(operation, OtherFactor) else ((), ((1, ""),))
    )
    assert (entry.factors_before, entry.marks_before) == factors


def test_an_ended_operation_is_not_reverted() -> None:
    driver = with_topic()
    driver.begin_operation(RemovedBrokers((1,)), "op")
    catch_up(driver)
    assert code_of(driver, driver.cancel_operation("op")) is ErrorCode.OPERATION_ENDED
    assert marks(driver, 1) == ["brokers_remove"]


# Reversals.


def test_a_reversal_restores_the_factor_of_a_topic_where_all_partitions_have_it() -> None:
    driver = with_topic()
    driver.begin_operation(OtherFactor(("t",), 3), "op")
    catch_up(driver)
    driver.begin_operation(Reversal("op"), "back")
    catch_up(driver)
    assert {len(state.replicas) for state in driver.states()} == {2}
    assert factor(driver) == 2
    driver.begin_operation(Reversal("back"), "again")
    catch_up(driver)
    assert factor(driver) == 3


def test_a_reversal_keeps_the_factor_where_a_later_partition_has_it() -> None:
    driver = with_topic()
    driver.begin_operation(OtherFactor(("t",), 3), "op")
    catch_up(driver)
    driver.add_partitions(4)
    driver.begin_operation(Reversal("op"), "back")
    catch_up(driver)
    assert [len(state.replicas) for state in driver.states()] == [2, 2, 2, 3]
    assert factor(driver) == 3


def test_a_cancelled_reversal_restores_the_factor() -> None:
    driver = with_topic()
    driver.begin_operation(OtherFactor(("t",), 1), "op")
    catch_up(driver)
    driver.begin_operation(Reversal("op"), "back")
    assert factor(driver) == 2
    driver.cancel_operation("back")
    assert factor(driver) == 1


def test_a_reversal_below_the_min_isr_of_the_topic_is_rejected() -> None:
    driver = with_topic(factor=1)
    driver.begin_operation(OtherFactor(("t",), 2), "op")
    catch_up(driver)
    driver.alter_config({"min_insync_replicas": "2"})
    request = driver.begin_operation(Reversal("op"), "back")
    assert code_of(driver, request) is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_reversed_removal_fills_its_broker_again() -> None:
    driver = with_topic()
    before = [state.replicas for state in driver.states()]
    driver.begin_operation(RemovedBrokers((1,)), "op")
    catch_up(driver)
    driver.begin_operation(Reversal("op"), "back")
    catch_up(driver)
    assert [state.replicas for state in driver.states()] == before
    assert KEYS.broker_removal(1) not in driver.store.items
    driver.begin_operation(RemovedBrokers((1,)), "again")
    catch_up(driver)
    driver.kill_broker(1)
    driver.watch()
    assert code_of(driver, driver.begin_operation(RemovedBrokers((1,)), "last")) is None


# Warnings and published events.


def warnings_of(driver: Driver, request: int) -> tuple[str, ...]:
    return plan_of(driver, request).warnings


def test_a_restored_factor_is_announced_and_published_with_the_cancellation() -> None:
    driver = with_topic()
    driver.begin_operation(OtherFactor(("t",), 3), "op")
    goes_back = "topic t gets replication factor 2 again"
    shown = driver.cancel_operation("op", dry_run=True)
    assert warnings_of(driver, shown) == (f"besides the moves, {goes_back}",)
    driver.cancel_operation("op")
    for published in driver.published_events(Kind.OPERATION_CANCELLING):
        assert published.details["taken_back"] == [goes_back]


@pytest.mark.parametrize(
    ("operation", "goes_back"),
    [
        (RemovedBrokers((1,)), "broker 1 is not marked as removed any more"),
        (AddedBrokers((4,)), "broker 4 is not marked as added any more"),
    ],
)
def test_restored_marks_are_announced_and_published_with_the_cancellation(
    operation: RemovedBrokers | AddedBrokers, goes_back: str
) -> None:
    driver = with_topic(12)
    driver.begin_operation(operation, "op")
    shown = driver.cancel_operation("op", dry_run=True)
    assert warnings_of(driver, shown) == (f"besides the moves, {goes_back}",)
    driver.cancel_operation("op")
    (published, *_) = driver.published_events(Kind.OPERATION_CANCELLING)
    assert published.details["taken_back"] == [goes_back]


def test_a_previous_mark_is_announced_as_restored() -> None:
    driver = with_topic(12)
    driver.begin_operation(AddedBrokers((4,)), "add")
    catch_up(driver)
    driver.begin_operation(RemovedBrokers((4,)), "op")
    (warning,) = warnings_of(driver, driver.cancel_operation("op", dry_run=True))
    assert "broker 4 is marked as added again" in warning


def test_a_cancellation_that_reverts_only_moves_has_no_warning() -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    assert warnings_of(driver, driver.cancel_operation("op", dry_run=True)) == ()
    driver.cancel_operation("op")
    (published, *_) = driver.published_events(Kind.OPERATION_CANCELLING)
    assert "taken_back" not in published.details


def test_other_reverted_changes_of_a_reversal_are_announced() -> None:
    driver = with_topic()
    driver.begin_operation(OtherFactor(("t",), 3), "op")
    catch_up(driver)
    plan = plan_of(driver, driver.begin_operation(Reversal("op"), dry_run=True))
    assert plan.warnings == ("besides the moves, topic t gets replication factor 2 again",)
