"""Samples of the keys that were written to each partition. Bounded; no I/O.

A sample shows whether the standard partitioner (CRC32C of the key, modulo the number of partitions)
puts the keys there. Each partition keeps the keys with the smallest hashes. Thus leaders of other
partitions choose the same keys, and a key that is written to two partitions is in both samples.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from crc32c import crc32c

from tidelog.batch_slices import is_costly_to_open
from tidelog.errors import TidelogError
from tidelog.inspection.state_reports import KeyPlacement, SampledKeys
from tidelog.model import Batch, TopicPartition
from tidelog.record_batch import decode_joined

WINDOW_MS = 60_000
# After partitions were added or removed, clients place keys by the previous number for a while.
SETTLED_AFTER_MS = 600_000
MAX_PARTITIONS = 200
KEYS_OF_A_PARTITION = 16
# Opening a batch costs up to a millisecond.
SAMPLE_INTERVAL_MS = 1_000
BATCHES_PER_INTERVAL = 10
MAX_BATCH_BYTES = 64 << 10
KEYS_OF_A_BATCH = 64


@dataclass(slots=True)
class _Sample:
    """Keys of one partition, by hash.

    - `seen_ms`: when the key was last written.
    - `standard`: whether the standard partitioner puts the key there.
    """

    partitions: int
    from_ms: int
    next_ms: int = 0
    seen_ms: dict[int, int] = field(default_factory=dict)
    standard: dict[int, bool] = field(default_factory=dict)
    # The largest hash after the last `add`.
    largest: int = 0

    def may_add(self, key_hash: int) -> bool:
        """Whether `add` would keep the key. It does not keep most keys of a busy partition."""
        return len(self.seen_ms) < KEYS_OF_A_PARTITION or key_hash <= self.largest

    def add(self, key_hash: int, is_standard: bool, now_ms: int) -> None:
        """Adds a key. Expired ones must have been removed before."""
        if key_hash not in self.seen_ms and len(self.seen_ms) >= KEYS_OF_A_PARTITION:
            self._forget(self.largest)
        self.seen_ms[key_hash] = now_ms
        self.standard[key_hash] = is_standard
        self.largest = max(self.seen_ms)

    def expire(self, now_ms: int) -> None:
        for key_hash in [h for h, seen in self.seen_ms.items() if seen <= now_ms - WINDOW_MS]:
            self._forget(key_hash)

    def _forget(self, key_hash: int) -> None:
        del self.seen_ms[key_hash]
        del self.standard[key_hash]


class KeyPlacements:
    def __init__(self) -> None:
        self._samples: OrderedDict[TopicPartition, _Sample] = OrderedDict()
        self._interval_end_ms = 0
        self._batches_left = 0

    def note(self, name: TopicPartition, partitions: int, batch: Batch, now_ms: int) -> None:
        """Samples a batch that was appended.

        `partitions`: of its topic; 0: not known. Most calls cost a comparison.
        """
        if partitions < 2 or not self._is_due(name, partitions, now_ms):
            return
        if len(batch.records) > MAX_BATCH_BYTES or is_costly_to_open(batch):
            return
        self._batches_left -= 1
        sample = self._samples[name]
        sample.expire(now_ms)
        for key in _keys_of(batch):
            key_hash = _hash_of(key)
            if sample.may_add(key_hash):
                is_standard = int(crc32c(key)) % partitions == name.partition
                sample.add(key_hash, is_standard, now_ms)

    def _is_due(self, name: TopicPartition, partitions: int, now_ms: int) -> bool:
        sample = self._samples.get(name)
        if sample is not None and now_ms < sample.next_ms:
            return False
        if now_ms >= self._interval_end_ms:
            self._interval_end_ms = now_ms + SAMPLE_INTERVAL_MS
            self._batches_left = BATCHES_PER_INTERVAL
        if not self._batches_left:
            return False
        if sample is None or sample.partitions != partitions:
            from_ms = now_ms if sample is None else now_ms + SETTLED_AFTER_MS
            sample = self._samples[name] = _Sample(partitions, from_ms)
            if len(self._samples) > MAX_PARTITIONS:
                self._samples.popitem(last=False)
        self._samples.move_to_end(name)
        sample.next_ms = now_ms + SAMPLE_INTERVAL_MS
        return now_ms >= sample.from_ms

    def recent(self, now_ms: int) -> Iterable[SampledKeys]:
        """Yields the samples of the last WINDOW_MS, by topic and partition."""
        for name, sample in sorted(self._samples.items()):
            sample.expire(now_ms)
            if sample.seen_ms:
                yield SampledKeys(
                    name.topic,
                    name.partition,
                    sample.partitions,
                    tuple(
                        KeyPlacement(key_hash, sample.standard[key_hash], now_ms - seen_ms)
                        for key_hash, seen_ms in sorted(sample.seen_ms.items())
                    ),
                )


def _keys_of(batch: Batch) -> Iterator[bytes]:
    try:
        joined = decode_joined(batch, with_headers=False)
    except TidelogError:
        return
    start = 0
    for length in joined.key_lengths[:KEYS_OF_A_BATCH]:
        if length >= 0:
            yield bytes(joined.keys[start : start + length])
            start += length


def _hash_of(key: bytes) -> int:
    """Returns 63 bits that do not depend on the partition, as those of the partitioner do."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest()) >> 1
