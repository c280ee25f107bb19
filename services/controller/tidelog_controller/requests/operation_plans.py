"""Makes the plans of operations from current knowledge.

Pure: reads the context, changes nothing. Every rejection is a `TidelogError` that says what would
be valid.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tidelog.admin_messages import BrokerShare
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog_controller.policies.assignment import check_assignment, sharing_a_rack
from tidelog_controller.policies.balancing import (
    Plan,
    plan_rebalance,
    plan_removal,
    plan_replication_factor,
)
from tidelog_controller.policies.replica_limit import check_count
from tidelog_controller.requests.taking_back import (
    factors_taken_back,
    marked_as,
    marking,
    marks_taken_back,
    with_taken_back,
)
from tidelog_controller.requests.topic_checks import (
    check_factor,
    check_revision,
    known_topic,
    no_such_partition,
)
from tidelog_controller.state.admin_answers import PlanSummary
from tidelog_controller.state.admin_requests import (
    AddedBrokers,
    OperationWanted,
    OtherFactor,
    Reassignment,
    Rebalancing,
    RemovedBrokers,
    Reversal,
    WantedReplicas,
)
from tidelog_controller.state.context import Context
from tidelog_controller.state.known import Topic
from tidelog_controller.state.plans import Planned
from tidelog_controller.state.purposes import TopicRewrite
from tidelog_runtime.metadata.operations import (
    MAX_MOVES,
    MarkedAs,
    OperationMove,
    OperationState,
)

# Each takes a guard and a change of the transaction that begins the operation.
MAX_BROKERS_NAMED = 50
MAX_TOPICS_NAMED = 50
# The number of partitions named in a warning.
PARTITIONS_NAMED = 10
# The length of a plan's digest in hexadecimal digits.
DIGEST_LENGTH = 32

Assignment = Mapping[TopicPartition, tuple[int, ...]]


def plan_operation(context: Context, wanted: OperationWanted) -> Planned:
    match wanted:
        case Reassignment(moves):
            planned = Planned(_warned(context, _by_hand(context, moves)))
        case Rebalancing():
            planned = Planned(_rebalanced(context, ()))
        case AddedBrokers(broker_ids):
            planned = _added(context, broker_ids)
        case RemovedBrokers(broker_ids):
            planned = _removed(context, broker_ids)
        case OtherFactor(topics, factor):
            planned = _other_factor(context, topics, factor)
        case Reversal(operation_id):
            planned = _reversal(context, operation_id)
    made = planned.summary.moves
    if len(made) > MAX_MOVES:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"the plan has {len(made)} moves and an operation at most {MAX_MOVES}; move some of "
            "them by hand first",
        )
    _check_not_busy(context, made)
    for share in planned.summary.brokers:
        check_count(share.broker_id, share.replicas_before, share.replicas_after)
    return planned._replace(summary=planned.summary._replace(digest=digest_of(made)))


def digest_of(moves: Iterable[OperationMove]) -> str:
    text = json.dumps([list(move) for move in moves], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]


def check_expected(plan: PlanSummary, expected_plan: str) -> None:
    """Raises REVISION_CONFLICT if the plan differs from the expected one; empty: any plan."""
    if expected_plan and expected_plan != plan.digest:
        raise TidelogError(
            ErrorCode.REVISION_CONFLICT,
            f"the plan would be another one by now, of {plan.move_count} moves and digest "
            f"{plan.digest} instead of {expected_plan[:DIGEST_LENGTH]!r}: the cluster has changed, "
            "or another plan was meant; look at a dry run again, and ask anew if it is still "
            "wanted",
        )


def assignment_of(context: Context) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas of every partition that is not being deleted; during a move, its target."""
    names = (name for topic in sorted(context.topics) for name in context.partitions_of(topic))
    return {name: replicas for name in names if (replicas := planned_replicas(context, name))}


def planned_replicas(context: Context, name: TopicPartition) -> tuple[int, ...]:
    """The replicas of a partition, or its target during a move; empty: it is being deleted."""
    state, topic = context.state_to_stay(name), context.topics.get(name.topic)
    if state is None or topic is None or state.topic_id != topic.entry.topic_id:
        return ()
    return context.operations.target_of(name) or state.settled_replicas


