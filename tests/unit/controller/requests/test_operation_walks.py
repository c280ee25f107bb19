"""Random walks through one durable operation, while the cluster and with it the plan change:

- answers of the metadata store are lost or delayed;
- transactions are applied long after they were given up;
- the watch lags;
- one controller follows another;
- clients repeat their requests at any moment.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.errors import ErrorCode
from tidelog.model import TopicPartition
from tidelog_controller.requests import plan_writing
from tidelog_controller.requests.operation_plans import digest_of
from tidelog_controller.state.admin_answers import OperationAnswer
from tidelog_controller.state.admin_requests import AddedBrokers, RequestedOperation
from tidelog_controller.state.commands import Command, MakePlan, Transact
from tidelog_controller.state.events import Event, OutcomeUnknown, PlanMade
from tidelog_runtime.metadata.operations import (
    OperationMove,
    OperationState,
    decode_moves,
    decode_operation,
)
from tidelog_runtime.metadata.store import Delete, Transaction
from unit.controller.driver import KEYS, MAX_STEPS, WALL_MS, Driver
from unit.controller.operated import (
    answer_of,
    by_hand,
    code_of,
    described,
    operation_of,
    plan_keys,
    plan_of,
    with_topic,
)

REQUEST_MS = 31_000  # until a request that the store does not answer is given up

# Plans of one chunk, of several, and one that depends on the topics of the cluster.
WANTED: tuple[RequestedOperation, ...] = (
    AddedBrokers((4,)),
    by_hand((0, (4, 1))),
    by_hand((0, (4, 1)), (1, (4, 2)), (2, (3, 4))),
)


class Fate(enum.Enum):
    """The fate of a transaction."""

    ANSWERED = "answered"
    UNHEARD = "unheard"  # applied, without an answer
    LATE = "late"  # given up, and applied at any later time
    HELD = "held"  # in flight


class Kind(enum.Enum):
    """The kind of a transaction, by the keys that it writes."""

    CHUNK = "chunk"
    OPERATION = "operation"
    REMOVAL = "removal"
    OTHER = "other"


def kind_of(transaction: Transaction) -> Kind:
    change = transaction.changes[0]
    if change.key.startswith(KEYS.operation_plans):
        return Kind.REMOVAL if isinstance(change, Delete) else Kind.CHUNK
    return Kind.OPERATION if change.key.startswith(KEYS.operations) else Kind.OTHER


# The fates of the next transactions of each kind, the last one first. Later ones are answered.
Fates = Mapping[Kind, Sequence[Fate]]


class UnreliableDriver(Driver):
    """A driver whose store is unreliable.

    - `late`, `held`: transactions that the store may still apply.
    - `plans_made`: all plans of the operation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fates: dict[Kind, list[Fate]] = {}
        self.late: list[Transaction] = []
        self.watch_lags = False
        self.plans_made: list[tuple[OperationMove, ...]] = []

    def expect(self, fates: Fates) -> None:
        self.fates = {kind: list(next_ones) for kind, next_ones in fates.items()}

    def feed(self, event: Event) -> None:
        pending = deque(self.controller.handle(event, self.now_ms, WALL_MS + self.now_ms))
        for _ in range(MAX_STEPS):
            if pending:
                pending.extend(self._carry_out(pending.popleft()))
            elif self.store.unseen and not self.watch_lags:
                pending.extend(self._watch())
            else:
                return
        raise AssertionError("the controller does not come to rest")

    def _carry_out(self, command: Command) -> list[Command]:
        if isinstance(command, Transact):
            fates = self.fates.get(kind_of(command.transaction), [])
            fate = fates.pop() if fates else Fate.ANSWERED
            if fate is Fate.HELD:
                self.held.append(command)
                return []
            if fate is Fate.LATE:
                self.late.append(command.transaction)
                return self._handle(OutcomeUnknown(command.id))
            if fate is Fate.UNHEARD:
                self.store.transact(command.transaction)
                return self._handle(OutcomeUnknown(command.id))
        return super()._carry_out(command)

    def _planned(self, command: MakePlan) -> PlanMade:
        made = super()._planned(command)
        if made.planned is not None:
            self.plans_made.append(made.planned.summary.moves)
        return made


