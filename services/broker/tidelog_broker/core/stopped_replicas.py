"""What a broker remembers of replicas that it has stopped. Pure."""

from __future__ import annotations

from tidelog_broker.core.partition.replica_key import ReplicaKey

# The oldest is forgotten first. A command is late by one timeout at most, and no controller stops
# this many replicas of one broker in that time without sending its full state.
MAX_REMEMBERED = 10_000


class StoppedReplicas:
    """The revision at which each replica was stopped.

    A command from before that must not bring it back (rule `decisions-ordered-by-revision`).
    """

    def __init__(self) -> None:
        self._revisions: dict[ReplicaKey, int] = {}

    def stopped(self, key: ReplicaKey, revision: int) -> None:
        known = self._revisions.pop(key, 0)
        self._revisions[key] = max(known, revision)
        if len(self._revisions) > MAX_REMEMBERED:
            del self._revisions[next(iter(self._revisions))]

    def started(self, key: ReplicaKey) -> None:
        """The replica exists again, with a revision of its own."""
        self._revisions.pop(key, None)

    def is_late(self, key: ReplicaKey, revision: int) -> bool:
        """Whether a command of this revision is from before the replica was stopped."""
        return revision <= self._revisions.get(key, 0)
