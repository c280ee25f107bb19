"""Which replicas' disk refuses, since when, and whether it takes again. Pure.

Of a full disk small writes may succeed between large ones that do not: only when nothing
has been refused for a while does it count as taking again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.model import NO_EPOCH, TopicPartition
from tidelog.state_changes.event import NO_CHANGE, Cause, Change
from tidelog_broker.partition.replica_key import ReplicaKey

STEADY_MS = 2_000
# What nobody tries any more: a refused read is forgotten, a refused write stands until one
# has succeeded.
READ_EXPIRY_MS = 30_000
READ = "read"


@dataclass(slots=True)
class Refusal:
    """`what` could not be done: "written", "synced" or "read". `change`: as which it is told
    that it began, and that it is over. `led_epoch`: the last epoch in which the replica led
    while it was rejected."""

    cause: Cause
    what: str
    message: str
    since_ms: int
    last_ms: int
    taken_since: bool = False
    led_epoch: int = NO_EPOCH
    change: Change = NO_CHANGE


class Unopened(NamedTuple):
    """A replica whose log could not be opened or created. `since_ms`: of the monotonic clock."""

    name: TopicPartition
    cause: Cause
    message: str
    since_ms: int


class DiskRefusals:
    """Bounded by the number of replicas."""

    def __init__(self) -> None:
        self._refusals: dict[ReplicaKey, Refusal] = {}

    def __bool__(self) -> bool:
        return bool(self._refusals)

    def refused(self, key: ReplicaKey, cause: Cause, what: str, message: str, now_ms: int) -> bool:
        """Whether that is news."""
        known = self._refusals.get(key)
        if known is not None:
            known.last_ms, known.message, known.taken_since = now_ms, message, False
            return False
        self._refusals[key] = Refusal(cause, what, message, now_ms, now_ms)
        return True

    def took(self, key: ReplicaKey, what: str) -> None:
        """The same succeeded now."""
        known = self._refusals.get(key)
        if known is not None and known.what == what:
            known.taken_since = True

    def forget(self, key: ReplicaKey) -> None:
        self._refusals.pop(key, None)

    def of(self, key: ReplicaKey) -> Refusal | None:
        return self._refusals.get(key)

    def standing(self) -> Iterator[tuple[ReplicaKey, Refusal]]:
        """In the order in which they began."""
        return iter(self._refusals.items())

    def over(self, now_ms: int) -> list[tuple[ReplicaKey, Refusal]]:
        """Those that are over since the last call, in the order in which they began."""
        over = [
            (key, refusal)
            for key, refusal in self._refusals.items()
            if now_ms - refusal.last_ms >= (STEADY_MS if refusal.taken_since else READ_EXPIRY_MS)
            and (refusal.taken_since or refusal.what == READ)
        ]
        for key, _ in over:
            del self._refusals[key]
        return over
