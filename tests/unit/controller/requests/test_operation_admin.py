"""Requests that begin operations, and operations across takeovers."""

from __future__ import annotations

import pytest

from tidelog.errors import ErrorCode
from tidelog.model import TopicPartition
from tidelog_controller.requests import plan_writing
from tidelog_controller.state.admin_requests import (
    AddedBrokers,
    OtherFactor,
    Reassignment,
    Rebalancing,
    RemovedBrokers,
    RequestedReplicas,
    Reversal,
)
from tidelog_runtime.metadata.operations import OperationState
from tidelog_runtime.metadata.schema import decode_topic
from unit.controller.driver import KEYS, cluster
from unit.controller.operated import (
    by_hand,
    catch_up,
    code_of,
    described,
    interrupted,
    operation_of,
    plan_keys,
    plan_of,
    state_of,
    with_topic,
)

# From the request to its end.


def test_manual_moves_are_made_and_the_operation_ends() -> None:
    driver = with_topic()
    request = driver.begin_operation(by_hand((0, (4, 1)), (1, (4, 2))), "op")
    assert code_of(driver, request) is None
    assert operation_of(driver, request).entry.state is OperationState.RUNNING
    catch_up(driver)
    assert [state.replicas for state in driver.states()[:2]] == [(4, 1), (4, 2)]
    assert state_of(driver) is OperationState.DONE


def test_an_operation_is_acknowledged_when_its_key_is_written_and_not_before() -> None:
    driver = with_topic()
    driver.hold_transactions = True
    request = driver.begin_operation(by_hand((0, (4, 1))), "op")
    assert request not in driver.replies
    driver.release()
    assert operation_of(driver, request).operation_id == "op"


@pytest.mark.rule("operation-key-commits-plan")
def test_a_plan_is_written_in_chunks_before_the_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_writing, "MOVES_PER_CHUNK", 2)
    driver = with_topic(5)
    written: list[str] = []
    driver.before_transaction = lambda transaction: written.extend(
        change.key for change in transaction.changes if "/admin/" in change.key
    )
    driver.begin_operation(by_hand(*((n, (4, 1)) for n in range(5))), "op")
    assert written == [*(KEYS.operation_plan("op", n) for n in range(3)), KEYS.operation("op")]


@pytest.mark.rule("operation-key-commits-plan")
def test_an_orphaned_plan_of_a_previous_controller_is_removed() -> None:
    driver = with_topic()
    taken: list[int] = []

    def first_alone(_: object) -> None:
        taken.append(1)
        driver.hold_transactions = True

    driver.before_transaction = first_alone
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    driver.before_transaction = None
    assert plan_keys(driver) == [KEYS.operation_plan("op", 0)]
    driver.take_over()
    assert plan_keys(driver) == []


def test_another_controller_continues_an_operation() -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1)), (1, (4, 2))), "op")
    driver.take_over()
    catch_up(driver)
    assert [state.replicas for state in driver.states()[:2]] == [(4, 1), (4, 2)]
    assert state_of(driver) is OperationState.DONE


@pytest.mark.rule("new-controller-continues-reassignments")
@pytest.mark.parametrize("transactions", range(1, 9))
def test_a_takeover_at_any_transaction_makes_every_move_once(
    transactions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_writing, "MOVES_PER_CHUNK", 1)
    driver = with_topic()
    wanted = by_hand((0, (4, 1)), (1, (4, 2)), (2, (3, 4)))
    interrupted(driver, transactions)
    driver.begin_operation(wanted, "op")
    driver.before_transaction = None
    driver.take_over()
    assert code_of(driver, driver.begin_operation(wanted, "op")) is None
    interrupted(driver, transactions)
    for number in range(3):
        if driver.state(number).moving is not None:
            driver.leader_writes_isr(number, *driver.state(number).replicas)
    driver.watch()
    driver.before_transaction = None
    driver.take_over()
    catch_up(driver)
    assert [state.replicas for state in driver.states()] == [(4, 1), (4, 2), (3, 4)]
    assert state_of(driver) is OperationState.DONE
    assert described(driver).operation.progress.moves_done == 3


