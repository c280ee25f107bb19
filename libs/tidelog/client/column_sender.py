"""Turns columns of records into batches directly, without gathering (`Producer.send_many`)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from tidelog.client.buffer_budget import BufferBudget
from tidelog.client.delivery import BatchReport, DeliveryFuture
from tidelog.client.open_batches import MAX_BATCH_RECORDS
from tidelog.client.outgoing_records import OutgoingRecords
from tidelog.client.partitioner import partition_for_key
from tidelog.client.record_columns import RecordColumns, cut, split_by_key
from tidelog.client.send_admission import SendAdmission
from tidelog.errors import RequestTimedOutError
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
        deadline_ms: int,
        batches: list[DeliveryFuture[BatchReport]],
    ) -> None:
        """Sends the columns, the first batch by `deadline_ms`. Adds each batch to `batches` when it
        is created. Raises as `SendAdmission.wait`, and as `_take_room`."""
        admission = self._admission
        known = await admission.known_topic(topic, partition, deadline_ms)
        sizes = columns.sizes()
        admission.check_size(max(sizes, default=0))
        count = known.partitions
        split: Iterable[tuple[int | None, RecordColumns] | None] = [(partition, columns)]
        if partition is None:
            split = split_by_key(columns, lambda key: partition_for_key(key, count))
        unsent_bytes = unsent_records = 0
        unknown: deque[DeliveryFuture[BatchReport]] = deque()
        for part in split:
            if part is None:
                await asyncio.sleep(0)
                continue
            chosen, of_partition = part
            if of_partition is not columns:
                sizes = of_partition.sizes()
            for piece, size in cut(of_partition, sizes, self._batch_bytes):
                await self._take_room(size, deadline_ms, unknown)
                try:
                    admission.check_not_ended()
                    if not batches:
                        # The batches after it would be sent without it.
                        admission.check_in_time(deadline_ms)
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
                unknown.append(batches[-1])
                # One call may send more than the buffer holds: each batch that gets room gives the
                # next one the full time.
                deadline_ms = admission.new_deadline_ms()
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

    async def _take_room(
        self, size: int, deadline_ms: int, unknown: deque[DeliveryFuture[BatchReport]]
    ) -> None:
        """Takes room for a call's next batch.

        - `unknown`: the earlier batches of the call, which are removed once they have an outcome.

        Raises REQUEST_TIMED_OUT, also if one of them has timed out meanwhile: only its end made
        room, and the next batches would wait as long, one after the other."""
        if self._budget.try_take(size):
            return
        await self._admission.take_room(size, deadline_ms)
        # Batches time out in the order of the call.
        while unknown and unknown[0].done():
            error = unknown.popleft().exception()
            if isinstance(error, RequestTimedOutError):
                self._budget.give_back(size)
                raise error
