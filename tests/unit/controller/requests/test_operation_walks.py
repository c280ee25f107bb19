"""Random walks through the life of one durable operation: answers of the metadata store are lost,
or come late, transactions are carried out long after they were given up, the watch lags,
controllers follow each other, and whoever asked asks again at any moment, while the cluster
changes and with it the plan."""

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
from tidelog_controller.state.admin_requests import AddedBrokers, OperationWanted
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

# Plans of one chunk, of several, and one that depends on what topics there are.
WANTED: tuple[OperationWanted, ...] = (
    AddedBrokers((4,)),
    by_hand((0, (4, 1))),
    by_hand((0, (4, 1)), (1, (4, 2)), (2, (3, 4))),
)


class Fate(enum.Enum):
    """Of a transaction."""

    ANSWERED = "answered"
    UNHEARD = "unheard"  # carried out, without an answer
    LATE = "late"  # given up, and carried out whenever it likes
    HELD = "held"  # under way


class Kind(enum.Enum):
    """Of transactions, by what they write."""

    CHUNK = "chunk"
    OPERATION = "operation"
    REMOVAL = "removal"
    OTHER = "other"


def kind_of(transaction: Transaction) -> Kind:
    change = transaction.changes[0]
    if change.key.startswith(KEYS.operation_plans):
        return Kind.REMOVAL if isinstance(change, Delete) else Kind.CHUNK
    return Kind.OPERATION if change.key.startswith(KEYS.operations) else Kind.OTHER


# Of the next of each kind, the last one first; those after them are answered.
Fates = Mapping[Kind, Sequence[Fate]]


class UnreliableDriver(Driver):
    """`late`, `held`: what the store may yet carry out. `plans_made`: all of the operation."""

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
        self.waiting: list[int] = []  # of this reign

    # What may happen.

    def ask(self, wanted: OperationWanted = WANTED[0]) -> int:
        request = self.driver.begin_operation(wanted, "op")
        self.asked.append(request)
        self.waiting.append(request)
        return request

    def plans_take_long(self, takes_long: bool = True) -> None:
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

    def the_first_that_was_given_up_is_carried_out(self, which: int = 0) -> None:
        if self.driver.late:
            self.driver.store.transact(self.driver.late.pop(which))
            self.driver.watch()

    def the_last_that_was_given_up_is_carried_out(self) -> None:
        self.the_first_that_was_given_up_is_carried_out(-1)

    def the_watch_lags(self) -> None:
        self.driver.watch_lags = not self.driver.watch_lags
        self.driver.watch()

    def another_controller_takes_over(self) -> None:
        self.driver.late += [command.transaction for command in self.driver.held]
        self.driver.plans.clear()
        self.waiting.clear()
        self.driver.watch_lags = self.driver.hold_plans = False
        self.driver.take_over()

    def requests_are_given_up(self) -> None:
        self.driver.pass_time(REQUEST_MS)

    def there_is_a_topic_more(self) -> None:
        self.driver.create_topic("other", 8, 2)

    def there_is_a_topic_less(self) -> None:
        self.driver.delete_topic("other")

    def it_is_cancelled(self) -> None:
        self.driver.cancel_operation("op")

    def replicas_catch_up(self) -> bool:
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

    # What holds all the while.

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
        """The plan of the operation, which is one of those that were made, as it was made; None:
        it has not begun."""
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

    def come_to_rest(self) -> None:
        """Once the store answers, whoever asks gets an answer, and the operation its end."""
        self.driver.fates.clear()
        self.driver.watch_lags = False
        self.plans_take_long(False)
        self.the_store_answers()
        while self.driver.late:
            self.the_first_that_was_given_up_is_carried_out()
        self.requests_are_given_up()
        error = self.driver.replies[self.ask()].error
        assert error is None or error.code is ErrorCode.OPERATION_ID_IN_USE, error
        for _ in range(50):
            if not self.replicas_catch_up():
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
    *(lambda walk, wanted=wanted: walk.ask(wanted) for wanted in WANTED),
    Walk.another_controller_takes_over,
    Walk.another_controller_takes_over,
    Walk.requests_are_given_up,
    Walk.requests_are_given_up,
    Walk.the_store_answers,
    Walk.the_store_answers,
    Walk.the_store_does_not_answer,
    Walk.the_first_that_was_given_up_is_carried_out,
    Walk.the_last_that_was_given_up_is_carried_out,
    Walk.the_watch_lags,
    Walk.plans_take_long,
    Walk.there_is_a_topic_more,
    Walk.there_is_a_topic_less,
    Walk.it_is_cancelled,
    Walk.replicas_catch_up,
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
@given(wanted=st.sampled_from(WANTED), fates=FATES, steps=st.lists(STEPS, min_size=3, max_size=12))
def test_what_is_carried_out_is_one_plan_whole_and_the_one_that_was_answered(
    wanted: OperationWanted, fates: Fates, steps: Sequence[tuple[Callable[[Walk], object], Fates]]
) -> None:
    walk = Walk()
    walk.driver.expect(fates)
    walk.ask(wanted)
    for event, next_fates in steps:
        walk.driver.expect(next_fates)
        event(walk)
        walk.check()
    walk.come_to_rest()


