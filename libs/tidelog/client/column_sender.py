"""Turns columns of records into batches directly, without gathering (`Producer.send_many`)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator

from tidelog.client.buffer_budget import BufferBudget
from tidelog.client.delivery import BatchReport, DeliveryFuture, mark_seen
from tidelog.client.open_batches import MAX_BATCH_RECORDS
from tidelog.client.outgoing_records import OutgoingRecords
from tidelog.client.partitioner import partition_for_key
from tidelog.client.record_columns import RecordColumns, cut, split_by_key
from tidelog.client.send_admission import SendAdmission, partly_sent
from tidelog.errors import RequestTimedOutError, TidelogError
from tidelog.model import Codec
from tidelog.record_batch import encode_records


class ColumnSender:
    """Sends columns for one producer. `batch_bytes`: maximum size of a batch's keys,
    values and headers."""

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
        checks: Iterator[None],
    ) -> list[DeliveryFuture[BatchReport]]:
        """Sends the columns once all of them are checked, the first batch by `deadline_ms`. Returns
        the batches.

        `checks`: checks the columns slice by slice. If it fails, nothing is sent. Raises as
        `SendAdmission.wait`, and as `_take_room`; the error says so if batches were sent before."""
        batches: list[DeliveryFuture[BatchReport]] = []
        async with self._admission.hold_topic(topic, deadline_ms):
            # Batches that were sealed before are sent before more are created.
            await asyncio.sleep(0)
            for _ in checks:
                await asyncio.sleep(0)
            try:
                await self._send(topic, columns, partition, deadline_ms, batches)
            except BaseException as error:
                # Reported to `on_delivery` only, because the caller never gets these futures.
                for batch in batches:
                    # Not the override, which raises after the end of the loop.
                    asyncio.Future.add_done_callback(batch, mark_seen)
                if batches and isinstance(error, TidelogError):
                    raise partly_sent(error, len(batches)) from error
                raise
        return batches

    async def _send(
        self,
        topic: str,
        columns: RecordColumns,
        partition: int | None,
        deadline_ms: int,
        batches: list[DeliveryFuture[BatchReport]],
    ) -> None:
        """Adds each batch to `batches` when it is created."""
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
                        headers=piece.headers_by_index(),
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
