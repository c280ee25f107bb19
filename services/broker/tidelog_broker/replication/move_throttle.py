"""Bounds the rate at which moves carry data.

What this broker sends to replicas that moves add, and what it receives as one, have the same bound.
Replicas in the ISR are never slowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tidelog.model import Batch, TopicPartition
from tidelog_broker.core.fetch_messages import ReplicaFetchEntry
from tidelog_broker.core.partition.exchange import FetchPosition
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.core.token_bucket import TokenBucket
from tidelog_broker.membership.metadata_cache import VersionedState
from tidelog_runtime.clock import Clock

# Partitions that are not fetched because of the throttle are checked again after this time at the
# latest: the bound may have changed, or the replica may be in sync.
MAX_THROTTLE_PAUSE_MS = 500


class PartitionStates(Protocol):
    """The store's newest states, as the broker's watch has brought them.

    The controller does not inform a follower of the ISR.
    """

    def state_of(self, partition: TopicPartition) -> VersionedState | None: ...


class ReceiveThrottle(Protocol):
    """The throttle as a follower uses it before and after a fetch."""

    def may_be_throttled(self, partition: Partition) -> bool:
        """Whether a bound may apply to the partition before it gets another role."""

    def pause_ms(self, partition: Partition) -> int:
        """Returns for how long the partition must not be fetched; 0: it may be."""

    def receivable_bytes(self, partition: Partition) -> int | None:
        """Returns how many bytes may be requested now; None: any number."""

    def received(self, partition: Partition, size: int) -> None: ...


class MoveThrottle:
    """The bound on moves.

    `rate` returns the bytes per second that apply now, or None; it may change at any time.
    """

    def __init__(
        self,
        broker_id: int,
        states: PartitionStates,
        clock: Clock,
        rate: Callable[[], int | None],
    ) -> None:
        self._broker_id = broker_id
        self._states = states
        self._clock = clock
        self._rate = rate
        self._sent = TokenBucket()
        self._received = TokenBucket()
        # Bytes of records sent to replicas that moves add, by follower, since this broker started.
        self.sent_bytes: dict[int, int] = {}

    # -- receiving -------------------------------------------------------------------------

    def may_be_throttled(self, partition: Partition) -> bool:
        return partition.state is not None and self._broker_id in partition.state.adding

    def pause_ms(self, partition: Partition) -> int:
        if not self._is_added_here(partition):
            return 0
        return self._received.pause_ms(self._rate(), self._clock.monotonic_ms())

    def receivable_bytes(self, partition: Partition) -> int | None:
        if not self._is_added_here(partition):
            return None
        return self._received.available(self._rate(), self._clock.monotonic_ms())

    def received(self, partition: Partition, size: int) -> None:
        if self._is_added_here(partition):
            self._received.take(size, self._rate(), self._clock.monotonic_ms())

    def _is_added_here(self, partition: Partition) -> bool:
        if not self.may_be_throttled(partition):
            return False
        newest = self._states.state_of(partition.name)
        if newest is None or newest.state.topic_id != partition.topic_id:
            return False
        state = newest.state
        return self._broker_id in state.adding and self._broker_id not in state.isr_ids

    # -- sending ---------------------------------------------------------------------------

    def sendable_bytes(self, partition: Partition, follower: int) -> int | None:
        """Returns how many bytes may be sent now; 0: none; None: any number."""
        if not partition.is_added_out_of_sync(follower):
            return None
        return self._sent.available(self._rate(), self._clock.monotonic_ms())

    def sent(self, partition: Partition, follower: int, size: int) -> None:
        if partition.is_added_out_of_sync(follower):
            self._sent.take(size, self._rate(), self._clock.monotonic_ms())
            self.sent_bytes[follower] = self.sent_bytes.get(follower, 0) + size

    def sending_pause_ms(self) -> int:
        return self._sent.pause_ms(self._rate(), self._clock.monotonic_ms())


class AddedReplicas:
    """The replicas here that moves add and that follow one leader.

    `paused_until`: until when (loop time) some of them are not fetched."""

    def __init__(self, throttle: ReceiveThrottle) -> None:
        self._throttle = throttle
        self._partitions: dict[ReplicaKey, Partition] = {}
        self.paused_until: dict[ReplicaKey, float] = {}

    def update(self, partition: Partition) -> None:
        """Notes whether a move adds this replica in its present state."""
        self.forget(partition.key)
        if self._throttle.may_be_throttled(partition):
            self._partitions[partition.key] = partition

    def forget(self, key: ReplicaKey) -> None:
        self._partitions.pop(key, None)

    def refresh(self, now: float) -> list[ReplicaKey]:
        """Updates `paused_until`. Returns the replicas whose pause has begun or ended."""
        before, self.paused_until = self.paused_until, {}
        changed = []
        for key, partition in self._partitions.items():
            pause_ms = self._pause_ms(partition)
            if pause_ms:
                self.paused_until[key] = now + pause_ms / 1000
            if (key in before) != (key in self.paused_until):
                changed.append(key)
        return changed

    @property
    def pause_ms(self) -> int:
        """The shortest pause of the paused replicas as of now; 0: one of them may be fetched."""
        paused = [self._partitions[key] for key in self.paused_until if key in self._partitions]
        return min(map(self._pause_ms, paused), default=0)

    def _pause_ms(self, partition: Partition) -> int:
        return min(MAX_THROTTLE_PAUSE_MS, self._throttle.pause_ms(partition))

    def entries(
        self, named: Mapping[ReplicaKey, FetchPosition], limit: int
    ) -> list[ReplicaFetchEntry]:
        """Returns the entries of a fetch, each with at most `limit` bytes.

        Replicas that moves add share the bytes that may be received; a batch is sent in full."""
        requested = 0
        entries = []
        for key, position in named.items():
            partition = self._partitions.get(key)
            receivable = None if partition is None else self._throttle.receivable_bytes(partition)
            max_bytes = limit
            if receivable is not None:
                max_bytes = max(1, min(limit, receivable - requested))
                requested += max_bytes
            entries.append(ReplicaFetchEntry(key, position, max_bytes))
        return entries

    def received(self, partition: Partition, batches: Sequence[Batch]) -> None:
        if partition.key in self._partitions:
            self._throttle.received(partition, sum(len(batch.records) for batch in batches))
