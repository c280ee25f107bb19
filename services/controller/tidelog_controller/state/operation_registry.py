"""Requested operations, their progress, and which of their moves may run now. No I/O.

It knows keys of the store, and partitions by the states that it is given. The state of a move is
that of its partition's key (waiting, active, done, dropped). So it keeps nothing that another
controller could not derive. Only what an event touched is evaluated again: a plan may have 100,000
moves.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog_controller.policies.reassignment import RequestedMove
from tidelog_controller.state.move_bytes import MoveBytes
from tidelog_runtime.metadata.operations import (
    OperationEntry,
    OperationMove,
    OperationState,
)
from tidelog_runtime.metadata.schema import LeaderAndIsr

# Ended operations that are kept for repeated requests and later descriptions.
MAX_ENDED_KEPT = 100
# The limit on active moves that copy nothing, over all operations: they only change the order of
# replicas or drop some.
MAX_MOVES_WITHOUT_COPY = 100
DEFAULT_MAX_MOVES_PER_BROKER = 5


class MoveState(enum.Enum):
    WAITING = "waiting"
    ACTIVE = "active"
    DONE = "done"
    DROPPED = "dropped"


class Hindrance(enum.Enum):
    """Why no further move to a broker may begin.

    NOT_READY: it is gone or has not acknowledged its full state. BUSY: it receives as many moves as
    it may.
    """

    NOT_READY = "not_ready"
    BUSY = "busy"


class HeldOperation(NamedTuple):
    """An operation as stored.

    - `revision`: the modification revision of the operation's key.
    - `number`: its creation revision; newer operations have greater ones.
    """

    entry: OperationEntry
    revision: int
    number: int


class PlanChunk(NamedTuple):
    """`revision`: the modification revision of its key."""

    moves: tuple[OperationMove, ...]
    revision: int


# The partition's state in the store; None: it does not exist, or is being deleted.
StateOf = Callable[[TopicPartition], LeaderAndIsr | None]


@dataclass(slots=True)
class _Work:
    """The remaining work of an operation that has not ended.

    - `planned`: the complete plan.
    - `moves`: those that have not ended.
    - `waiting`: moves that have not begun, by the brokers that they add replicas to, in the order
      of the plan.
    """

    planned: tuple[OperationMove, ...]
    moves: dict[TopicPartition, OperationMove]
    bytes: MoveBytes
    waiting: dict[tuple[int, ...], dict[TopicPartition, None]] = field(default_factory=dict)
    active: dict[TopicPartition, None] = field(default_factory=dict)
    done: int = 0
    dropped: int = 0
    replicas_added: int = 0

    @property
    def is_over(self) -> bool:
        return not self.moves


class Operations:
    def __init__(self, max_moves_per_broker: int = DEFAULT_MAX_MOVES_PER_BROKER) -> None:
        self.max_moves_per_broker = max_moves_per_broker
        self.held: dict[str, HeldOperation] = {}
        self.chunks: dict[str, dict[int, PlanChunk]] = {}
        self._work: dict[str, _Work] = {}
        self._operation_of: dict[TopicPartition, str] = {}
        # By partition: the operation that plans it and the topic's id, also after its move is done.
        self._planned_by: dict[TopicPartition, tuple[str, str]] = {}
        self._changed: dict[str, None] = {}  # operations to be evaluated completely
        self._touched: dict[TopicPartition, None] = {}
        self._receiving: dict[int, int] = {}  # active moves that add a replica, by broker
        self._without_copy = 0
        self._receivers: Collection[int] | None = None

    # Changes in the store.

    def absorb(self, operation_id: str, held: HeldOperation | None) -> None:
        if held is None:
            self.held.pop(operation_id, None)
        else:
            former = self.held.get(operation_id)
            self.held[operation_id] = held._replace(number=former.number) if former else held
        self._changed[operation_id] = None

    def absorb_chunk(self, operation_id: str, number: int, chunk: PlanChunk | None) -> None:
        chunks = self.chunks.setdefault(operation_id, {})
        if chunk is None:
            chunks.pop(number, None)
        else:
            chunks[number] = chunk
        if not chunks:
            del self.chunks[operation_id]
        self._changed[operation_id] = None

    def touch(self, partition: TopicPartition) -> None:
        """The partition's key has changed."""
        if partition in self._operation_of:
            self._touched[partition] = None

    # Derived state.

    def moves_of(self, operation_id: str) -> list[OperationMove]:
        """The operation's moves in the order of the plan, as far as its chunks are known.

        Further chunks are left over from a longer plan under the same id that never began.
        """
        held, chunks = self.held.get(operation_id), self.chunks.get(operation_id, {})
        numbers = range(held.entry.chunks) if held is not None else ()
        return [move for n in numbers if n in chunks for move in chunks[n].moves]

    def has_complete_plan(self, operation_id: str) -> bool:
        """Whether the complete plan is known."""
        held, chunks = self.held.get(operation_id), self.chunks.get(operation_id, {})
        return held is not None and all(n in chunks for n in range(held.entry.chunks))

    def busy_with(self, partition: TopicPartition, topic_id: str) -> str:
        """The operation that has not ended and plans this partition; empty: there is none.

        A partition counts even after its move is done. Another controller evaluates moves by the
        replicas alone, and would repeat this one if another change altered them meanwhile.
        """
        operation_id, planned_id = self._planned_by.get(partition, ("", ""))
        return operation_id if planned_id == topic_id else ""

    def target_of(self, partition: TopicPartition) -> tuple[int, ...] | None:
        """The replicas that a running operation gives the partition.

        None: no move is left for it, or its operation is being cancelled.
        """
        operation_id = self._operation_of.get(partition, "")
        held = self.held.get(operation_id)
        if held is None or held.entry.state is not OperationState.RUNNING:
            return None
        return self._work[operation_id].moves[partition].target

    def work_of(self, operation_id: str) -> _Work | None:
        return self._work.get(operation_id)

    def measured(
        self, partition: TopicPartition, size: int, lacks: Mapping[int, int], now_ms: int
    ) -> None:
        """Takes the leader's measurement: its log's bytes, and how many each new replica lacks."""
        for work in self._work.values():
            work.bytes.measured(partition, size, lacks, now_ms)

    def advance(
        self, state_of: StateOf, receivers: Collection[int] | None = None
    ) -> Mapping[TopicPartition, RequestedMove] | None:
        """Returns the moves requested now; None: nothing has changed.

        `receivers`: brokers to which moves may begin, because they run and have acknowledged their
        full state; None: all.
        """
        others = bool(self._work) and self._receivers != receivers
        self._receivers = receivers
        if not (self._changed or self._touched or others):
            return None
        changed, self._changed = self._changed, {}
        for operation_id in changed:
            self._update_operation(operation_id, state_of)
        touched, self._touched = self._touched, {}
        for partition in touched:
            self._update_move(partition, state_of(partition))
        self._begin_moves()
        return self._requested_moves()

    def over(
        self, writes: Callable[[TopicPartition], bool]
    ) -> Iterable[tuple[str, OperationEntry]]:
        """Operations with no work left, each with its final entry but for the time of its end.

        `writes`: whether a partition's key is being written.
        """
        for operation_id, held in self.held.items():
            if not (held.entry.state.has_ended or self.has_complete_plan(operation_id)):
                reason = "a part of its plan is no longer in the metadata store"
                yield operation_id, replace(held.entry, state=OperationState.FAILED, reason=reason)
        for operation_id, work in self._work.items():
            entry = self.held[operation_id].entry
            cancelled = entry.state is OperationState.CANCELLING
            if not (work.is_over or (cancelled and not work.active)):
                continue
            if any(writes(partition) for partition in work.moves):
                continue  # The write may begin one of its moves.
            state = OperationState.CANCELLED if cancelled else OperationState.DONE
            dropped = work.dropped + len(work.moves)
            reason = entry.reason
            if work.dropped and not cancelled:
                reason = f"{work.dropped} of its moves were dropped: their partitions were deleted"
            ended = replace(
                entry,
                state=state,
                reason=reason,
                moves_done=work.done,
                moves_dropped=dropped,
                bytes_copied=work.bytes.copied,
                moves_unmeasured=len(work.bytes.unmeasured),
            )
            yield operation_id, ended

    def superfluous(self) -> list[str]:
        """Ended operations beyond those that are kept, oldest first."""
        ended = [(h.revision, i) for i, h in self.held.items() if h.entry.state.has_ended]
        return [i for _, i in sorted(ended)[: max(0, len(ended) - MAX_ENDED_KEPT)]]

    def orphans(self) -> list[str]:
        """Operations with chunks of a plan but without a key."""
        return sorted(self.chunks.keys() - self.held.keys())

    def snapshot(self) -> Operations:
        """Returns a read-only copy without the operations' progress."""
        copy = Operations(self.max_moves_per_broker)
        copy.held = dict(self.held)
        copy.chunks = {operation_id: dict(chunks) for operation_id, chunks in self.chunks.items()}
        copy._work = {
            i: _Work(work.planned, dict(work.moves), work.bytes) for i, work in self._work.items()
        }
        copy._operation_of = dict(self._operation_of)
        copy._planned_by = dict(self._planned_by)
        return copy

    # Evaluation of moves.

    def _update_operation(self, operation_id: str, state_of: StateOf) -> None:
        former = self._forget(operation_id)
        held = self.held.get(operation_id)
        if held is None or held.entry.state.has_ended or not self.has_complete_plan(operation_id):
            return
        planned = tuple(self.moves_of(operation_id))
        moves = {move.name: move for move in planned}
        known = former.bytes if former else None
        self._work[operation_id] = _Work(planned, moves, MoveBytes(planned, known))
        for move in planned:
            self._planned_by[move.name] = (operation_id, move.topic_id)
        for partition in list(moves):
            self._operation_of[partition] = operation_id
            self._update_move(partition, state_of(partition))

    def _forget(self, operation_id: str) -> _Work | None:
        work = self._work.pop(operation_id, None)
        if work is None:
            return None
        for partition in list(work.active):
            self._leave(work, partition)
        for partition in work.moves:
            self._operation_of.pop(partition, None)
        for move in work.planned:
            self._planned_by.pop(move.name, None)
        return work

    def _update_move(self, partition: TopicPartition, state: LeaderAndIsr | None) -> None:
        operation_id = self._operation_of.get(partition)
        if operation_id is None:
            return
        work = self._work[operation_id]
        move = work.moves[partition]
        was_requested = partition in work.active
        self._leave(work, partition)
        match move_state(move, operation_id, state):
            case MoveState.WAITING if was_requested and self._is_running(operation_id):
                # It was requested before, and its first write may be on the way.
                self._enter(work, partition)
            case MoveState.WAITING:
                work.waiting.setdefault(move.adding, {})[partition] = None
            case MoveState.ACTIVE:
                self._enter(work, partition)
            case MoveState.DONE:
                work.done += 1
                work.replicas_added += len(move.adding)
                work.bytes.done(partition)
                self._end(work, partition)
            case MoveState.DROPPED:
                work.dropped += 1
                work.bytes.dropped(partition)
                self._end(work, partition)

    def _is_running(self, operation_id: str) -> bool:
        return self.held[operation_id].entry.state is OperationState.RUNNING

    def _end(self, work: _Work, partition: TopicPartition) -> None:
        del work.moves[partition]
        del self._operation_of[partition]

    def _enter(self, work: _Work, partition: TopicPartition) -> None:
        adding = work.moves[partition].adding
        work.active[partition] = None
        for broker_id in adding:
            self._receiving[broker_id] = self._receiving.get(broker_id, 0) + 1
        self._without_copy += not adding

    def _leave(self, work: _Work, partition: TopicPartition) -> None:
        adding = work.moves[partition].adding
        waiting = work.waiting.get(adding, {})
        waiting.pop(partition, None)
        if not waiting:
            work.waiting.pop(adding, None)
        if partition not in work.active:
            return
        del work.active[partition]
        for broker_id in adding:
            self._receiving[broker_id] -= 1
        self._without_copy -= not adding

    def _begin_moves(self) -> None:
        """Begins waiting moves as far as the limits allow; the oldest operation goes first."""
        for operation_id in sorted(self._work, key=lambda i: self.held[i].number):
            if not self._is_running(operation_id):
                continue
            work = self._work[operation_id]
            for adding in list(work.waiting):
                while adding in work.waiting and self._has_room(adding):
                    partition = next(iter(work.waiting[adding]))
                    self._leave(work, partition)
                    self._enter(work, partition)

    def _has_room(self, adding: Sequence[int]) -> bool:
        if not adding:
            return self._without_copy < MAX_MOVES_WITHOUT_COPY
        return not any(self.hindrance(broker_id) for broker_id in adding)

    def hindered(self, operation_id: str) -> Mapping[Hindrance, tuple[int, ...]]:
        """The brokers that its waiting moves wait for, by hindrance, sorted."""
        receivers = sorted({b for adding in self._work[operation_id].waiting for b in adding})
        found = [(b, self.hindrance(b)) for b in receivers]
        return {kind: tuple(b for b, why in found if why is kind) for kind in Hindrance}

    def hindrance(self, broker_id: int) -> Hindrance | None:
        """Why no further move to the broker may begin; None: one may."""
        if self._receivers is not None and broker_id not in self._receivers:
            return Hindrance.NOT_READY
        if self._receiving.get(broker_id, 0) >= self.max_moves_per_broker:
            return Hindrance.BUSY
        return None

    def _requested_moves(self) -> dict[TopicPartition, RequestedMove]:
        wanted: dict[TopicPartition, RequestedMove] = {}
        for operation_id, work in self._work.items():
            entry = self.held[operation_id].entry
            cancelled = entry.state is OperationState.CANCELLING
            for partition in work.active:
                target = work.moves[partition].target
                wanted[partition] = RequestedMove(operation_id, target, cancelled, entry.trace_id)
        return wanted


def move_state(move: OperationMove, operation_id: str, state: LeaderAndIsr | None) -> MoveState:
    """Returns the state of a move, which follows from the partition's key alone."""
    if state is None or state.topic_id != move.topic_id:
        return MoveState.DROPPED
    if state.moving is not None:
        ours = state.moving.operation == operation_id
        return MoveState.ACTIVE if ours else MoveState.WAITING
    return MoveState.DONE if state.replicas == move.target else MoveState.WAITING
