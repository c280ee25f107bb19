"""One stage of one state change, with every field that there is. Plain values, no I/O.

A change goes through stages, in one service or several, under one id: *requested* by who
decides it, *received* by who is to carry it out, *completed*, *failed* or *ignored* there,
*acknowledged* when the decider knows. A fact that nobody decided (a broker has left) is
*completed* at once.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping
from typing import NamedTuple

from tidelog.model import NO_EPOCH, TopicPartition

# Where a field of `StateChange` does not apply.
NO_BROKER = -1
NO_PARTITION = -1
NO_REVISION = 0
UNKNOWN_DURATION = -1

Detail = str | int | bool | list[int] | list[str]


class Stage(enum.Enum):
    REQUESTED = "requested"
    RECEIVED = "received"
    COMPLETED = "completed"
    FAILED = "failed"
    IGNORED = "ignored"  # late, repeated, or for another life or topic: without effect
    ACKNOWLEDGED = "acknowledged"


class Kind(enum.Enum):
    """What changes. With a `broker` it is that replica's part, without one the partition's
    key in the metadata store."""

    # A partition's key.
    CREATE = "create"
    ELECTION = "election"
    UNCLEAN_ELECTION = "unclean_election"
    LEADER_LOST = "leader_lost"  # nobody could be elected
    ISR_SHRINK = "isr_shrink"
    ISR_EXPAND = "isr_expand"
    RESIGNATION = "resignation"  # a replica that lost data leaves the ISR by itself
    CONFIG_CHANGE = "config_change"
    MOVE_ACTIVATED = "move_activated"  # brokers that it moves to follow its leader
    MOVE_SWITCHED = "move_switched"  # they are its replicas; those that left are deleted
    MOVE_CANCELLED = "move_cancelled"  # its original replicas alone are its replicas again
    # One replica.
    BECOME_LEADER = "become_leader"
    BECOME_FOLLOWER = "become_follower"
    STOP = "stop"
    DELETE = "delete"  # of many strays of a topic at once: one event with their `partitions`
    TRUNCATION = "truncation"
    REPLICA_DAMAGED = "replica_damaged"
    REPLICA_REPAIRED = "replica_repaired"
    BATCH_DAMAGED = "batch_damaged"  # unreadable; no other replica can send it again
    REPLICA_DIVERGED = "replica_diverged"  # committed batches differ from another replica's
    DISK_REFUSED = "disk_refused"  # no room, or a file that may not grow
    DISK_TAKES_AGAIN = "disk_takes_again"
    HW_STALLED = "hw_stalled"
    HW_MOVES_AGAIN = "hw_moves_again"
    # A topic.
    TOPIC_CREATION = "topic_creation"
    TOPIC_DELETION = "topic_deletion"
    TOPIC_CONFIG = "topic_config"  # another configuration
    PARTITIONS_ADDITION = "partitions_addition"
    PARTITIONS_REMOVAL = "partitions_removal"
    # What an operator asked for, and what takes its time.
    OPERATION_BEGUN = "operation_begun"
    OPERATION_CANCELLING = "operation_cancelling"
    OPERATION_ENDED = "operation_ended"
    BROKER_MAINTENANCE = "broker_maintenance"  # it begins or ends
    THROTTLE = "throttle"  # another bound on what moves carry
    RECOVERY_CONSENT = "recovery_consent"
    # A broker.
    BROKER_JOINED = "broker_joined"
    BROKER_LEFT = "broker_left"
    BROKER_FENCED = "broker_fenced"  # its registration was ended because it seemed dead
    BROKER_STOPPING = "broker_stopping"
    BROKER_STALLED = "broker_stalled"  # its process stood still, and goes on
    CLOCK_IN_DOUBT = "clock_in_doubt"  # nothing is deleted for its age until that is over
    REGISTRATION = "registration"  # the broker's own view of joining
    REGISTRATION_LOST = "registration_lost"  # its key is gone; it registers again
    COMMAND = "command"  # of a controller, as a whole: a full state, or one that is refused
    LEADER_UNREACHABLE = "leader_unreachable"
    LEADER_REACHED = "leader_reached"
    CONNECTION_LOST = "connection_lost"  # of a controller, to a broker whose address answers
    COMMAND_OVERDUE = "command_overdue"
    # The controller and the store.
    CONTROLLER_JOINED = "controller_joined"  # its process is there, active or not
    CONTROLLER_LEFT = "controller_left"
    CONTROLLER_ELECTED = "controller_elected"
    CONTROLLER_LOADED = "controller_loaded"
    CONTROLLER_STEPPED_DOWN = "controller_stepped_down"
    STORE_LOST = "store_lost"
    STORE_BACK = "store_back"


class Cause(enum.Enum):
    """Why. Free text beside it (`details`) says more; programs read this."""

    NONE = ""
    TOPIC_CREATED = "topic_created"
    TOPIC_DELETED = "topic_deleted"
    PARTITIONS_ADDED = "partitions_added"
    PARTITIONS_REMOVED = "partitions_removed"
    CONFIG_CHANGED = "config_changed"
    BROKER_CRASHED = "broker_crashed"  # its connection broke and its address refuses
    BROKER_LEASE_ENDED = "broker_lease_ended"  # or its next life ended it, unseen by the teller
    BROKER_RESTARTED = "broker_restarted"  # back in another life before it was missed
    BROKER_STOPPING = "broker_stopping"
    BROKER_STOPPED = "broker_stopped"
    BROKER_GONE = "broker_gone"  # before whoever tells it looked
    BROKER_JOINED = "broker_joined"
    REGISTERED = "registered"  # a broker or controller has written its registration
    REGISTRATION_ENDED = "registration_ended"  # a controller stopped, or its lease ran out
    NO_CONTROLLER = "no_controller"  # nobody held the controller's key
    REPLICA_RESIGNED = "replica_resigned"
    LEADER_UNREACHABLE = "leader_unreachable"  # it lives, and its followers cannot reach it
    CAUGHT_UP = "caught_up"
    LAG_TIME = "lag_time"  # not caught up for replica_lag_time_max_ms
    LAG_BYTES = "lag_bytes"  # lacks more than replica_lag_max_bytes
    NO_LONGER_HELD = "no_longer_held"  # the leader's log begins beyond the follower's
    RECOVERY = "recovery"  # nobody is whole; the best log of those known leads
    CONSENT = "consent"  # an operator accepted the loss of records
    CONNECTION_LOST = "connection_lost"  # what came through it has to be told again
    NEW_CONTROLLER = "new_controller"  # it sends every broker its full state
    KEY_MENDED = "key_mended"  # one that could not be read, and so was left out
    FULL_STATE = "full_state"  # a broker that joined, or whose connection broke
    STALE_CONTROLLER_EPOCH = "stale_controller_epoch"
    STALE_BROKER_EPOCH = "stale_broker_epoch"
    STALE_REVISION = "stale_revision"  # the replica knows a newer decision
    OTHER_TOPIC_ID = "other_topic_id"
    CONFLICT = "conflict"  # the store had changed: a compare-and-swap that failed
    STRAY = "stray"  # no longer assigned here
    CORRUPT = "corrupt"
    DISK_ERROR = "disk_error"
    DISK_FULL = "disk_full"
    DIVERGED = "diverged"  # the follower's log parted from its leader's
    NO_FOLLOWER_PROGRESS = "no_follower_progress"
    LEADER_NOT_SYNCED = "leader_not_synced"  # of a synced topic: the leader's own disk
    BELOW_MIN_ISR = "below_min_isr"
    TIMEOUT = "timeout"
    NO_ANSWER = "no_answer"  # whoever was asked could not be reached, or was silent
    REMOVED = "removed"  # somebody else deleted it
    STORE_UNREACHABLE = "store_unreachable"
    NO_OPEN_FILES = "no_open_files"  # the controller could open none, and a standby was there
    REQUESTED = "requested"  # somebody asked for it
    PREFERRED_LEADER = "preferred_leader"  # the first of its replicas leads again
    LEADER_MOVED = "leader_moved"  # somebody chose another leader
    MAINTENANCE = "maintenance"  # of the broker that led it
    REASSIGNED = "reassigned"  # an operation moves the partition to other replicas
    CANCELLED = "cancelled"  # the operation was taken back

    @classmethod
    def parse(cls, word: str) -> Cause:
        """NONE for a word of a newer version: nothing rests on a cause."""
        return _CAUSES.get(word, cls.NONE)


_CAUSES = {cause.value: cause for cause in Cause}


class Change(NamedTuple):
    """What a change of a partition carries through the store and the commands, so that each
    of its stages can be told as one. `requested_at_ms`: wall clock of who decided it."""

    id: str = ""
    cause: Cause = Cause.NONE
    requested_at_ms: int = 0
    trace_id: str = ""

    def duration_ms(self, now_ms: int) -> int:
        """Since it was requested, by the wall clocks of both; UNKNOWN_DURATION: when is not
        known."""
        return now_ms - self.requested_at_ms if self.requested_at_ms else UNKNOWN_DURATION


NO_CHANGE = Change()


def broker_stopping(broker_id: int, broker_epoch: int, requested_at_ms: int = 0) -> Change:
    """As which the end of a broker's life is told: by itself when it asks for it and when it
    has handed over, and by a controller when it hears of it. A life stops once, so both know
    the id."""
    return Change(f"b{broker_id}-{broker_epoch}-stopping", Cause.REQUESTED, requested_at_ms)


def set_aside(broker_id: int, since_ms: int, cause: Cause = Cause.STRAY) -> Change:
    """As which a broker tells that it has set a replica aside that nobody wants there, and, some
    time later, that it has deleted it. `since_ms`: wall clock; the replica's directory is named
    after it, so that a later life of the broker knows the id."""
    return Change(f"b{broker_id}-aside-{since_ms}", cause, since_ms)


class StateChange(NamedTuple):
    """`service`: "controller-1", "broker-2". `broker`: whom it is about, which need not be
    who tells it. `revision`: of the store, at which it was decided or is known.
    `duration_ms`: since it was requested, over all services, by the wall clocks of both.
    `trace_id`: 32 hexadecimal digits of the W3C trace context that began it."""

    time_ms: int
    service: str
    kind: Kind
    stage: Stage
    cause: Cause = Cause.NONE
    change_id: str = ""
    topic: str = ""
    topic_id: str = ""
    partition: int = NO_PARTITION
    broker: int = NO_BROKER
    broker_epoch: int = NO_REVISION
    controller_epoch: int = NO_EPOCH
    leader_epoch: int = NO_EPOCH
    revision: int = NO_REVISION
    duration_ms: int = UNKNOWN_DURATION
    trace_id: str = ""
    details: Mapping[str, Detail] = {}

    @property
    def identity(self) -> Hashable:
        """The same for one event, whether it came from its service, a log file or the topic;
        details count too: two followers may lose one leader in one millisecond."""
        details = sorted(self.details.items())
        return (
            *self[:-1],
            *((name, tuple(v) if isinstance(v, list) else v) for name, v in details),
        )

    @property
    def name(self) -> TopicPartition | None:
        """The partition that it is about; None: no single one."""
        if not self.topic or self.partition == NO_PARTITION:
            return None
        return TopicPartition(self.topic, self.partition)
