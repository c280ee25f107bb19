"""What a follower tells the controller of leaders that it cannot reach, as plain values.

`controller.proto` documents the fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidelog.state_changes.event import NO_CHANGE, Change


class UnreachableLeader(NamedTuple):
    """`change`: as which it is told, the same in every report for as long as it lasts."""

    broker_id: int
    broker_epoch: int
    unanswered_ms: int
    change: Change = NO_CHANGE


@dataclass(frozen=True, slots=True)
class UnreachableLeadersReport:
    """Replaces what the same broker reported before."""

    broker_id: int
    broker_epoch: int
    leaders: tuple[UnreachableLeader, ...]
