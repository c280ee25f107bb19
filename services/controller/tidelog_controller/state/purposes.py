"""What each of the controller's transactions is for, as plain values; `transactions` makes them
of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog.state_changes.event import Cause
from tidelog_controller.policies.recovery import Logs
from tidelog_controller.state.admin_requests import NOBODY, Asker, Assignment
from tidelog_runtime.metadata.operations import (
    MarkedAs,
    OperationEntry,
    OperationMove,
)
from tidelog_runtime.metadata.schema import (
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
    """`new` None: the key is deleted. `expected`: its modification revision; 0: absent.
    `consent_revision`: of a consent to recovery that this election uses up; 0: of none.
    `deposes`: the leader until now could go on, but for its followers, which cannot reach
    it. `logs`: those that an unclean election was decided by; None: it is none. `why`: a leader
    that serves hands over; NONE: none does. `trace_id`, `asker`: of the request for that.
    `leaves_disk`: the disk of the leader until now rejects the log."""

    partition: TopicPartition
    old: LeaderAndIsr | None
    new: LeaderAndIsr | None
    expected: int
    consent_revision: int = 0
    deposes: bool = False
    logs: Logs | None = None
    why: Cause = Cause.NONE
    trace_id: str = ""
    asker: Asker = NOBODY
    leaves_disk: bool = False

    def deciding(self, new: LeaderAndIsr) -> PartitionWrite:
        """The same with another new state; `_replace` takes twice as long."""
        return PartitionWrite(self[0], self[1], new, *self[3:])

    @property
    def is_handover(self) -> bool:
        """A leader that serves is replaced, and no client waits for that."""
        return self.why is not Cause.NONE and not self.leaves_disk

    @property
    def changes(self) -> int:
        return 2 if self.consent_revision else 1


class TopicGuard(NamedTuple):
    """Partitions come into being only as long as this very topic exists."""

    topic: str
    create_revision: int


# How brokers left; None: to be forgotten. It overwrites without a guard on what stands: the
# active controller alone writes it, and nothing is decided by it.
UnrecordedDepartures = tuple[tuple[int, Departure | None], ...]


class PartitionBatch(NamedTuple):
    """`departures`: kept with what follows from them."""

    writes: tuple[PartitionWrite, ...]
    topic_guard: TopicGuard | None
    departures: UnrecordedDepartures = ()

    @property
    def room(self) -> int:
        """For so many changes more."""
        return MAX_TRANSACTION_CHANGES - sum(write.changes for write in self.writes)


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """`assignment`: replicas chosen by hand, kept beside the topic until all have them;
    empty: the controller places them."""

    topic: str
    entry: TopicEntry
    assignment: Assignment = ()
    asker: Asker = field(default=NOBODY, compare=False)


@dataclass(frozen=True, slots=True)
class TopicChange:
    """Another configuration of a topic, or other partitions. `revision`: of its key before.
    `intent`: what is to be done besides, which nothing of its kind may stand in the way of.
    `described`: what changes, for whoever is told."""

    topic: str
    revision: int
    entry: TopicEntry
    intent: PartitionsAddition | PartitionsRemoval | None = None
    asker: Asker = field(default=NOBODY, compare=False)
    trace_id: str = field(default="", compare=False)
    described: tuple[str, ...] = field(default=(), compare=False)


class PlanChunkWrite(NamedTuple):
    """A part of a plan, before the key of its operation. `revision`: of its own key before; 0:
    absent."""

    operation_id: str
    chunk: int
    moves: tuple[OperationMove, ...]
    revision: int


class BrokerMarking(NamedTuple):
    """What a broker is from now on. `added_revision`, `removed_revision`: of the marks that
    stand; 0: there is none."""

    broker_id: int
    marked: MarkedAs
    added_revision: int
    removed_revision: int


class TopicRewrite(NamedTuple):
    """Another replication factor. `revision`: of the topic's key before."""

    topic: str
    revision: int
    entry: TopicEntry


@dataclass(frozen=True, slots=True)
class OperationCommit:
    """From here on an operation exists, brokers are marked by it, and topics have another
    replication factor. `plan_revision`: of the first chunk of its plan; 0: there is none."""

    operation_id: str
    entry: OperationEntry
    plan_revision: int = 0
    marks: tuple[BrokerMarking, ...] = ()
    topics: tuple[TopicRewrite, ...] = field(default=(), compare=False)


class OperationUpdate(NamedTuple):
    """`revision`: of its key before. `marks`, `topics`: what a cancellation takes back."""

    operation_id: str
    revision: int
    entry: OperationEntry
    asker: Asker = NOBODY
    marks: tuple[BrokerMarking, ...] = ()
    topics: tuple[TopicRewrite, ...] = ()


class KeysRemoval(NamedTuple):
    """What is of no use any more: keys with their modification revisions, and keys that are
    nothing without them. `absent`: keys of which there are none."""

    guarded: tuple[tuple[str, int], ...]
    others: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


class MaintenanceChange(NamedTuple):
    """Brokers that are in maintenance from now on, and those that are no more, with the
    revisions of their marks."""

    marked: tuple[int, ...]
    unmarked: tuple[tuple[int, int], ...]
    asker: Asker = NOBODY
    trace_id: str = ""


class ThrottleChange(NamedTuple):
    bytes_per_second: int | None
    revision: int
    before: int | None
    asker: Asker = NOBODY
    trace_id: str = ""


class FirstEpochRise(NamedTuple):
    """Of partitions that are added to a topic after others were removed. `revision`: of the
    topic's key before."""

    topic: str
    revision: int
    entry: TopicEntry


class IntentRemoval(NamedTuple):
    """Of what is done. `key`, with its modification revision."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class DeletionIntent:
    """Two requests for one deletion are one intent, of whoever came first."""

    topic: str
    topic_id: str
    topic_revision: int
    trace_id: str = field(default="", compare=False)
    asker: Asker = field(default=NOBODY, compare=False)


class TopicRemoval(NamedTuple):
    """The end of a deletion. `topic_revision` 0: the topic is gone, the intent alone is
    left. `intents`: others that the topic leaves behind, with their revisions."""

    topic: str
    topic_revision: int
    intent_revision: int
    intents: tuple[tuple[str, int], ...] = ()


class RecoveryIntent(NamedTuple):
    """Consents for partitions that have no leader. `partitions`: each with the revisions
    of its key and of the consent that stands; 0: of none."""

    topic: str
    topic_revision: int
    consent: RecoveryConsent
    partitions: tuple[tuple[TopicPartition, int, int], ...]
    asker: Asker = NOBODY


class ConsentRemoval(NamedTuple):
    """Consents that are good for nothing any more, with their revisions."""

    consents: tuple[tuple[TopicPartition, int], ...]


@dataclass(frozen=True, slots=True)
class RegistrationRemoval:
    """`departure`: kept with it."""

    broker_id: int
    broker_epoch: int
    departure: Departure = field(compare=False)


class DepartureRecord(NamedTuple):
    """Of brokers whose registrations somebody else ended, and from which nothing followed."""

    departures: UnrecordedDepartures


Purpose = (
    PartitionBatch
    | TopicCreation
    | TopicChange
    | PlanChunkWrite
    | OperationCommit
    | OperationUpdate
    | KeysRemoval
    | ThrottleChange
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
