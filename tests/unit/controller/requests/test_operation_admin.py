"""Operations as administrators ask for them, and across takeovers."""

from __future__ import annotations

import pytest

from tidelog.errors import ErrorCode
from tidelog.model import TopicPartition
from tidelog.state_changes.event import Kind, Stage
from tidelog_controller.requests import operation_admin
from tidelog_controller.state.admin_answers import (
    OperationAnswer,
    OperationMovesAnswer,
    OperationsAnswer,
    OperationView,
    PlanSummary,
    ThrottleAnswer,
)
from tidelog_controller.state.admin_requests import (
    AddedBrokers,
    DescribeOperation,
    DescribeThrottle,
    ListOperations,
    OtherFactor,
    Reassignment,
    Rebalancing,
    RemovedBrokers,
    Reversal,
    SetThrottle,
    WantedReplicas,
)
from tidelog_controller.state.operations import MoveState
from tidelog_runtime.metadata.operations import OperationState, decode_operation
from tidelog_runtime.metadata.schema import decode_topic
from unit.controller.driver import ASKER, KEYS, WALL_MS, Driver, cluster


def by_hand(*moves: tuple[int, tuple[int, ...]]) -> Reassignment:
    return Reassignment(
        tuple(WantedReplicas(TopicPartition("t", number), target) for number, target in moves)
    )


def with_topic(partitions: int = 3, *, brokers: int = 4, factor: int = 2) -> Driver:
    """The last broker has nothing: it came after the topic."""
    driver = cluster(*range(1, brokers))
    driver.create_topic(partitions=partitions, replication_factor=factor)
    driver.start_broker(brokers)
    driver.watch()
    driver.told.clear()
    driver.transcript.clear()
    return driver


def catch_up(driver: Driver) -> None:
    """Every replica of every partition comes into sync, until nothing moves any more."""
    for _ in range(100):
        numbers = range(len(driver.states()))
        moving = [number for number in numbers if driver.state(number).moving is not None]
        if not moving:
            return
        for number in moving:
            state = driver.state(number)
            driver.leader_writes_isr(number, *(b for b in state.replicas if b in driver.brokers))
        driver.watch()
    raise AssertionError("partitions move for ever")


def code_of(driver: Driver, request: int) -> ErrorCode | None:
    error = driver.replies[request].error
    return error.code if error else None


def answer_of(driver: Driver, request: int) -> OperationAnswer:
    answer = driver.replies[request].answer
    assert isinstance(answer, OperationAnswer), driver.replies[request]
    return answer


def plan_of(driver: Driver, request: int) -> PlanSummary:
    plan = answer_of(driver, request).plan
    assert plan is not None
    return plan


def operation_of(driver: Driver, request: int) -> OperationView:
    operation = answer_of(driver, request).operation
    assert operation is not None
    return operation


def state_of(driver: Driver, operation_id: str = "op") -> OperationState:
    return decode_operation(driver.store.items[KEYS.operation(operation_id)].value).state


def described(driver: Driver, operation_id: str = "op", **page: object) -> OperationMovesAnswer:
    asked = {"page_size": 0, "page_token": "", **page}
    answer = driver.ask(DescribeOperation(0, operation_id, **asked)).answer  # type: ignore[arg-type]
    assert isinstance(answer, OperationMovesAnswer)
    return answer


def plan_keys(driver: Driver) -> list[str]:
    return [key for key in driver.store.items if key.startswith(KEYS.operation_plans)]


# From the request to its end.


def test_moves_by_hand_are_made_and_the_operation_ends() -> None:
    driver = with_topic()
    request = driver.begin_operation(by_hand((0, (4, 1)), (1, (4, 2))), "op")
    assert code_of(driver, request) is None
    assert operation_of(driver, request).entry.state is OperationState.RUNNING
    catch_up(driver)
    assert [state.replicas for state in driver.states()[:2]] == [(4, 1), (4, 2)]
    assert state_of(driver) is OperationState.DONE


def test_an_operation_is_replied_when_its_key_is_written_and_not_before() -> None:
    driver = with_topic()
    driver.hold_transactions = True
    request = driver.begin_operation(by_hand((0, (4, 1))), "op")
    assert request not in driver.replies
    driver.release()
    assert operation_of(driver, request).operation_id == "op"


