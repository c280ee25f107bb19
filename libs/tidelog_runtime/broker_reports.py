"""A broker's reports to the controller, as plain values: unreachable leaders, and its disk.

`controller.proto` documents the fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog.state_changes.event import NO_CHANGE, Cause, Change


class UnreachableLeader(NamedTuple):
    """A leader that does not answer its follower.

    - `change`: the event that reports it; the same in every report while it lasts.
    """

    broker_id: int
    broker_epoch: int
    unanswered_ms: int
    change: Change = NO_CHANGE


@dataclass(frozen=True, slots=True)
class UnreachableLeadersReport:
    """The unreachable leaders of a broker. It replaces the broker's previous report."""

    broker_id: int
    broker_epoch: int
    leaders: tuple[UnreachableLeader, ...]


class FailingLeadership(NamedTuple):
    """A partition that the broker leads in this epoch and whose log the disk rejects.

    - `cause`: DISK_FULL or DISK_ERROR.
    - `change`: the event with which the broker reported the start of the failure. It is the
      same in every report while the failure lasts.
    """

    partition: TopicPartition
    leader_epoch: int
    cause: Cause
    failing_for_ms: int
    change: Change = NO_CHANGE


@dataclass(frozen=True, slots=True)
class DiskReport:
    """The state of a broker's disk. It replaces the broker's previous report.

    - `is_rejecting`: the disk rejects writes of at least one replica of this broker, leader or
      follower.
    """

    broker_id: int
    broker_epoch: int
    is_rejecting: bool
    led: tuple[FailingLeadership, ...]
