"""When and where a partition is retried: pure rules that producer and consumer share."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.errors import InvalidArgumentError
from tidelog.model import NO_EPOCH

DEFAULT_MIN_BACKOFF_MS = 50
DEFAULT_MAX_BACKOFF_MS = 1000


class Leader(NamedTuple):
    """Address and epoch of a partition's leader.

    - `unclean_leader_epoch`: of the last unclean election that is known here.
    - `is_hint`: another broker named this leader; whether its election was clean is not known yet.
    """

    broker_id: int
    leader_epoch: int
    address: str
    topic_id: str
    unclean_leader_epoch: int = NO_EPOCH
    is_hint: bool = False

    def supersedes(self, former: Leader) -> bool:
        """Returns whether this leader was elected after `former`, which the same client knew
        before. A client never returns to an older topic, so another topic id belongs to a later
        topic, whose epochs are its own."""
        return self.topic_id != former.topic_id or self.leader_epoch > former.leader_epoch


class Backoff:
    """Pauses that double from `min_ms` to `max_ms`. Each is shortened by up to half at random, so
    that clients that failed together do not retry together."""

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
        """Returns the pause after failure number `attempt`, from 1."""
        doublings = min(attempt - 1, self._max_ms.bit_length())
        ceiling = min(self._min_ms << doublings, self._max_ms)
        return self._rng.randint((ceiling + 1) // 2, ceiling)


@dataclass(slots=True)
class Route:
    """Effect of a partition's last failures on the next try.

    After a failure the same leader is not tried until `retry_at_ms`. A leader that supersedes it
    may be tried at once, because its predecessor's failure says nothing about it."""

    failures: int = 0  # consecutive, of that leader
    # The newest leader that failed.
    failed_leader: Leader | None = None
    retry_at_ms: int = 0
    # The failure suggests that metadata is old, and should be refreshed.
    stale: bool = False

    def failed(self, leader: Leader, now_ms: int, backoff: Backoff, *, stale: bool) -> None:
        """Records a failure. Requests in flight to one leader that fail together count once.
        Otherwise the pause would have grown to a second before the next leader is first tried."""
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
        """Returns whether the partition may send a request to this leader now."""
        return self._is_new(leader) or now_ms >= self.retry_at_ms

    def wants_metadata(self, leader: Leader | None) -> bool:
        """Returns whether the partition needs a newer leader than this one."""
        if leader is None:
            return True
        return self.stale and not self._is_new(leader)

    def _is_new(self, leader: Leader) -> bool:
        return self.failed_leader is None or leader.supersedes(self.failed_leader)

    def _is_former(self, leader: Leader) -> bool:
        return self.failed_leader is not None and self.failed_leader.supersedes(leader)
