"""Requests that change a topic's configuration, from their check to their reply.

Checks of each partition of the topic run outside the event loop, or some in each step.

The request changes the topic's key, from which brokers get the configuration. The min ISR in force
is a field of each partition's key, which the controller updates (rule
`every-write-sets-eligible-set`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tidelog.admin_messages import ConfigChange
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_LEADER, TopicPartition
from tidelog_controller.control.broker_control import BrokerControl
from tidelog_controller.policies.reassignment import min_isr_in_force
from tidelog_controller.policies.topic_limits import check_config, check_config_change
from tidelog_controller.requests.request_checks import (
    check_revision,
    known_topic,
    maybe_done,
    outcome_unknown,
    pending_brokers,
    request_timeout_ms,
)
from tidelog_controller.requests.snapshot_reads import SnapshotReads
from tidelog_controller.state.admin_answers import ConfigAnswer
from tidelog_controller.state.admin_requests import AlterTopicConfig
from tidelog_controller.state.commands import AdminReply, Command, Reply
from tidelog_controller.state.context import Context
from tidelog_controller.state.metadata_records import Topic
from tidelog_controller.state.mutations import TopicChange
from tidelog_controller.state.transactions import Transactions
from tidelog_runtime.topic_config import TopicConfig

# Partitions whose min ISR in force one step checks: less than a millisecond.
MAX_CHECKED_PER_STEP = 500
MIN_CHECKED_PER_STEP = 10


@dataclass(slots=True)
class _Alteration:
    """One waiting request.

    - `changes`: the changes made by the written change; empty if none was necessary.
    - `unchecked`: partitions that may not have `min_isr` yet; None: all.
    """

    request: AlterTopicConfig
    topic_id: str
    deadline_ms: int
    change: TopicChange | None = None
    changes: tuple[ConfigChange, ...] = ()
    written: bool = False
    min_isr: int | None = None
    unchecked: deque[int] | None = None


class TopicConfigAdmin:
    def __init__(
        self,
        context: Context,
        transactions: Transactions,
        controls: Mapping[int, BrokerControl],
        reads: SnapshotReads,
    ) -> None:
        self._context = context
        self._transactions = transactions
        self._controls = controls
        self._reads = reads
        self._alterations: dict[int, _Alteration] = {}
        self._has_more = False

    def alter(self, request: AlterTopicConfig, now_ms: int) -> list[Command]:
        """Rejects an invalid request, or begins it; `advance` does the rest."""
        deadline_ms = now_ms + request_timeout_ms(request.timeout_ms)
        try:
            topic = known_topic(self._context, request.topic, request.topic_id)
            config = _wanted(request, topic)
        except TidelogError as error:
            return [Reply(request.request_id, AdminReply(error))]
        min_isr = TopicConfig.parse(config).min_insync_replicas
        if min_isr is None or min_isr == topic.config.min_insync_replicas:
            return self._begin(request, deadline_ms)
        return self._reads.submit(
            request.request_id,
            lambda view: check_min_isr(view.context, request.topic, min_isr),
            lambda _: self._begin(request, deadline_ms),
        )

    def _begin(self, request: AlterTopicConfig, deadline_ms: int) -> list[Command]:
        try:
            topic = known_topic(self._context, request.topic, request.topic_id)
            wanted = _wanted(request, topic)
        except TidelogError as error:
            return [Reply(request.request_id, AdminReply(error))]
        if request.dry_run:
            changes = config_changes(topic.entry.config, wanted)
            answer = ConfigAnswer(changes, topic.revision)
            return [Reply(request.request_id, AdminReply(None, answer=answer))]
        self._alterations[request.request_id] = _Alteration(
            request, topic.entry.topic_id, deadline_ms
        )
        return []

    def advance(self, now_ms: int) -> list[Command]:
        commands: list[Command] = []
        self._has_more = False
        for alteration in list(self._alterations.values()):
            commands += self._advance(alteration, now_ms)
        return commands

    @property
    def has_more(self) -> bool:
        """Whether a step is due at once: each step checks a part of the partitions."""
        return self._has_more

    def wake_at_ms(self) -> int | None:
        return min((a.deadline_ms for a in self._alterations.values()), default=None)

    def _advance(self, alteration: _Alteration, now_ms: int) -> list[Command]:
        request, timed_out = alteration.request, now_ms >= alteration.deadline_ms
        try:
            topic = known_topic(self._context, request.topic, alteration.topic_id)
        except TidelogError as gone:
            begun = alteration.change is not None
            return self._reply(alteration, AdminReply(maybe_done(gone, begun=begun)))
        try:
            if not alteration.written and not self._is_in_flight(alteration):
                change = self._change(request, topic)
                alteration.written = change is None
                if change is not None and not timed_out:
                    alteration.change = change
                    before = topic.entry.config
                    alteration.changes = config_changes(before, change.entry.config)
                    return [self._transactions.begin(change)]
        except TidelogError as rejection:
            return self._reply(alteration, AdminReply(rejection))
        if not alteration.written:
            if not timed_out:
                return []
            what = f"topic {request.topic} has the new configuration"
            return self._reply(alteration, AdminReply(outcome_unknown(what)))
        pending = pending_brokers(self._controls, request.topic)
        due = pending or self._is_min_isr_due(alteration, topic)
        if due and not timed_out:
            return []
        answer = ConfigAnswer(alteration.changes, topic.revision)
        reply = AdminReply(None, topic.entry.topic_id, pending, answer=answer)
        return self._reply(alteration, reply)

    def _change(self, request: AlterTopicConfig, topic: Topic) -> TopicChange | None:
        """Returns the change to write; None: everything is as requested."""
        wanted = _wanted(request, topic)
        if wanted == topic.entry.config:
            return None
        described = tuple(
            f"{change.key}: {change.before or 'none'} -> {change.after or 'none'}"
            for change in config_changes(topic.entry.config, wanted)
        )
        return TopicChange(
            request.topic,
            topic.revision,
            replace(topic.entry, config=wanted),
            caller=request.caller,
            trace_id=request.trace_id,
            described=described,
        )

    def _is_min_isr_due(self, alteration: _Alteration, topic: Topic) -> bool:
        """Whether a partition may lack the requested min ISR.

        A partition without a leader gets it at its next election. A partition that has it keeps it
        until the topic's changes.
        """
        held, min_isr = self._context.held_of(alteration.request.topic), topic.config.min_isr
        unchecked = alteration.unchecked
        if unchecked is None or alteration.min_isr != topic.config.min_insync_replicas:
            unchecked = alteration.unchecked = deque(held)
            alteration.min_isr = topic.config.min_insync_replicas
        room = max(MAX_CHECKED_PER_STEP // len(self._alterations), MIN_CHECKED_PER_STEP)
        for _ in range(min(room, len(unchecked))):
            partition = held.get(unchecked[0])
            state = partition.state if partition is not None else None
            if state is None or state.leader == NO_LEADER:
                pass  # It gets it with its next leader, or is gone.
            elif state.min_isr != min_isr_in_force(state, min_isr):
                return True
            unchecked.popleft()
        self._has_more |= bool(unchecked)
        return bool(unchecked)

    def _is_in_flight(self, alteration: _Alteration) -> bool:
        return alteration.change is not None and self._transactions.is_in_flight(alteration.change)

    def _reply(self, alteration: _Alteration, reply: AdminReply) -> list[Command]:
        del self._alterations[alteration.request.request_id]
        return [Reply(alteration.request.request_id, reply)]


def check_min_isr(context: Context, name: str, min_isr: int) -> None:
    """Raises INVALID_CONFIG if a partition has fewer replicas than `min_isr`. Changes nothing.

    Requested moves may have left partitions with fewer replicas than the topic's factor.
    """
    short = min(_too_few(context, name, min_isr), default=None)
    if short is not None:
        number, fewest = short
        raise TidelogError(
            ErrorCode.INVALID_CONFIG,
            f"min_insync_replicas {min_isr} is requested, but {TopicPartition(name, number)} has, "
            f"or will have, {fewest} replicas: no acks=all write to it would succeed; add "
            "replicas first",
        )


def _too_few(context: Context, name: str, wanted: int) -> Iterator[tuple[int, int]]:
    """Partitions that have, or will have, too few replicas, and how many."""
    target_of, removal = context.operations.target_of, context.removals.get(name)
    if name in context.deletions:
        return
    for number, held in context.held_of(name).items():
        if removal is not None and number >= removal.entry.first:
            continue
        fewest = settled = len(held.state.settled_replicas)
        target = target_of(TopicPartition(name, number))
        if target:
            fewest = min(settled, len(target))
        if fewest < wanted:
            yield number, fewest


def _wanted(request: AlterTopicConfig, topic: Topic) -> Mapping[str, str]:
    """The topic's new configuration. Raises the `TidelogError` of the reply."""
    if not request.changed and not request.unset:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST, "no key is set or unset; name at least one key"
        )
    both = sorted(set(request.changed) & set(request.unset))
    if both:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST, f"{both[0]} is both set and unset; choose one"
        )
    TopicConfig.check_keys(request.unset)
    config = {k: v for k, v in topic.entry.config.items() if k not in request.unset}
    config |= request.changed
    check_config(config, topic.entry.replication_factor)
    check_config_change(topic.entry.config, config)
    if config != topic.entry.config:
        check_revision(f"topic {request.topic}", topic.revision, request.expected_revision)
    return config


def config_changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[ConfigChange, ...]:
    """The differences between the values in force before and after, by key."""
    old, new = TopicConfig.parse_stored(before).as_text(), TopicConfig.parse(after).as_text()
    return tuple(
        ConfigChange(key, old[key], new[key]) for key in sorted(old) if old[key] != new[key]
    )
