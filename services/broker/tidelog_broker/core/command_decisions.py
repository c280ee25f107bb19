"""What a controller's command does to a replica (KIP-570; rule `decisions-ordered-by-revision`)."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from tidelog.model import TopicPartition
from tidelog_broker.core.partition.partition import Partition
from tidelog_runtime.replica_control import LeaderAddress, PartitionCommand, StopPartition


class RoleDecision(Enum):
    """What to do with the state of a LeaderAndIsr command.

    All but the last two are acknowledged without an effect.
    """

    ALREADY_STOPPED = "the replica was stopped after the decision"
    OTHER_TOPIC = "the decision is older than the topic that has the name here now"
    OUTDATED = "the replica knows a newer state"
    REPEATED = "the replica has this state; what failed after it is tried again"
    NEW = "the state is applied"


class StopDecision(Enum):
    """What to do with a StopReplica command for one replica."""

    NOT_YET = "before the full state a late command cannot be distinguished from a new one"
    OUTDATED = "the replica has been assigned again since"
    STOP = "the replica is stopped"
    GONE = "there is no such replica: the command is acknowledged"


def decide_role(
    command: PartitionCommand, present: Partition | None, *, is_late: bool
) -> RoleDecision:
    """Decides on the state of one replica.

    - `present`: the replica that has the partition's name here.
    - `is_late`: the replica was stopped at this revision or later.
    """
    if is_late:
        return RoleDecision.ALREADY_STOPPED
    if present is None or command.revision > present.revision:
        return RoleDecision.NEW
    if present.topic_id != command.state.topic_id:
        return RoleDecision.OTHER_TOPIC
    if command.revision < present.revision:
        return RoleDecision.OUTDATED
    return RoleDecision.REPEATED


def decide_stop(
    command: StopPartition, partition: Partition | None, *, has_full_state: bool, has_log: bool
) -> StopDecision:
    """Decides on the stop of one replica.

    `has_log`: a log of that key is on the disk. It may have no partition, because it is under
    repair, or no command has named it yet.
    """
    if partition is None and not has_full_state:
        return StopDecision.NOT_YET
    if partition is not None and command.revision <= partition.revision:
        return StopDecision.OUTDATED
    return StopDecision.STOP if partition is not None or has_log else StopDecision.GONE


def is_stray(
    name: TopicPartition,
    partition: Partition | None,
    revision: int,
    unreadable_topics: Collection[str],
) -> bool:
    """Whether a replica that a full state of this revision does not name is not assigned here.

    A newer command may have named it. All replicas of a topic that the controller cannot read stay
    as they are.
    """
    if name.topic in unreadable_topics:
        return False
    return partition is None or partition.revision <= revision


def newer_address(
    known: LeaderAddress | None, reported: LeaderAddress | None
) -> LeaderAddress | None:
    """Returns the address of the newer incarnation; of the same one, `reported`."""
    if known is not None and (reported is None or reported.broker_epoch < known.broker_epoch):
        return known
    return reported
