"""Admin requests for topics, from their check to their reply.

A request only ever writes a durable intent (the topic's key, or the deletion's); the
controller does the rest as it would after a takeover, and here it is seen when it is
done, or when the request's time is up.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog.errors import ErrorCode, TidelogError
from tidelog_controller.control.broker_control import BrokerControl
from tidelog_controller.policies.internal_topics import (
    InternalTopic,
    check_may_create,
    check_may_delete,
    is_due,
)
from tidelog_controller.policies.topics import (
    check_config,
    check_name,
    check_partitions,
    check_replication_factor,
)
from tidelog_controller.state.commands import AdminReply, Command, Reply
from tidelog_controller.state.context import Context
from tidelog_controller.state.events import CreateTopic, DeleteTopic
from tidelog_controller.state.transactions import (
    DeletionIntent,
    TopicCreation,
    TopicRemoval,
    Transactions,
)
from tidelog_runtime.identifiers import new_id
from tidelog_runtime.metadata.schema import TopicEntry

DEFAULT_TIMEOUT_MS = 30_000
MAX_TIMEOUT_MS = 300_000


@dataclass(slots=True)
class _Creation:
    request_id: int
    purpose: TopicCreation
    deadline_ms: int
    seen: bool = False  # the topic has existed


@dataclass(slots=True)
class _Deletion:
    request_id: int
    topic: str
    topic_id: str
    deadline_ms: int
    trace_id: str


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

    def create(self, request: CreateTopic, now_ms: int) -> list[Command]:
        """Refuses what cannot be, or begins; `advance` does the rest."""
        try:
            self._check_creation(request)
        except TidelogError as error:
            return [Reply(request.request_id, AdminReply(error))]
        if request.dry_run:
            return [Reply(request.request_id, AdminReply(None))]
        entry = TopicEntry(
            new_id(self._rng),
            request.partitions,
            request.replication_factor,
            request.config,
            request.trace_id,
        )
        self._creations[request.request_id] = _Creation(
            request.request_id,
            TopicCreation(request.topic, entry),
            now_ms + request_timeout_ms(request.timeout_ms),
        )
        return []

    def delete(self, request: DeleteTopic, now_ms: int) -> list[Command]:
        """A second request for a topic that is being deleted waits for the same end."""
        topic = self._context.topics.get(request.topic)
        if topic is None:
            return [Reply(request.request_id, AdminReply(unknown_topic(request.topic)))]
        try:
            check_may_delete(request.topic, self._internal_topics)
        except TidelogError as refusal:
            return [Reply(request.request_id, AdminReply(refusal))]
        if request.topic_id and request.topic_id != topic.entry.topic_id:
            error = TidelogError(
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"topic {request.topic} has the id {topic.entry.topic_id}, not "
                f"{request.topic_id}: it was deleted and created again",
            )
            return [Reply(request.request_id, AdminReply(error))]
        self._deletions[request.request_id] = _Deletion(
            request.request_id,
            request.topic,
            topic.entry.topic_id,
            now_ms + request_timeout_ms(request.timeout_ms),
            request.trace_id,
        )
        return []

    def advance(self, now_ms: int) -> list[Command]:
        """What the waiting requests and the standing intents now need."""
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
        """Whether each live broker has acknowledged all that a topic's creation asks of it."""
        topic = self._context.topics.get(name)
        if topic is None or topic.entry.topic_id != topic_id or name in self._context.deletions:
            return False
        return not (self._context.unplaced(name) or self._pending(name))

    def wake_at_ms(self) -> int | None:
        deadlines = [creation.deadline_ms for creation in self._creations.values()]
        deadlines += [deletion.deadline_ms for deletion in self._deletions.values()]
        return min(deadlines, default=None)

    def _check_creation(self, request: CreateTopic) -> None:
        check_name(request.topic)
        check_may_create(request.topic)
        if request.topic in self._context.deletions:
            raise being_deleted(request.topic)
        claimed = (c.purpose.topic == request.topic for c in self._creations.values())
        if request.topic in self._context.topics or any(claimed):
            raise _exists(request.topic)
        check_partitions(request.partitions)
        check_replication_factor(request.replication_factor, len(self._context.running_brokers()))
        check_config(request.config, request.replication_factor)

    def _create_internal(self, topic: InternalTopic) -> Iterable[Command]:
        """Before everything has been read nobody is known to run, and nothing is due."""
        keys, malformed = self._context.keys, self._context.malformed
        if keys.topic(topic.name) in malformed or self._is_malformed_intent(topic.name):
            return []
        known = {**self._context.topics, **self._context.deletions}
        if not is_due(topic, known, len(self._context.running_brokers())):
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
        name = creation.purpose.topic
        absent = name not in self._context.topics
        if absent and not self._transactions.is_in_flight(creation.purpose):
            return [self._transactions.begin(creation.purpose)]
        return []

    def _creation_reply(self, creation: _Creation, now_ms: int) -> AdminReply | None:
        name, entry = creation.purpose
        timed_out = now_ms >= creation.deadline_ms
        if name in self._context.deletions or self._is_malformed_intent(name):
            return AdminReply(being_deleted(name))
        topic = self._context.topics.get(name)
        if topic is None:
            if self._context.keys.topic(name) in self._context.malformed:
                return AdminReply(_exists(name))
            if creation.seen:
                return AdminReply(unknown_topic(name))
            return AdminReply(_creation_unknown(name)) if timed_out else None
        if topic.entry.topic_id != entry.topic_id:
            return AdminReply(_exists(name))
        creation.seen = True
        unplaced = len(self._context.unplaced(name)) if timed_out else 0
        if unplaced:
            return AdminReply(_unplaced(name, unplaced, entry), entry.topic_id)
        pending = self._pending(name)
        if timed_out or not (pending or self._context.unplaced(name)):
            return AdminReply(None, entry.topic_id, pending)
        return None

    def _advance_deletion(self, deletion: _Deletion, now_ms: int) -> list[Command]:
        topic = self._context.topics.get(deletion.topic)
        gone = topic is None or topic.entry.topic_id != deletion.topic_id
        if gone or now_ms >= deletion.deadline_ms:
            del self._deletions[deletion.request_id]
            pending = () if gone else self._pending(deletion.topic)
            error = None if gone or pending else _deletion_goes_on(deletion.topic)
            return [Reply(deletion.request_id, AdminReply(error, deletion.topic_id, pending))]
        if topic is None or deletion.topic in self._context.deletions:
            return []
        if self._is_malformed_intent(deletion.topic):
            return []
        intent = DeletionIntent(
            deletion.topic, deletion.topic_id, topic.revision, deletion.trace_id
        )
        if self._transactions.is_in_flight(intent):
            return []
        return [self._transactions.begin(intent)]

    def _finish_deletion(self, name: str) -> Iterable[Command]:
        """Once no partition is left, the topic and its intent go in one transaction."""
        intent = self._context.deletions[name]
        topic = self._context.topics.get(name)
        if self._context.keys.topic(name) in self._context.malformed:
            return []
        if topic is not None and (
            self._context.partitions_of(name) or self._transactions.writes_topic(name)
        ):
            return []
        removal = TopicRemoval(name, topic.revision if topic else 0, intent.revision)
        if self._transactions.is_in_flight(removal):
            return []
        return [self._transactions.begin(removal)]

    def _is_malformed_intent(self, topic: str) -> bool:
        return self._context.keys.topic_deletion(topic) in self._context.malformed

    def _pending(self, topic: str) -> tuple[int, ...]:
        """Live brokers that have not acknowledged all they are to do for a topic."""
        return tuple(
            sorted(b for b, control in self._controls.items() if control.waits_for_topic(topic))
        )