def test_a_plan_is_written_in_chunks_before_the_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_admin, "MOVES_PER_CHUNK", 2)
    driver = with_topic(5)
    written: list[str] = []
    driver.before_transaction = lambda transaction: written.extend(
        change.key for change in transaction.changes if "/admin/" in change.key
    )
    driver.begin_operation(by_hand(*((n, (4, 1)) for n in range(5))), "op")
    assert written == [*(KEYS.operation_plan("op", n) for n in range(3)), KEYS.operation("op")]


def test_what_a_controller_left_of_a_plan_without_an_operation_is_removed() -> None:
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


def test_another_controller_goes_on_with_an_operation() -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1)), (1, (4, 2))), "op")
    driver.take_over()
    catch_up(driver)
    assert [state.replicas for state in driver.states()[:2]] == [(4, 1), (4, 2)]
    assert state_of(driver) is OperationState.DONE


def test_an_operation_without_an_answer_from_the_store_is_written_again() -> None:
    driver = with_topic()
    driver.unanswered_transactions = 2
    request = driver.begin_operation(by_hand((0, (4, 1))), "op")
    assert code_of(driver, request) is None
    driver = with_topic()
    driver.unanswered_transactions, driver.apply_unanswered = 2, True
    request = driver.begin_operation(by_hand((0, (4, 1))), "op")
    assert code_of(driver, request) is None


def test_an_operation_gets_an_id_where_none_is_chosen() -> None:
    driver = with_topic()
    operation = operation_of(driver, driver.begin_operation(by_hand((0, (4, 1)))))
    assert KEYS.operation(operation.operation_id) in driver.store.items


def test_no_more_partitions_move_to_a_broker_at_once_than_may() -> None:
    driver = with_topic(12)
    driver.begin_operation(by_hand(*((n, (4, 1)) for n in range(12))), "op")
    assert sum(state.moving is not None for state in driver.states()) == 5


# The same again, and others.


def test_the_same_request_by_the_same_id_is_the_same_operation() -> None:
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


def test_another_request_by_the_same_id_is_refused() -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    for other in (by_hand((1, (4, 1))), Rebalancing()):
        request = driver.begin_operation(other, "op")
        assert code_of(driver, request) is ErrorCode.OPERATION_ID_IN_USE


def test_who_asks_again_while_it_is_being_written_waits_for_the_same() -> None:
    driver = with_topic()
    driver.hold_transactions = True
    first = driver.begin_operation(by_hand((0, (4, 1))), "op")
    second = driver.begin_operation(by_hand((0, (4, 1))), "op")
    driver.release()
    assert operation_of(driver, first).operation_id == operation_of(driver, second).operation_id


def test_a_partition_that_another_operation_moves_is_refused_with_its_name() -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    request = driver.begin_operation(by_hand((0, (4, 2))), "other")
    error = driver.replies[request].error
    assert error is not None
    assert (error.code, "op;" in error.message) == (ErrorCode.PARTITION_BUSY, True)


