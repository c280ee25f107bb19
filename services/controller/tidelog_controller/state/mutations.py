"""The mutations that the controller's transactions make, as plain values.

`transactions` builds the transactions from them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog.state_changes.event import NO_CHANGE, Cause, Change
from tidelog_controller.policies.recovery import Logs
from tidelog_controller.state.admin_answers import PlanSummary
from tidelog_controller.state.admin_requests import UNKNOWN_CALLER, Assignment, Caller
from tidelog_runtime.metadata.operations import (
    MarkedAs,
    OperationEntry,
    OperationMove,
)
from tidelog_runtime.metadata.schema import (
    ClusterEntry,
    Departure,
    LeaderAndIsr,
    RecoveryConsent,
    TopicEntry,
)
from tidelog_runtime.metadata.store import (
    MAX_TRANSACTION_CHANGES,
)
from tidelog_runtime.metadata.topic_intents import (
    PartitionsAddition,
    PartitionsRemoval,
)


class PartitionWrite(NamedTuple):
    """The write of one partition's key.

    - `new`: None: the key is deleted.
    - `expected`: the key's modification revision; 0: the key is absent.
    - `consent_revision`: that of the consent to recovery that this election uses; 0: none.
    - `deposes`: the previous leader is live, but its followers cannot reach it.
    - `logs`: the descriptions on which an unclean election is based; None: it is none.
    - `why`: the cause of a leadership transfer; NONE: it is none.
    - `trace_id`, `caller`: those of the request for the transfer.
    - `leaves_disk`: the disk of the previous leader rejects the log.
    - `change`: the origin of the write, known once its transaction has an id.
    """

    partition: TopicPartition
    old: LeaderAndIsr | None
    new: LeaderAndIsr | None
    expected: int
    consent_revision: int = 0
    deposes: bool = False
    logs: Logs | None = None
    why: Cause = Cause.NONE
    trace_id: str = ""
    caller: Caller = UNKNOWN_CALLER
    leaves_disk: bool = False
    change: Change = NO_CHANGE

    def originating(self, new: LeaderAndIsr | None, change: Change) -> PartitionWrite:
        """The same write with its change; `_replace` takes twice as long."""
        return PartitionWrite(self[0], self[1], new, *self[3:-1], change)

    @property
    def is_handover(self) -> bool:
        """Whether a serving leader is replaced and no client waits for it."""
        return self.why is not Cause.NONE and not self.leaves_disk

    @property
    def changes(self) -> int:
        return 2 if self.consent_revision else 1


class TopicGuard(NamedTuple):
    """Partitions are created only while this exact topic exists."""

    topic: str
    create_revision: int


# How brokers left; None: to be deleted. Written without a guard on the stored value: only the
# active controller writes it, and no decision depends on it.
UnrecordedDepartures = tuple[tuple[int, Departure | None], ...]


class PartitionBatch(NamedTuple):
    """`departures`: stored together with the changes that follow from them."""

    writes: tuple[PartitionWrite, ...]
    topic_guard: TopicGuard | None
    departures: UnrecordedDepartures = ()

    @property
    def room(self) -> int:
        """The number of changes for which there is room."""
        return MAX_TRANSACTION_CHANGES - sum(write.changes for write in self.writes)


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """`assignment`: replicas that a request named; empty: the controller places them.

    They are stored beside the topic until all partitions have them.
    """

    topic: str
    entry: TopicEntry
    assignment: Assignment = ()
    caller: Caller = field(default=UNKNOWN_CALLER, compare=False)


@dataclass(frozen=True, slots=True)
class TopicChange:
    """A change of a topic's configuration or number of partitions.

    - `revision`: that of its key before.
    - `intent`: what has to be done besides; no other intent of its kind may exist.
    - `described`: the changes as text, for events.
    """

    topic: str
    revision: int
    entry: TopicEntry
    intent: PartitionsAddition | PartitionsRemoval | None = None
    caller: Caller = field(default=UNKNOWN_CALLER, compare=False)
    trace_id: str = field(default="", compare=False)
    described: tuple[str, ...] = field(default=(), compare=False)


class PlanChunkWrite(NamedTuple):
    """A part of a plan, written before its operation's key.

    `revision`: that of its own key before; 0: absent.
    """

    operation_id: str
    chunk: int
    moves: tuple[OperationMove, ...]
    revision: int


class BrokerMarking(NamedTuple):
    """The new mark of a broker.

    `added_revision`, `removed_revision`: those of its current marks; 0: there is none.
    """

    broker_id: int
    marked: MarkedAs
    added_revision: int
    removed_revision: int


class TopicRewrite(NamedTuple):
    """Another replication factor. `revision`: that of the topic's key before."""

    topic: str
    revision: int
    entry: TopicEntry


