"""The life of partitions, from what all services tell: which changes there were, in causal
order, each with its stages (`grouping`), and what is missing of them (`gaps`).

Pure; it takes the events in any order (`causal_order`), and twice is as once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidelog.state_changes.causal_order import in_causal_order
from tidelog.state_changes.change_life import BEGUN, ENDED, ChangeLife, Part
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
from tidelog.state_changes.grouping import TOPIC_KINDS, of_one_change

# What befell a broker, a controller or the store belongs to a partition's life from so long
# before its first event: the longest lease is a minute.
CAUSE_WINDOW_MS = 60_000

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
        Kind.DISK_TAKES_AGAIN,
        Kind.HW_STALLED,
        Kind.HW_MOVES_AGAIN,
        Kind.RECOVERY_CONSENT,
    }
)
# About no topic: what befalls brokers, controllers and the store, and so many partitions at
# once.
CLUSTER_KINDS = tuple(
    kind for kind in Kind if kind not in _PARTITION_KINDS and kind not in TOPIC_KINDS
)

# Details of a partition's event whose value is a broker's id, or a list of them.
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
    """Whose life. No topic: of the whole cluster; no partition: of the whole topic."""

    topic: str = ""
    partition: int | None = None
    since_ms: int = 0

    def includes(self, change: StateChange) -> bool:
        """Whether it is about the topic or partition itself."""
        if change.time_ms < self.since_ms or not change.topic:
            return False
        if self.topic and change.topic != self.topic:
            return False
        return self.partition is None or change.partition in (self.partition, NO_PARTITION)

    def asks_for(self, change: StateChange) -> bool:
        """Whether it is about the topic or partition itself, or befell a broker, a controller
        or the store, which `relevant` judges when all is told."""
        if change.time_ms < self.since_ms:
            return False
        if not self.topic or self.includes(change):
            return True
        return not change.topic and change.kind in CLUSTER_KINDS


def trace(
    events: Iterable[StateChange], scope: TraceScope, memories: Memories | None = None
) -> list[ChangeLife]:
    """The life of what `scope` names, oldest first; empty: nobody tells anything of it.
    `memories`: as for `with_gaps`."""
    return lives_of(relevant(events, scope), memories)


def relevant(events: Iterable[StateChange], scope: TraceScope) -> list[StateChange]:
    """What is about the scope itself, and what befell the brokers and controllers that
    carried it out, from shortly before its first event on."""
    told = _without_repetitions(events)
    own = [change for change in told if scope.includes(change)]
    if not scope.topic:
        return [c for c in told if c.time_ms >= scope.since_ms]
    if not own:
        return []
    brokers = {broker for change in own for broker in _brokers_in(change)}
    begin_ms = max(scope.since_ms, min(c.time_ms for c in own) - CAUSE_WINDOW_MS)
    cluster = [
        change
        for change in told
        if not change.topic and change.time_ms >= begin_ms and _touches(change, brokers)
    ]
    return own + cluster


class Involved:
    """Which of the events to come are of the scope, or befall those who have carried out
    what was told of it before."""

    def __init__(self, scope: TraceScope, told: Iterable[StateChange]) -> None:
        self._scope = scope
        self._brokers: set[int] = set()
        for change in told:
            self.takes(change)

    def takes(self, change: StateChange) -> bool:
        if self._scope.includes(change):
            self._brokers.update(_brokers_in(change))
            return True
        if change.topic:
            return False
        return not self._scope.topic or _touches(change, self._brokers)


def lives_of(events: Iterable[StateChange], memories: Memories | None = None) -> list[ChangeLife]:
    """Each change with its stages, in causal order."""
    groups = of_one_change(_without_repetitions(events))
    return with_gaps(in_causal_order([_life(stages) for stages in groups]), memories)


def _without_repetitions(events: Iterable[StateChange]) -> list[StateChange]:
    """One event that a service, a log file and the topic tell, or two copies of a file, is
    one."""
    return list({change.identity: change for change in events}.values())


def _brokers_in(change: StateChange) -> list[int]:
    """Those that an event of a partition is about or was told by, and its replicas."""
    brokers = [] if change.broker == NO_BROKER else [change.broker]
    role, _, number = change.service.rpartition("-")
    if role == "broker" and number.isdecimal():
        brokers.append(int(number))
    for name in _BROKERS_IN_DETAILS:
        # A leader that died tells nothing itself.
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


def _life(stages: Sequence[StateChange]) -> ChangeLife:
    late = _late_lives(stages)
    # Each life of a broker that was told late has shares of its own.
    shares: dict[tuple[Kind, int, int], list[StateChange]] = {}
    for told in stages:
        late_epoch = told.broker_epoch if (told.broker, told.broker_epoch) in late else NO_REVISION
        shares.setdefault((told.kind, told.broker, late_epoch), []).append(told)
    parts = [
        Part(kind, broker, tuple(sorted(share, key=_stage_order)), late_epoch != NO_REVISION)
        for (kind, broker, late_epoch), share in shares.items()
    ]
    _put_in_order(parts)
    headline = _headline(parts)
    return ChangeLife(
        # A controller that ends what its predecessor began does not know the id.
        headline.change_id or next((told.change_id for told in stages if told.change_id), ""),
        headline,
        _cause(parts[0]),
        tuple(parts),
        min(_requested_ms(told) for told in stages),
        _revision(parts),
    )


def _late_lives(stages: Sequence[StateChange]) -> set[tuple[int, int]]:
    """Brokers and epochs that were told of the change by a full state alone, as one that comes
    back is of all that was decided in the meantime. A change for which a full state was on its
    way is commanded by it."""
    commanded = {
        (told.broker, told.broker_epoch)
        for told in stages
        if told.stage in (Stage.REQUESTED, Stage.ACKNOWLEDGED)
    }
    named = {
        (told.broker, told.broker_epoch)
        for told in stages
        if told.cause is Cause.FULL_STATE and told.broker_epoch != NO_REVISION
    }
    return named - commanded


def _put_in_order(parts: list[Part]) -> None:
    """The key first: nothing is sent before the store has it. What one replica does stays
    together, in the order in which replicas were first told, of those at once the leader
    first; what was commanded comes before what follows from it, and what came late after all."""
    began: dict[tuple[bool, int], int] = {}
    for part in parts:
        first_ms, who = part.stages[0].time_ms, (part.is_late, part.broker)
        began[who] = min(first_ms, began.get(who, first_ms))
    leaders = {part.broker for part in parts if part.kind is Kind.BECOME_LEADER}
    parts.sort(
        key=lambda part: (
            part.is_late,
            part.broker != NO_BROKER,
            began[part.is_late, part.broker],
            part.broker not in leaders,
            part.broker,
            not part.has(*BEGUN),
            _KIND_ORDER[part.kind],
        )
    )


def _stage_order(told: StateChange) -> tuple[int, int]:
    return _STAGE_ORDER[told.stage], told.time_ms


def _requested_ms(told: StateChange) -> int:
    known = told.duration_ms != UNKNOWN_DURATION
    return told.time_ms - told.duration_ms if known else told.time_ms


def _headline(parts: Sequence[Part]) -> StateChange:
    """Of the key rather than of a replica; how it ended rather than that it was wanted,
    because only then its revision is known."""
    stages = parts[0].stages
    return next((told for told in reversed(stages) if told.stage in ENDED), stages[0])


def _cause(part: Part) -> Cause:
    """Of who asked for it, or did it. Why it failed is the cause of that stage alone; what was
    ignored and nothing else is a fact with a cause."""
    own = (told.cause for told in part.stages if told.stage not in (Stage.FAILED, Stage.IGNORED))
    if not part.has(*BEGUN, Stage.COMPLETED, Stage.ACKNOWLEDGED, Stage.FAILED):
        own = (told.cause for told in part.stages)
    return next((cause for cause in own if cause is not Cause.NONE), Cause.NONE)


def _revision(parts: Sequence[Part]) -> int:
    """That of the write, where whoever wrote the key tells it; replicas tell it, too. What is
    requested rests on an earlier one, and a replica that ignored it names what it knew."""
    of_key = [told for part in parts if part.broker == NO_BROKER for told in part.stages]
    written = [told.revision for told in of_key if told.stage is Stage.COMPLETED]
    carried_out = [
        told.revision
        for part in parts
        for told in part.stages
        if told.stage is not Stage.IGNORED and (part.broker != NO_BROKER or not written)
    ]
    known = [revision for revision in written or carried_out if revision != NO_REVISION]
    return min(known, default=NO_REVISION)
