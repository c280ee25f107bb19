"""State changes in the topic `__state_changes`, which outlive the services that published them.

    events = await published(["127.0.0.1:7501"], TraceScope("sea", 0))
    both = await gathered_with_published(streams.recent(scope), published(addresses, scope))

The events that services keep do not depend on the topic: a problem with reading it is a note.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

from tidelog.client.clock import Clock
from tidelog.client.connections import Connections
from tidelog.client.consumer import Consumer
from tidelog.client.event_streams import Gathered
from tidelog.client.fetch_state import OnOutOfRange
from tidelog.client.fetched_batch import FetchedBatch
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.state_changes.event import StateChange
from tidelog.state_changes.json_form import NotAStateChangeError, format_time
from tidelog.state_changes.topic import STATE_CHANGES_TOPIC, from_value
from tidelog.state_changes.tracing import TraceScope

# Maximum number of events of each partition; the newest are read.
MAX_EVENTS_PER_PARTITION = 10_000
# Total time: the caller is waiting, and services have answered long before.
READ_TIMEOUT_MS = 3_000
# Part of it for a partition's offsets, so that one without a leader leaves time for the others.
OFFSETS_TIMEOUT_MS = 1_000
# Few at a time, so that the end of the time is noticed soon.
MAX_BATCHES_PER_POLL = 8


class Published(NamedTuple):
    """Events from the topic.

    - `events`: those of the scope, possibly with duplicates.
    - `notes`: sentences about parts of the topic that were not read, and why.
    """

    events: list[StateChange]
    notes: tuple[str, ...]


async def published(
    bootstrap: str | Sequence[str],
    scope: TraceScope,
    *,
    connections: Connections | None = None,
    clock: Clock | None = None,
    timeout_ms: int = READ_TIMEOUT_MS,
    max_events_per_partition: int = MAX_EVENTS_PER_PARTITION,
) -> Published:
    """Reads the events of a scope. Raises `TidelogError` only for an invalid address."""
    consumer = Consumer(
        bootstrap,
        connections=connections,
        clock=clock,
        offsets_timeout_ms=min(OFFSETS_TIMEOUT_MS, timeout_ms),
        # Retention may have deleted the oldest records meanwhile.
        on_out_of_range=OnOutOfRange.EARLIEST,
    )
    reader = _Reader(consumer, scope, max_events_per_partition)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await reader.read()
    except TimeoutError:
        reader.notes.append(
            f"{STATE_CHANGES_TOPIC} could not be read to its end within {timeout_ms} ms."
        )
    except Exception as error:
        # Whatever the error is, services still return the events that they keep.
        reader.notes.append(_why_not(error))
    finally:
        await consumer.close()
    return Published(reader.events, (*reader.notes, *reader.cut_notes()))


async def gathered_with_published(
    remembered: Coroutine[Any, Any, Gathered], reading: Coroutine[Any, Any, Published]
) -> tuple[Gathered, Published]:
    """Returns the events that services keep and those in the topic, read concurrently. If no
    service answers, the topic is not available either."""
    read = asyncio.create_task(reading)
    try:
        return await remembered, await read
    finally:
        read.cancel()
        await asyncio.gather(read, return_exceptions=True)


class _Span(NamedTuple):
    """Offsets of a partition to read. `cut`: there are older ones that are not read."""

    partition: TopicPartition
    start: int
    end: int
    cut: bool


class _Reader:
    """Reads the topic. `events` and `notes` can be read at any time."""

    def __init__(self, consumer: Consumer, scope: TraceScope, max_events: int) -> None:
        self.events: list[StateChange] = []
        self.notes: list[str] = []
        self._consumer = consumer
        self._scope = scope
        self._max_events = max_events
        self._cut: list[TopicPartition] = []
        # Time of the first event that was read from each partition.
        self._first_ms: dict[TopicPartition, int] = {}

    async def read(self) -> None:
        """Reads up to the offsets at which the partitions end when it begins."""
        partitions = await self._consumer.partitions_of(STATE_CHANGES_TOPIC)
        spans: list[_Span] = []
        for found in await asyncio.gather(*(self._span(partition) for partition in partitions)):
            if isinstance(found, TidelogError):
                self.notes.append(_why_not(found))
            elif found.start < found.end:
                spans.append(found)
        self._cut = [span.partition for span in spans if span.cut]
        self._consumer.assign([span.partition for span in spans])
        for span in spans:
            await self._consumer.seek(span.partition, span.start)
        while any(self._is_unread(span) for span in spans):
            for batch in await self._consumer.poll_batches(max_batches=MAX_BATCHES_PER_POLL):
                self._take(batch)

    def cut_notes(self) -> list[str]:
        read = [self._first_ms[p] for p in self._cut if p in self._first_ms]
        if not read:
            return []
        return [
            f"Of each partition of {STATE_CHANGES_TOPIC} the newest {self._max_events:,} events "
            f"were read: before {format_time(max(read))} some may be missing; log files have "
            "more (tidelog trace --files)."
        ]

    async def _span(self, partition: TopicPartition) -> _Span | TidelogError:
        """Queries one partition at a time, so that one without a leader does not delay others."""
        only = (partition,)
        try:
            end = (await self._consumer.end_offsets(only))[partition]
            if self._scope.since_ms:
                # A record is no older than the event that it holds.
                found = await self._consumer.offsets_at_time(self._scope.since_ms, only)
            else:
                found = await self._consumer.beginning_offsets(only)
        except TidelogError as error:
            return error
        start = max(found[partition], end - self._max_events)
        return _Span(partition, start, end, start > found[partition])

    def _is_unread(self, span: _Span) -> bool:
        return (self._consumer.position(span.partition) or 0) < span.end

    def _take(self, batch: FetchedBatch) -> None:
        for value in batch.columns().values:
            try:
                event = from_value(value or b"")
            except NotAStateChangeError:
                # The event is of a newer version.
                continue
            self._first_ms.setdefault(batch.partition, event.time_ms)
            if self._scope.asks_for(event):
                self.events.append(event)


def _why_not(error: Exception) -> str:
    if not isinstance(error, TidelogError):
        return f"{STATE_CHANGES_TOPIC} could not be read: {type(error).__name__}: {error}."
    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return (
            f"There is no topic {STATE_CHANGES_TOPIC} (state_changes_topic is off, or too few "
            "brokers have run): log files have the events of services that ended or restarted "
            "since (tidelog trace --files)."
        )
    return f"{STATE_CHANGES_TOPIC} could not be read: {error.message}."