def test_an_operation_without_an_answer_from_the_store_is_written_again() -> None:
    driver = with_topic()
    driver.unanswered_transactions = 2
    request = driver.begin_operation(by_hand((0, (4, 1))), "op")
    assert code_of(driver, request) is None
    driver = with_topic()
    driver.unanswered_transactions, driver.apply_unanswered = 2, True
    request = driver.begin_operation(by_hand((0, (4, 1))), "op")
    assert code_of(driver, request) is None


def test_an_operation_without_an_id_gets_one() -> None:
    driver = with_topic()
    operation = operation_of(driver, driver.begin_operation(by_hand((0, (4, 1)))))
    assert KEYS.operation(operation.operation_id) in driver.store.items


def test_concurrent_moves_to_a_broker_are_limited() -> None:
    driver = with_topic(12)
    driver.begin_operation(by_hand(*((n, (4, 1)) for n in range(12))), "op")
    assert sum(state.moving is not None for state in driver.states()) == 5


# Repeated requests, and conflicting ones.


@pytest.mark.rule("operation-key-commits-plan")
def test_the_same_request_with_the_same_id_is_the_same_operation() -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    writes = len(driver.transactions)
    again = driver.begin_operation(by_hand((0, (4, 1))), "op")
    assert operation_of(driver, again).operation_id == "op"
    assert len(driver.transactions) == writes
    driver.take_over()
    catch_up(driver)
    later = driver.begin_operation(by_hand((0, (4, 1))), "op")
    assert operation_of(driver, later).entry.state is OperationState.DONE


def test_a_different_request_with_the_same_id_is_rejected() -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    for other in (by_hand((1, (4, 1))), Rebalancing()):
        request = driver.begin_operation(other, "op")
        assert code_of(driver, request) is ErrorCode.OPERATION_ID_IN_USE


def test_an_id_belongs_to_one_operation_or_one_creation_of_a_topic() -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    creation = driver.create_topic("other", operation_id="op")
    assert code_of(driver, creation) is ErrorCode.OPERATION_ID_IN_USE
    assert code_of(driver, driver.create_topic("other", operation_id="made")) is None
    assert (
        code_of(driver, driver.begin_operation(Rebalancing(), "made"))
        is ErrorCode.OPERATION_ID_IN_USE
    )
    creation = driver.create_topic("third", operation_id="made")
    assert code_of(driver, creation) is ErrorCode.OPERATION_ID_IN_USE


def test_a_request_repeated_while_the_operation_is_written_waits_for_it() -> None:
    driver = with_topic()
    driver.hold_transactions = True
    first = driver.begin_operation(by_hand((0, (4, 1))), "op")
    second = driver.begin_operation(by_hand((0, (4, 1))), "op")
    driver.release()
    assert operation_of(driver, first).operation_id == operation_of(driver, second).operation_id


def test_a_partition_moved_by_another_operation_is_rejected_with_its_name() -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    request = driver.begin_operation(by_hand((0, (4, 2))), "other")
    error = driver.replies[request].error
    assert error is not None
    assert (error.code, "op;" in error.message) == (ErrorCode.PARTITION_BUSY, True)


def test_partitions_belong_to_an_operation_until_it_has_ended() -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1)), (1, (4, 2))), "op")
    driver.leader_writes_isr(0, *driver.state(0).replicas)
    driver.watch()
    assert driver.state(0).replicas == (4, 1)
    request = driver.begin_operation(by_hand((0, (1, 2))), "other")
    assert code_of(driver, request) is ErrorCode.PARTITION_BUSY
    driver.take_over()
    catch_up(driver)
    assert [state.replicas for state in driver.states()[:2]] == [(4, 1), (4, 2)]
    assert state_of(driver) is OperationState.DONE
    driver.begin_operation(by_hand((0, (1, 2))), "other")
    catch_up(driver)
    assert driver.state(0).replicas == (1, 2)


