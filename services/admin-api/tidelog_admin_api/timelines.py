"""State changes of a topic or a partition, including those of services that have ended.

The topic `__state_changes` holds the latter. Pages request timelines repeatedly: each request
queries the services, but the topic is read only after FRESH_MS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from tidelog.client.event_streams import Silent
from tidelog.client.published_events import Published, gathered_with_published
from tidelog.state_changes.event import StateChange
from tidelog.state_changes.topic import STATE_CHANGES_TOPIC
from tidelog.state_changes.tracing import TraceScope
from tidelog_admin_api.event_hub import EventSource
from tidelog_runtime.clock import Clock

# For how long the result of a read is used.
FRESH_MS = 5_000
# For how long an older result is used while the topic is read again. A read takes seconds if
# leaders are unavailable.
KEPT_MS = 15_000
# Scopes whose results are kept.
MAX_KEPT = 50
# Concurrent reads. Each keeps its records in memory and takes part of a core.
MAX_READS_AT_ONCE = 4
# Running, waiting and kept reads. Further requests are answered without the topic.
MAX_READS = 100

_BUSY = f"{STATE_CHANGES_TOPIC} is being read for {MAX_READS} others; try again in a moment."

# The signature of `tidelog.client.published_events.published`.
ReadsPublished = Callable[[TraceScope], Coroutine[Any, Any, Published]]


class Timeline(NamedTuple):
    """A timeline.

    - `events`: in any order, possibly with duplicates
    - `notes`: sentences on what could not be read from the topic, and why
    """

    events: Sequence[StateChange]
    silent: Sequence[Silent]
    notes: Sequence[str]


class _Read(NamedTuple):
    """A read of the topic, and the previous result, which is used until this read ends."""

    begun_ms: int
    task: asyncio.Task[Published]
    previous: Published | None


class Timelines:
    def __init__(self, events: EventSource, read: ReadsPublished, clock: Clock) -> None:
        self._events = events
        self._read = read
        self._clock = clock
        self._room = asyncio.Semaphore(MAX_READS_AT_ONCE)
        # The oldest first.
        self._reads: dict[TraceScope, _Read] = {}

    async def timeline(self, scope: TraceScope) -> Timeline:
        """Returns the timeline.

        Raises `UnreachableError` if no service answers, and `TidelogError`
        (UNKNOWN_TOPIC_OR_PARTITION) if the topic or partition does not exist and never existed.
        """
        gathered, published = await gathered_with_published(
            self._events.recent(scope), self._published(scope)
        )
        events = [*published.events, *gathered.events]
        await self._events.require_known(scope, events)
        return Timeline(events, gathered.silent, published.notes)

    async def close(self) -> None:
        tasks = [read.task for read in self._reads.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _published(self, scope: TraceScope) -> Published:
        """Returns the state changes in the topic.

        Concurrent callers share a read. It continues if one of them is cancelled.
        """
        now_ms = self._clock.monotonic_ms()
        self._forget(now_ms)
        read = self._reads.get(scope)
        if read is None or (read.task.done() and now_ms - read.begun_ms > FRESH_MS):
            if read is None and len(self._reads) >= MAX_READS:
                return Published([], (_BUSY,))
            previous = None if read is None else _result_of(read.task)
            task = asyncio.create_task(self._read_topic(scope))
            self._reads.pop(scope, None)
            read = self._reads[scope] = _Read(now_ms, task, previous)
        if read.previous is not None and not read.task.done():
            return read.previous
        return await asyncio.shield(read.task)

    async def _read_topic(self, scope: TraceScope) -> Published:
        async with self._room:
            return await self._read(scope)

    def _forget(self, now_ms: int) -> None:
        """Drops results older than KEPT_MS, and the oldest ones beyond MAX_KEPT."""
        done = [scope for scope, read in self._reads.items() if read.task.done()]
        for number, scope in enumerate(done):
            is_old = now_ms - self._reads[scope].begun_ms > KEPT_MS
            if is_old or len(done) - number >= MAX_KEPT:
                del self._reads[scope]


def _result_of(task: asyncio.Task[Published]) -> Published | None:
    """Returns the result, or None if the read failed."""
    return None if task.cancelled() or task.exception() else task.result()
