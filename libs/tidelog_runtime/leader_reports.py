"""A follower's reports to the controller about leaders that it cannot reach, as plain values.

`controller.proto` documents the fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidelog.state_changes.event import NO_CHANGE, Change


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
