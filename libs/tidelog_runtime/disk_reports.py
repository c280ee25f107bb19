"""What a broker reports to the controller about its disk, as plain values.

`controller.proto` documents the fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog.state_changes.event import NO_CHANGE, Cause, Change


class FailingLeadership(NamedTuple):
    """A partition that the broker leads in this epoch, and whose log the disk rejects.

    `cause`: DISK_FULL or DISK_ERROR. `change`: the event under which the broker reported that
    it began; the same in every report for as long as it lasts."""

    partition: TopicPartition
    leader_epoch: int
    cause: Cause
    failing_for_ms: int
    change: Change = NO_CHANGE


@dataclass(frozen=True, slots=True)
class DiskReport:
    """Replaces the broker's previous report. `is_rejecting`: the disk rejects at least one
    replica of this broker, led or followed."""

    broker_id: int
    broker_epoch: int
    is_rejecting: bool
    led: tuple[FailingLeadership, ...]
