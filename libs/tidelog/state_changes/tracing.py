"""Traces of partitions from the events of all services: which changes there were, in causal order,
each with its stages and its missing stages (`gaps`).

Pure. Events may be in any order (`causal_order`) and may repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.state_changes.causal_order import in_causal_order
from tidelog.state_changes.change_trace import ENDED, STARTED, ChangeTrace, Part
from tidelog.state_changes.event import (
    NO_BROKER,
    NO_PARTITION,
    NO_REVISION,
    UNKNOWN_DURATION,
    Cause,
    Kind,
    Stage,
    StateChange,
)
from tidelog.state_changes.gaps import Memories, with_gaps

# A partition's trace includes events of brokers, controllers and the store from this time before
# its first event: the longest lease is a minute.
CAUSE_WINDOW_MS = 60_000

_GroupKey = tuple[object, ...]

TOPIC_KINDS = (Kind.TOPIC_CREATION, Kind.TOPIC_DELETION)
CONTROLLER_KINDS = (
    Kind.CONTROLLER_JOINED,
    Kind.CONTROLLER_LEFT,
    Kind.CONTROLLER_ELECTED,
    Kind.CONTROLLER_LOADED,
    Kind.CONTROLLER_STEPPED_DOWN,
)
_PARTITION_KINDS = frozenset(
    {
        Kind.CREATE,
        Kind.ELECTION,
        Kind.UNCLEAN_ELECTION,
        Kind.LEADER_LOST,
        Kind.ISR_SHRINK,
        Kind.ISR_EXPAND,
        Kind.RESIGNATION,
        Kind.CONFIG_CHANGE,
        Kind.BECOME_LEADER,
        Kind.BECOME_FOLLOWER,
        Kind.STOP,
        Kind.DELETE,
        Kind.TRUNCATION,
        Kind.REPLICA_DAMAGED,
        Kind.REPLICA_REPAIRED,
        Kind.BATCH_DAMAGED,
        Kind.REPLICA_DIVERGED,
        Kind.DISK_REFUSED,
        Kind.DISK_RECOVERED,
        Kind.HW_STALLED,
        Kind.HIGH_WATERMARK_RESUMED,
        Kind.RECOVERY_CONSENT,
    }
)
# Kinds without a topic: events of brokers, controllers and the store, which affect many partitions
# at once.
CLUSTER_KINDS = tuple(
    kind for kind in Kind if kind not in _PARTITION_KINDS and kind not in TOPIC_KINDS
)

# Details of a partition's event that are the id of a broker, or a list of them.
_BROKERS_IN_DETAILS = (
    "leader",
    "leader_before",
    "follower",
    "replicas",
    "isr",
    "isr_before",
    "eligible",
    "brokers",
)
_KIND_ORDER = {kind: number for number, kind in enumerate(Kind)}
_STAGE_ORDER = {stage: number for number, stage in enumerate(Stage)}


class TraceScope(NamedTuple):
    """Subject of a trace. No topic: the entire cluster; no partition: the entire topic."""

    topic: str = ""
    partition: int | None = None
    since_ms: int = 0

    def includes(self, change: StateChange) -> bool:
        """Returns whether the event is about the topic or partition itself."""
        if change.time_ms < self.since_ms or not change.topic:
            return False
        if self.topic and change.topic != self.topic:
            return False
        return self.partition is None or change.partition in (self.partition, NO_PARTITION)

    def asks_for(self, change: StateChange) -> bool:
        """Returns whether the event is about the topic or partition itself, or about a broker, a
        controller or the store. `relevant` selects from the latter when all events are read."""
        if change.time_ms < self.since_ms:
            return False
        if not self.topic or self.includes(change):
            return True
        return not change.topic and change.kind in CLUSTER_KINDS


def trace(
    events: Iterable[StateChange], scope: TraceScope, memories: Memories | None = None
) -> list[ChangeTrace]:
    """Returns the changes of a scope in causal order; empty: no service reports any. `memories`: as
    for `with_gaps`."""
    changes = traces_of(relevant(events, scope), memories)
    return _from_creation(changes) if scope.topic else changes


def _from_creation(changes: list[ChangeTrace]) -> list[ChangeTrace]:
    """Leaves out what precedes the creation of the topic: it caused none of its changes. Before any
    other first change, changes of brokers and controllers may be its cause."""
    first = next((n for n, change in enumerate(changes) if change.headline.topic), 0)
    return changes[first:] if changes and is_creation(changes[first]) else changes


def is_creation(change: ChangeTrace) -> bool:
    """Whether a topic or one of its partitions begins with this change."""
    event = change.headline
    by_key = event.kind is Kind.CREATE and event.broker == NO_BROKER
    return by_key or event.kind is Kind.TOPIC_CREATION


def relevant(events: Iterable[StateChange], scope: TraceScope) -> list[StateChange]:
    """Returns the events of the scope itself, and those of the brokers and controllers that carried
    them out, from shortly before the first one on."""
    distinct = _without_repetitions(events)
    own = [change for change in distinct if scope.includes(change)]
    if not scope.topic:
        return [c for c in distinct if c.time_ms >= scope.since_ms]
    if not own:
        return []
    brokers = {broker for change in own for broker in _brokers_in(change)}
    begin_ms = max(scope.since_ms, min(c.time_ms for c in own) - CAUSE_WINDOW_MS)
    cluster = [
        change
        for change in distinct
        if not change.topic and change.time_ms >= begin_ms and _touches(change, brokers)
    ]
    return own + cluster


class Involved:
    """Selects new events: those of the scope, and those of the brokers and controllers that carried
    out earlier events of the scope."""

    def __init__(self, scope: TraceScope, events: Iterable[StateChange]) -> None:
        self._scope = scope
        self._brokers: set[int] = set()
        for change in events:
            self.takes(change)

    def takes(self, change: StateChange) -> bool:
        if self._scope.includes(change):
            self._brokers.update(_brokers_in(change))
            return True
        if change.topic:
            return False
        return not self._scope.topic or _touches(change, self._brokers)


def traces_of(events: Iterable[StateChange], memories: Memories | None = None) -> list[ChangeTrace]:
    """Returns the changes with their stages, in causal order."""
    groups = group_by_change(_without_repetitions(events))
    return with_gaps(in_causal_order([_trace_of(stages) for stages in groups]), memories)


def group_by_change(events: Iterable[StateChange]) -> list[list[StateChange]]:
    """Returns groups of stages, none of them empty. An event without an id is a fact, and a group
    of its own."""
    groups: dict[_GroupKey, list[StateChange]] = {}
    facts: list[list[StateChange]] = []
    for change in events:
        key = _group_key(change)
        if key:
            groups.setdefault(key, []).append(change)
        else:
            facts.append([change])
    return [*groups.values(), *facts]


def _group_key(change: StateChange) -> _GroupKey:
    """Returns an empty key if the event has no id. A topic is created and deleted once, by one
    controller or by its successor, which does not have the id."""
    if change.kind in TOPIC_KINDS and change.topic_id:
        return (change.kind, change.topic_id)
    if change.change_id:
        return (change.change_id, change.topic, change.partition)
    return ()


def _without_repetitions(events: Iterable[StateChange]) -> list[StateChange]:
    """Removes copies of an event: a service, a log file and the topic may have it, or a file may be
    there twice."""
    return list({change.identity: change for change in events}.values())


def _brokers_in(change: StateChange) -> list[int]:
    """Returns the broker that a partition's event is about, the one that reported it, and the
    replicas."""
    brokers = [] if change.broker == NO_BROKER else [change.broker]
    role, _, number = change.service.rpartition("-")
    if role == "broker" and number.isdecimal():
        brokers.append(int(number))
    for name in _BROKERS_IN_DETAILS:
        # A leader that died reports nothing itself.
        value = change.details.get(name)
        if isinstance(value, list):
            brokers += [item for item in value if isinstance(item, int)]
        elif isinstance(value, int):
            brokers.append(value)
    return brokers


def _touches(change: StateChange, brokers: set[int]) -> bool:
    if change.kind in CONTROLLER_KINDS:
        return True
    if change.broker != NO_BROKER:
        return change.broker in brokers
    role, _, number = change.service.rpartition("-")
    return role == "controller" or (number.isdecimal() and int(number) in brokers)


def _trace_of(stages: Sequence[StateChange]) -> ChangeTrace:
    late = _late_incarnations(stages)
    # Each late incarnation of a broker has parts of its own.
    shares: dict[tuple[Kind, int, int], list[StateChange]] = {}
    for event in stages:
        late_epoch = (
            event.broker_epoch if (event.broker, event.broker_epoch) in late else NO_REVISION
        )
        shares.setdefault((event.kind, event.broker, late_epoch), []).append(event)
    parts = [
        Part(kind, broker, tuple(sorted(share, key=_stage_order)), late_epoch != NO_REVISION)
        for (kind, broker, late_epoch), share in shares.items()
    ]
    _sort_parts(parts)
    headline = _headline(parts)
    return ChangeTrace(
        # A controller that ends a change which its predecessor began does not have the id.
        headline.change_id or next((event.change_id for event in stages if event.change_id), ""),
        headline,
        _cause(parts[0]),
        tuple(parts),
        min(_requested_ms(event) for event in stages),
        _revision(parts),
    )


def _late_incarnations(stages: Sequence[StateChange]) -> set[tuple[int, int]]:
    """Returns brokers and epochs to which only a full state delivered the change. A broker that
    returns gets all decisions of the meantime in that way. If the change was requested from the
    broker by a full state, it was commanded, and is not late."""
    commanded = {
        (event.broker, event.broker_epoch)
        for event in stages
        if event.stage in (Stage.REQUESTED, Stage.ACKNOWLEDGED)
    }
    named = {
        (event.broker, event.broker_epoch)
        for event in stages
        if event.cause is Cause.FULL_STATE and event.broker_epoch != NO_REVISION
    }
    return named - commanded


def _sort_parts(parts: list[Part]) -> None:
    """Sorts parts: the key first, because nothing is sent before the store has it. The parts of a
    replica stay together. Replicas are in the order of their first event; of simultaneous ones
    the leader is first. Commanded parts precede their consequences, and late parts come last."""
    began: dict[tuple[bool, int], int] = {}
    for part in parts:
        first_ms, replica = part.stages[0].time_ms, (part.is_late, part.broker)
        began[replica] = min(first_ms, began.get(replica, first_ms))
    leaders = {part.broker for part in parts if part.kind is Kind.BECOME_LEADER}
    parts.sort(
        key=lambda part: (
            part.is_late,
            part.broker != NO_BROKER,
            began[part.is_late, part.broker],
            part.broker not in leaders,
            part.broker,
            not part.has(*STARTED),
            _KIND_ORDER[part.kind],
        )
    )


def _stage_order(event: StateChange) -> tuple[int, int]:
    return _STAGE_ORDER[event.stage], event.time_ms


def _requested_ms(event: StateChange) -> int:
    known = event.duration_ms != UNKNOWN_DURATION
    return event.time_ms - event.duration_ms if known else event.time_ms


def _headline(parts: Sequence[Part]) -> StateChange:
    """Returns the event of the key rather than of a replica, and the end rather than the request,
    because only the end has the revision."""
    stages = parts[0].stages
    return next((event for event in reversed(stages) if event.stage in ENDED), stages[0])


def _cause(part: Part) -> Cause:
    """Returns the cause of the request or of the execution. The cause of a failure belongs to that
    stage alone. A part that was only ignored is a fact with a cause."""
    own = (event.cause for event in part.stages if event.stage not in (Stage.FAILED, Stage.IGNORED))
    if not part.has(*STARTED, Stage.COMPLETED, Stage.ACKNOWLEDGED, Stage.FAILED):
        own = (event.cause for event in part.stages)
    return next((cause for cause in own if cause is not Cause.NONE), Cause.NONE)


def _revision(parts: Sequence[Part]) -> int:
    """Returns the revision of the write, from the service that wrote the key, else from replicas. A
    request has an earlier revision, and a replica that ignored the change has its own."""
    of_key = [event for part in parts if part.broker == NO_BROKER for event in part.stages]
    written = [event.revision for event in of_key if event.stage is Stage.COMPLETED]
    carried_out = [
        event.revision
        for part in parts
        for event in part.stages
        if event.stage is not Stage.IGNORED and (part.broker != NO_BROKER or not written)
    ]
    known = [revision for revision in written or carried_out if revision != NO_REVISION]
    return min(known, default=NO_REVISION)
