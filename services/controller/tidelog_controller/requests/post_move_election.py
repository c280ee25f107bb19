"""Leader elections after the moves of an operation.

An operation that balances leaves its partitions with the leaders that its plan prefers. The switch
of a move keeps the leader if it can. So when all moves are done, brokers that were added lead
little. The operation has not ended then. It ends once its partitions are led by the leaders that
its plan prefers, or by others if these cannot lead. So the next controller continues with elections
that this one leaves undone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidelog.model import TopicPartition
from tidelog.state_changes.event import Cause
from tidelog_controller.policies.leader_transfer import RequestedLeader
from tidelog_controller.state.context import Context
from tidelog_runtime.metadata.operations import OperationKind, OperationState

# Elections that are requested at once; others wait for these.
MAX_ELECTED_AT_ONCE = 500

# The plans of these operations include the leaders. Requested moves, and those of another
# replication factor, name replicas and leave leaders as they are.
_BALANCING = frozenset(
    (OperationKind.REBALANCE, OperationKind.BROKERS_ADD, OperationKind.BROKERS_REMOVE)
)


class PostMoveLeaderElection:
    """`hindrance`: returns why a replica may not lead the partition now; None: it may, or does."""

    def __init__(
        self,
        context: Context,
        hindrance: Callable[[TopicPartition, RequestedLeader], str | None],
    ) -> None:
        self._context = context
        self._hindrance = hindrance
        # Operations whose moves are done and that have not ended: the number of their partitions
        # that have not been checked or wait for their leader.
        self._remaining: dict[str, int] = {}
        self._moved: dict[TopicPartition, str] = {}  # by its operation; not requested yet
        self._wanted: dict[TopicPartition, RequestedLeader] = {}
        self._wanted_by: dict[TopicPartition, str] = {}

    def elections_done(self, operation_id: str) -> bool:
        """Whether an operation whose moves are done needs no further elections."""
        entry = self._context.operations.held[operation_id].entry
        return entry.kind not in _BALANCING or self._remaining.get(operation_id) == 0

    def advance(self) -> Mapping[TopicPartition, RequestedLeader]:
        """The requested leaders, without preferred replicas that cannot lead or lead already."""
        self._note_operations()
        for name, leader in list(self._wanted.items()):
            if self._is_over(name, leader):
                del self._wanted[name]
                self._remaining[self._wanted_by.pop(name)] -= 1
        while self._moved and len(self._wanted) < MAX_ELECTED_AT_ONCE:
            name = next(iter(self._moved))
            self._request_election(name, self._moved.pop(name))
        return self._wanted

    def _request_election(self, name: TopicPartition, operation_id: str) -> None:
        state = self._context.state_to_stay(name)
        if state is not None:
            trace_id = self._context.operations.held[operation_id].entry.trace_id
            leader = RequestedLeader(state.replicas[0], False, Cause.PREFERRED_LEADER, trace_id)
            if not self._is_over(name, leader):
                self._wanted[name], self._wanted_by[name] = leader, operation_id
                return
        self._remaining[operation_id] -= 1

    def _note_operations(self) -> None:
        operations = self._context.operations
        finishing = [
            operation_id
            for operation_id, held in operations.held.items()
            if held.entry.kind in _BALANCING
            and held.entry.state is OperationState.RUNNING
            and (work := operations.work_of(operation_id)) is not None
            and work.is_over
        ]
        if self._remaining.keys() - finishing:
            self._remaining = {i: left for i, left in self._remaining.items() if i in finishing}
            self._moved = {name: i for name, i in self._moved.items() if i in finishing}
            self._wanted_by = {name: i for name, i in self._wanted_by.items() if i in finishing}
            self._wanted = {n: w for n, w in self._wanted.items() if n in self._wanted_by}
        for operation_id in finishing:
            if operation_id not in self._remaining:
                moves = operations.moves_of(operation_id)
                self._remaining[operation_id] = len(moves)
                self._moved.update((move.name, operation_id) for move in moves)

    def _is_over(self, name: TopicPartition, leader: RequestedLeader) -> bool:
        state = self._context.state_to_stay(name)
        return (
            state is None
            or leader.leader in (state.leader, *state.replicas[1:])
            or self._hindrance(name, leader) is not None
        )
