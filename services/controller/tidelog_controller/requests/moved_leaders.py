"""Leaders of what was moved: an operation that balances leaves its partitions to the leaders
that its plan prefers.

The switch of a move keeps the leader where it can, so when the operation is done brokers that
were added lead little. Soft state of this reign: after a takeover automatic balance does it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidelog.model import TopicPartition
from tidelog.state_changes.event import Cause
from tidelog_controller.policies.leader_moves import WantedLeader
from tidelog_controller.state.context import Context
from tidelog_runtime.metadata.operations import OperationKind, OperationState

# Elections that are wanted at once; others wait for these.
MAX_ELECTED_AT_ONCE = 500

# Their plans show who leads how much afterwards. One by hand, or of another factor, names
# replicas, and leaves leaders alone.
_BALANCING = frozenset(
    (OperationKind.REBALANCE, OperationKind.BROKERS_ADD, OperationKind.BROKERS_REMOVE)
)


class MovedLeaders:
    """`hindrance`: why the replica may not lead the partition now; None: it may, or does."""

    def __init__(
        self,
        context: Context,
        hindrance: Callable[[TopicPartition, WantedLeader], str | None],
    ) -> None:
        self._context = context
        self._hindrance = hindrance
        # Operations that balance and have not ended, as far as this reign has seen.
        self._standing: frozenset[str] = frozenset()
        # Partitions that ended ones have moved, with the trace of the request.
        self._moved: dict[TopicPartition, str] = {}
        self._wanted: dict[TopicPartition, WantedLeader] = {}

    def advance(self) -> Mapping[TopicPartition, WantedLeader]:
        """Who is to lead what now. A preferred replica that cannot lead, or that leads already,
        is not wanted any more."""
        self._note_ended()
        for name, leader in list(self._wanted.items()):
            if self._is_over(name, leader):
                del self._wanted[name]
        while self._moved and len(self._wanted) < MAX_ELECTED_AT_ONCE:
            name = next(iter(self._moved))
            trace_id = self._moved.pop(name)
            state = self._context.state_to_stay(name)
            if state is not None:
                leader = WantedLeader(state.replicas[0], False, Cause.PREFERRED_LEADER, trace_id)
                if not self._is_over(name, leader):
                    self._wanted[name] = leader
        return self._wanted

    def _note_ended(self) -> None:
        operations = self._context.operations
        standing = frozenset(
            operation_id
            for operation_id, held in operations.held.items()
            if held.entry.kind in _BALANCING and not held.entry.state.has_ended
        )
        for operation_id in sorted(self._standing - standing):
            held = operations.held.get(operation_id)
            if held is None or held.entry.state is not OperationState.DONE:
                continue
            for move in operations.moves_of(operation_id):
                self._moved[move.name] = held.entry.trace_id
        self._standing = standing

    def _is_over(self, name: TopicPartition, leader: WantedLeader) -> bool:
        state = self._context.state_to_stay(name)
        return (
            state is None
            or leader.leader in (state.leader, *state.replicas[1:])
            or self._hindrance(name, leader) is not None
        )
