"""Admin requests for topics, from their check to their reply.

A request only writes a durable intent (the topic's key, or the key of its deletion). The controller
does the rest as it would after a takeover. The handler detects that it is done, or that the
request's time is up.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.errors import ErrorCode, TidelogError, unknown_topic
from tidelog.request_bounds import check_topic_name
from tidelog_controller.control.broker_control import BrokerControl
from tidelog_controller.policies.internal_topics import (
    InternalTopic,
    check_may_create,
    check_may_delete,
    is_due,
)
from tidelog_controller.policies.topic_limits import (
    check_config,
    check_partitions,
)
from tidelog_controller.requests.partition_admin import check_by_hand, check_room, placed
from tidelog_controller.requests.request_checks import (
    being_deleted,
    check_factor,
    check_operation_id,
    check_revision,
    created_by,
    is_growing,
    maybe_done,
    other_id,
    outcome_unknown,
    pending_brokers,
    request_timeout_ms,
    unplaced_partitions,
    unstarted_brokers,
)
from tidelog_controller.state.admin_answers import PartitionsAnswer
from tidelog_controller.state.admin_requests import Assignment, Caller
from tidelog_controller.state.commands import AdminReply, Command, Reply
from tidelog_controller.state.context import Context
from tidelog_controller.state.events import CreateTopic, DeleteTopic
from tidelog_controller.state.metadata_records import Topic
from tidelog_controller.state.mutations import (
    DeletionIntent,
    TopicCreation,
    TopicRemoval,
)
from tidelog_controller.state.transactions import Transactions
from tidelog_runtime.identifiers import new_id
from tidelog_runtime.metadata.schema import TopicEntry


@dataclass(slots=True)
class _Creation:
    request_id: int
    mutation: TopicCreation
    deadline_ms: int
    seen: bool = False  # the topic has existed


@dataclass(slots=True)
class _Deletion:
    request_id: int
    topic: str
    topic_id: str
    deadline_ms: int
    trace_id: str
    caller: Caller
    expected_revision: int


class TopicAdmin:
    def __init__(
        self,
        context: Context,
        transactions: Transactions,
        controls: Mapping[int, BrokerControl],
        rng: random.Random,
        internal_topics: Sequence[InternalTopic] = (),
    ) -> None:
        self._context = context
        self._transactions = transactions
        self._controls = controls
        self._rng = rng
        self._internal_topics = {topic.name: topic for topic in internal_topics}
        self._internal_creations: dict[str, TopicCreation] = {}
        self._creations: dict[int, _Creation] = {}
        self._deletions: dict[int, _Deletion] = {}

    def create(self, request: CreateTopic, now_ms: int, places: Assignment = ()) -> list[Command]:
        """Rejects an invalid request, or begins it; `advance` does the rest.

        `places`: the placement of the partitions, if it was computed before.
        """
        try:
            begun = self._check_creation(request, places)
        except TidelogError as error:
            return [Reply(request.request_id, AdminReply(error))]
        if request.dry_run:
            plan = self._plan(request, places, goes_on=begun is not None)
            return [Reply(request.request_id, AdminReply(None, answer=plan))]
        deadline_ms = now_ms + request_timeout_ms(request.timeout_ms)
        self._creations[request.request_id] = _Creation(
            request.request_id, begun or self._creation(request), deadline_ms
        )
        return []

    def delete(self, request: DeleteTopic, now_ms: int) -> list[Command]:
        """Begins a deletion; a second request for the same topic waits for the same end."""
        topic = self._context.topics.get(request.topic)
        if topic is None:
            return [Reply(request.request_id, AdminReply(unknown_topic(request.topic)))]
        try:
            check_may_delete(request.topic, self._internal_topics)
            if request.topic_id and request.topic_id != topic.entry.topic_id:
                raise other_id(request.topic, topic.entry.topic_id, request.topic_id)
            self._check_unchanged(request.topic, topic, request.expected_revision)
        except TidelogError as rejection:
            return [Reply(request.request_id, AdminReply(rejection))]
        if request.dry_run:
            answer = self._would_go(request.topic, topic)
            return [Reply(request.request_id, AdminReply(None, answer=answer))]
        self._deletions[request.request_id] = _Deletion(
            request.request_id,
            request.topic,
            topic.entry.topic_id,
            now_ms + request_timeout_ms(request.timeout_ms),
            request.trace_id,
            request.caller,
            request.expected_revision,
        )
        return []

    def advance(self, now_ms: int) -> list[Command]:
        """Returns the commands that waiting requests and stored intents need now."""
        commands: list[Command] = []
        for creation in list(self._creations.values()):
            commands += self._advance_creation(creation, now_ms)
        for deletion in list(self._deletions.values()):
            commands += self._advance_deletion(deletion, now_ms)
        for topic in self._context.deletions:
            commands += self._finish_deletion(topic)
        for internal in self._internal_topics.values():
            commands += self._create_internal(internal)
        return commands

    def is_acknowledged(self, name: str, topic_id: str) -> bool:
        """Whether each live broker has acknowledged everything for the topic's creation."""
        topic = self._context.topics.get(name)
        if topic is None or topic.entry.topic_id != topic_id or name in self._context.deletions:
            return False
        return not (self._pending(name) or self._context.unplaced.count(name))

    def wake_at_ms(self) -> int | None:
        deadlines = [creation.deadline_ms for creation in self._creations.values()]
        deadlines += [deletion.deadline_ms for deletion in self._deletions.values()]
        return min(deadlines, default=None)

    def _check_creation(self, request: CreateTopic, places: Assignment) -> TopicCreation | None:
        """Returns the existing creation that the request continues; None: it begins a new one."""
        check_topic_name(request.topic)
        check_may_create(request.topic)
        if request.topic in self._context.deletions:
            raise being_deleted(request.topic)
        if request.operation_id:
            check_operation_id(request.operation_id)
        begun = self._begun(request)
        if begun is not None:
            _check_same(request, begun.entry)
            return begun
        self._check_id_is_free(request.operation_id)
        half_way = self._half_way(request.topic)
        if half_way is not None:
            self._check_continues(request, half_way)
            return half_way
        if request.topic in self._context.topics or self._is_claimed(request.topic):
            raise _exists(request.topic)
        partitions, factor = _shape(request)
        check_partitions(partitions)
        brokers = self._context.placement_brokers()
        check_factor(self._context, factor)
        if request.assignment:
            check_by_hand(request.topic, request.assignment, range(partitions), factor, brokers)
        check_config(request.config, factor)
        # The id does not matter: it sets where placement begins, and not how many replicas a broker
        # gets.
        by_hand = request.assignment or places
        check_room(self._context, request.topic, factor, range(partitions), by_hand)
        return None

    def _begun(self, request: CreateTopic) -> TopicCreation | None:
        """The creation that the same operation id began before, under any controller."""
        if not request.operation_id:
            return None
        topic = self._context.topics.get(request.topic)
        if topic is not None and topic.entry.operation_id == request.operation_id:
            return TopicCreation(request.topic, topic.entry)
        creations = [creation.mutation for creation in self._creations.values()]
        same = (request.topic, request.operation_id)
        return next((c for c in creations if (c.topic, c.entry.operation_id) == same), None)

    def _check_id_is_free(self, operation_id: str) -> None:
        if not operation_id:
            return
        held = self._context.operations.held.get(operation_id)
        other = created_by(self._context, operation_id)
        if held is not None or other is not None:
            what = f"creates topic {other}" if held is None else f"is a {held.entry.kind.value}"
            raise TidelogError(
                ErrorCode.OPERATION_ID_IN_USE,
                f"operation {operation_id} is another one, which {what}; choose another id",
            )

    def _is_claimed(self, topic: str) -> bool:
        return any(creation.mutation.topic == topic for creation in self._creations.values())

    def _half_way(self, name: str) -> TopicCreation | None:
        """An incomplete creation that no request waits for and that lacks replicas.

        A request for exactly the same topic continues it, under any operation id.
        """
        topic, addition = self._context.topics.get(name), self._context.additions.get(name)
        if topic is None or self._is_claimed(name) or name in self._context.removals:
            return None
        if addition is not None and addition.entry.first:
            return None  # Its creation is complete, and partitions are being added.
        if not self._context.unplaced.count(name):
            return None
        return TopicCreation(name, topic.entry, addition.entry.assignment if addition else ())

    def _check_continues(self, request: CreateTopic, half_way: TopicCreation) -> None:
        entry = half_way.entry
        there = (entry.partitions, entry.replication_factor, dict(entry.config))
        asked = (*_shape(request), dict(request.config))
        if (asked, request.assignment) == (there, half_way.assignment):
            return
        unplaced = self._context.unplaced.count(request.topic)
        by_id = f", also by operation id {entry.operation_id}" if entry.operation_id else ""
        raise TidelogError(
            ErrorCode.TOPIC_ALREADY_EXISTS,
            f"topic {request.topic} is being created with {entry.partitions} partitions of "
            f"{entry.replication_factor} replicas and the configuration {dict(entry.config)}, and "
            f"{unplaced} of its partitions have no replicas yet; repeat that request "
            f"exactly{by_id}, delete the topic, or choose another name",
        )

    def _creation(self, request: CreateTopic) -> TopicCreation:
        entry = TopicEntry(
            new_id(self._rng),
            *_shape(request),
            request.config,
            request.trace_id,
            request.operation_id,
            asked=_request_fingerprint(request) if request.operation_id else "",
        )
        return TopicCreation(request.topic, entry, request.assignment, request.caller)

    def _plan(self, request: CreateTopic, places: Assignment, *, goes_on: bool) -> PartitionsAnswer:
        partitions, factor = _shape(request)
        if goes_on:
            return PartitionsAnswer(assignment=request.assignment)
        # The id that determines the placement is generated at the creation.
        assignment = (
            request.assignment
            or places
            or placed(self._context, new_id(self._rng), factor, range(partitions))
        )
        return PartitionsAnswer(partitions, assignment=assignment)

    def _would_go(self, name: str, topic: Topic) -> PartitionsAnswer:
        held = [self._context.partition(p) for p in self._context.partitions_of(name)]
        brokers = sorted({b for p in held if p is not None for b in p.state.replicas})
        return PartitionsAnswer(topic.entry.partitions, topic.revision, brokers=tuple(brokers))

    def _create_internal(self, topic: InternalTopic) -> Iterable[Command]:
        """Creates an internal topic when it is due; never before the state is loaded."""
        keys, malformed = self._context.keys, self._context.malformed
        if keys.topic(topic.name) in malformed or self._is_malformed_intent(topic.name):
            return []
        known = {**self._context.topics, **self._context.deletions}
        if not is_due(topic, known, len(self._context.placement_brokers())):
            return []
        begun = self._internal_creations.get(topic.name)
        if begun is not None and self._transactions.is_in_flight(begun):
            return []
        entry = TopicEntry(
            new_id(self._rng), topic.partitions, topic.replication_factor, topic.config
        )
        creation = self._internal_creations[topic.name] = TopicCreation(topic.name, entry)
        return [self._transactions.begin(creation)]

    def _advance_creation(self, creation: _Creation, now_ms: int) -> list[Command]:
        reply = self._creation_reply(creation, now_ms)
        if reply is not None:
            del self._creations[creation.request_id]
            return [Reply(creation.request_id, reply)]
        name = creation.mutation.topic
        absent = name not in self._context.topics
        if absent and not self._transactions.is_in_flight(creation.mutation):
            return [self._transactions.begin(creation.mutation)]
        return []

    def _creation_reply(self, creation: _Creation, now_ms: int) -> AdminReply | None:
        name, entry = creation.mutation.topic, creation.mutation.entry
        timed_out = now_ms >= creation.deadline_ms
        topic = self._context.topics.get(name)
        creation.seen |= topic is not None and topic.entry.topic_id == entry.topic_id
        if name in self._context.deletions or self._is_malformed_intent(name):
            return AdminReply(maybe_done(being_deleted(name), begun=creation.seen))
        if topic is None:
            if self._context.keys.topic(name) in self._context.malformed:
                return AdminReply(_exists(name))
            if creation.seen:
                return AdminReply(maybe_done(unknown_topic(name), begun=True))
            unknown = outcome_unknown(f"topic {name} exists")
            return AdminReply(unknown) if timed_out else None
        if topic.entry.topic_id != entry.topic_id:
            return AdminReply(maybe_done(_exists(name), begun=creation.seen))
        unplaced = self._context.unplaced.count(name) if timed_out else 0
        if unplaced:
            error = unplaced_partitions(
                name, unplaced, topic.entry.partitions, entry.replication_factor
            )
            return AdminReply(error, entry.topic_id)
        pending = self._pending(name)
        if timed_out or not (pending or is_growing(self._context, name)):
            unstarted = unstarted_brokers(self._context, self._controls, name)
            return AdminReply(None, entry.topic_id, unstarted)
        return None

    def _advance_deletion(self, deletion: _Deletion, now_ms: int) -> list[Command]:
        topic = self._context.topics.get(deletion.topic)
        gone = topic is None or topic.entry.topic_id != deletion.topic_id
        if gone or now_ms >= deletion.deadline_ms:
            del self._deletions[deletion.request_id]
            pending = () if gone else self._pending(deletion.topic)
            error = None if gone or pending else _deletion_continues(deletion.topic)
            return [Reply(deletion.request_id, AdminReply(error, deletion.topic_id, pending))]
        if topic is None or deletion.topic in self._context.deletions:
            return []
        if self._is_malformed_intent(deletion.topic):
            return []
        # A transaction in flight that compares an earlier revision may have been applied.
        revision = deletion.expected_revision or topic.revision
        intent = DeletionIntent(
            deletion.topic, deletion.topic_id, revision, deletion.trace_id, deletion.caller
        )
        if self._transactions.is_in_flight(intent):
            return []
        try:
            self._check_unchanged(deletion.topic, topic, deletion.expected_revision)
        except TidelogError as rejection:
            del self._deletions[deletion.request_id]
            return [Reply(deletion.request_id, AdminReply(rejection))]
        return [self._transactions.begin(intent)]

    def _check_unchanged(self, name: str, topic: Topic, expected_revision: int) -> None:
        """Checks the expected revision, unless the deletion has begun already."""
        if name not in self._context.deletions:
            check_revision(f"topic {name}", topic.revision, expected_revision)

    def _finish_deletion(self, name: str) -> Iterable[Command]:
        """Deletes the topic and its intent in one transaction, once no partition is left."""
        intent = self._context.deletions[name]
        topic = self._context.topics.get(name)
        if self._context.keys.topic(name) in self._context.malformed:
            return []
        if topic is not None and (
            self._context.held_of(name) or self._transactions.writes_topic(name)
        ):
            return []
        removal = TopicRemoval(
            name, topic.revision if topic else 0, intent.revision, self._left_behind(name)
        )
        if self._transactions.is_in_flight(removal):
            return []
        return [self._transactions.begin(removal)]

    def _left_behind(self, name: str) -> tuple[tuple[str, int], ...]:
        """The keys of other intents for the topic's partitions."""
        keys, addition = self._context.keys, self._context.additions.get(name)
        removal = self._context.removals.get(name)
        left = []
        if addition is not None:
            left.append((keys.partition_addition(name), addition.revision))
        if removal is not None:
            left.append((keys.partition_removal(name), removal.revision))
        return tuple(left)

    def _is_malformed_intent(self, topic: str) -> bool:
        return self._context.keys.topic_deletion(topic) in self._context.malformed

    def _pending(self, topic: str) -> tuple[int, ...]:
        return pending_brokers(self._controls, topic)