def summary_of(
    moves: Sequence[OperationMove], assignment: Assignment, minimum: int | None = None
) -> PlanSummary:
    before, after = _loads(assignment), _loads(assignment)
    for move in moves:
        after.take(assignment[move.name], -1)
        after.take(move.target, 1)
    brokers = sorted({*before.replicas, *after.replicas})
    shares = tuple(
        BrokerShare(b, before.replicas[b], after.replicas[b], before.leaders[b], after.leaders[b])
        for b in brokers
        if before.replicas[b] or after.replicas[b]
    )
    return PlanSummary(
        tuple(moves),
        len(moves),
        sum(len(move.adding) for move in moves),
        sum(move.original[0] != move.target[0] for move in moves),
        minimum,
        shares,
    )


class _Loads:
    def __init__(self) -> None:
        self.replicas: Counter[int] = Counter()
        self.leaders: Counter[int] = Counter()

    def take(self, replicas: Sequence[int], amount: int) -> None:
        for broker_id in replicas:
            self.replicas[broker_id] += amount
        self.leaders[replicas[0]] += amount


def _loads(assignment: Assignment) -> _Loads:
    loads = _Loads()
    for replicas in assignment.values():
        loads.take(replicas, 1)
    return loads


# Requested moves.


def _by_hand(context: Context, moves: Sequence[WantedReplicas]) -> PlanSummary:
    if not moves:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST, "no moves are named; name at least one partition"
        )
    twice = [p for p, count in Counter(move.partition for move in moves).items() if count > 1]
    if twice:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST, f"{twice[0]} is named twice; name each partition once"
        )
    made = [_move_by_hand(context, move) for move in sorted(moves)]
    return summary_of([move for move in made if move is not None], assignment_of(context))


def _move_by_hand(context: Context, wanted: WantedReplicas) -> OperationMove | None:
    """None: the partition has these replicas already."""
    name = wanted.partition
    topic = known_topic(context, name.topic, wanted.topic_id)
    state = context.state_to_stay(name)
    if state is None or state.topic_id != topic.entry.topic_id:
        raise no_such_partition(name, topic)
    if wanted.original and wanted.original != state.replicas:
        raise TidelogError(
            ErrorCode.REVISION_CONFLICT,
            f"{name} has the replicas {list(state.replicas)} and no longer "
            f"{list(wanted.original)}; plan the move anew if it is still wanted",
        )
    may_hold = {*context.placement_brokers(), *state.replicas}
    check_assignment(name.topic, {name.partition: wanted.target}, may_hold)
    _check_min_isr(name.topic, topic, len(wanted.target))
    if wanted.target == state.replicas:
        return None
    return OperationMove(name.topic, state.topic_id, name.partition, state.replicas, wanted.target)


def _check_min_isr(name: str, topic: Topic, factor: int) -> None:
    min_isr = topic.config.min_isr(factor)
    if min_isr > factor:
        raise TidelogError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"topic {name} asks for min_insync_replicas={min_isr}, which {factor} replicas could "
            "never meet; lower that first, or keep more replicas",
        )


def _reversal(context: Context, operation_id: str) -> Planned:
    held = context.operations.held.get(operation_id)
    if held is None:
        raise unknown_operation(operation_id)
    if not held.entry.state.has_ended:
        raise TidelogError(
            ErrorCode.PARTITION_BUSY,
            f"operation {operation_id} is still {held.entry.state.value}; cancel it, or wait for "
            "its end",
        )
    # A reversal does not decide which brokers to empty again.
    marks = [
        mark
        for mark in marks_taken_back(context, operation_id, held.entry)
        if mark.marked is not MarkedAs.REMOVED
    ]
    back = _moves_back(context, operation_id, [mark.broker_id for mark in marks])
    topics = [
        rewrite
        for rewrite in factors_taken_back(context, held.entry)
        if _has_throughout(context, back, rewrite)
    ]
    return Planned(
        with_taken_back(_warned(context, summary_of(back, assignment_of(context))), marks, topics),
        tuple(marks),
        tuple(topics),
        tuple((m.broker_id, marked_as(context, m.broker_id).value) for m in marks),
        tuple(
            (name, entry.topic_id, context.topics[name].entry.replication_factor)
            for name, _, entry in topics
        ),
    )


