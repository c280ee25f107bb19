"""A batch that a consumer fetched. It is opened only when its records are requested."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tidelog.batch_slices import SLICE_RECORDS, BatchSlice, decode_slices
from tidelog.errors import InvalidBatchError
from tidelog.model import Batch, BatchHeader, Record, TopicPartition
from tidelog.record_batch import Columns, decode, to_columns, to_records
from tidelog.record_limits import HIGHEST_MAX_BATCH_RECORDS, invalid_batch

# Records that are created at once on the caller's event loop: two milliseconds.
OPEN_SLICE_RECORDS = 2_048


class FetchedBatch(NamedTuple):
    """A batch whose first `skip` records are below the requested offset. `columns` and `records`
    omit these."""

    partition: TopicPartition
    batch: Batch
    skip: int

    @property
    def header(self) -> BatchHeader:
        return self.batch.header

    @property
    def first_offset(self) -> int:
        return self.batch.header.base_offset + self.skip

    @property
    def next_offset(self) -> int:
        return self.batch.header.next_offset

    @property
    def record_count(self) -> int:
        return self.batch.header.record_count - self.skip

    def columns(self) -> Columns:
        """Returns keys, values and timestamps as lists. Raises `TidelogError` (INVALID_BATCH), also
        for a batch of more than 1,000,000 records, which only `record_slices` opens."""
        self._check_count()
        with self.opening():
            columns = decode(self.batch)
        if not self.skip:
            return columns
        return Columns(
            columns.keys[self.skip :],
            columns.values[self.skip :],
            columns.timestamps_ms[self.skip :],
            {i - self.skip: h for i, h in columns.headers.items() if i >= self.skip},
        )

    def records(self) -> list[Record]:
        """Returns the records. Raises as `columns` does."""
        self._check_count()
        topic, partition = self.partition
        with self.opening():
            columns = decode(self.batch)
        return to_records(topic, partition, self.header, columns)[self.skip :]

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Adds the batch, and the offset after it, to the message of an INVALID_BATCH error."""
        try:
            yield
        except InvalidBatchError as error:
            raise invalid_batch(
                f"the batch at offset {self.header.base_offset} of {self.partition} cannot be "
                f"opened: {error.message}; what follows it begins at offset {self.next_offset}"
            ) from error

    def record_slices(
        self, max_records: int = SLICE_RECORDS, *, cheap_only: bool = False
    ) -> Iterator[list[Record]]:
        """Yields the same records in slices of at most `max_records`, or fewer if they have many
        headers. Holds one slice beside the decompressed batch. Raises as `decode_slices`."""
        with self.opening():
            for piece in decode_slices(self.batch, max_records=max_records, cheap_only=cheap_only):
                records = self._records(piece)
                if records:
                    yield records

    def _records(self, piece: BatchSlice) -> list[Record]:
        header = self.header
        count = len(piece.joined.value_lengths)
        if piece.first + count <= self.skip:
            return []
        of_slice = header._replace(base_offset=header.base_offset + piece.first, record_count=count)
        columns = to_columns(piece.joined, header.base_timestamp_ms)
        topic, partition = self.partition
        return to_records(topic, partition, of_slice, columns)[max(self.skip - piece.first, 0) :]

    def _check_count(self) -> None:
        if self.header.record_count > HIGHEST_MAX_BATCH_RECORDS:
            raise invalid_batch(
                f"the batch at offset {self.header.base_offset} of {self.partition} has "
                f"{self.header.record_count} records, more than {HIGHEST_MAX_BATCH_RECORDS} can be "
                "opened at once; open it with record_slices"
            )


class OpenedBatch:
    """The records of a batch from `skip` on, one slice at a time. Creating the object decompresses
    the batch and creates the first slice."""

    def __init__(self, fetched: FetchedBatch, *, cheap_only: bool = False) -> None:
        """Raises as `decode_slices`."""
        self.fetched = fetched
        self._slices = fetched.record_slices(OPEN_SLICE_RECORDS, cheap_only=cheap_only)
        self._ready: list[Record] = next(self._slices, [])
        self._taken = 0

    def take(self, max_records: int) -> list[Record]:
        """Returns the next records; none: all are taken. Raises `TidelogError` (INVALID_BATCH)."""
        if self._taken >= len(self._ready):
            self._ready, self._taken = next(self._slices, []), 0
        records = self._ready[self._taken : self._taken + max_records]
        self._taken += len(records)
        return records
