"""State changes of a topic or a partition, also those of services that have ended, which the
topic `__state_changes` holds.

Pages ask for them again and again. What services remember is asked for each time; what the topic
has besides is old, and read anew only now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from tidelog.client.event_streams import Silent
from tidelog.client.published_events import Published, gathered_with_published
from tidelog.state_changes.event import StateChange
from tidelog.state_changes.life import TraceScope
from tidelog.state_changes.topic import STATE_CHANGES_TOPIC
from tidelog_admin_api.event_hub import TellsEvents
from tidelog_runtime.clock import Clock

# What was read of the topic is read again after so long.
FRESH_MS = 5_000
# So long it will do for who asks meanwhile: to read a topic whose leaders are away takes seconds.
KEPT_MS = 15_000
# Scopes.
MAX_KEPT = 50
# Each holds what it has read, and takes part of a core.
MAX_READS_AT_ONCE = 4
# With those that wait and those that are kept; whoever asks for more is told without the topic.
MAX_READS = 100

_BUSY = f"{STATE_CHANGES_TOPIC} is being read for {MAX_READS} others; ask again in a moment."

# `tidelog.client.published_events.published`.
ReadsPublished = Callable[[TraceScope], Coroutine[Any, Any, Published]]


class Told(NamedTuple):
    """`events` in no order, some perhaps twice. `notes`: sentences on what of the topic was not
    read, and why."""

    events: Sequence[StateChange]
    silent: Sequence[Silent]
    notes: Sequence[str]


class _Read(NamedTuple):
    """`former`: what was read before, and will do until this is read."""

    begun_ms: int
    task: asyncio.Task[Published]
    former: Published | None


class Timelines:
    def __init__(self, events: TellsEvents, read: ReadsPublished, clock: Clock) -> None:
        self._events = events
        self._read = read
        self._clock = clock
        self._room = asyncio.Semaphore(MAX_READS_AT_ONCE)
        # The oldest first.
        self._reads: dict[TraceScope, _Read] = {}

    async def told(self, scope: TraceScope) -> Told:
        """Raises `UnreachableError` where no service answers, and `TidelogError`
        (UNKNOWN_TOPIC_OR_PARTITION) where there is no such thing and was none either."""
        gathered, published = await gathered_with_published(
            self._events.recent(scope), self._published(scope)
        )
        events = [*published.events, *gathered.events]
        await self._events.require_known(scope, events)
        return Told(events, gathered.silent, published.notes)

    async def close(self) -> None:
        tasks = [read.task for read in self._reads.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _published(self, scope: TraceScope) -> Published:
        """One reading serves all who ask meanwhile, and goes on when one of them has gone."""
        now_ms = self._clock.monotonic_ms()
        self._forget(now_ms)
        read = self._reads.get(scope)
        if read is None or (read.task.done() and now_ms - read.begun_ms > FRESH_MS):
            if read is None and len(self._reads) >= MAX_READS:
                return Published([], (_BUSY,))
            former = None if read is None else _result_of(read.task)
            task = asyncio.create_task(self._read_anew(scope))
            self._reads.pop(scope, None)
            read = self._reads[scope] = _Read(now_ms, task, former)
        if read.former is not None and not read.task.done():
            return read.former
        return await asyncio.shield(read.task)

    async def _read_anew(self, scope: TraceScope) -> Published:
        async with self._room:
            return await self._read(scope)

    def _forget(self, now_ms: int) -> None:
        """What was read too long ago, and the oldest of too many."""
        done = [scope for scope, read in self._reads.items() if read.task.done()]
        for number, scope in enumerate(done):
            is_old = now_ms - self._reads[scope].begun_ms > KEPT_MS
            if is_old or len(done) - number >= MAX_KEPT:
                del self._reads[scope]


def _result_of(task: asyncio.Task[Published]) -> Published | None:
    """None: it has failed."""
    return None if task.cancelled() or task.exception() else task.result()