def _shape(request: CreateTopic) -> tuple[int, int]:
    """The numbers of partitions and replicas; an assignment implies them if they are not set."""
    by_hand = request.assignment
    if not by_hand:
        return request.partitions, request.replication_factor
    return request.partitions or len(by_hand), request.replication_factor or len(by_hand[0])


def _check_same(request: CreateTopic, entry: TopicEntry) -> None:
    """Raises OPERATION_ID_IN_USE if the operation id belongs to another creation.

    The request is the same if it equals the first one, even if the topic has changed since. It is
    also the same if it describes the topic as it is now.
    """
    if entry.asked == _request_fingerprint(request):
        return
    there = (entry.partitions, entry.replication_factor, dict(entry.config))
    if (*_shape(request), dict(request.config)) != there:
        raise TidelogError(
            ErrorCode.OPERATION_ID_IN_USE,
            f"operation {request.operation_id} has created topic {request.topic}, which has "
            f"{entry.partitions} partitions of {entry.replication_factor} replicas and the "
            f"configuration {dict(entry.config)}, which differs from this request; describe the "
            "topic, or choose another operation id for another topic",
        )


def _request_fingerprint(request: CreateTopic) -> str:
    """A fingerprint by which a repeated request is recognized."""
    wanted = [*_shape(request), sorted(request.config.items()), request.assignment]
    return hashlib.sha256(json.dumps(wanted).encode()).hexdigest()


def _exists(topic: str) -> TidelogError:
    return TidelogError(
        ErrorCode.TOPIC_ALREADY_EXISTS, f"a topic named {topic} exists; choose another name"
    )


def _deletion_continues(topic: str) -> TidelogError:
    return TidelogError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"topic {topic} is not deleted yet; a deletion that has started continues, and the same "
        "request waits for its end",
    )
