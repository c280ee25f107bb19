"""Which replicas' disks reject operations, since when, and whether they have recovered. Pure.

On a full disk, small writes may succeed between large ones that fail. The disk counts as recovered
only when nothing was rejected for a while.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.model import NO_EPOCH, TopicPartition
from tidelog.state_changes.event import NO_CHANGE, Cause, Change
from tidelog_broker.core.partition.replica_key import ReplicaKey

STEADY_MS = 2_000
# If nothing tries again: a rejected read expires after this time, and a rejected write stays until
# one has succeeded.
READ_EXPIRY_MS = 30_000
READ = "read"


@dataclass(slots=True)
class Refusal:
    """A disk that rejects operations of one replica.

    - `what`: the operation that failed: "written", "synced" or "read".
    - `change`: the change under which begin and end are emitted.
    - `led_epoch`: the last epoch in which the replica led while its disk rejected it.
    """

    cause: Cause
    what: str
    message: str
    since_ms: int
    last_ms: int
    taken_since: bool = False
    led_epoch: int = NO_EPOCH
    change: Change = NO_CHANGE


class Unopened(NamedTuple):
    """A replica whose log could not be opened or created. `since_ms`: monotonic time."""

    name: TopicPartition
    cause: Cause
    message: str
    since_ms: int


class DiskRefusals:
    """Rejections by replica."""

    def __init__(self) -> None:
        self._refusals: dict[ReplicaKey, Refusal] = {}

    def __bool__(self) -> bool:
        return bool(self._refusals)

    def refused(self, key: ReplicaKey, cause: Cause, what: str, message: str, now_ms: int) -> bool:
        """Notes a rejection. Returns whether it is the first one."""
        known = self._refusals.get(key)
        if known is not None:
            known.last_ms, known.message, known.taken_since = now_ms, message, False
            return False
        self._refusals[key] = Refusal(cause, what, message, now_ms, now_ms)
        return True

    def took(self, key: ReplicaKey, what: str) -> None:
        """Notes that the operation has succeeded now."""
        known = self._refusals.get(key)
        if known is not None and known.what == what:
            known.taken_since = True

    def forget(self, key: ReplicaKey) -> None:
        self._refusals.pop(key, None)

    def of(self, key: ReplicaKey) -> Refusal | None:
        return self._refusals.get(key)

    def standing(self) -> Iterator[tuple[ReplicaKey, Refusal]]:
        """Yields the rejections in the order in which they began."""
        return iter(self._refusals.items())

    def over(self, now_ms: int) -> list[tuple[ReplicaKey, Refusal]]:
        """Removes and returns the rejections that have ended, in the order in which they began."""
        over = [
            (key, refusal)
            for key, refusal in self._refusals.items()
            if now_ms - refusal.last_ms >= (STEADY_MS if refusal.taken_since else READ_EXPIRY_MS)
            and (refusal.taken_since or refusal.what == READ)
        ]
        for key, _ in over:
            del self._refusals[key]
        return over
