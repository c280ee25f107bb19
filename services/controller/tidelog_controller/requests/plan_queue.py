"""The queue of plans that are being made.

A plan over some ten thousand partitions takes most of a second. So it is made outside the event
loop, from a snapshot taken at its turn. Before anything begins, everything that the plan depends on
is compared with the current state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog_controller.requests.operation_plans import participating_brokers, planned_replicas
from tidelog_controller.requests.rollback import marking
from tidelog_controller.state.commands import MakePlan
from tidelog_controller.state.context import Context
from tidelog_controller.state.events import PlanMade
from tidelog_controller.state.mutations import OperationPlan
from tidelog_runtime.metadata.operations import MarkedAs, OperationEntry, OperationKind

MAX_PLANS_WAITING = 100
# The number of attempts for a plan that changes keep making invalid.
MAX_ATTEMPTS = 3

Make = Callable[[Context], OperationPlan]


class Basis(NamedTuple):
    """What a plan depends on.

    - `layout`: the version of everything but brokers.
    - `brokers`: the participating brokers with their racks.
    """

    layout: int
    brokers: tuple[tuple[int, str], ...]


class Finished(NamedTuple):
    """A plan that is still valid, or why there is none."""

    request_id: int
    planned: OperationPlan | None
    error: TidelogError | None


@dataclass(slots=True)
class _Draft:
    """`confirmed`: the plan is to be carried out, so it has to be valid when it is finished."""

    make: Make
    confirmed: bool
    attempts: int = 0


class PlanQueue:
    """Makes one plan at a time, in the order of the requests."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._drafts: dict[int, _Draft] = {}  # by request
        self._in_flight: tuple[int, int, Basis] | None = None  # plan, request
        self._last_id = 0

    def enqueue(self, request_id: int, make: Make, *, confirmed: bool) -> None:
        if len(self._drafts) >= MAX_PLANS_WAITING:
            raise TidelogError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{len(self._drafts)} plans wait to be made; nothing was started; try again later",
                outcome_unknown=False,
            )
        self._drafts[request_id] = _Draft(make, confirmed)

    def forget(self, request_id: int) -> None:
        self._drafts.pop(request_id, None)

    def due(self) -> MakePlan | None:
        """The plan to make now."""
        if self._in_flight is not None or not self._drafts:
            return None
        request_id, draft = next(iter(self._drafts.items()))
        draft.attempts += 1
        self._last_id += 1
        self._in_flight = (self._last_id, request_id, self.basis())
        return MakePlan(self._last_id, partial(draft.make, self._context.snapshot()))

    def made(self, event: PlanMade) -> Finished | None:
        """Returns the finished plan; None: it is no longer needed, or has to be made again."""
        if self._in_flight is None or self._in_flight[0] != event.id:
            return None
        _, request_id, basis = self._in_flight
        self._in_flight = None
        draft = self._drafts.get(request_id)
        if draft is None:
            return None
        planned, error = event.planned, event.error
        if draft.confirmed and planned is not None and not self._is_still_valid(planned, basis):
            if draft.attempts < MAX_ATTEMPTS:
                return None
            planned, error = None, _cluster_kept_changing()
        del self._drafts[request_id]
        return Finished(request_id, planned, error)

    def basis(self) -> Basis:
        brokers = self._context.racked(participating_brokers(self._context))
        return Basis(self._context.layout_version, tuple((b, rack) for b, rack in brokers))

    def _is_still_valid(self, planned: OperationPlan, basis: Basis) -> bool:
        now = self.basis()
        if now.brokers != basis.brokers:
            return False
        return now.layout == basis.layout or is_current(self._context, planned)


def is_current(context: Context, planned: OperationPlan) -> bool:
    """Whether a plan is still valid.

    Everything that it moves, marks and rewrites has to be as it was when the plan was made. Nothing
    may have been added that it would have to move as well.
    """
    if not is_guarded(context, planned):
        return False
    for move in planned.summary.moves:
        state = context.state_to_stay(move.name)
        if state is None or (state.topic_id, state.replicas) != (move.topic_id, move.original):
            return False
        if state.moving is not None or context.operations.busy_with(move.name, move.topic_id):
            return False
    named = {move.name for move in planned.summary.moves}
    return not (
        _has_new_replicas_to_move(context, planned, named)
        or _has_new_partitions_to_resize(context, planned, named)
    )


def is_guarded(context: Context, planned: OperationPlan) -> bool:
    """Whether everything is unchanged that the transaction compares which begins the operation."""
    if any(marking(context, m.broker_id, m.marked) != m for m in planned.marks):
        return False
    topics = ((context.topics.get(name), revision) for name, revision, _ in planned.topics)
    return all(topic is not None and topic.revision == revision for topic, revision in topics)


def _has_new_replicas_to_move(
    context: Context, planned: OperationPlan, named: Collection[TopicPartition]
) -> bool:
    """Whether a broker that is to be emptied has received a replica since."""
    emptied = [m.broker_id for m in planned.marks if m.marked is MarkedAs.REMOVED]
    return any(
        name not in named and broker_id in planned_replicas(context, name)
        for broker_id in emptied
        for name, _ in context.replicas_on(broker_id)
    )


class OnRemoved(NamedTuple):
    """Partitions with replicas on brokers that a removal empties, sorted.

    Brokers that were added again do not count.

    - `left`: partitions that stay there.
    - `leaving`: partitions that other operations will move off.
    """

    left: list[TopicPartition]
    leaving: list[TopicPartition]


def on_removed(context: Context, operation_id: str, entry: OperationEntry) -> OnRemoved:
    found = OnRemoved([], [])
    if entry.kind is not OperationKind.BROKERS_REMOVE:
        return found
    held = {
        (name, broker_id)
        for broker_id, _ in entry.marks_before
        if (mark := context.removed_brokers.get(broker_id)) is not None
        and mark.entry.operation_id == operation_id
        for name, _ in context.replicas_on(broker_id)
    }
    for name, broker_id in sorted(held):
        replicas = planned_replicas(context, name)
        if replicas:
            (found.left if broker_id in replicas else found.leaving).append(name)
    return found


def _has_new_partitions_to_resize(
    context: Context, planned: OperationPlan, named: Collection[TopicPartition]
) -> bool:
    """Whether a topic with a new factor has got a partition with the previous factor since."""
    return any(
        name not in named and len(replicas) != entry.replication_factor
        for topic, _, entry in planned.topics
        for name in context.partitions_of(topic)
        if (replicas := planned_replicas(context, name))
    )


def _cluster_kept_changing() -> TidelogError:
    return TidelogError(
        ErrorCode.REVISION_CONFLICT,
        f"the cluster changed while the plan was being made, {MAX_ATTEMPTS} times in a row; "
        "nothing was started; try again when brokers and topics are stable",
    )
