"""How many bytes an operation copies, as measured by the leaders of its partitions. No I/O.

Soft state of a controller term. Leaders are asked when a client describes an operation, and nothing
of it is written before the operation ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog_runtime.metadata.operations import OperationMove

# The age up to which the measurement of an active move counts as fresh.
FRESH_MS = 1_000
# The rate is that of the last minute, from one sample a second.
RATE_WINDOW_MS = 60_000
SAMPLE_INTERVAL_MS = 1_000


class CopiedBytes(NamedTuple):
    """`measured_at_ms`: on the monotonic clock."""

    to_copy: int
    copied: int
    measured_at_ms: int


class MoveBytes:
    """The bytes of the moves that copy replicas; other moves have none.

    - `unmeasured`: moves that no leader has measured yet.
    - `former`: what was known of the same moves before the operation was evaluated again.
    """

    def __init__(self, moves: Iterable[OperationMove], former: MoveBytes | None = None) -> None:
        self._adding = {move.name: move.adding for move in moves if move.adding}
        self.unmeasured: dict[TopicPartition, None] = dict.fromkeys(self._adding)
        self.to_copy = 0
        self.copied = 0
        self._known: dict[TopicPartition, CopiedBytes] = {}
        self._done: set[TopicPartition] = set()  # for membership tests only
        self._samples: deque[tuple[int, int]] = former._samples if former else deque()
        for partition, known in (former._known if former else {}).items():
            self._put(partition, known)

    def copies(self, partition: TopicPartition) -> bool:
        return partition in self._adding

    def of(self, partition: TopicPartition) -> CopiedBytes | None:
        return self._known.get(partition)

    def measured(
        self, partition: TopicPartition, size: int, lacks: Mapping[int, int], now_ms: int
    ) -> None:
        """Takes the leader's measurement: the size of its log, and how much each new replica lacks.

        A new replica without a value is not being added yet, or was mistaken for one that is not.
        """
        adding = self._adding.get(partition)
        if adding is None or (partition in self._done and partition in self._known):
            return
        done = partition in self._done
        copied = sum(size if done else max(0, size - lacks.get(b, size)) for b in adding)
        self._put(partition, CopiedBytes(size * len(adding), copied, now_ms))

    def done(self, partition: TopicPartition) -> None:
        """Counts the move as copied completely, in the size that was measured last."""
        self._done.add(partition)
        known = self._known.get(partition)
        if known is not None:
            self._put(partition, known._replace(copied=known.to_copy))

    def dropped(self, partition: TopicPartition) -> None:
        self._take(partition)
        self._adding.pop(partition, None)
        self.unmeasured.pop(partition, None)

    def stale(self, active: Iterable[TopicPartition], now_ms: int) -> list[TopicPartition]:
        """The partitions whose leaders have to be asked before the sums are reported."""
        old = [
            partition
            for partition in active
            if (known := self._known.get(partition)) is not None
            and now_ms - known.measured_at_ms >= FRESH_MS
        ]
        return [*self.unmeasured, *old]

    def per_second(self, now_ms: int) -> int:
        """The recent rate of copied bytes; 0: none, or unknown as long as a move is unmeasured."""
        if self.unmeasured:
            return 0
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= SAMPLE_INTERVAL_MS:
            samples.append((now_ms, self.copied))
        while len(samples) > 2 and now_ms - samples[0][0] > RATE_WINDOW_MS:
            samples.popleft()
        (first_ms, before), (last_ms, after) = samples[0], samples[-1]
        elapsed_ms = last_ms - first_ms
        return max(0, after - before) * 1_000 // elapsed_ms if elapsed_ms else 0

    def _put(self, partition: TopicPartition, known: CopiedBytes) -> None:
        if partition not in self._adding:
            return
        self._take(partition)
        self._known[partition] = known
        self.unmeasured.pop(partition, None)
        self.to_copy += known.to_copy
        self.copied += known.copied

    def _take(self, partition: TopicPartition) -> None:
        known = self._known.pop(partition, None)
        if known is not None:
            self.to_copy -= known.to_copy
            self.copied -= known.copied