def test_a_partition_in_a_requested_operation_is_busy_too() -> None:
    driver = with_topic()
    driver.hold_transactions = True
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    request = driver.begin_operation(by_hand((0, (4, 2))), "other")
    assert code_of(driver, request) is ErrorCode.PARTITION_BUSY


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (Reassignment(()), ErrorCode.INVALID_REQUEST),
        (by_hand((0, (4, 1)), (0, (4, 2))), ErrorCode.INVALID_REQUEST),
        (by_hand((0, (4, 4))), ErrorCode.INVALID_ASSIGNMENT),
        (by_hand((0, ())), ErrorCode.INVALID_ASSIGNMENT),
        (by_hand((0, (9, 1))), ErrorCode.UNKNOWN_BROKER),
        (by_hand((7, (4, 1))), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (
            Reassignment((RequestedReplicas(TopicPartition("u", 0), (1,)),)),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            Reassignment((RequestedReplicas(TopicPartition("t", 0), (1, 4), (4, 1)),)),
            ErrorCode.REVISION_CONFLICT,
        ),
        (
            Reassignment((RequestedReplicas(TopicPartition("t", 0), (1, 4), (), "other"),)),
            ErrorCode.UNKNOWN_TOPIC_ID,
        ),
        (AddedBrokers((9,)), ErrorCode.UNKNOWN_BROKER),
        (AddedBrokers(()), ErrorCode.INVALID_REQUEST),
        (RemovedBrokers((9,)), ErrorCode.UNKNOWN_BROKER),
        (RemovedBrokers((1, 2, 3)), ErrorCode.NOT_ENOUGH_BROKERS),
        (OtherFactor(("t",), 5), ErrorCode.INVALID_REPLICATION_FACTOR),
        (OtherFactor(("u",), 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (OtherFactor((), 2), ErrorCode.INVALID_REQUEST),
        (Reversal("no-such"), ErrorCode.UNKNOWN_OPERATION),
    ],
)
def test_an_invalid_operation_is_rejected_and_leaves_nothing(
    operation: object, code: ErrorCode
) -> None:
    driver = with_topic()
    before = dict(driver.store.items)
    request = driver.begin_operation(operation, "op")  # type: ignore[arg-type]
    assert code_of(driver, request) is code
    assert driver.store.items == before


def test_a_target_below_the_min_isr_of_the_topic_is_rejected() -> None:
    driver = with_topic()
    driver.alter_config({"min_insync_replicas": "2"})
    request = driver.begin_operation(by_hand((0, (4,))), "op")
    assert code_of(driver, request) is ErrorCode.INVALID_REPLICATION_FACTOR


# Plans.


def test_a_dry_run_returns_the_plan_and_changes_nothing() -> None:
    driver = with_topic()
    before = dict(driver.store.items)
    plan = plan_of(driver, driver.begin_operation(by_hand((0, (4, 1))), dry_run=True))
    assert [(m.partition, m.original, m.target) for m in plan.moves] == [
        (0, driver.state(0).replicas, (4, 1))
    ]
    assert (plan.move_count, plan.minimum) == (1, None)
    assert driver.store.items == before


@pytest.mark.parametrize("dry_run", [False, True])
def test_only_the_expected_plan_is_carried_out(dry_run: bool) -> None:
    driver = with_topic(12)
    shown = plan_of(driver, driver.begin_operation(AddedBrokers((4,)), dry_run=True))
    driver.create_topic("another", partitions=6, replication_factor=2)
    request = driver.begin_operation(
        AddedBrokers((4,)), "op", dry_run=dry_run, expected_plan=shown.digest
    )
    assert code_of(driver, request) is ErrorCode.REVISION_CONFLICT
    assert KEYS.operation("op") not in driver.store.items
    shown = plan_of(driver, driver.begin_operation(AddedBrokers((4,)), dry_run=True))
    request = driver.begin_operation(AddedBrokers((4,)), "op", expected_plan=shown.digest)
    assert plan_of(driver, request).digest == shown.digest
    # A repeated request is the same operation, even if the plan would be different now.
    request = driver.begin_operation(AddedBrokers((4,)), "op", expected_plan=shown.digest)
    assert operation_of(driver, request).operation_id == "op"


def test_the_moves_of_a_dry_run_are_what_the_operation_does() -> None:
    driver = with_topic(12)
    plan = plan_of(driver, driver.begin_operation(AddedBrokers((4,)), dry_run=True))
    assert plan.moves
    driver.begin_operation(AddedBrokers((4,)), "op")
    catch_up(driver)
    replicas = {number: driver.state(number).replicas for number in range(12)}
    assert {m.partition: m.target for m in plan.moves}.items() <= replicas.items()
    shares = [share.replicas_after for share in plan.brokers]
    assert max(shares) - min(shares) <= 1


def test_rebalancing_a_balanced_cluster_ends_at_once() -> None:
    driver = with_topic(12)
    driver.begin_operation(AddedBrokers((4,)), "grow")
    catch_up(driver)
    request = driver.begin_operation(Rebalancing(), "op")
    assert plan_of(driver, request).move_count == 0
    assert state_of(driver) is OperationState.DONE


@pytest.mark.rule("brokers-added-and-removed")
def test_removed_brokers_hold_and_get_nothing_until_they_are_added_again() -> None:
    driver = with_topic(6)
    driver.begin_operation(RemovedBrokers((2,)), "op")
    catch_up(driver)
    assert state_of(driver) is OperationState.DONE
    assert all(2 not in state.replicas for state in driver.states())
    driver.create_topic("u", 8, 2)
    assert all(2 not in state.replicas for state in driver.states("u"))
    driver.begin_operation(AddedBrokers((2,)), "back")
    assert KEYS.broker_removal(2) not in driver.store.items


def test_a_dead_broker_can_be_removed() -> None:
    driver = with_topic(6)
    driver.kill_broker(2)
    driver.watch()
    driver.begin_operation(RemovedBrokers((2,)), "op")
    catch_up(driver)
    assert all(2 not in state.replicas for state in driver.states())


def test_a_new_factor_applies_to_later_partitions_too() -> None:
    driver = with_topic()
    driver.begin_operation(OtherFactor(("t",), 3), "op")
    catch_up(driver)
    assert {len(state.replicas) for state in driver.states()} == {3}
    assert decode_topic(driver.store.items[KEYS.topic("t")].value).replication_factor == 3


@pytest.mark.parametrize("factor", [-1, 0, 4])
def test_a_topic_with_unplaced_partitions_gets_no_impossible_factor(factor: int) -> None:
    driver = cluster(1, 2, 3)
    driver.hold_transactions = True
    driver.create_topic(partitions=1, replication_factor=3)
    driver.kill_broker(3)
    driver.watch()
    driver.release()
    assert driver.states() == []
    request = driver.begin_operation(OtherFactor(("t",), factor), "op")
    assert code_of(driver, request) is ErrorCode.INVALID_REPLICATION_FACTOR
    driver.begin_operation(OtherFactor(("t",), 2), "op")
    assert [len(state.replicas) for state in driver.states()] == [2]


def test_a_topic_change_while_its_factor_is_written_ends_the_request() -> None:
    driver = with_topic()
    driver.hold_transactions = True
    request = driver.begin_operation(OtherFactor(("t",), 3), "op")
    entry = driver.store.items[KEYS.topic("t")]
    driver.store.put(KEYS.topic("t"), entry.value)
    driver.release()
    assert code_of(driver, request) is ErrorCode.REVISION_CONFLICT
    assert KEYS.operation("op") not in driver.store.items
    assert plan_keys(driver) == []


def test_manual_moves_into_one_rack_are_made_with_a_warning() -> None:
    driver = cluster()
    for broker_id, rack in ((1, "a"), (2, "a"), (3, "b")):
        driver.start_broker(broker_id, rack=rack)
    driver.watch()
    driver.create_topic(partitions=2, replication_factor=2, assignment=((1, 3), (2, 3)))
    plan = plan_of(driver, driver.begin_operation(by_hand((0, (1, 2)), (1, (1, 3))), dry_run=True))
    (warning,) = plan.warnings
    assert warning.startswith("t/0 would have two replicas in one rack")
    assert code_of(driver, driver.begin_operation(by_hand((0, (1, 2))), "op")) is None