class Walk:
    def __init__(self) -> None:
        self.driver = UnreliableDriver()
        for broker_id in (1, 2, 3):
            self.driver.start_broker(broker_id)
        self.driver.load()
        self.driver.create_topic(partitions=4, replication_factor=2)
        self.driver.start_broker(4)
        self.driver.watch()
        self.asked: list[int] = []
        self.waiting: list[int] = []  # of this controller term

    # Possible events.

    def ask(self, operation: RequestedOperation = WANTED[0]) -> int:
        request = self.driver.begin_operation(operation, "op")
        self.asked.append(request)
        self.waiting.append(request)
        return request

    def delay_plans(self, takes_long: bool = True) -> None:
        self.driver.hold_plans = takes_long
        plans, self.driver.plans = self.driver.plans, []
        for plan in plans[-1:]:
            self.driver.feed(self.driver._planned(plan))

    def the_store_answers(self) -> None:
        held, self.driver.held = self.driver.held, []
        for command in held:
            self.driver.feed(self.driver._transact(command))

    def the_store_does_not_answer(self) -> None:
        held, self.driver.held = self.driver.held, []
        for command in held:
            self.driver.late.append(command.transaction)
            self.driver.feed(OutcomeUnknown(command.id))

    def apply_first_late_transaction(self, which: int = 0) -> None:
        if self.driver.late:
            self.driver.store.transact(self.driver.late.pop(which))
            self.driver.watch()

    def apply_last_late_transaction(self) -> None:
        self.apply_first_late_transaction(-1)

    def the_watch_lags(self) -> None:
        self.driver.watch_lags = not self.driver.watch_lags
        self.driver.watch()

    def elect_another_controller(self) -> None:
        self.driver.late += [command.transaction for command in self.driver.held]
        self.driver.plans.clear()
        self.waiting.clear()
        self.driver.watch_lags = self.driver.hold_plans = False
        self.driver.take_over()

    def give_up_requests(self) -> None:
        self.driver.pass_time(REQUEST_MS)

    def create_a_topic(self) -> None:
        self.driver.create_topic("other", 8, 2)

    def delete_a_topic(self) -> None:
        self.driver.delete_topic("other")

    def cancel_the_operation(self) -> None:
        self.driver.cancel_operation("op")

    def catch_replicas_up(self) -> bool:
        """Whether any partition was being moved."""
        moving = [
            (state, number, topic)
            for topic in ("t", "other")
            for number, state in enumerate(self.driver.states(topic))
            if state.moving is not None
        ]
        for state, number, topic in moving:
            self.driver.leader_writes_isr(number, *state.replicas, topic=topic)
        self.driver.watch()
        return bool(moving)

    # Invariants.

    def check(self) -> None:
        moves = self.begun()
        for request in self.asked:
            reply = self.driver.replies.get(request)
            if reply is None or reply.error is not None:
                continue
            assert isinstance(reply.answer, OperationAnswer)
            assert moves is not None, "it was answered as begun"
            if reply.answer.plan is not None:
                assert reply.answer.plan.digest == digest_of(moves)
        targets = {move.name: move.target for move in moves or ()}
        for topic in ("t", "other"):
            for number, state in enumerate(self.driver.states(topic)):
                if state.moving is not None:
                    assert state.moving.target == targets[TopicPartition(topic, number)]

    def begun(self) -> tuple[OperationMove, ...] | None:
        """The plan of the operation, which is one of the plans that were made, unchanged. None: the
        operation has not begun.
        """
        items = self.driver.store.items
        held = items.get(KEYS.operation("op"))
        if held is None:
            return None
        entry = decode_operation(held.value)
        assert entry.state is not OperationState.FAILED, entry.reason
        chunks = [items[KEYS.operation_plan("op", n)] for n in range(entry.chunks)]
        moves = tuple(move for chunk in chunks for move in decode_moves(chunk.value))
        assert len(moves) == entry.moves
        assert moves in self.driver.plans_made
        return moves

    def finish(self) -> None:
        """Once the store answers, clients get their answers and the operation ends."""
        self.driver.fates.clear()
        self.driver.watch_lags = False
        self.delay_plans(False)
        self.the_store_answers()
        while self.driver.late:
            self.apply_first_late_transaction()
        self.give_up_requests()
        error = self.driver.replies[self.ask()].error
        assert error is None or error.code is ErrorCode.OPERATION_ID_IN_USE, error
        for _ in range(50):
            if not self.catch_replicas_up():
                break
        self.check()
        held = self.driver.store.items[KEYS.operation("op")]
        assert decode_operation(held.value).state.has_ended
        assert set(self.waiting) <= self.driver.replies.keys()
        self.driver.store.delete(KEYS.operation("op"))
        self.driver.watch()
        assert plan_keys(self.driver) == [], "orphans stay"


EVENTS: tuple[Callable[[Walk], object], ...] = (
    Walk.ask,
    *(lambda walk, operation=operation: walk.ask(operation) for operation in WANTED),
    Walk.elect_another_controller,
    Walk.elect_another_controller,
    Walk.give_up_requests,
    Walk.give_up_requests,
    Walk.the_store_answers,
    Walk.the_store_answers,
    Walk.the_store_does_not_answer,
    Walk.apply_first_late_transaction,
    Walk.apply_last_late_transaction,
    Walk.the_watch_lags,
    Walk.delay_plans,
    Walk.create_a_topic,
    Walk.delete_a_topic,
    Walk.cancel_the_operation,
    Walk.catch_replicas_up,
)
FATES = st.fixed_dictionaries({kind: st.lists(st.sampled_from(Fate), max_size=2) for kind in Kind})
STEPS = st.tuples(st.sampled_from(EVENTS), FATES)