# The shortest of those that went wrong.


def test_a_plan_is_not_begun_while_what_another_controller_removes_of_it_is_under_way() -> None:
    walk = Walk()
    walk.driver.expect({Kind.OPERATION: [Fate.HELD]})
    walk.ask()
    walk.driver.expect({Kind.REMOVAL: [Fate.HELD]})
    walk.another_controller_takes_over()
    walk.ask()
    walk.the_store_answers()
    walk.check()
    walk.come_to_rest()


def test_a_commit_without_an_answer_keeps_its_plan_when_its_request_is_given_up() -> None:
    walk = Walk()
    walk.driver.expect({Kind.OPERATION: [Fate.HELD]})
    request = walk.ask()
    walk.requests_are_given_up()
    error = walk.driver.replies[request].error
    assert error is not None
    assert error.code is ErrorCode.REQUEST_TIMED_OUT
    walk.the_store_answers()
    assert walk.begun() is not None


def test_a_shorter_plan_is_all_that_is_carried_out_beside_what_a_longer_one_has_left() -> None:
    walk = Walk()
    walk.driver.expect({Kind.OPERATION: [Fate.HELD]})
    walk.ask(by_hand((0, (4, 1)), (1, (4, 2)), (2, (3, 4))))
    left = len(plan_keys(walk.driver))
    walk.driver.expect({Kind.REMOVAL: [Fate.HELD]})
    walk.another_controller_takes_over()
    walk.ask(by_hand((0, (4, 1)), (1, (4, 2))))
    begun = walk.begun()
    assert begun is not None
    assert len(begun) < left
    walk.the_store_does_not_answer()
    while walk.replicas_catch_up():
        walk.check()
    progress = described(walk.driver).operation.progress
    assert (progress.moves, progress.moves_done) == (len(begun), len(begun))
    assert len(described(walk.driver).moves) == len(begun)


def with_a_late_commit() -> Walk:
    """Whose request is given up, and whose plan would be another one by now."""
    walk = Walk()
    walk.driver.expect({Kind.OPERATION: [Fate.HELD]})
    walk.ask()
    walk.requests_are_given_up()
    walk.there_is_a_topic_more()
    walk.driver.late = [command.transaction for command in walk.driver.held]
    walk.driver.held.clear()
    return walk


def test_a_commit_that_comes_late_begins_nothing_of_another_plan() -> None:
    walk = with_a_late_commit()
    walk.driver.expect({Kind.OPERATION: [Fate.HELD]})
    request = walk.ask()
    walk.the_first_that_was_given_up_is_carried_out()
    assert walk.begun() is None
    walk.the_store_answers()
    assert walk.begun() == walk.driver.plans_made[-1]
    assert plan_of(walk.driver, request).digest == digest_of(walk.driver.plans_made[-1])


def test_a_plan_that_another_try_has_begun_first_is_not_told_as_ones_own() -> None:
    walk = with_a_late_commit()
    walk.driver.expect({Kind.CHUNK: [Fate.HELD]})
    request = walk.ask()
    walk.the_first_that_was_given_up_is_carried_out()
    walk.the_store_answers()
    assert walk.begun() == walk.driver.plans_made[0] != walk.driver.plans_made[-1]
    assert answer_of(walk.driver, request).plan is None
    assert operation_of(walk.driver, request).entry.moves == len(walk.driver.plans_made[0])


def test_an_operation_that_cannot_be_read_keeps_its_plan_and_its_id() -> None:
    driver = with_topic()
    driver.begin_operation(by_hand((0, (4, 1))), "op")
    kept = plan_keys(driver)
    driver.store.put(KEYS.operation("op"), b"{")
    driver.take_over()
    assert plan_keys(driver) == kept
    again = driver.begin_operation(by_hand((1, (4, 1))), "op")
    assert code_of(driver, again) is ErrorCode.OPERATION_ID_IN_USE
    assert plan_keys(driver) == kept
