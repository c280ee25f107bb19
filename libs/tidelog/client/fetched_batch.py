"""A batch as a consumer gets it: opened only when somebody looks inside."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.model import Batch, BatchHeader, Record, TopicPartition
from tidelog.record_batch import Columns, decode, to_records


class FetchedBatch(NamedTuple):
    """Its first `skip` records lie below the offset that was asked for; `columns` and
    `records` leave them out."""

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
        """Keys, values and timestamps as lists. Raises `TidelogError` (INVALID_BATCH)."""
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
        """Raises `TidelogError` (INVALID_BATCH)."""
        topic, partition = self.partition
        return to_records(topic, partition, self.header, decode(self.batch))[self.skip :]