@pytest.fixture(autouse=True, scope="module")
def _a_chunk_is_a_move() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(plan_writing, "MOVES_PER_CHUNK", 1)
        yield


@pytest.mark.rule("operation-key-commits-plan")
@pytest.mark.timeout(240)
@settings(max_examples=100, derandomize=True)
@given(
    operation=st.sampled_from(WANTED), fates=FATES, steps=st.lists(STEPS, min_size=3, max_size=12)
)
def test_one_complete_plan_is_carried_out_and_it_is_the_one_answered(
    operation: RequestedOperation,
    fates: Fates,
    steps: Sequence[tuple[Callable[[Walk], object], Fates]],
) -> None:
    walk = Walk()
    walk.driver.expect(fates)
    walk.ask(operation)
    for event, next_fates in steps:
        walk.driver.expect(next_fates)
        event(walk)
        walk.check()
    walk.finish()


# The shortest of the cases that failed.


def test_a_plan_does_not_begin_while_a_removal_of_its_chunks_is_in_flight() -> None:
    walk = Walk()
    walk.driver.expect({Kind.OPERATION: [Fate.HELD]})
    walk.ask()
    walk.driver.expect({Kind.REMOVAL: [Fate.HELD]})
    walk.elect_another_controller()
    walk.ask()
    walk.the_store_answers()
    walk.check()
    walk.finish()


def test_an_unanswered_commit_keeps_its_plan_when_its_request_is_given_up() -> None:
    walk = Walk()
    walk.driver.expect({Kind.OPERATION: [Fate.HELD]})
    request = walk.ask()
    walk.give_up_requests()
    error = walk.driver.replies[request].error
    assert error is not None
    assert error.code is ErrorCode.REQUEST_TIMED_OUT
    walk.the_store_answers()
    assert walk.begun() is not None


def test_leftover_chunks_of_a_longer_plan_are_not_carried_out_with_a_shorter_one() -> None:
    walk = Walk()
    walk.driver.expect({Kind.OPERATION: [Fate.HELD]})
    walk.ask(by_hand((0, (4, 1)), (1, (4, 2)), (2, (3, 4))))
    left = len(plan_keys(walk.driver))
    walk.driver.expect({Kind.REMOVAL: [Fate.HELD]})
    walk.elect_another_controller()
    walk.ask(by_hand((0, (4, 1)), (1, (4, 2))))
    begun = walk.begun()
    assert begun is not None
    assert len(begun) < left
    walk.the_store_does_not_answer()
    while walk.catch_replicas_up():
        walk.check()
    progress = described(walk.driver).operation.progress
    assert (progress.moves, progress.moves_done) == (len(begun), len(begun))
    assert len(described(walk.driver).moves) == len(begun)


def with_a_late_commit() -> Walk:
    """The request is given up, and its plan would be different by now."""
    walk = Walk()
    walk.driver.expect({Kind.OPERATION: [Fate.HELD]})
    walk.ask()
    walk.give_up_requests()
    walk.create_a_topic()
    walk.driver.late = [command.transaction for command in walk.driver.held]
    walk.driver.held.clear()
    return walk


def test_a_late_commit_does_not_begin_another_plan() -> None:
    walk = with_a_late_commit()
    walk.driver.expect({Kind.OPERATION: [Fate.HELD]})
    request = walk.ask()
    walk.apply_first_late_transaction()
    assert walk.begun() is None
    walk.the_store_answers()
    assert walk.begun() == walk.driver.plans_made[-1]
    assert plan_of(walk.driver, request).digest == digest_of(walk.driver.plans_made[-1])


def test_a_plan_begun_by_another_attempt_is_not_reported_as_the_own_plan() -> None:
    walk = with_a_late_commit()
    walk.driver.expect({Kind.CHUNK: [Fate.HELD]})
    request = walk.ask()
    walk.apply_first_late_transaction()
    walk.the_store_answers()
    assert walk.begun() == walk.driver.plans_made[0] != walk.driver.plans_made[-1]
    assert answer_of(walk.driver, request).plan is None
    assert operation_of(walk.driver, request).entry.moves == len(walk.driver.plans_made[0])


def test_an_unreadable_operation_keeps_its_plan_and_its_id() -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    kept = plan_keys(driver)
    driver.store.put(KEYS.operation("op"), b"{")
    driver.take_over()
    assert plan_keys(driver) == kept
    again = driver.begin_operation(by_hand((1, (4, 1))), "op")
    assert code_of(driver, again) is ErrorCode.OPERATION_ID_IN_USE
    assert plan_keys(driver) == kept
