"""One stage of one state change, with all its fields. Plain values, no I/O.

A change has stages, in one service or several, under one id: *requested* by the service that
decides it, *received* by the service that has to carry it out, *completed*, *failed* or *ignored*
there, and *acknowledged* when the deciding service knows of that. A fact that no service decided (a
broker has left) is *completed* at once.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping
from typing import NamedTuple

from tidelog.model import NO_EPOCH, TopicPartition

# Values of fields of `StateChange` that do not apply.
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
    IGNORED = "ignored"  # late, repeated, or for another incarnation or topic: without effect
    ACKNOWLEDGED = "acknowledged"


class Kind(enum.Enum):
    """What changes. With a `broker` it is the part of that replica, without one the partition's
    key in the metadata store."""

    # A partition's key.
    CREATE = "create"
    ELECTION = "election"
    UNCLEAN_ELECTION = "unclean_election"
    LEADER_LOST = "leader_lost"  # no replica could be elected
    ISR_SHRINK = "isr_shrink"
    ISR_EXPAND = "isr_expand"
    RESIGNATION = "resignation"  # a replica that lost data leaves the ISR by itself
    CONFIG_CHANGE = "config_change"
    MOVE_ACTIVATED = "move_activated"  # the brokers that it adds follow the leader
    MOVE_SWITCHED = "move_switched"  # the added brokers are replicas; removed ones are deleted
    MOVE_CANCELLED = "move_cancelled"  # only the original replicas are replicas again
    # One replica.
    BECOME_LEADER = "become_leader"
    BECOME_FOLLOWER = "become_follower"
    STOP = "stop"
    DELETE = "delete"  # many strays of a topic at once are one event with their `partitions`
    TRUNCATION = "truncation"
    REPLICA_DAMAGED = "replica_damaged"
    REPLICA_REPAIRED = "replica_repaired"
    BATCH_DAMAGED = "batch_damaged"  # unreadable; no other replica can send it
    REPLICA_DIVERGED = "replica_diverged"  # committed batches differ from another replica's
    DISK_REFUSED = "disk_refused"  # no space, or a file that may not grow
    DISK_RECOVERED = "disk_takes_again"
    HW_STALLED = "hw_stalled"
    HIGH_WATERMARK_RESUMED = "hw_moves_again"
    # A topic.
    TOPIC_CREATION = "topic_creation"
    TOPIC_DELETION = "topic_deletion"
    TOPIC_CONFIG = "topic_config"  # the configuration changed
    PARTITIONS_ADDITION = "partitions_addition"
    PARTITIONS_REMOVAL = "partitions_removal"
    # Requests of operators, and changes that take time.
    OPERATION_BEGUN = "operation_begun"
    OPERATION_CANCELLING = "operation_cancelling"
    OPERATION_ENDED = "operation_ended"
    BROKER_MAINTENANCE = "broker_maintenance"  # maintenance begins or ends
    THROTTLE = "throttle"  # the bandwidth limit of moves changed
    FEATURE_LEVEL = "feature_level"  # of the cluster; it only rises
    RECOVERY_CONSENT = "recovery_consent"
    # A broker.
    BROKER_JOINED = "broker_joined"
    BROKER_LEFT = "broker_left"
    BROKER_FENCED = "broker_fenced"  # its registration was ended because it seemed dead
    BROKER_STOPPING = "broker_stopping"
    BROKER_STALLED = "broker_stalled"  # its process was stalled, and continues
    CLOCK_IN_DOUBT = "clock_in_doubt"  # nothing is deleted by age until that is over
    REGISTRATION = "registration"  # as the broker itself reports that it joined
    REGISTRATION_LOST = "registration_lost"  # its key is gone; it registers again
    COMMAND = "command"  # an entire command of a controller: a full state, or a rejected command
    LEADER_UNREACHABLE = "leader_unreachable"
    LEADER_REACHED = "leader_reached"
    CONNECTION_LOST = "connection_lost"  # of a controller to a broker whose address answers
    COMMAND_OVERDUE = "command_overdue"
    # The controller and the store.
    CONTROLLER_JOINED = "controller_joined"  # its process runs, active or standby
    CONTROLLER_LEFT = "controller_left"
    CONTROLLER_ELECTED = "controller_elected"
    CONTROLLER_LOADED = "controller_loaded"
    CONTROLLER_STEPPED_DOWN = "controller_stepped_down"
    STORE_LOST = "store_lost"
    STORE_BACK = "store_back"


class Cause(enum.Enum):
    """Why a change happens, for programs. Free text in `details` says more."""

    NONE = ""
    TOPIC_CREATED = "topic_created"
    TOPIC_DELETED = "topic_deleted"
    PARTITIONS_ADDED = "partitions_added"
    PARTITIONS_REMOVED = "partitions_removed"
    CONFIG_CHANGED = "config_changed"
    BROKER_CRASHED = "broker_crashed"  # its connection broke, and its address refuses connections
    BROKER_LEASE_ENDED = "broker_lease_ended"  # or its next incarnation ended it, unobserved
    BROKER_RESTARTED = "broker_restarted"  # back as a new incarnation before it was missed
    BROKER_STOPPING = "broker_stopping"
    BROKER_STOPPED = "broker_stopped"
    BROKER_GONE = "broker_gone"  # it left before the reporting service checked
    BROKER_JOINED = "broker_joined"
    REGISTERED = "registered"  # a broker or controller has written its registration
    REGISTRATION_ENDED = "registration_ended"  # a controller stopped, or its lease ran out
    NO_CONTROLLER = "no_controller"  # no controller held the key of the active one
    REPLICA_RESIGNED = "replica_resigned"
    LEADER_UNREACHABLE = "leader_unreachable"  # it is alive, but followers cannot reach it
    CAUGHT_UP = "caught_up"
    LAG_TIME = "lag_time"  # not caught up for replica_lag_time_max_ms
    LAG_BYTES = "lag_bytes"  # lacks more than replica_lag_max_bytes
    NO_LONGER_HELD = "no_longer_held"  # the leader's log begins after the follower's end
    RECOVERY = "recovery"  # no last-known member is intact; the best of their logs leads
    CONSENT = "consent"  # an operator accepted the loss of records
    CONNECTION_LOST = "connection_lost"  # commands sent through it must be sent again
    NEW_CONTROLLER = "new_controller"  # it sends every broker its full state
    KEY_MENDED = "key_mended"  # a key that could not be read has been repaired
    FULL_STATE = "full_state"  # for a broker that joined, or whose connection broke
    STALE_CONTROLLER_EPOCH = "stale_controller_epoch"
    STALE_BROKER_EPOCH = "stale_broker_epoch"
    STALE_REVISION = "stale_revision"  # the replica knows a newer decision
    OTHER_TOPIC_ID = "other_topic_id"
    CONFLICT = "conflict"  # the store had changed: a compare-and-swap that failed
    STRAY = "stray"  # no longer assigned here
    CORRUPT = "corrupt"
    DISK_ERROR = "disk_error"
    DISK_FULL = "disk_full"
    DIVERGED = "diverged"  # the follower's log diverged from its leader's
    NO_FOLLOWER_PROGRESS = "no_follower_progress"
    LEADER_NOT_SYNCED = "leader_not_synced"  # of a synced topic: the leader's own disk lags
    BELOW_MIN_ISR = "below_min_isr"
    TIMEOUT = "timeout"
    NO_ANSWER = "no_answer"  # the other service could not be reached, or did not answer
    REMOVED = "removed"  # another process deleted it
    STORE_UNREACHABLE = "store_unreachable"
    NO_OPEN_FILES = "no_open_files"  # the controller could open no files, and there was a standby
    REQUESTED = "requested"  # a caller requested it
    PREFERRED_LEADER = "preferred_leader"  # the preferred replica leads again
    LEADER_MOVED = "leader_moved"  # a caller chose another leader
    MAINTENANCE = "maintenance"  # of the broker that led it
    REASSIGNED = "reassigned"  # an operation moves the partition to other replicas
    CANCELLED = "cancelled"  # the operation was cancelled

    @classmethod
    def parse(cls, word: str) -> Cause:
        """Returns NONE for a word of a newer version, because nothing depends on a cause."""
        return _CAUSES.get(word, cls.NONE)


_CAUSES = {cause.value: cause for cause in Cause}


class Change(NamedTuple):
    """Identity and cause of a partition's change. The store and commands carry it, so that all its
    stages are reported as one change. `requested_at_ms`: wall clock of the deciding service."""

    id: str = ""
    cause: Cause = Cause.NONE
    requested_at_ms: int = 0
    trace_id: str = ""

    def duration_ms(self, now_ms: int) -> int:
        """Returns the time since the request, by the wall clocks of both services;
        UNKNOWN_DURATION: the time of the request is not known."""
        return now_ms - self.requested_at_ms if self.requested_at_ms else UNKNOWN_DURATION


NO_CHANGE = Change()


def broker_stopping(broker_id: int, broker_epoch: int, requested_at_ms: int = 0) -> Change:
    """Returns the change as which the stop of a broker is reported: by the broker when it requests
    the stop, and when it has transferred its leaderships; by a controller when it learns of the
    stop. An incarnation stops once, so both know the id."""
    return Change(f"b{broker_id}-{broker_epoch}-stopping", Cause.REQUESTED, requested_at_ms)


def set_aside(broker_id: int, since_ms: int, cause: Cause = Cause.STRAY) -> Change:
    """Returns the change as which a broker reports that it has set an unassigned replica aside, and
    later that it has deleted it. `since_ms`: wall clock. The replica's directory is named after it,
    so that a later incarnation of the broker knows the id."""
    return Change(f"b{broker_id}-aside-{since_ms}", cause, since_ms)


class StateChange(NamedTuple):
    """One stage of one change.

    - `service`: the reporting service: "controller-1", "broker-2".
    - `broker`: the broker that the event is about, which need not be the reporting one.
    - `revision`: store revision at which the change was decided or is known.
    - `duration_ms`: time since the request, across services, by the wall clocks of both.
    - `trace_id`: 32 hexadecimal digits of the W3C trace context that began the change.
    """

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
        """Equal for all copies of one event, from its service, a log file or the topic. Details
        count too: two followers may lose one leader in one millisecond."""
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
