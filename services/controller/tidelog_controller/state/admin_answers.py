"""What requests are answered with, besides what `AdminReply` has for all. Plain values;
`admin.proto` documents the fields."""

from __future__ import annotations

from typing import NamedTuple

from tidelog_controller.state.admin_requests import Assignment


class PartitionsAnswer(NamedTuple):
    """Of so many `partitions` that come and go, with a topic or by themselves. `brokers`: those
    that hold replicas of what would go. `revision`: the topic's; 0: it has none."""

    partitions: int = 0
    revision: int = 0
    assignment: Assignment = ()
    brokers: tuple[int, ...] = ()


class ConfigChange(NamedTuple):
    key: str
    before: str
    after: str


class ConfigAnswer(NamedTuple):
    changes: tuple[ConfigChange, ...] = ()
    revision: int = 0


Answer = PartitionsAnswer | ConfigAnswer
