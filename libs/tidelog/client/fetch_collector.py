"""Takes records from a consumer's partitions, one open batch at a time. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidelog.batch import is_fence
from tidelog.batch_slices import CostlyBatchError, is_costly_to_open
from tidelog.client.assigned_partition import Assigned
from tidelog.client.fetched_batch import FetchedBatch, OpenedBatch
from tidelog.client.handover import Lending
from tidelog.client.record_deserializer import RecordDeserializer
from tidelog.errors import TidelogError
from tidelog.model import Record

# Records that are taken between two checks of the time.
RECORDS_PER_CHECK = 1_000


class FetchCollector:
    """Takes records for one consumer.

    - `failed`: called with the error (INVALID_BATCH) of a partition whose next batch cannot be
      opened, or whose next record cannot be deserialized. It closes the partition; the others are
      still read.
    - `deserializer`: of keys and values; None: they stay bytes."""

    def __init__(
        self,
        failed: Callable[[Assigned, TidelogError], None],
        deserializer: RecordDeserializer | None = None,
    ) -> None:
        self.failed = failed
        self._deserializer = deserializer
        # Whether `take_batches` returns producer fences, which readers have no use for.
        self.keeps_fences = False
        # The partition whose first batch must be opened off the event loop before more records are
        # taken.
        self.costly: Assigned | None = None
        # The partition from which records were taken last; no other has an open batch.
        self._reading: Assigned | None = None
        self.lending = Lending()

    def take_batches(self, partitions: Iterable[Assigned], max_batches: int) -> list[FetchedBatch]:
        taken: list[FetchedBatch] = []
        for assigned in partitions:
            while assigned.buffered and len(taken) < max_batches:
                self.lending.reads(assigned)
                batch = assigned.take()
                if self.keeps_fences or not is_fence(batch.header):
                    taken.append(batch)
        self.lending.took(taken)
        return taken

    def take(
        self, partitions: Iterable[Assigned], max_records: int, enough: Callable[[], bool]
    ) -> list[Record]:
        """Takes records. Sets `costly` if it ends at a batch that takes long to open."""
        taken: list[Record] = []
        self.lending.took(taken)
        self.costly = None
        # The open batch goes first, so that at most one batch of all partitions is open. The next
        # batch of its partition does not: if there always is one, other partitions would starve.
        reading = self._reading
        while reading is not None and not reading.is_closed and len(taken) < max_records:
            self._take_from(reading, taken, max_records)
            if taken and enough():
                return taken
        for assigned in partitions:
            while assigned.buffered and len(taken) < max_records:
                if assigned.is_closed and is_costly_to_open(assigned.buffered[0]):
                    self.costly = assigned
                    return taken
                self._reading = assigned
                try:
                    self._take_from(assigned, taken, max_records)
                except CostlyBatchError:
                    self.costly = assigned
                    return taken
                if taken and enough():
                    return taken
        return taken

    def _take_from(self, assigned: Assigned, taken: list[Record], max_records: int) -> None:
        """Raises CostlyBatchError."""
        self.lending.reads(assigned)
        try:
            count = min(max_records - len(taken), RECORDS_PER_CHECK)
            taken += assigned.take_records(count, self._deserializer)
        except TidelogError as error:
            self.failed(assigned, error)

    def opened(self, assigned: Assigned, opened: OpenedBatch) -> None:
        """Sets a partition's open batch, unless another batch is the next one by now."""
        if assigned.is_to_open(opened.fetched):
            assigned.opened = opened
            self._reading = assigned