def _moves_back(context: Context, operation_id: str, also: Sequence[int]) -> list[OperationMove]:
    """The reversed moves. `also`: brokers that may take replicas again by the reversal."""
    running = context.running_brokers()
    able = {*context.placement_brokers(), *(b for b in also if b in running)}
    back: list[OperationMove] = []
    for move in context.operations.moves_of(operation_id):
        state = context.state_to_stay(move.name)
        if state is None or state.topic_id != move.topic_id or state.replicas != move.target:
            continue  # Its replicas have changed since, or it is gone.
        check_assignment(move.topic, {move.partition: move.original}, {*able, *state.replicas})
        _check_min_isr(move.topic, context.topics[move.topic], len(move.original))
        back.append(move._replace(original=move.target, target=move.original))
    return sorted(back)


def _has_throughout(context: Context, moves: Iterable[OperationMove], topic: TopicRewrite) -> bool:
    """Whether all partitions of a topic have its new replication factor after these moves."""
    targets = {move.name: move.target for move in moves if move.topic == topic.topic}
    names = context.partitions_of(topic.topic)
    replicas = (targets.get(name) or planned_replicas(context, name) for name in names)
    return all(len(r) == topic.entry.replication_factor for r in replicas if r)


def _warned(context: Context, plan: PlanSummary) -> PlanSummary:
    """Adds a warning about shared racks; all other plans avoid them as far as possible."""
    brokers = context.racked(sorted(context.brokers))
    targets: dict[str, dict[int, tuple[int, ...]]] = {}
    for move in plan.moves:
        targets.setdefault(move.topic, {})[move.partition] = move.target
    sharing = [
        str(TopicPartition(topic, number))
        for topic in sorted(targets)
        for number in sharing_a_rack(targets[topic], brokers)
    ]
    if not sharing:
        return plan
    named = ", ".join(sharing[:PARTITIONS_NAMED])
    more = f" and {len(sharing) - PARTITIONS_NAMED} more" if sharing[PARTITIONS_NAMED:] else ""
    warning = (
        f"{named}{more} would have two replicas in one rack while another rack has none: the loss "
        "of that rack would take both; name brokers of different racks"
    )
    return plan._replace(warnings=(warning,))


# Plans for all partitions.


def _rebalanced(context: Context, added: Iterable[int]) -> PlanSummary:
    assignment = assignment_of(context)
    brokers = context.racked(sorted({*taking_part(context), *added}))
    return _summarised(context, plan_rebalance(assignment, brokers))


def taking_part(context: Context) -> list[int]:
    """The brokers to which replicas may be moved; all brokers as long as there are no replicas."""
    able = context.placement_brokers()
    return [b for b in able if context.takes_part(b)] if context.partition_count else able


def _hinted(context: Context, error: TidelogError) -> TidelogError:
    """Adds a hint if too few brokers take part and others only have to be added."""
    waiting = [b for b in context.placement_brokers() if not context.takes_part(b)]
    if not waiting:
        return error
    hint = f"brokers {waiting} are running and have not been added: add them first to use them"
    return TidelogError(error.code, f"{error.message}; {hint}")


def _added(context: Context, broker_ids: Sequence[int]) -> Planned:
    _check_named(broker_ids)
    running = context.running_brokers()
    away = [broker_id for broker_id in broker_ids if broker_id not in running]
    if away:
        raise TidelogError(
            ErrorCode.UNKNOWN_BROKER,
            f"broker {away[0]} is not running; those that are: {running}. Start it first",
        )
    return _marked(context, _rebalanced(context, broker_ids), broker_ids, MarkedAs.ADDED)


def _marked(
    context: Context, plan: PlanSummary, broker_ids: Sequence[int], marked: MarkedAs
) -> Planned:
    named = sorted(set(broker_ids))
    return Planned(
        plan,
        tuple(marking(context, broker_id, marked) for broker_id in named),
        marks_before=tuple((b, marked_as(context, b).value) for b in named),
    )