@dataclass(frozen=True, slots=True)
class OperationCommit:
    """Creates an operation, marks brokers for it, and rewrites topics' replication factors.

    `plan_revision`: that of the first chunk of its plan; 0: there is none.
    """

    operation_id: str
    entry: OperationEntry
    plan_revision: int = 0
    marks: tuple[BrokerMarking, ...] = ()
    topics: tuple[TopicRewrite, ...] = field(default=(), compare=False)


class OperationUpdate(NamedTuple):
    """A change of an operation.

    - `revision`: that of its key before.
    - `marks`, `topics`: what a cancellation rolls back.
    """

    operation_id: str
    revision: int
    entry: OperationEntry
    caller: Caller = UNKNOWN_CALLER
    marks: tuple[BrokerMarking, ...] = ()
    topics: tuple[TopicRewrite, ...] = ()


class KeysRemoval(NamedTuple):
    """Removes keys that are no longer needed.

    - `guarded`: keys with their modification revisions.
    - `others`: keys that have no meaning without those.
    - `absent`: keys that must not exist.
    """

    guarded: tuple[tuple[str, int], ...]
    others: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


class MaintenanceChange(NamedTuple):
    """Changes of maintenance marks.

    - `marked`: brokers to put into maintenance.
    - `unmarked`: brokers to take out of maintenance, with the revisions of their marks.
    """

    marked: tuple[int, ...]
    unmarked: tuple[tuple[int, int], ...]
    caller: Caller = UNKNOWN_CALLER
    trace_id: str = ""


class ThrottleChange(NamedTuple):
    bytes_per_second: int | None
    revision: int
    before: int | None
    caller: Caller = UNKNOWN_CALLER
    trace_id: str = ""


class LevelChange(NamedTuple):
    """A rise of the feature level (rule `level-never-falls`).

    - `entry`: the cluster's entry before, whose key has `revision`.
    - `registered_revision`: that of the mark of the last registration.
    """

    entry: ClusterEntry
    level: int
    revision: int
    registered_revision: int
    caller: Caller = UNKNOWN_CALLER
    trace_id: str = ""


class FirstEpochRise(NamedTuple):
    """Raises the first leader epoch of partitions that are added after others were removed.

    `revision`: that of the topic's key before.
    """

    topic: str
    revision: int
    entry: TopicEntry


class IntentRemoval(NamedTuple):
    """Removes the key of a completed intent. `revision`: its modification revision."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class DeletionIntent:
    """Two requests for one deletion are one intent, that of the first one."""

    topic: str
    topic_id: str
    topic_revision: int
    trace_id: str = field(default="", compare=False)
    caller: Caller = field(default=UNKNOWN_CALLER, compare=False)


class TopicRemoval(NamedTuple):
    """The end of a deletion.

    - `topic_revision`: 0: the topic is gone, and only the intent is left.
    - `intents`: keys of the topic's other intents, with their revisions.
    """

    topic: str
    topic_revision: int
    intent_revision: int
    intents: tuple[tuple[str, int], ...] = ()


class RecoveryIntent(NamedTuple):
    """Consents for partitions that have no leader.

    `partitions`: each with the revisions of its key and of its current consent; 0: there is none.
    """

    topic: str
    topic_revision: int
    consent: RecoveryConsent
    partitions: tuple[tuple[TopicPartition, int, int], ...]
    caller: Caller = UNKNOWN_CALLER


class ConsentRemoval(NamedTuple):
    """Removes consents that are no longer valid; each with its revision."""

    consents: tuple[tuple[TopicPartition, int], ...]


@dataclass(frozen=True, slots=True)
class RegistrationRemoval:
    """`departure`: stored with it."""

    broker_id: int
    broker_epoch: int
    departure: Departure = field(compare=False)


class DepartureRecord(NamedTuple):
    """Departures of brokers whose registrations ended without any partition being written."""

    departures: UnrecordedDepartures


Mutation = (
    PartitionBatch
    | TopicCreation
    | TopicChange
    | PlanChunkWrite
    | OperationCommit
    | OperationUpdate
    | KeysRemoval
    | ThrottleChange
    | LevelChange
    | MaintenanceChange
    | FirstEpochRise
    | IntentRemoval
    | DeletionIntent
    | TopicRemoval
    | RecoveryIntent
    | ConsentRemoval
    | RegistrationRemoval
    | DepartureRecord
)


class OperationPlan(NamedTuple):
    """A complete plan: the effects of an operation once it has begun.

    - `marks`, `topics`: like those of `OperationCommit`.
    - `marks_before`, `factors_before`: like those of `OperationEntry`.
    """

    summary: PlanSummary
    marks: tuple[BrokerMarking, ...] = ()
    topics: tuple[TopicRewrite, ...] = ()
    marks_before: tuple[tuple[int, str], ...] = ()
    factors_before: tuple[tuple[str, str, int], ...] = ()
