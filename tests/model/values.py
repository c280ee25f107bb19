"""The parts of a model state: plain tuples of small integers.

Brokers are 1, 2 and 3, in the order of preference. The number of an incarnation represents the
broker epoch, and is counted for each broker by itself: broker epochs of two brokers are never
compared. 0 is no incarnation (`NOT_WHOLE` in an entry of the ISR).
"""

from __future__ import annotations

import enum
from functools import cache
from typing import NamedTuple

from tidelog.model import NO_EPOCH, NO_LEADER
from tidelog_runtime.metadata.schema import LeaderAndIsr, Member, Moving

BROKERS = (1, 2, 3)
MIN_ISR = 2
# Targets have at least MIN_ISR replicas, so that min ISR is the same for all of them.
TARGETS = ((1, 2), (2, 3), (3, 1), (1, 2, 3))
OPERATION = "move"

# A topic, and the one that is created under its name after its deletion.
NO_TOPIC, FIRST_TOPIC, SECOND_TOPIC = 0, 1, 2
TOPICS = (FIRST_TOPIC, SECOND_TOPIC)

# The first incarnation of a broker, in the numbers that `canonical` gives.
FIRST_INCARNATION = 1

# A revision of the partition's key, as one broker knows it: none yet, some outdated ones (in their
# order, if late commands make it matter), or the present one.
NEVER = 0
PRESENT = 9

# For a topic with durability `replicated`: all of a log counts, and none of it is synced.
NOT_SYNCED = -1

# How far the repair of a damaged replica has come.
SOUND, FOUND, RESIGNED = 0, 1, 2

# A data directory, compared with the store's record of its broker id: it registered last, or none
# has since; a copy of it has registered since; another directory has.
CURRENT, OLDER, REPLACED = 0, 1, 2

# In the ghost field `sound`: only what is admitted from now on has lost nothing.
NEXT_INCARNATION = 14
UNTIL_ADMITTED = 15

RECORDS_PER_TOPIC = 4
RECORDS_PER_EPOCH = (
    len(TOPICS) * RECORDS_PER_TOPIC
)  # entry of a log: leader epoch * RECORDS_PER_EPOCH + record
Entries = tuple[int, ...]
MemberKey = tuple[int, int]  # broker, incarnation


class Value(NamedTuple):
    """`LeaderAndIsr` without the fields that never change here.

    The operation of a move is always the same. NO_EPOCH: the key does not exist yet, or no
    longer, and a topic of that number is to come.
    """

    leader: int
    epoch: int
    isr: tuple[MemberKey, ...]
    eligible: tuple[MemberKey, ...]
    unclean: int
    topic: int = FIRST_TOPIC
    replicas: tuple[int, ...] = BROKERS
    # The move that is under way: original and target replicas. Empty: there is none.
    original: tuple[int, ...] = ()
    target: tuple[int, ...] = ()


UNLED = Value(NO_LEADER, NO_EPOCH, (), (), NO_EPOCH)


class Registered(NamedTuple):
    incarnation: int
    running: bool
    whole: int  # effective `whole_since`


Registrations = tuple[Registered | None, Registered | None, Registered | None]


class RequestedTarget(NamedTuple):
    """The target of an operation: these replicas, or no further move there if `cancelled`."""

    target: tuple[int, ...]
    cancelled: bool


class Store(NamedTuple):
    """The contents of etcd.

    - `controller_epoch`: how often the controller has changed
    - `deleting`: the topic is to be deleted
    - `acknowledged`: brokers that have reported to this term's controller, in their registered
      incarnations, that they have stopped the topic
    - `seen`: the registrations that the controller knows, if these are late; None: the present
      ones
    - `noticed`: the same for leaders
    """

    value: Value
    registered: Registrations
    controller_epoch: int
    deleting: bool = False
    acknowledged: tuple[int, ...] = ()
    seen: Registrations | None = None
    noticed: Registrations | None = None
    requested: RequestedTarget | None = None


class Progress(NamedTuple):
    """`FollowerProgress` without its times: any follower may be found to lag."""

    incarnation: int
    log_end: int


class LeaderState(NamedTuple):
    """The state of a leader.

    - `followers`: by broker id; the leader's own place is unused
    """

    epoch_start: int
    followers: tuple[Progress, ...]
    proposed: Value | None


class SpareDisk(NamedTuple):
    """A second disk with a broker's id, and without a process.

    - `log`, `whole`, `directory`, `copied`: as in `Replica`
    - `is_copy`: the disk in use is of the same directory
    - `swaps`: how often the two may still change places
    """

    log: Entries
    whole: int
    directory: int
    copied: bool
    is_copy: bool
    swaps: int


