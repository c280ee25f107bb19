"""Turns columns of records into batches directly, without gathering (`Producer.send_many`)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tidelog.client.buffer_budget import BufferBudget
from tidelog.client.delivery import BatchReport, DeliveryFuture
from tidelog.client.open_batches import MAX_BATCH_RECORDS
from tidelog.client.outgoing_records import OutgoingRecords
from tidelog.client.partitioner import partition_for_key
from tidelog.client.record_columns import RecordColumns, cut, split_by_key
from tidelog.client.send_admission import SendAdmission
from tidelog.model import Codec
from tidelog.record_batch import encode_records


class ColumnSender:
    """Sends columns for one producer. `batch_bytes`: maximum size of a batch's keys and values."""

    def __init__(
        self,
        admission: SendAdmission,
        outgoing: OutgoingRecords,
        budget: BufferBudget,
        codec: Codec,
        batch_bytes: int,
    ) -> None:
        self._admission = admission
        self._outgoing = outgoing
        self._budget = budget
        self._codec = codec
        self._batch_bytes = batch_bytes

    async def send(
        self,
        topic: str,
        columns: RecordColumns,
        partition: int | None,
        batches: list[DeliveryFuture[BatchReport]],
    ) -> None:
        """Sends the columns. Adds each batch to `batches` when it is created."""
        admission = self._admission
        known = await admission.known_topic(topic, partition, admission.new_deadline_ms())
        sizes = columns.sizes()
        admission.check_size(max(sizes, default=0))
        count = known.partitions
        split: Iterable[tuple[int | None, RecordColumns] | None] = [(partition, columns)]
        if partition is None:
            split = split_by_key(columns, lambda key: partition_for_key(key, count))
        unsent_bytes = unsent_records = 0
        for part in split:
            if part is None:
                await asyncio.sleep(0)
                continue
            chosen, of_partition = part
            if of_partition is not columns:
                sizes = of_partition.sizes()
            for piece, size in cut(of_partition, sizes, self._batch_bytes):
                # The delivery timeout of a batch begins when its turn comes, because one call may
                # send more than the buffer holds.
                deadline_ms = admission.new_deadline_ms()
                await admission.take_room(size, deadline_ms)
                try:
                    admission.check_not_ended()
                    encoded = encode_records(
                        piece.values,
                        piece.keys,
                        timestamps_ms=piece.timestamps_ms,
                        codec=self._codec,
                    )
                except BaseException:
                    self._budget.give_back(size)
                    raise
                batches.append(
                    self._outgoing.add_batch(topic, known, chosen, encoded, size, deadline_ms)
                )
                unsent_bytes += size
                unsent_records += encoded.record_count
                if (
                    unsent_bytes >= admission.max_request_bytes
                    or unsent_records >= MAX_BATCH_RECORDS
                ):
                    # A request is full, or its records took long to encode: let it be sent before
                    # the next one is built.
                    unsent_bytes = unsent_records = 0
                    await asyncio.sleep(0)
