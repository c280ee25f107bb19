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
# A disk that hangs repeatedly works between two hangs.
STEADY_AFTER_HANG_MS = 60_000
# If nothing tries again: a rejected read expires after this time, and a rejected write stays until
# one has succeeded.
READ_EXPIRY_MS = 30_000
READ = "read"


@dataclass(slots=True)
class DiskRejection:
    """A disk that rejects operations of one replica.

    - `what`: the operation that failed: "written", "synced" or "read".
    - `change`: the change under which begin and end are emitted.
    - `steady_ms`: after the last rejection, until the disk counts as recovered.
    - `led_epoch`: the last epoch in which the replica led while its disk rejected it.
    """

    cause: Cause
    what: str
    message: str
    since_ms: int
    last_ms: int
    steady_ms: int = STEADY_MS
    taken_since: bool = False
    led_epoch: int = NO_EPOCH
    change: Change = NO_CHANGE

    @property
    def is_hang(self) -> bool:
        return self.steady_ms == STEADY_AFTER_HANG_MS

    def hang_over_in_ms(self, now_ms: int) -> int | None:
        """Returns the time until a disk that hung counts as recovered; 0: it hangs now; None: it
        did not hang."""
        if not self.is_hang:
            return None
        return max(1, self.last_ms + self.steady_ms - now_ms) if self.taken_since else 0


class Unopened(NamedTuple):
    """A replica whose log could not be opened or created. `since_ms`: monotonic time."""

    name: TopicPartition
    cause: Cause
    message: str
    since_ms: int


class DiskRejections:
    """Rejections by replica."""

    def __init__(self) -> None:
        self._rejections: dict[ReplicaKey, DiskRejection] = {}

    def __bool__(self) -> bool:
        return bool(self._rejections)

    def rejected(
        self,
        key: ReplicaKey,
        cause: Cause,
        what: str,
        message: str,
        now_ms: int,
        steady_ms: int = STEADY_MS,
    ) -> bool:
        """Notes a rejection. Returns whether it is the first one."""
        known = self._rejections.get(key)
        if known is not None:
            known.last_ms, known.message, known.taken_since = now_ms, message, False
            known.steady_ms = max(known.steady_ms, steady_ms)
            return False
        self._rejections[key] = DiskRejection(cause, what, message, now_ms, now_ms, steady_ms)
        return True

    def took(self, key: ReplicaKey, what: str, now_ms: int) -> None:
        """Notes that the operation has succeeded now. What hung was rejected until now."""
        known = self._rejections.get(key)
        if known is None or known.what != what:
            return
        if known.is_hang and not known.taken_since:
            known.last_ms = now_ms
        known.taken_since = True

    def forget(self, key: ReplicaKey) -> None:
        self._rejections.pop(key, None)

    def of(self, key: ReplicaKey) -> DiskRejection | None:
        return self._rejections.get(key)

    def standing(self) -> Iterator[tuple[ReplicaKey, DiskRejection]]:
        """Yields the rejections in the order in which they began."""
        return iter(self._rejections.items())

    def over(self, now_ms: int) -> list[tuple[ReplicaKey, DiskRejection]]:
        """Removes and returns the rejections that have ended, in the order in which they began."""
        over = [(key, each) for key, each in self._rejections.items() if _is_over(each, now_ms)]
        for key, _ in over:
            del self._rejections[key]
        return over


def _is_over(rejection: DiskRejection, now_ms: int) -> bool:
    steady_ms = rejection.steady_ms if rejection.taken_since else READ_EXPIRY_MS
    may_end = rejection.taken_since or rejection.what == READ
    return may_end and now_ms - rejection.last_ms >= steady_ms