def test_a_partition_that_is_only_asked_for_yet_is_busy_too() -> None:
    driver = with_topic()
    driver.hold_transactions = True
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    request = driver.begin_operation(by_hand((0, (4, 2))), "other")
    assert code_of(driver, request) is ErrorCode.PARTITION_BUSY


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (Reassignment(()), ErrorCode.INVALID_REQUEST),
        (by_hand((0, (4, 1)), (0, (4, 2))), ErrorCode.INVALID_REQUEST),
        (by_hand((0, (4, 4))), ErrorCode.INVALID_ASSIGNMENT),
        (by_hand((0, ())), ErrorCode.INVALID_ASSIGNMENT),
        (by_hand((0, (9, 1))), ErrorCode.UNKNOWN_BROKER),
        (by_hand((7, (4, 1))), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (
            Reassignment((WantedReplicas(TopicPartition("u", 0), (1,)),)),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            Reassignment((WantedReplicas(TopicPartition("t", 0), (1, 4), (4, 1)),)),
            ErrorCode.REVISION_CONFLICT,
        ),
        (
            Reassignment((WantedReplicas(TopicPartition("t", 0), (1, 4), (), "other"),)),
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
def test_what_cannot_be_is_refused_and_leaves_nothing(wanted: object, code: ErrorCode) -> None:
    driver = with_topic()
    before = dict(driver.store.items)
    request = driver.begin_operation(wanted, "op")  # type: ignore[arg-type]
    assert code_of(driver, request) is code
    assert driver.store.items == before


def test_a_target_that_min_isr_could_never_be_met_with_is_refused() -> None:
    driver = with_topic()
    driver.alter_config({"min_insync_replicas": "2"})
    request = driver.begin_operation(by_hand((0, (4,))), "op")
    assert code_of(driver, request) is ErrorCode.INVALID_REPLICATION_FACTOR


# Plans.


def test_a_dry_run_gives_the_plan_and_changes_nothing() -> None:
    driver = with_topic()
    before = dict(driver.store.items)
    plan = plan_of(driver, driver.begin_operation(by_hand((0, (4, 1))), dry_run=True))
    assert [(m.partition, m.original, m.target) for m in plan.moves] == [
        (0, driver.state(0).replicas, (4, 1))
    ]
    assert (plan.move_count, plan.minimum) == (1, None)
    assert driver.store.items == before


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


def test_a_balanced_cluster_is_rebalanced_by_nothing_and_at_once() -> None:
    driver = with_topic(12)
    driver.begin_operation(AddedBrokers((4,)), "grow")
    catch_up(driver)
    request = driver.begin_operation(Rebalancing(), "op")
    assert plan_of(driver, request).move_count == 0
    assert state_of(driver) is OperationState.DONE


def test_removed_brokers_hold_nothing_and_get_nothing_until_they_are_added_again() -> None:
    driver = with_topic(6)
    driver.begin_operation(RemovedBrokers((2,)), "op")
    catch_up(driver)
    assert state_of(driver) is OperationState.DONE
    assert all(2 not in state.replicas for state in driver.states())
    driver.create_topic("u", 8, 2)
    assert all(2 not in state.replicas for state in driver.states("u"))
    driver.begin_operation(AddedBrokers((2,)), "back")
    assert KEYS.broker_removal(2) not in driver.store.items


def test_a_dead_broker_is_removed_too() -> None:
    driver = with_topic(6)
    driver.kill_broker(2)
    driver.watch()
    driver.begin_operation(RemovedBrokers((2,)), "op")
    catch_up(driver)
    assert all(2 not in state.replicas for state in driver.states())


def test_another_factor_holds_for_partitions_to_come_too() -> None:
    driver = with_topic()
    driver.begin_operation(OtherFactor(("t",), 3), "op")
    catch_up(driver)
    assert {len(state.replicas) for state in driver.states()} == {3}
    assert decode_topic(driver.store.items[KEYS.topic("t")].value).replication_factor == 3


def test_a_topic_that_changes_while_its_factor_is_written_ends_the_request() -> None:
    driver = with_topic()
    driver.hold_transactions = True
    request = driver.begin_operation(OtherFactor(("t",), 3), "op")
    entry = driver.store.items[KEYS.topic("t")]
    driver.store.put(KEYS.topic("t"), entry.value)
    driver.release()
    assert code_of(driver, request) is ErrorCode.REVISION_CONFLICT
    assert KEYS.operation("op") not in driver.store.items
    assert plan_keys(driver) == []


# Cancelled and reversed.


def test_a_cancelled_operation_takes_back_what_is_under_way() -> None:
    driver = with_topic()
    before = [state.replicas for state in driver.states()]
    driver.begin_operation(by_hand((0, (4, 1)), (1, (4, 2))), "op")
    request = driver.cancel_operation("op")
    assert operation_of(driver, request).entry.state is not OperationState.RUNNING
    assert [state.replicas for state in driver.states()] == before
    assert state_of(driver) is OperationState.CANCELLED


def test_what_was_done_before_it_was_cancelled_stays() -> None:
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


def test_a_dry_run_of_a_cancellation_names_what_goes_back() -> None:
    driver = with_topic()
    before = driver.state(0).replicas
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    plan = plan_of(driver, driver.cancel_operation("op", dry_run=True))
    assert [(m.original, m.target) for m in plan.moves] == [((4, 1), before)]
    assert state_of(driver) is OperationState.RUNNING


def test_cancelling_twice_is_no_fault_and_cancelling_what_is_done_is() -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    driver.cancel_operation("op")
    assert code_of(driver, driver.cancel_operation("op")) is None
    driver.begin_operation(by_hand((0, (4, 1))), "other")
    catch_up(driver)
    assert code_of(driver, driver.cancel_operation("other")) is ErrorCode.OPERATION_ENDED
    assert code_of(driver, driver.cancel_operation("no-such")) is ErrorCode.UNKNOWN_OPERATION


def test_an_older_revision_of_an_operation_is_not_cancelled() -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    assert code_of(driver, driver.cancel_operation("op", 1)) is ErrorCode.REVISION_CONFLICT


def test_a_reversal_moves_back_what_was_moved() -> None:
    driver = with_topic()
    before = [state.replicas for state in driver.states()]
    driver.begin_operation(by_hand((0, (4, 1)), (1, (4, 2))), "op")
    running = driver.begin_operation(Reversal("op"), "back")
    assert code_of(driver, running) is ErrorCode.PARTITION_BUSY
    catch_up(driver)
    driver.begin_operation(Reversal("op"), "back")
    catch_up(driver)
    assert [state.replicas for state in driver.states()] == before


def test_a_reversal_leaves_alone_what_has_moved_on() -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    catch_up(driver)
    driver.begin_operation(by_hand((0, (4, 3))), "later")
    catch_up(driver)
    assert plan_of(driver, driver.begin_operation(Reversal("op"), dry_run=True)).moves == ()


# Looked at.


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


def test_operations_are_listed_the_newest_first_in_pages_and_by_state() -> None:
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


def test_a_page_token_that_was_never_given_is_refused() -> None:
    driver = with_topic()
    error = driver.ask(ListOperations(0, (), (), 0, "x")).error
    assert error is not None
    assert error.code is ErrorCode.INVALID_REQUEST


def test_operations_beyond_those_that_are_kept_go_with_their_plans() -> None:
    driver = with_topic()
    for number in range(103):
        target = (4, 1) if number % 2 else (1, 4)
        driver.begin_operation(by_hand((0, target)), f"op-{number}")
        catch_up(driver)
    kept = [key for key in driver.store.items if key.startswith(KEYS.operations)]
    assert len(kept) == 100
    assert KEYS.operation("op-2") not in kept
    assert {key.split("/")[-2] for key in plan_keys(driver)} <= {k.split("/")[-1] for k in kept}


def test_an_operation_is_told_from_the_request_to_its_end() -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    catch_up(driver)
    begun = driver.tells(Kind.OPERATION_BEGUN)
    assert [told.stage for told in begun] == [Stage.REQUESTED, Stage.COMPLETED]
    assert begun[0].details["requested_by"] == ASKER.name
    assert begun[0].details["requested_from"] == ASKER.address
    assert begun[0].change.trace_id == "e5"
    (over,) = driver.tells(Kind.OPERATION_ENDED, stage=Stage.COMPLETED)
    assert (over.details["state"], over.details["moves_done"]) == ("done", 1)


# The throttle.


def throttle(driver: Driver, bound: int | None, revision: int = 0) -> ThrottleAnswer | ErrorCode:
    reply = driver.ask(SetThrottle(0, bound, revision, dry_run=False, asker=ASKER))
    if reply.error is not None:
        return reply.error.code
    assert isinstance(reply.answer, ThrottleAnswer)
    return reply.answer


def test_the_throttle_is_set_lifted_and_told() -> None:
    driver = cluster(1)
    first = throttle(driver, 5_000)
    assert isinstance(first, ThrottleAnswer)
    assert (first.bytes_per_second, first.before) == (5_000, None)
    assert driver.ask(DescribeThrottle(0)).answer == ThrottleAnswer(5_000, None, first.revision)
    lifted = throttle(driver, None, first.revision)
    assert isinstance(lifted, ThrottleAnswer)
    assert (lifted.bytes_per_second, lifted.before) == (None, 5_000)
    told = driver.tells(Kind.THROTTLE, stage=Stage.COMPLETED)
    assert [t.details["after"] for t in told] == ["5000 bytes/s", "none"]


def test_a_throttle_below_the_least_or_of_an_older_revision_is_refused() -> None:
    driver = cluster(1)
    assert throttle(driver, 1_023) is ErrorCode.INVALID_REQUEST
    throttle(driver, 5_000)
    assert throttle(driver, 6_000, 1) is ErrorCode.REVISION_CONFLICT