def request_timeout_ms(asked_ms: int) -> int:
    return min(asked_ms, MAX_TIMEOUT_MS) if asked_ms > 0 else DEFAULT_TIMEOUT_MS


def _exists(topic: str) -> TidelogError:
    return TidelogError(
        ErrorCode.TOPIC_ALREADY_EXISTS, f"a topic named {topic} exists; choose another name"
    )


def unknown_topic(topic: str) -> TidelogError:
    return TidelogError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"there is no topic named {topic}; the topics that there are can be listed",
    )


def being_deleted(topic: str) -> TidelogError:
    return TidelogError(
        ErrorCode.TOPIC_BEING_DELETED,
        f"topic {topic} is being deleted; try again when it is gone",
    )


def _creation_unknown(topic: str) -> TidelogError:
    return TidelogError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"the metadata store did not answer in time; whether topic {topic} exists shows when "
        "it does",
    )


def _unplaced(topic: str, unplaced: int, entry: TopicEntry) -> TidelogError:
    return TidelogError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"topic {topic} is created, and {unplaced} of its {entry.partitions} partitions have no "
        f"replicas yet; they get them as soon as {entry.replication_factor} brokers are running "
        "and the metadata store answers",
    )


def _deletion_goes_on(topic: str) -> TidelogError:
    return TidelogError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"topic {topic} is not gone yet; if its deletion has begun it goes on by itself, and "
        "asking again waits for its end",
    )
