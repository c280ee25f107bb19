"""The words for causes, their severities, and how they depend on each other.

A *symptom* is a problem of a partition; its *roots* are the reasons, mostly a problem of one
broker. A finding reports one root, or the symptoms that have the same roots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.model import TopicPartition

CRITICAL = "critical"  # data or availability is lost now
WARNING = "warning"  # redundancy is lost, or soon will be
INFO = "info"  # nothing is lost
SEVERITIES = (CRITICAL, WARNING, INFO)

# Symptoms of partitions.
NO_LEADER = "no_leader"
UNDER_MIN_ISR = "under_min_isr"
HW_STALLED = "hw_stalled"
CONSUMER_WAITS = "consumer_waits"
REPLICA_OUT_OF_ISR = "replica_out_of_isr"  # no root is known
TAKES_NO_RECORDS = "takes_no_records"  # reported under its root alone
LEADERSHIP_LEFT = "leadership_left"  # reported under its root alone
LEADER_LATE = "leader_late"  # reported under its root alone
IN_ISR_AND_GONE = "in_isr_and_gone"  # reported under its root alone
UNCLEAN_ELECTION = "unclean_election"
NOT_PREFERRED_LEADER = "not_preferred_leader"
SINGLE_REPLICA = "single_replica"  # of topics that are otherwise well
REQUESTS_REJECTED = "requests_rejected"
PARTITIONERS_DIFFER = "partitioners_differ"  # the same keys in two partitions
CLIENT_LIMITED = "client_limited"  # it has reached a limit on requests or connections
MOVE_WAITS = "move_waits"
CANCELLATION_WAITS = "cancellation_waits"
# Reported only with the moves that wait for them.
MOVES_BOUND = "moves_bound"
MOVES_BOUND_BELOW_WRITES = "moves_bound_below_writes"
BOUNDS_ON_MOVES = frozenset({MOVES_BOUND, MOVES_BOUND_BELOW_WRITES})
# Problems of a broker and its replicas.
REPLICA_DEAD = "replica_dead"
BROKER_STOPPED = "broker_stopped"  # cleanly, and not started again
BROKER_CANNOT_START = "broker_cannot_start"
BROKER_PAUSED = "broker_paused"
BROKER_UNREACHABLE = "broker_unreachable"
BROKER_CUT_OFF = "broker_cut_off"  # from all other brokers
BROKER_BUSY = "broker_busy"
BROKER_UNREGISTERED = "broker_unregistered"
BROKER_ID_CONTESTED = "broker_id_contested"  # by two processes
CONTROLLER_ID_CONTESTED = "controller_id_contested"  # by two processes
DIRECTORY_NOT_INTACT = "directory_not_intact"  # copied, restored or replaced
BROKER_STARTING = "broker_starting"
BROKER_STOPPING = "broker_stopping"
OPEN_FILES = "open_files"  # it has reached its limit, or is close to it
MEMORY_SHORT = "memory_short"
CPU_STARVED = "cpu_starved"
MANY_CONNECTIONS = "many_connections"  # of one client
MACHINE_REBOOTED = "machine_rebooted"
CLOCK_SKEW = "clock_skew"
CLOCK_IN_DOUBT = "clock_in_doubt"  # time-based retention is suspended
REPLICA_SLOW = "replica_slow"
LEADER_SLOW = "leader_slow"  # its followers keep up with other leaders
REPLICA_CATCHING_UP = "replica_catching_up"
REPLICA_CUT_OFF = "replica_cut_off"
PACKETS_LOST = "packets_lost"  # some of them, and others arrive
DISK_FULL = "disk_full"
DISK_ERROR = "disk_error"
DISK_SLOW = "disk_slow"  # it writes everything, but late
SCRUB_OVERDUE = "scrub_overdue"  # not every batch on the disk is checked in its period
REPLICA_CORRUPT = "replica_corrupt"
REPLICA_REJECTS = "replica_rejects"  # its leader's data
DAMAGE_REPAIRED = "damage_repaired"  # of a replica, within the last hour
RECORDS_DAMAGED = "records_damaged"  # on the last disk that held them
REPLICAS_DIVERGED = "replicas_diverged"  # committed batches differ, and their checksums match
# Problems of controllers and of the store.
COMMAND_OVERDUE = "command_overdue"
COMMAND_BACKLOG = "command_backlog"
DELETION_WAITS = "deletion_waits"
OPERATION_WAITS = "operation_waits"
NO_CONTROLLER = "no_controller"
CONTROLLER_UNREACHABLE = "controller_unreachable"
CONTROLLER_CUT_OFF = "controller_cut_off"  # from a broker that others reach
NO_STANDBY = "no_standby"
STANDBY_MISSING = "standby_missing"  # another standby runs
GATEWAY_SILENT = "gateway_silent"  # it announced itself before, and no longer does
STORE_UNREACHABLE = "store_unreachable"
STORE_FULL = "store_full"  # it answers, and rejects writes
STORE_SLOW = "store_slow"
STORE_MEMBER_UNREACHABLE = "store_member_unreachable"
REPEATED_ELECTIONS = "repeated_elections"
CRASH_LOOP = "crash_loop"  # of a service that is started again each time
RELEASES_DIFFER = "releases_differ"  # for longer than an upgrade takes, or too far apart
LEVEL_RAISABLE = "level_raisable"  # the feature level; a note after an upgrade

# The order of findings of the same severity: causes come before their effects.
ORDER = (
    STORE_UNREACHABLE,
    STORE_FULL,
    NO_CONTROLLER,
    CONTROLLER_UNREACHABLE,
    CONTROLLER_CUT_OFF,
    BROKER_ID_CONTESTED,
    CONTROLLER_ID_CONTESTED,
    REPLICA_DEAD,
    BROKER_CANNOT_START,
    BROKER_STOPPED,
    BROKER_PAUSED,
    BROKER_UNREACHABLE,
    BROKER_CUT_OFF,
    BROKER_BUSY,
    BROKER_UNREGISTERED,
    MACHINE_REBOOTED,
    DISK_FULL,
    DISK_ERROR,
    DISK_SLOW,
    REPLICA_CORRUPT,
    REPLICA_REJECTS,
    OPEN_FILES,
    MEMORY_SHORT,
    MANY_CONNECTIONS,
    CPU_STARVED,
    RECORDS_DAMAGED,
    REPLICAS_DIVERGED,
    PACKETS_LOST,
    REPLICA_CUT_OFF,
    REPLICA_SLOW,
    LEADER_SLOW,
    REPLICA_CATCHING_UP,
    BROKER_STARTING,
    BROKER_STOPPING,
    NO_LEADER,
    UNDER_MIN_ISR,
    HW_STALLED,
    CONSUMER_WAITS,
    UNCLEAN_ELECTION,
    REPLICA_OUT_OF_ISR,
    COMMAND_OVERDUE,
    COMMAND_BACKLOG,
    CLOCK_SKEW,
    CLOCK_IN_DOUBT,
    NO_STANDBY,
    STANDBY_MISSING,
    GATEWAY_SILENT,
    DELETION_WAITS,
    OPERATION_WAITS,
    CANCELLATION_WAITS,
    MOVE_WAITS,
    CLIENT_LIMITED,
    REQUESTS_REJECTED,
    PARTITIONERS_DIFFER,
    STORE_MEMBER_UNREACHABLE,
    STORE_SLOW,
    CRASH_LOOP,
    REPEATED_ELECTIONS,
    RELEASES_DIFFER,
    DIRECTORY_NOT_INTACT,
    SCRUB_OVERDUE,
    DAMAGE_REPAIRED,
    NOT_PREFERRED_LEADER,
    LEVEL_RAISABLE,
    SINGLE_REPLICA,
)


class Root(NamedTuple):
    """The reason of symptoms. `broker` -1: it is not about a single broker."""

    cause: str
    broker: int = -1

    def __str__(self) -> str:
        return self.cause if self.broker < 0 else f"{self.cause} of broker {self.broker}"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one replica does not do its part. `words` continue "broker 2 …"."""

    root: Root
    words: str
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Symptom:
    """A problem of one partition.

    - `one`: a sentence about it.
    - `many`: continues "14 partitions …" if several have the same cause, roots and `many`.
    - `next_step`: a function of the names of all such partitions if its commands name them.
    """

    cause: str
    severity: str
    name: TopicPartition
    one: str
    many: str
    next_step: str | Callable[[Sequence[TopicPartition]], str]
    evidence: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()
    broker: int = -1

    @property
    def roots(self) -> tuple[Root, ...]:
        """The roots, those of brokers first. Their order does not depend on the assignment, so that
        equal roots form one finding."""
        found = {reason.root for reason in self.reasons}
        return tuple(sorted(found, key=lambda root: (root.broker < 0, root.cause, root.broker)))
