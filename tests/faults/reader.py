"""A consumer of the load: it reads while faults strike, and then up to the acknowledged end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from faults.observed import ReaderSeen
from faults.values import value_of
from tidelog.client import Consumer, FetchedBatch
from tidelog.errors import ErrorCode, TidelogError
from tidelog.history import Operation, Outcome, PollEnded
from tidelog.model import TopicPartition

POLL_TIMEOUT_MS = 500
RETRY_PAUSE_S = 0.2


class Reader:
    """`acknowledged`: by partition, the acknowledged end, which grows meanwhile."""

    def __init__(
        self,
        name: str,
        consumer: Consumer,
        acknowledged: Mapping[TopicPartition, int],
        note: Callable[[list[Operation]], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._name = name
        self._consumer = consumer
        self._acknowledged = acknowledged
        self._note = note
        self._now_ms = now_ms
        self._positions: dict[TopicPartition, int] = {}
        self._is_repositioned = False
        self._repositioned = 0
        self._errors: Counter[str] = Counter()

    async def run(
        self, partitions: Sequence[TopicPartition], until: asyncio.Event, catch_up_s: float
    ) -> ReaderSeen:
        """`until`: is set when no more records are acknowledged."""
        self._consumer.assign(partitions)
        while not until.is_set():
            await self._poll()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + catch_up_s
        while self._behind() and loop.time() < deadline_s:
            await self._poll()
        behind = {str(partition): place for partition, place in self._behind().items()}
        return ReaderSeen(self._name, behind, self._repositioned, dict(self._errors))

    def _behind(self) -> dict[TopicPartition, tuple[int, int]]:
        return {
            partition: (position, end)
            for partition, end in self._acknowledged.items()
            if (position := self._positions.get(partition, 0)) < end
        }

    async def _poll(self) -> None:
        try:
            batches = await self._consumer.poll_batches(POLL_TIMEOUT_MS)
        except TidelogError as error:
            self._errors[error.code.name] += 1
            await asyncio.sleep(RETRY_PAUSE_S)
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                # Reads from the start again; records that are gone show up then.
                await self._consumer.seek_to_beginning()
                self._positions.clear()
                self._is_repositioned = True
                self._repositioned += 1
            return
        for batch in batches:
            self._positions[batch.partition] = batch.next_offset
        at_ms = self._now_ms()
        self._note(polled(self._name, batches, at_ms, repositioned=self._is_repositioned))
        self._is_repositioned = self._is_repositioned and not batches


def polled(
    client: str,
    batches: Sequence[FetchedBatch],
    at_ms: int,
    *,
    repositioned: bool = False,
    final: bool = False,
) -> list[Operation]:
    """The records of one poll, by partition."""
    by_partition: dict[TopicPartition, list[FetchedBatch]] = {}
    for batch in batches:
        by_partition.setdefault(batch.partition, []).append(batch)
    return [
        PollEnded(
            at_ms,
            client,
            *partition,
            Outcome.OK,
            [o for batch in own for o in range(batch.first_offset, batch.next_offset)],
            [value_of(value) for batch in own for value in batch.columns().values],
            [batch.header.leader_epoch for batch in own for _ in range(batch.record_count)],
            repositioned=repositioned,
            final=final,
        )
        for partition, own in by_partition.items()
    ]
