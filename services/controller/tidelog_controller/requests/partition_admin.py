"""Requests that add partitions to a topic or remove its last ones, and their intents.

Part H of the controller-based design in docs/internals/rules-and-tests.md. One write changes the
number of partitions in the topic's key and stores an intent beside it. The rest (replicas of new
partitions, the deletion of removed ones) is done by the controller, or by its successor. The
handler detects that it is done, or that the request's time is up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.request_bounds import MAX_ASSIGNED_PARTITIONS
from tidelog_controller.control.broker_control import BrokerControl
from tidelog_controller.policies.assignment import check_assignment
from tidelog_controller.policies.internal_topics import check_may_resize
from tidelog_controller.policies.placement import place_each, start_of
from tidelog_controller.policies.replica_limit import check_added, may_exceed
from tidelog_controller.policies.topic_limits import check_partitions, with_first_epoch_above
from tidelog_controller.requests.request_checks import (
    check_factor,
    check_revision,
    is_growing,
    known_topic,
    maybe_done,
    outcome_unknown,
    pending_brokers,
    request_timeout_ms,
    unplaced_partitions,
    unstarted_brokers,
)
from tidelog_controller.state.admin_answers import PartitionsAnswer
from tidelog_controller.state.admin_requests import AddPartitions, Assignment, RemovePartitions
from tidelog_controller.state.commands import AdminReply, Command, Reply
from tidelog_controller.state.context import Context
from tidelog_controller.state.metadata_records import Topic
from tidelog_controller.state.mutations import FirstEpochRise, IntentRemoval, TopicChange
from tidelog_controller.state.transactions import Transactions
from tidelog_runtime.metadata.schema import LeaderAndIsr
from tidelog_runtime.metadata.topic_intents import PartitionsAddition, PartitionsRemoval


@dataclass(slots=True)
class _Resizing:
    """One waiting request.

    - `change`: the last change written.
    - `before`: the number of partitions before that.
    - `done`: the number of added or removed partitions; None: the topic does not have the requested
      number yet.
    """

    request: AddPartitions | RemovePartitions
    topic_id: str
    deadline_ms: int
    places: Assignment = ()
    change: TopicChange | None = None
    before: int = 0
    done: int | None = None


class PartitionAdmin:
    def __init__(
        self,
        context: Context,
        transactions: Transactions,
        controls: Mapping[int, BrokerControl],
    ) -> None:
        self._context = context
        self._transactions = transactions
        self._controls = controls
        self._requests: dict[int, _Resizing] = {}
        self._to_rise: dict[str, None] = {}  # topics

    def resize(
        self, request: AddPartitions | RemovePartitions, now_ms: int, places: Assignment = ()
    ) -> list[Command]:
        """Rejects an invalid request, or begins it; `advance` does the rest.

        `places`: the placement of the partitions, if it was computed before.
        """
        try:
            topic = known_topic(self._context, request.topic, request.topic_id)
            change = self._change(request, topic, places)
        except TidelogError as error:
            return [Reply(request.request_id, AdminReply(error))]
        if request.dry_run:
            plan = self._plan(request, topic, change, places)
            return [Reply(request.request_id, AdminReply(None, answer=plan))]
        self._requests[request.request_id] = _Resizing(
            request, topic.entry.topic_id, now_ms + request_timeout_ms(request.timeout_ms), places
        )
        return []

    def advance(self, now_ms: int) -> list[Command]:
        """Returns the commands that waiting requests and stored intents need now."""
        commands: list[Command] = []
        for waiting in list(self._requests.values()):
            commands += self._advance(waiting, now_ms)
        commands += self._rise()
        commands += self._finish_intents()
        return commands

    def wake_at_ms(self) -> int | None:
        return min((waiting.deadline_ms for waiting in self._requests.values()), default=None)

    # The request.

    def _change(
        self, request: AddPartitions | RemovePartitions, topic: Topic, places: Assignment
    ) -> TopicChange | None:
        """Returns the change to write; None: the topic has the requested number of partitions.

        Raises the `TidelogError` of the reply.
        """
        check_partitions(request.partitions)
        check_may_resize(request.topic)
        if isinstance(request, RemovePartitions) and not request.dry_run:
            _check_confirmed(request)
        count = topic.entry.partitions
        if request.partitions == count:
            return None
        check_revision(f"topic {request.topic}", topic.revision, request.expected_revision)
        entry = replace(topic.entry, partitions=request.partitions)
        intent: PartitionsAddition | PartitionsRemoval
        if isinstance(request, AddPartitions):
            self._check_addition(request, topic, places)
            intent = PartitionsAddition(entry.topic_id, count, request.assignment, request.trace_id)
        else:
            if request.partitions > count:
                raise _too_many(request, count)
            # Stopping each takes one more epoch.
            going = self._states_from(request.topic, request.partitions)
            entry = with_first_epoch_above(entry, (state.leader_epoch + 1 for state in going))
            entry = replace(entry, shrunk=True)
            intent = PartitionsRemoval(entry.topic_id, request.partitions, request.trace_id)
        self._check_idle(request.topic)
        return TopicChange(
            request.topic, topic.revision, entry, intent, request.caller, request.trace_id
        )

    def _check_addition(self, request: AddPartitions, topic: Topic, places: Assignment) -> None:
        count, factor = topic.entry.partitions, topic.entry.replication_factor
        if request.partitions < count:
            raise _too_few(request, count)
        brokers = self._context.placement_brokers()
        check_factor(self._context, factor)
        if request.assignment:
            added = request.partitions - count
            numbers = range(count, count + added)
            check_by_hand(request.topic, request.assignment, numbers, factor, brokers)
        numbers = range(count, request.partitions)
        assignment = request.assignment or _of(numbers, places)
        check_room(self._context, topic.entry.topic_id, factor, numbers, assignment)

    def _check_idle(self, topic: str) -> None:
        context = self._context
        removal, addition = context.removals.get(topic), context.additions.get(topic)
        what = "removed" if removal is not None else "added"
        malformed = context.malformed & {
            context.keys.partition_addition(topic),
            context.keys.partition_removal(topic),
        }
        if malformed:
            raise TidelogError(
                ErrorCode.PARTITION_BUSY,
                f"the stored change of the partitions of topic {topic} cannot be read; repair the "
                f"key {min(malformed)} first",
            )
        if removal is not None or addition is not None:
            raise TidelogError(
                ErrorCode.PARTITION_BUSY,
                f"partitions of topic {topic} are being {what} already; try again when that is "
                f"done, which waits for brokers {list(self._pending(topic))}",
            )

    def _plan(
        self,
        request: AddPartitions | RemovePartitions,
        topic: Topic,
        change: TopicChange | None,
        places: Assignment,
    ) -> PartitionsAnswer:
        count = topic.entry.partitions
        if change is None:
            return PartitionsAnswer(revision=topic.revision)
        if isinstance(request, RemovePartitions):
            going = self._states_from(request.topic, request.partitions)
            brokers = sorted({b for state in going for b in state.replicas})
            removed = count - request.partitions
            return PartitionsAnswer(removed, topic.revision, brokers=tuple(brokers))
        numbers = range(count, request.partitions)
        assignment = request.assignment or _of(numbers, places)
        assignment = assignment or placed(
            self._context, topic.entry.topic_id, topic.entry.replication_factor, numbers
        )
        return PartitionsAnswer(len(numbers), topic.revision, assignment)

    # What it waits for.

    def _advance(self, waiting: _Resizing, now_ms: int) -> list[Command]:
        request = waiting.request
        try:
            topic = known_topic(self._context, request.topic, waiting.topic_id)
        except TidelogError as gone:
            begun = waiting.change is not None
            return self._reply(waiting, AdminReply(maybe_done(gone, begun=begun)))
        try:
            if waiting.done is None and not self._is_in_flight(waiting):
                change = self._change(request, topic, waiting.places)
                if change is not None and now_ms < waiting.deadline_ms:
                    waiting.change, waiting.before = change, topic.entry.partitions
                    return [self._transactions.begin(change)]
                if change is None:
                    written = waiting.change is not None
                    waiting.done = abs(request.partitions - waiting.before) if written else 0
        except TidelogError as rejection:
            return self._reply(waiting, AdminReply(rejection))
        if waiting.done is None:
            if now_ms < waiting.deadline_ms:
                return []
            what = f"topic {request.topic} has {request.partitions} partitions"
            return self._reply(waiting, AdminReply(outcome_unknown(what)))
        answer = PartitionsAnswer(waiting.done, topic.revision)
        pending = self._pending(request.topic)
        goes_on = bool(pending) or self._continue(request)
        if goes_on and now_ms < waiting.deadline_ms:
            return []
        error = self._not_yet(request, topic) if goes_on and not pending else None
        if isinstance(request, AddPartitions):
            pending = unstarted_brokers(self._context, self._controls, request.topic)
        reply = AdminReply(error, topic.entry.topic_id, pending, answer=answer)
        return self._reply(waiting, reply)

    def _continue(self, request: AddPartitions | RemovePartitions) -> bool:
        if isinstance(request, AddPartitions):
            return is_growing(self._context, request.topic)
        return request.topic in self._context.removals

    def _not_yet(
        self, request: AddPartitions | RemovePartitions, topic: Topic
    ) -> TidelogError | None:
        """None: everything requested is done, and only its intent remains."""
        if isinstance(request, AddPartitions):
            unplaced = self._context.unplaced.count(request.topic)
            if not unplaced:
                return None
            factor = topic.entry.replication_factor
            return unplaced_partitions(request.topic, unplaced, topic.entry.partitions, factor)
        return TidelogError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"the partitions of topic {request.topic} from {request.partitions} on are not "
            "removed yet; their removal continues, and the same request waits for its end",
        )

    def _reply(self, waiting: _Resizing, reply: AdminReply) -> list[Command]:
        del self._requests[waiting.request.request_id]
        return [Reply(waiting.request.request_id, reply)]

    def _is_in_flight(self, waiting: _Resizing) -> bool:
        return waiting.change is not None and self._transactions.is_in_flight(waiting.change)

    def _pending(self, topic: str) -> tuple[int, ...]:
        return pending_brokers(self._controls, topic)

    # Intents.

    def _rise(self) -> Iterable[Command]:
        """Raises first leader epochs beyond those of partitions that are stopped now.

        Needed when a partition was elected again, or resigned, after its removal was written.
        """
        self._to_rise.update(dict.fromkeys(self._context.drain_first_epochs_to_check()))
        for topic in list(self._to_rise):
            if self._is_rising(topic):
                continue
            rise = self._rise_of(topic)
            if rise is None:
                del self._to_rise[topic]
            else:
                yield self._transactions.begin(rise)

    def _rise_of(self, topic: str) -> FirstEpochRise | None:
        """None: there is nothing to write, or a write would fail until one of the keys changes."""
        context = self._context
        known, removal = context.topics.get(topic), context.removals.get(topic)
        if known is None or removal is None or topic in context.deletions:
            return None
        if not context.malformed.isdisjoint(
            {context.keys.topic(topic), context.keys.topic_deletion(topic)}
        ):
            return None
        # The epochs of most stopped partitions are low enough, which is the cheapest check.
        reached = known.entry.first_leader_epoch
        epochs = [
            held.state.leader_epoch
            for number, held in context.held_of(topic).items()
            if held.state.leader_epoch >= reached
            and number >= removal.entry.first
            and context.is_stopped(TopicPartition(topic, number))
        ]
        entry = with_first_epoch_above(known.entry, epochs)
        return FirstEpochRise(topic, known.revision, entry) if entry != known.entry else None

    def _is_rising(self, topic: str) -> bool:
        mutations = self._transactions.mutations()
        return any(isinstance(p, FirstEpochRise) and p.topic == topic for p in mutations)

    def _finish_intents(self) -> Iterable[Command]:
        """Removes the intents that are complete; those of a topic in deletion end with it."""
        context = self._context
        done: list[IntentRemoval] = []
        for topic, addition in context.additions.items():
            if self._is_over(topic, addition.entry.topic_id) or self._is_added(topic):
                done.append(
                    IntentRemoval(context.keys.partition_addition(topic), addition.revision)
                )
        for topic, removal in context.removals.items():
            first = removal.entry.first
            if self._is_over(topic, removal.entry.topic_id) or self._is_removed(topic, first):
                done.append(IntentRemoval(context.keys.partition_removal(topic), removal.revision))
        return [self._transactions.begin(d) for d in done if not self._transactions.is_in_flight(d)]

    def _is_over(self, topic: str, topic_id: str) -> bool:
        """Whether the intent's topic no longer exists."""
        known = self._context.topics.get(topic)
        malformed = self._context.keys.topic(topic) in self._context.malformed
        return not malformed and (known is None or known.entry.topic_id != topic_id)

    def _is_added(self, topic: str) -> bool:
        if self._is_undecided(topic):
            return False
        return not (self._pending(topic) or self._context.unplaced.count(topic))

    def _is_removed(self, topic: str, first: int) -> bool:
        return not self._is_undecided(topic) and not self._context.has_partition_from(topic, first)

    def _is_undecided(self, topic: str) -> bool:
        """Whether the topic is being deleted, has writes in flight, or cannot be read."""
        context = self._context
        if topic in context.deletions or self._transactions.writes_topic(topic):
            return True
        return topic in context.unreadable_topics()

    def _states_from(self, topic: str, first: int) -> list[LeaderAndIsr]:
        held = self._context.held_of(topic)
        return [p.state for number, p in held.items() if number >= first]


