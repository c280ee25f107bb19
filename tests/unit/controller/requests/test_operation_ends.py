"""Operations that are cancelled, reversed and described, and the throttle."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.errors import ErrorCode
from tidelog.model import TopicPartition
from tidelog.state_changes.event import Kind, Stage
from tidelog_controller.state.admin_answers import (
    OperationsAnswer,
    ThrottleAnswer,
)
from tidelog_controller.state.admin_requests import (
    AddedBrokers,
    DescribeThrottle,
    ListOperations,
    Reassignment,
    RemovedBrokers,
    Reversal,
    SetThrottle,
)
from tidelog_controller.state.operations import MoveState
from tidelog_runtime.metadata.operations import OperationState, decode_operation
from tidelog_runtime.metadata.schema import encode_leader_and_isr
from tidelog_runtime.metadata.store import Transaction
from unit.controller.driver import CALLER, KEYS, WALL_MS, Driver, cluster
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

# Cancelled and reversed.


@pytest.mark.parametrize("transactions", range(1, 6))
def test_a_takeover_at_any_transaction_of_a_cancellation_ends_it(transactions: int) -> None:
    driver = with_topic()
    before = [state.replicas for state in driver.states()]
    driver.begin_operation(by_hand((0, (4, 1)), (1, (4, 2)), (2, (3, 4))), "op")
    interrupted(driver, transactions)
    driver.cancel_operation("op")
    driver.before_transaction = None
    driver.take_over()
    driver.cancel_operation("op")
    assert [state.replicas for state in driver.states()] == before
    assert state_of(driver) is OperationState.CANCELLED


def test_a_cancelled_operation_reverts_moves_in_progress() -> None:
    driver = with_topic()
    before = [state.replicas for state in driver.states()]
    driver.begin_operation(by_hand((0, (4, 1)), (1, (4, 2))), "op")
    request = driver.cancel_operation("op")
    assert operation_of(driver, request).entry.state is not OperationState.RUNNING
    assert [state.replicas for state in driver.states()] == before
    assert state_of(driver) is OperationState.CANCELLED


def test_moves_completed_before_a_cancellation_stay() -> None:
    driver = with_topic()
    before = [state.replicas for state in driver.states()]
    driver.begin_operation(by_hand((0, (4, 1)), (1, (4, 2))), "op")
    state = driver.state(0)
    driver.leader_writes_isr(0, *state.replicas)
    driver.watch()
    driver.cancel_operation("op")
    assert driver.state(0).replicas == (4, 1)
    assert driver.state(1).replicas == before[1]
    view = described(driver).operation
    assert (view.progress.moves_done, view.progress.moves_dropped) == (1, 1)


def test_a_dry_run_of_a_cancellation_names_the_moves_to_revert() -> None:
    driver = with_topic()
    before = driver.state(0).replicas
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    plan = plan_of(driver, driver.cancel_operation("op", dry_run=True))
    assert [(m.original, m.target) for m in plan.moves] == [((4, 1), before)]
    assert state_of(driver) is OperationState.RUNNING


def test_repeating_a_cancellation_succeeds_and_cancelling_a_done_operation_fails() -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    driver.cancel_operation("op")
    assert code_of(driver, driver.cancel_operation("op")) is None
    driver.begin_operation(by_hand((0, (4, 1))), "other")
    catch_up(driver)
    assert code_of(driver, driver.cancel_operation("other")) is ErrorCode.OPERATION_ENDED
    assert code_of(driver, driver.cancel_operation("no-such")) is ErrorCode.UNKNOWN_OPERATION


def test_a_cancellation_with_an_older_revision_is_rejected() -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    assert code_of(driver, driver.cancel_operation("op", 1)) is ErrorCode.REVISION_CONFLICT


def test_a_repeated_cancellation_with_its_own_revision_succeeds() -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    read = driver.store.items[KEYS.operation("op")].mod_revision
    for _ in range(2):
        assert code_of(driver, driver.cancel_operation("op", read)) is None


def test_a_reversal_moves_replicas_back() -> None:
    driver = with_topic()
    before = [state.replicas for state in driver.states()]
    driver.begin_operation(by_hand((0, (4, 1)), (1, (4, 2))), "op")
    running = driver.begin_operation(Reversal("op"), "back")
    assert code_of(driver, running) is ErrorCode.PARTITION_BUSY
    catch_up(driver)
    driver.begin_operation(Reversal("op"), "back")
    catch_up(driver)
    assert [state.replicas for state in driver.states()] == before


def test_a_reversal_skips_partitions_that_have_changed_since() -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    catch_up(driver)
    driver.begin_operation(by_hand((0, (4, 3))), "later")
    catch_up(driver)
    assert plan_of(driver, driver.begin_operation(Reversal("op"), dry_run=True)).moves == ()


# Descriptions.


def test_an_operation_is_described_with_its_moves_in_pages() -> None:
    driver = with_topic()
    targets = [(4, driver.state(number).replicas[0]) for number in range(3)]
    driver.begin_operation(by_hand(*enumerate(targets)), "op")
    first = described(driver, page_size=2)
    assert [view.move.partition for view in first.moves] == [0, 1]
    assert {view.state for view in first.moves} == {MoveState.ACTIVE}
    assert first.moves[0].waits_for == (4,)
    last = described(driver, page_size=2, page_token=first.next_page_token)
    assert ([v.move.partition for v in last.moves], last.next_page_token) == ([2], "")


def test_progress_counts_moves_and_replicas_and_estimates_the_end() -> None:
    driver = with_topic()
    targets = [(4, driver.state(number).replicas[0]) for number in range(2)]
    driver.begin_operation(by_hand(*enumerate(targets)), "op")
    driver.pass_time(60_000)
    driver.leader_writes_isr(0, *driver.state(0).replicas)
    driver.watch()
    progress = described(driver).operation.progress
    assert (progress.moves, progress.moves_done, progress.moves_active) == (2, 1, 1)
    assert (progress.replicas_to_add, progress.replicas_added) == (2, 1)
    assert progress.estimated_end_ms == WALL_MS + driver.now_ms + 60_000


def test_operations_are_listed_newest_first_in_pages_and_by_state() -> None:
    driver = with_topic()
    for number in range(3):
        driver.begin_operation(by_hand((number, (4, 1))), f"op-{number}")
    driver.cancel_operation("op-1")

    def listed(*states: OperationState, token: str = "", size: int = 0) -> OperationsAnswer:
        answer = driver.ask(ListOperations(0, states, (), size, token)).answer
        assert isinstance(answer, OperationsAnswer)
        return answer

    assert [o.operation_id for o in listed().operations] == ["op-2", "op-1", "op-0"]
    first = listed(size=2)
    rest = listed(size=2, token=first.next_page_token)
    assert [o.operation_id for o in rest.operations] == ["op-0"]
    assert [o.operation_id for o in listed(OperationState.CANCELLED).operations] == ["op-1"]


def test_an_invalid_page_token_is_rejected() -> None:
    driver = with_topic()
    error = driver.ask(ListOperations(0, (), (), 0, "x")).error
    assert error is not None
    assert error.code is ErrorCode.INVALID_REQUEST


def test_the_oldest_operations_beyond_the_limit_are_deleted_with_their_plans() -> None:
    driver = with_topic()
    for number in range(103):
        target = (4, 1) if number % 2 else (1, 4)
        driver.begin_operation(by_hand((0, target)), f"op-{number}")
        catch_up(driver)
    kept = [key for key in driver.store.items if key.startswith(KEYS.operations)]
    assert len(kept) == 100
    assert KEYS.operation("op-2") not in kept
    assert {key.split("/")[-2] for key in plan_keys(driver)} <= {k.split("/")[-1] for k in kept}


def test_an_operation_is_published_from_the_request_to_its_end() -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    catch_up(driver)
    begun = driver.published_events(Kind.OPERATION_BEGUN)
    assert [event.stage for event in begun] == [Stage.REQUESTED, Stage.COMPLETED]
    assert begun[0].details["requested_by"] == CALLER.name
    assert begun[0].details["requested_from"] == CALLER.address
    assert begun[0].change.trace_id == "e5"
    (over,) = driver.published_events(Kind.OPERATION_ENDED, stage=Stage.COMPLETED)
    assert (over.details["state"], over.details["moves_done"]) == ("done", 1)


# The throttle.


def throttle(driver: Driver, bound: int | None, revision: int = 0) -> ThrottleAnswer | ErrorCode:
    reply = driver.ask(SetThrottle(0, bound, revision, dry_run=False, caller=CALLER))
    if reply.error is not None:
        return reply.error.code
    assert isinstance(reply.answer, ThrottleAnswer)
    return reply.answer


def test_the_throttle_is_set_lifted_and_published() -> None:
    driver = cluster(1)
    first = throttle(driver, 5_000)
    assert isinstance(first, ThrottleAnswer)
    assert (first.bytes_per_second, first.before) == (5_000, None)
    assert driver.ask(DescribeThrottle(0)).answer == ThrottleAnswer(5_000, None, first.revision)
    lifted = throttle(driver, None, first.revision)
    assert isinstance(lifted, ThrottleAnswer)
    assert (lifted.bytes_per_second, lifted.before) == (None, 5_000)
    events = driver.published_events(Kind.THROTTLE, stage=Stage.COMPLETED)
    assert [t.details["after"] for t in events] == ["5000 bytes/s", "none"]


def test_a_throttle_below_the_minimum_or_of_an_older_revision_is_rejected() -> None:
    driver = cluster(1)
    assert throttle(driver, 1_023) is ErrorCode.INVALID_REQUEST
    throttle(driver, 5_000)
    assert throttle(driver, 6_000, 1) is ErrorCode.REVISION_CONFLICT


def test_of_two_throttles_with_the_same_expected_revision_one_is_rejected() -> None:
    driver = cluster(1)
    first = throttle(driver, 5_000)
    assert isinstance(first, ThrottleAnswer)
    driver.hold_transactions = True
    for request, bound in ((101, 6_000), (102, 7_000)):
        driver.feed(SetThrottle(request, bound, first.revision, dry_run=False))
    driver.release()
    assert code_of(driver, 101) is None
    assert code_of(driver, 102) is ErrorCode.REVISION_CONFLICT
    assert driver.ask(DescribeThrottle(0)).answer == ThrottleAnswer(6_000, None, first.revision + 1)


def test_moves_to_a_broker_that_has_not_taken_its_full_state_are_delayed() -> None:
    driver = with_topic()
    driver.start_broker(5).mute = True
    driver.watch()
    driver.begin_operation(by_hand((0, (5, 1)), (1, (4, 2))), "op")
    assert [state.moving is not None for state in driver.states()] == [False, True, False]
    driver.brokers[5].mute = False
    driver.answer(driver.unanswered.pop())
    assert driver.state(0).moving is not None


def test_a_running_operation_names_the_brokers_and_partitions_it_waits_for() -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1)), (1, (4, 2))), "op")
    assert described(driver).operation.entry.reason == ""
    driver.kill_broker(4)
    driver.watch()
    waits = "waits for broker 4 to run and to take what the controller tells"
    assert described(driver).operation.entry.reason == waits
    driver.kill_broker(2)
    driver.kill_broker(3)
    driver.watch()
    reason = described(driver).operation.entry.reason
    assert reason.startswith("waits for t/0 to have a leader, and for brokers 2, 4 to run")


def test_a_cancelled_operation_names_the_replicas_it_waits_for() -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    state = driver.state(0)
    original = state.replicas[:2]
    driver.leader_writes_isr(0, *state.replicas[:2], 4)
    for broker_id in original:
        driver.kill_broker(broker_id)
    driver.watch()
    driver.cancel_operation("op")
    reason = described(driver).operation.entry.reason
    brokers = ", ".join(str(b) for b in sorted(original))
    assert reason == (f"cancelled by ann; waits for brokers {brokers} to be in sync again with t/0")


def test_moves_to_an_absent_broker_wait_for_its_return() -> None:
    driver = with_topic()
    driver.hold_transactions = True
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    driver.kill_broker(4)
    driver.watch()
    driver.release()
    assert state_of(driver) is OperationState.RUNNING
    assert driver.state(0).moving is None
    driver.start_broker(4)
    driver.watch()
    assert driver.state(0).moving is not None


def test_a_removal_whose_broker_got_a_replica_at_its_beginning_fails_and_names_it() -> None:
    driver = with_topic()
    elsewhere = next(n for n, state in enumerate(driver.states()) if 1 not in state.replicas)

    def place(transaction: Transaction) -> None:
        if KEYS.operation("op") in {change.key for change in transaction.changes}:
            driver.before_transaction = None
            state = driver.state(elsewhere)
            leader = [member for member in state.isr if member.broker_id == state.leader]
            placed = replace(state, replicas=(state.leader, 1)).with_isr(leader)
            key = KEYS.leader_and_isr(TopicPartition("t", elsewhere))
            driver.store.put(key, encode_leader_and_isr(placed))

    driver.before_transaction = place
    driver.begin_operation(RemovedBrokers((1,)), "op")
    catch_up(driver)
    entry = decode_operation(driver.store.items[KEYS.operation("op")].value)
    assert entry.state is OperationState.FAILED
    assert f"as t/{elsewhere}; remove these brokers again" in entry.reason
    driver.begin_operation(RemovedBrokers((1,)), "again")
    catch_up(driver)
    assert state_of(driver, "again") is OperationState.DONE


def test_a_removal_waits_for_moves_of_another_operation_off_its_brokers() -> None:
    driver = with_topic()
    driver.begin_operation(moving_off(driver, 1), "before")
    driver.begin_operation(RemovedBrokers((1,)), "op")
    view = described(driver).operation
    assert (view.progress.moves, state_of(driver)) == (0, OperationState.RUNNING)
    assert "to be moved off its brokers by other operations" in view.entry.reason
    driver.take_over()
    assert state_of(driver) is OperationState.RUNNING
    catch_up(driver)
    assert state_of(driver) is OperationState.DONE
    assert not any(1 in state.replicas for state in driver.states())


def test_a_removal_fails_if_another_operation_reverts_moves_to_its_brokers() -> None:
    driver = with_topic()
    driver.begin_operation(moving_off(driver, 1), "before")
    driver.begin_operation(RemovedBrokers((1,)), "op")
    driver.cancel_operation("before")
    entry = decode_operation(driver.store.items[KEYS.operation("op")].value)
    assert entry.state is OperationState.FAILED
    assert "remove these brokers again" in entry.reason


def moving_off(driver: Driver, broker_id: int) -> Reassignment:
    """Moves every replica of the broker to the last one."""
    replicas = [(number, state.replicas) for number, state in enumerate(driver.states())]
    return by_hand(
        *(
            (number, tuple(4 if b == broker_id else b for b in before))
            for number, before in replicas
            if broker_id in before
        )
    )


def test_a_removal_ignores_replicas_on_a_broker_that_was_added_again() -> None:
    driver = with_topic()
    driver.begin_operation(RemovedBrokers((1,)), "op")
    driver.begin_operation(AddedBrokers((1,)), "back")
    driver.create_topic("new", partitions=1, replication_factor=1, assignment=((1,),))
    catch_up(driver)
    assert state_of(driver) is OperationState.DONE
