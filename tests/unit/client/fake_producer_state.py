"""A broker's producer state, computed from the log each time, so that a truncated log keeps no
other memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Batch, BatchHeader
from tidelog.v1 import broker_pb2, record_batch_pb2

FIRST_NAMED_ID = 1 << 62
REMEMBERED_BATCHES = 5
SEQUENCES = 1 << 31

_Wire = record_batch_pb2.BatchHeader


class FakeProducerIds:
    """Ids begin at 1. A name keeps its id, and gets the next epoch with each call."""

    def __init__(self) -> None:
        self._last = 0
        self._named: dict[str, int] = {}
        self._epochs: Counter[str] = Counter()
        # By producer id and epoch: over how many partitions of each topic records are placed.
        self.counts: defaultdict[tuple[int, int], dict[str, int]] = defaultdict(dict)

    def take(self, name: str, epoch: int | None = None) -> tuple[int, int] | TidelogError:
        if not name:
            self._last += 1
            return self._last, 0
        producer_id = self._named.setdefault(name, FIRST_NAMED_ID + len(self._named))
        if epoch is not None and epoch + 1 < self._epochs[name]:
            return _fenced(epoch, self._epochs[name] - 1)
        self._epochs[name] = self._epochs[name] + 1 if epoch is None else epoch + 1
        return producer_id, self._epochs[name] - 1


def last_sequence(header: BatchHeader) -> int:
    return (header.base_sequence + header.record_count - 1) % SEQUENCES


def last_header(batches: Sequence[Batch], producer_id: int) -> BatchHeader | None:
    return next((b.header for b in reversed(batches) if b.header.producer_id == producer_id), None)


def fence(
    batches: Sequence[Batch], fences: dict[int, int], request: broker_pb2.DescribeProducersRequest
) -> TidelogError | None:
    if not request.HasField("fence"):
        return None
    producer_id, epoch = request.fence.producer_id, request.fence.producer_epoch
    last = last_header(batches, producer_id)
    newest = max(fences.get(producer_id, 0), last.producer_epoch if last else 0)
    if newest > epoch:
        return _fenced(epoch, newest)
    fences[producer_id] = epoch
    return None


def check_sequences(
    batches: Sequence[Batch], fences: Mapping[int, int], requested: Sequence[_Wire]
) -> BatchHeader | TidelogError | None:
    """None: the batches are to be appended. A header: the batch is a duplicate. Batches of one
    request are of one producer, in order.
    """
    first = requested[0]
    if first.producer_id < 0:
        return None
    last = last_header(batches, first.producer_id)
    newest = max(fences.get(first.producer_id, 0), last.producer_epoch if last else 0)
    if first.producer_epoch < newest:
        return _fenced(first.producer_epoch, newest)
    if last is None:
        if first.base_sequence != 0:
            return TidelogError(ErrorCode.UNKNOWN_PRODUCER_ID, "no such producer")
        return None
    expected = (last_sequence(last) + 1) % SEQUENCES
    if first.producer_epoch > last.producer_epoch and first.producer_id < FIRST_NAMED_ID:
        expected = 0
    ahead = (first.base_sequence - expected) % SEQUENCES
    if ahead == 0:
        return None
    if ahead < SEQUENCES // 2:
        message = f"sequence {first.base_sequence} does not follow; {expected} would"
        return TidelogError(ErrorCode.OUT_OF_ORDER_SEQUENCE, message)
    own = [b.header for b in batches if b.header.producer_id == first.producer_id]
    for header in own[-REMEMBERED_BATCHES:]:
        same = header.producer_epoch == first.producer_epoch
        if header.base_sequence == first.base_sequence and same:
            return header
    return TidelogError(ErrorCode.DUPLICATE_SEQUENCE, "appended long ago")


def _fenced(epoch: int, newest: int) -> TidelogError:
    return TidelogError(
        ErrorCode.FENCED_PRODUCER_EPOCH, f"epoch {epoch} was fenced by epoch {newest}"
    )