def _of(numbers: Sequence[int], places: Assignment) -> Assignment:
    """Empty if the number of partitions has changed since the placement was computed."""
    return places if len(places) == len(numbers) else ()


def check_by_hand(
    topic: str,
    assignment: Assignment,
    partitions: Sequence[int],
    replication_factor: int,
    brokers: Collection[int],
) -> None:
    """Checks the requested replicas of these partitions, in their order.

    `brokers`: those that take new replicas.
    """
    if len(assignment) > MAX_ASSIGNED_PARTITIONS:
        problem = (
            f"the assignment has {len(assignment)} partitions and may have at most "
            f"{MAX_ASSIGNED_PARTITIONS}; omit the assignment, and move partitions afterwards"
        )
        raise TidelogError(ErrorCode.INVALID_ASSIGNMENT, problem)
    if len(assignment) != len(partitions):
        problem = (
            f"the assignment has {len(assignment)} entries for {len(partitions)} partitions; name "
            "the replicas of each"
        )
        raise TidelogError(ErrorCode.INVALID_ASSIGNMENT, problem)
    by_number = dict(zip(partitions, assignment, strict=True))
    check_assignment(topic, by_number, brokers, replication_factor)


def placed(
    context: Context, topic_id: str, replication_factor: int, partitions: Sequence[int]
) -> Assignment:
    """The placement of partitions according to the current brokers."""
    brokers = context.racked(context.placement_brokers())
    return place_each(partitions, replication_factor, brokers, start_of(topic_id))


