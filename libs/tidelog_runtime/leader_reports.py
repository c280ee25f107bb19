"""What a follower tells the controller of leaders that it cannot reach, as plain values.

`controller.proto` documents the fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class UnreachableLeader(NamedTuple):
    broker_id: int
    broker_epoch: int
    unanswered_ms: int


@dataclass(frozen=True, slots=True)
class UnreachableLeadersReport:
    """Replaces what the same broker reported before."""

    broker_id: int
    broker_epoch: int
    leaders: tuple[UnreachableLeader, ...]
