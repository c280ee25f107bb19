"""The purgatory: where requests wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from tidelog.errors import TidelogError
from tidelog.model import Acks, TopicPartition
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.waiting_requests import WaitingRequests

# None: committed, or synced. An error: it is not known whether it will be.
Committed: TypeAlias = "asyncio.Future[TidelogError | None]"


class Purgatory(WaitingRequests):
    """The waiting requests, with the futures and events of the event loop on which they wait."""

    @contextmanager
    def commits(self, names: Iterable[TopicPartition]) -> Iterator[asyncio.Event]:
        """Yields an event that is set when a high watermark moves or a leadership ends."""
        event = asyncio.Event()
        names = tuple(names)
        self.add_fetch(names, event)
        try:
            yield event
        finally:
            self.remove_fetch(names, event)

    def committed(self, partition: Partition, next_offset: int) -> Committed:
        """Returns a future that is done when the high watermark reaches `next_offset`.

        Its result is LEADER_CHANGED if the epoch ends first. A caller that stops waiting must call
        `give_up`.
        """
        return self._until(partition, Acks.ALL, partition.high_watermark, next_offset)

    def synced(self, partition: Partition, next_offset: int) -> Committed:
        """Like `committed`, for the leader's own disk, if the topic's durability is `synced`."""
        return self._until(partition, Acks.LEADER, partition.counted_end, next_offset)

    def _until(self, partition: Partition, acks: Acks, reached: int, next_offset: int) -> Committed:
        future: Committed = asyncio.get_running_loop().create_future()
        self.add_produce(partition, acks, reached, next_offset, future)
        return future