def check_room(
    context: Context,
    topic_id: str,
    replication_factor: int,
    partitions: Sequence[int],
    assignment: Assignment,
) -> None:
    """Raises NOT_ENOUGH_BROKERS if a broker would hold too many replicas."""
    most = max(map(context.replica_count, context.placement_brokers()), default=0)
    if may_exceed(most, len(partitions)):
        check_added(
            context.replica_count,
            assignment or placed(context, topic_id, replication_factor, partitions),
        )


def _check_confirmed(request: RemovePartitions) -> None:
    if request.confirm_topic != request.topic:
        said = f"it is {request.confirm_topic!r}" if request.confirm_topic else "it is empty"
        raise TidelogError(
            ErrorCode.NOT_CONFIRMED,
            f"removing partitions deletes their data: repeat the topic's name, {request.topic}, "
            f"as the confirmation ({said}), or request a dry run first",
        )


def _too_few(request: AddPartitions, count: int) -> TidelogError:
    return TidelogError(
        ErrorCode.INVALID_PARTITION_COUNT,
        f"topic {request.topic} has {count} partitions, and {request.partitions} in total are "
        "requested; request more than it has, or remove partitions instead",
    )


def _too_many(request: RemovePartitions, count: int) -> TidelogError:
    return TidelogError(
        ErrorCode.INVALID_PARTITION_COUNT,
        f"topic {request.topic} has {count} partitions, and {request.partitions} are to remain; "
        "keep fewer than it has, or add partitions instead",
    )
