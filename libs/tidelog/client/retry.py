"""When a partition is tried again, and where: pure rules that producer and consumer share."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.errors import InvalidArgumentError
from tidelog.model import NO_EPOCH

DEFAULT_MIN_BACKOFF_MS = 50
DEFAULT_MAX_BACKOFF_MS = 1000


class Leader(NamedTuple):
    """Where a partition's leader is, and in which epoch it leads. `unclean_leader_epoch`
    is that of the last unclean election that is known here; `is_hint`: another broker named
    this leader, and whether that election was clean is not known yet."""

    broker_id: int
    leader_epoch: int
    address: str
    topic_id: str
    unclean_leader_epoch: int = NO_EPOCH
    is_hint: bool = False

    def supersedes(self, former: Leader) -> bool:
        """Whether this leader was elected after `former`, which the same client knew before
        it: a client never goes back to an older topic, so another id is a later topic's, and
        its epochs are its own."""
        return self.topic_id != former.topic_id or self.leader_epoch > former.leader_epoch


class Backoff:
    """Pauses that double from `min_ms` to `max_ms`, each cut by up to half at random, so
    that clients which failed together do not come back together."""

    def __init__(
        self,
        rng: random.Random,
        min_ms: int = DEFAULT_MIN_BACKOFF_MS,
        max_ms: int = DEFAULT_MAX_BACKOFF_MS,
    ) -> None:
        if not 1 <= min_ms <= max_ms:
            raise InvalidArgumentError(
                f"retry back-off {min_ms} to {max_ms} ms: the first is at least 1, "
                "the second not below it"
            )
        self._rng = rng
        self._min_ms = min_ms
        self._max_ms = max_ms

    def pause_ms(self, attempt: int) -> int:
        """The pause after failure number `attempt`, from 1."""
        doublings = min(attempt - 1, self._max_ms.bit_length())
        ceiling = min(self._min_ms << doublings, self._max_ms)
        return self._rng.randint((ceiling + 1) // 2, ceiling)


@dataclass(slots=True)
class Route:
    """What the last failures of one partition say about the next try.

    After a failure the same leader is left alone until `retry_at_ms`; one that supersedes
    it may be tried at once, because it owes nothing to its predecessor's failure."""

    failures: int = 0  # of that leader, one after another
    # The newest that failed.
    failed_leader: Leader | None = None
    retry_at_ms: int = 0
    # The failure says that metadata may be old: somebody should ask for it again.
    stale: bool = False

    def failed(self, leader: Leader, now_ms: int, backoff: Backoff, *, stale: bool) -> None:
        """Several requests on their way to one leader fail together: that is one failure, or
        the pauses would have grown to a second before its successor is first tried."""
        self.stale = self.stale or stale
        if self._is_new(leader):
            self.failed_leader = leader
            self.failures = 0
        elif now_ms < self.retry_at_ms or self._is_former(leader):
            return
        self.failures += 1
        self.retry_at_ms = now_ms + backoff.pause_ms(self.failures)

    def succeeded(self) -> None:
        if self.failures:
            self.failures = 0
            self.failed_leader = None
            self.retry_at_ms = 0
            self.stale = False

    def open_to(self, leader: Leader, now_ms: int) -> bool:
        """Whether the partition may be asked of this leader now."""
        return self._is_new(leader) or now_ms >= self.retry_at_ms

    def wants_metadata(self, leader: Leader | None) -> bool:
        """Whether a newer leader than this one is looked for."""
        if leader is None:
            return True
        return self.stale and not self._is_new(leader)

    def _is_new(self, leader: Leader) -> bool:
        return self.failed_leader is None or leader.supersedes(self.failed_leader)

    def _is_former(self, leader: Leader) -> bool:
        return self.failed_leader is not None and self.failed_leader.supersedes(leader)
