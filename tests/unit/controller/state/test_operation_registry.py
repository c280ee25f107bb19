"""Target moves of operations, and the progress of operations."""

from __future__ import annotations

from dataclasses import replace

from tidelog.model import NO_LEADER, TopicPartition
from tidelog_controller.state.operation_registry import (
    MAX_ENDED_KEPT,
    HeldOperation,
    Hindrance,
    Operations,
    PlanChunk,
)
from tidelog_runtime.metadata.operations import (
    OperationEntry,
    OperationKind,
    OperationMove,
    OperationState,
)
from tidelog_runtime.metadata.schema import LeaderAndIsr, Moving

RUNNING = OperationEntry(
    OperationKind.REASSIGNMENT, "{}", "", "", 0, "a1", OperationState.RUNNING, "", 0, 0, 0, 0
)


def name(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


def move(partition: int, *target: int, original: tuple[int, ...] = (1, 2)) -> OperationMove:
    return OperationMove("t", "id", partition, original, target)


class Table:
    """Keys of partitions, and the operations that depend on them."""

    def __init__(self, *moves: OperationMove, most: int = 2, operation_id: str = "op") -> None:
        self.operations = Operations(most)
        self.states: dict[TopicPartition, LeaderAndIsr | None] = {}
        self.revision = 0
        self.writing: set[TopicPartition] = set()
        if moves:
            self.begin(*moves, operation_id=operation_id)

    def begin(self, *moves: OperationMove, operation_id: str = "op") -> None:
        for planned in moves:
            self.states[planned.name] = self.state(planned.original)
        self.operations.absorb_chunk(operation_id, 0, PlanChunk(moves, 1))
        self.put(operation_id, replace(RUNNING, moves=len(moves), chunks=1))

    def put(self, operation_id: str, entry: OperationEntry) -> None:
        self.revision += 1
        self.operations.absorb(operation_id, HeldOperation(entry, self.revision, self.revision))

    def state(self, replicas: tuple[int, ...], moving: Moving | None = None) -> LeaderAndIsr:
        return LeaderAndIsr("id", replicas, 1, NO_LEADER, 1, (), (), 1, moving=moving)

    def key(self, partition: int, state: LeaderAndIsr | None) -> None:
        self.states[name(partition)] = state
        self.operations.touch(name(partition))

    def activate(self, planned: OperationMove, operation_id: str = "op") -> None:
        moving = Moving(operation_id, planned.original, planned.target)
        self.key(planned.partition, self.state(moving.replicas, moving))

    def switch(self, planned: OperationMove) -> None:
        self.key(planned.partition, self.state(planned.target))

    def wanted(self) -> list[int]:
        """The partitions whose moves are current targets."""
        wanted = self.operations.advance(self.states.get)
        assert wanted is not None
        return sorted(p.partition for p, w in wanted.items() if not w.cancelled)

    def cancelled(self) -> list[int]:
        wanted = self.operations.advance(self.states.get)
        assert wanted is not None
        return sorted(p.partition for p, w in wanted.items() if w.cancelled)

    def over(self) -> list[tuple[str, OperationState, int, int]]:
        return [
            (operation_id, entry.state, entry.moves_done, entry.moves_dropped)
            for operation_id, entry in self.operations.over(self.writing.__contains__)
        ]


def test_concurrent_moves_to_a_broker_are_limited() -> None:
    table = Table(*(move(p, 1, 3) for p in range(5)), most=2)
    assert table.wanted() == [0, 1]


def test_moves_to_other_brokers_do_not_wait_for_a_busy_one() -> None:
    table = Table(move(0, 1, 3), move(1, 1, 3), move(2, 1, 3), move(3, 1, 4), most=2)
    assert table.wanted() == [0, 1, 3]


def test_a_move_that_adds_to_two_brokers_counts_for_both() -> None:
    table = Table(move(0, 3, 4), move(1, 1, 3), move(2, 1, 4), most=1)
    assert table.wanted() == [0]


def test_another_move_becomes_a_target_when_one_is_done() -> None:
    moves = [move(p, 1, 3) for p in range(3)]
    table = Table(*moves, most=1)
    assert table.wanted() == [0]
    table.activate(moves[0])
    assert table.wanted() == [0]
    table.switch(moves[0])
    assert table.wanted() == [1]


def test_a_target_move_stays_when_the_partition_key_changes_before_it_begins() -> None:
    table = Table(*(move(p, 1, 3) for p in range(3)), most=1)
    assert table.wanted() == [0]
    table.key(0, replace(table.state((1, 2)), leader_epoch=9))
    assert table.wanted() == [0]


def test_moves_in_progress_count_at_the_next_controller() -> None:
    moves = [move(p, 1, 3) for p in range(4)]
    table = Table(most=2)
    table.begin(*moves)
    table.activate(moves[2])
    table.activate(moves[3])
    assert table.wanted() == [2, 3]


def test_a_move_that_copies_nothing_waits_for_no_broker() -> None:
    order = [move(p, 2, 1) for p in range(4)]
    table = Table(move(9, 1, 3), *order, most=1)
    assert table.wanted() == [0, 1, 2, 3, 9]


def test_an_operation_is_done_when_all_partitions_have_their_replicas() -> None:
    planned = move(0, 1, 3)
    table = Table(planned)
    table.wanted()
    assert table.over() == []
    table.switch(planned)
    assert table.wanted() == []
    assert table.over() == [("op", OperationState.DONE, 1, 0)]


def test_deleted_partitions_are_dropped() -> None:
    table = Table(move(0, 1, 3), move(1, 1, 3))
    table.wanted()
    table.key(0, None)
    table.key(1, replace(table.state((1, 2)), topic_id="other"))
    assert table.wanted() == []
    assert table.over() == [("op", OperationState.DONE, 0, 2)]


def test_a_cancelled_operation_reverts_moves_in_progress_and_begins_none() -> None:
    moves = [move(p, 1, 3) for p in range(3)]
    table = Table(*moves, most=1)
    table.wanted()
    table.switch(moves[0])
    table.activate(moves[1])
    table.wanted()
    table.put("op", replace(RUNNING, moves=3, chunks=1, state=OperationState.CANCELLING))
    assert table.cancelled() == [1]
    assert table.over() == []
    table.key(1, table.state((1, 2)))
    assert table.cancelled() == []
    assert table.over() == [("op", OperationState.CANCELLED, 1, 2)]


def test_a_cancelled_operation_has_not_ended_while_one_of_its_moves_may_begin() -> None:
    table = Table(move(0, 1, 3))
    table.wanted()
    table.put("op", replace(RUNNING, moves=1, chunks=1, state=OperationState.CANCELLING))
    table.cancelled()
    table.writing.add(name(0))
    assert table.over() == []
    table.writing.clear()
    assert table.over() == [("op", OperationState.CANCELLED, 0, 1)]


def test_the_older_operation_takes_precedence() -> None:
    table = Table(move(0, 1, 3), most=1, operation_id="z")
    table.begin(move(1, 1, 3), operation_id="a")
    assert table.wanted() == [0]


def test_a_partition_is_busy_until_its_operation_has_ended() -> None:
    planned = move(0, 1, 3)
    table = Table(planned, move(1, 1, 3))
    table.wanted()
    assert table.operations.busy_with(name(0), "id") == "op"
    assert table.operations.target_of(name(0)) == (1, 3)
    table.switch(planned)
    table.wanted()
    assert table.operations.target_of(name(0)) is None
    assert table.operations.busy_with(name(0), "id") == "op"
    table.put("op", replace(RUNNING, moves=2, chunks=1, state=OperationState.DONE))
    table.wanted()
    assert table.operations.busy_with(name(0), "id") == ""


def test_a_partition_of_a_later_topic_of_the_name_is_not_busy() -> None:
    table = Table(move(0, 1, 3))
    table.wanted()
    assert table.operations.busy_with(name(0), "later") == ""


def test_an_operation_with_an_incomplete_plan_has_no_targets() -> None:
    table = Table(move(0, 1, 3))
    table.put("op", replace(RUNNING, moves=1, chunks=2))
    assert table.wanted() == []
    assert table.over() == [("op", OperationState.FAILED, 0, 0)]


def test_chunks_without_an_operation_are_orphans() -> None:
    table = Table()
    table.operations.absorb_chunk("op", 0, PlanChunk((move(0, 1, 3),), 1))
    assert table.operations.orphans() == ["op"]
    table.put("op", replace(RUNNING, chunks=1))
    assert table.operations.orphans() == []


def test_the_oldest_ended_operations_are_superfluous_and_running_ones_never() -> None:
    table = Table()
    table.put("runs", RUNNING)
    for number in range(MAX_ENDED_KEPT + 2):
        table.put(f"op-{number}", replace(RUNNING, state=OperationState.DONE))
    assert table.operations.superfluous() == ["op-0", "op-1"]


def test_untouched_partitions_are_not_evaluated_again() -> None:
    table = Table(move(0, 1, 3))
    table.wanted()
    assert table.operations.advance(table.states.get) is None
    table.operations.touch(name(7))
    assert table.operations.advance(table.states.get) is None


def test_no_move_begins_to_a_broker_that_may_not_receive_yet() -> None:
    table = Table(move(0, 1, 3), move(1, 1, 4), move(2, 3, 4), move(3, 2, 1))
    wanted = table.operations.advance(table.states.get, (1, 2, 4))
    assert wanted is not None
    assert sorted(p.partition for p in wanted) == [1, 3]


def test_a_delayed_move_begins_once_its_broker_may_receive() -> None:
    table = Table(move(0, 1, 3))
    assert table.operations.advance(table.states.get, (1, 2)) == {}
    assert table.operations.advance(table.states.get, (1, 2)) is None
    wanted = table.operations.advance(table.states.get, (1, 2, 3))
    assert wanted is not None
    assert len(wanted) == 1


def test_a_delayed_broker_does_not_use_the_limit_of_others() -> None:
    table = Table(move(0, 3, 4), move(1, 1, 4), most=1)
    wanted = table.operations.advance(table.states.get, (1, 2, 4))
    assert wanted is not None
    assert [p.partition for p in wanted] == [1]


def test_hindrances_are_distinguished() -> None:
    table = Table(move(0, 1, 4), most=1)
    table.operations.advance(table.states.get, (1, 2, 4))
    hindrances = [table.operations.hindrance(broker_id) for broker_id in (2, 3, 4)]
    assert hindrances == [None, Hindrance.NOT_READY, Hindrance.BUSY]