class Replica(NamedTuple):
    """One broker: its process, its disk, its replica.

    - `incarnation`: the newest broker epoch that its process knows
    - `own`: the one that it registered itself; 0: none yet
    - `whole`: `whole_since` on its disk; 0: since the next registration
    - `damaged`: SOUND, FOUND or RESIGNED
    - `value`: what it has taken; ISR and eligible set only while it leads
    - `revision`: NEVER, outdated ones in order, PRESENT
    - `flushed`: how far the log of a `synced` topic is on the disk
    - `topic`: whose replica this is, or (`value` None) whose log is on the disk
    - `shelf`: the other topic's log, if that is there, too
    - `stopped`: topics with the revisions at which they were stopped here
    - `full`: the process has received its full state
    - `registering`: the incarnation that its process has registered without an answer yet
    - `directory`: CURRENT, OLDER or REPLACED
    - `copied`: its files are copies, and it has not registered since
    - `spare`: a second disk with the broker's id
    """

    broker: int
    up: bool
    rebooted: bool
    damaged: int
    incarnation: int
    own: int
    whole: int
    controller_epoch: int
    high_watermark: int
    log: Entries
    value: Value | None
    revision: int
    leading: LeaderState | None
    flushed: int = NOT_SYNCED
    topic: int = FIRST_TOPIC
    shelf: tuple[tuple[int, Entries], ...] = ()
    stopped: tuple[tuple[int, int], ...] = ()
    full: bool = False
    registering: int = 0
    directory: int = CURRENT
    copied: bool = False
    spare: SpareDisk | None = None

    def log_of(self, topic: int) -> Entries:
        return self.log if topic == self.topic else dict(self.shelf).get(topic, ())


class Position(NamedTuple):
    """`FetchPosition` without the log start, which never changes here."""

    leader: int
    epoch: int
    offset: int
    last_epoch: int
    flushed: int
    topic: int


class Answer(NamedTuple):
    """`FetchAnswer`, or a rejection because the offset is out of range."""

    high_watermark: int
    epoch: int
    entries: Entries
    diverging: tuple[int, int] | None
    out_of_range: bool = False


class FetchRequest(NamedTuple):
    kind: str  # sorts messages of different kinds
    follower: int
    incarnation: int
    position: Position


class FetchResponse(NamedTuple):
    kind: str
    follower: int
    position: Position
    answer: Answer


class IsrWrite(NamedTuple):
    """A leader's compare-and-swap whose answer never comes.

    It names the present revision: once the key has moved it is void, and dropped.
    """

    kind: str
    value: Value
    joiners: tuple[MemberKey, ...]


class ElectionWrite(NamedTuple):
    """A controller's transaction in flight; void once the key has moved.

    The store evaluates its guards when it arrives.
    """

    kind: str
    value: Value
    controller_epoch: int


class Form(enum.IntEnum):
    """The form of a command.

    - `ONE`: LeaderAndISR of this partition
    - `ALL`: the full state, which consists of this partition
    - `NOTHING`: the full state, which is empty
    - `STOP`: StopReplica
    """

    ONE = 0
    ALL = 1
    NOTHING = 2
    STOP = 3


class Command(NamedTuple):
    kind: str
    broker: int
    incarnation: int
    value: Value
    revision: int
    controller_epoch: int
    form: Form = Form.ONE


Message = FetchRequest | FetchResponse | IsrWrite | ElectionWrite | Command


class Ghost(NamedTuple):
    """What no broker knows, and the invariants are about.

    - `committed`: the longest log below a leader's high watermark
    - `sound`: by broker, the first incarnation since which it has lost nothing, by what the
      model did to its disk
    - `led`: the epochs in which a process began to lead, as bits
    """

    committed: Entries
    sound: tuple[int, int, int]
    led: int


class Budget(NamedTuple):
    """The remaining budget."""

    faults: int
    records: int


@cache
def to_production(value: Value) -> LeaderAndIsr:
    return LeaderAndIsr(
        topic_id=topic_id(value.topic),
        replicas=value.replicas,
        controller_epoch=0,
        leader=value.leader,
        leader_epoch=value.epoch,
        isr=tuple(Member(b, e) for b, e in value.isr),
        eligible=tuple(Member(b, e) for b, e in value.eligible),
        min_isr=MIN_ISR,
        unclean_leader_epoch=value.unclean,
        moving=Moving(OPERATION, value.original, value.target) if value.target else None,
    )


def from_production(state: LeaderAndIsr) -> Value:
    return Value(
        state.leader,
        state.leader_epoch,
        tuple((m.broker_id, m.broker_epoch) for m in state.isr),
        tuple((m.broker_id, m.broker_epoch) for m in state.eligible),
        state.unclean_leader_epoch,
        next(topic for topic in TOPICS if topic_id(topic) == state.topic_id),
        state.replicas,
        state.moving.original if state.moving else (),
        state.moving.target if state.moving else (),
    )


def is_stopped(value: Value) -> bool:
    """Whether it is stopped for its topic's deletion: nothing else leaves both sets empty."""
    return value.epoch != NO_EPOCH and not value.isr and not value.eligible


def topic_id(topic: int) -> str:
    return f"model-{topic}"


def record_of(topic: int, record: int) -> int:
    """Returns the number of a topic's record, which shows the topic wherever it is found."""
    return (topic - 1) * RECORDS_PER_TOPIC + record


def topic_of(logged: int) -> int:
    return logged % RECORDS_PER_EPOCH // RECORDS_PER_TOPIC + 1


def entry(epoch: int, record: int) -> int:
    return epoch * RECORDS_PER_EPOCH + record


def epoch_of(logged: int) -> int:
    return logged // RECORDS_PER_EPOCH


def record_name(logged: int) -> str:
    """Returns the name of a record.

    Records are a, b, c in the order in which they were produced; those of the second topic e,
    f, g.
    """
    return "abcdefgh"[logged % RECORDS_PER_EPOCH]
