"""Opens costly batches in a thread, one at a time for each consumer.

Concurrent polls share an opening: each waits for the one in progress, and then takes records of
the opened batch. Cancelling a poll does not end the opening.
"""

from __future__ import annotations

import asyncio

from tidelog.client.assigned_partition import Assigned
from tidelog.client.delivery import mark_seen
from tidelog.client.fetch_collector import FetchCollector
from tidelog.client.fetched_batch import FetchedBatch, OpenedBatch
from tidelog.errors import TidelogError


class BatchDecoder:
    """Opens the batches of one consumer.

    `room`: shared by the consumers of one event loop. It bounds how many costly batches they hold
    together. Each consumer takes one place before it opens its first costly batch, and keeps it
    until `stop`."""

    def __init__(self, taking: FetchCollector, room: asyncio.Semaphore | None = None) -> None:
        self._taking = taking
        self._room = room
        self._has_place = False
        self._task: asyncio.Task[None] | None = None

    async def open_costly(self) -> bool:
        """Waits for an opening if the last taking ended at a costly batch; returns whether it did.
        The next taking raises the error of a batch that cannot be opened. The caller must not await
        anything between the taking and this call."""
        costly = self._taking.costly
        if costly is None or not costly.buffered:
            return False
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._open(costly, costly.to_open()))
            self._task.add_done_callback(mark_seen)
        await asyncio.shield(self._task)
        return True

    async def _open(self, costly: Assigned, first: FetchedBatch) -> None:
        if self._room is not None and not self._has_place:
            await self._room.acquire()
            self._has_place = True
        try:
            opened = await asyncio.to_thread(OpenedBatch, first)
        except TidelogError as error:
            if costly.is_to_open(first):
                self._taking.failed(costly, error)
        else:
            self._taking.opened(costly, opened)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        if self._room is not None and self._has_place:
            self._has_place = False
            self._room.release()