def _removed(context: Context, broker_ids: Sequence[int]) -> Planned:
    _check_named(broker_ids)
    for broker_id in broker_ids:
        if broker_id in context.removed_brokers:
            continue  # Already removed: there may be nothing left, or replicas that it got since.
        if broker_id not in context.brokers and not any(context.replicas_on(broker_id)):
            raise TidelogError(
                ErrorCode.UNKNOWN_BROKER,
                f"broker {broker_id} is not registered and holds no replicas; those that are "
                f"registered: {sorted(context.brokers)}",
            )
    assignment = assignment_of(context)
    brokers = context.racked(taking_part(context))
    try:
        plan = plan_removal(assignment, brokers, broker_ids)
    except TidelogError as error:
        raise _hinted(context, error) from error
    return _marked(context, _summarised(context, plan), broker_ids, MarkedAs.REMOVED)


def _other_factor(context: Context, topics: Sequence[str], factor: int) -> Planned:
    if not 1 <= len(topics) <= MAX_TOPICS_NAMED:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"{len(topics)} topics are named; name 1 to {MAX_TOPICS_NAMED} at once",
        )
    entries: list[TopicRewrite] = []
    before: list[tuple[str, str, int]] = []
    for name in sorted(set(topics)):
        topic = known_topic(context, name)
        if not context.partitions_of(name):
            # The plan does not check a topic whose partitions are not placed yet.
            check_factor(context, factor)
        _check_min_isr(name, topic, max(factor, 1))
        if topic.entry.replication_factor != factor:
            entry = replace(topic.entry, replication_factor=factor)
            entries.append(TopicRewrite(name, topic.revision, entry))
            before.append((name, entry.topic_id, topic.entry.replication_factor))
    assignment = assignment_of(context)
    brokers = context.racked(taking_part(context))
    try:
        plan = plan_replication_factor(assignment, brokers, topics, factor)
    except TidelogError as error:
        raise _hinted(context, error) from error
    return Planned(_summarised(context, plan), topics=tuple(entries), factors_before=tuple(before))


def _summarised(context: Context, plan: Plan) -> PlanSummary:
    """Converts a plan and adds topic ids.

    The original replicas are those that the plan was made for: during a move, its target.
    """
    moves: list[OperationMove] = []
    for name, original, target in ((m.partition, m.original, m.target) for m in plan.moves):
        topic_id = context.topics[name.topic].entry.topic_id
        moves.append(OperationMove(name.topic, topic_id, name.partition, original, target))
    shares = tuple(
        BrokerShare(
            s.broker_id, s.replicas_before, s.replicas_after, s.leaders_before, s.leaders_after
        )
        for s in plan.brokers
    )
    minimum = plan.minimum_replicas_added
    return PlanSummary(
        tuple(moves), len(moves), plan.replicas_added, plan.leaders_changed, minimum, shares
    )


def _check_named(broker_ids: Sequence[int]) -> None:
    if not 1 <= len(broker_ids) <= MAX_BROKERS_NAMED:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"{len(broker_ids)} brokers are named; name 1 to {MAX_BROKERS_NAMED} at once",
        )


def _check_not_busy(context: Context, moves: Iterable[OperationMove]) -> None:
    for move in moves:
        operation_id = context.operations.busy_with(move.name, move.topic_id)
        state = context.state_to_stay(move.name)
        if not operation_id and state is not None and state.moving is not None:
            operation_id = state.moving.operation
        if operation_id:
            raise TidelogError(
                ErrorCode.PARTITION_BUSY,
                f"{move.name} is in the plan of operation {operation_id}; wait for its end, or "
                "cancel it first",
            )


def check_operation_revision(context: Context, operation_id: str, expected_revision: int) -> None:
    """Raises REVISION_CONFLICT if the operation to cancel has changed.

    An operation that is being cancelled already passes: a repeated request would find the revision
    of its own first attempt.
    """
    held = context.operations.held.get(operation_id)
    if held is None:
        raise unknown_operation(operation_id)
    if held.entry.state is OperationState.RUNNING:
        check_revision(f"operation {operation_id}", held.revision, expected_revision)


def unknown_operation(operation_id: str) -> TidelogError:
    return TidelogError(
        ErrorCode.UNKNOWN_OPERATION,
        f"there is no operation {operation_id!r}; those that run, and the last that have ended, "
        "can be listed",
    )


def ended(operation_id: str, state: OperationState) -> TidelogError:
    return TidelogError(
        ErrorCode.OPERATION_ENDED,
        f"operation {operation_id} is {state.value} already; to take back what it has moved, "
        "reverse it",
    )
