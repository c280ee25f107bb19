"""Follows the events of a cluster once for all streams.

The hub starts with the first stream. It keeps the newest events, so that an interrupted stream
can continue where it ended.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import NamedTuple, Protocol

import structlog

from tidelog.client.event_streams import Gathered, Silent
from tidelog.state_changes.event import Kind, StateChange
from tidelog.state_changes.tracing import TraceScope
from tidelog_admin_api.event_filter import EventFilter, Newest, newest
from tidelog_admin_api.event_messages import (
    HEARTBEAT,
    OPENING,
    EventRing,
    RingEntry,
    entry_of,
    event_id,
    message,
    time_ms_of,
)
from tidelog_runtime.clock import Clock

HEARTBEAT_MS = 15_000
# Events that a stream sends in one write. They are encoded at some 50 µs each.
MAX_EVENTS_AT_ONCE = 50
# Pause before the hub follows the events again after an error.
RESTART_PAUSE_MS = 1_000
# A resumed stream repeats events of this period, since events may arrive late.
RESUME_OVERLAP_MS = 2_000
# Past events at the beginning of a stream: the newest that match.
MAX_EVENTS_BEFORE = 1_000
# Events that are added to the ring before other tasks of the event loop run.
MAX_EVENTS_IN_A_TURN = 50
MISSED, END = "missed", "end"

_log = structlog.get_logger()


class EventSource(Protocol):
    """The part of `tidelog.client.event_streams.EventStreams` that the gateway uses."""

    async def recent(self, scope: TraceScope) -> Gathered: ...

    async def newest(
        self, limit: int, *, kinds: Sequence[Kind] = (), since_ms: int = 0
    ) -> Gathered: ...

    async def require_known(self, scope: TraceScope, changes: Sequence[StateChange]) -> None: ...

    def follow(self, scope: TraceScope) -> AsyncGenerator[list[StateChange | Silent]]: ...


class Beginning(NamedTuple):
    """The beginning of a stream.

    - `position`: position in the ring from which the stream continues
    - `before`: events that are sent first
    - `missed`: number of older matching events that are not sent
    """

    position: int
    before: Sequence[StateChange] = ()
    missed: int = 0


class Bound(NamedTuple):
    """Limits at which the gateway ends a stream. None: no limit."""

    events: int | None = None
    duration_ms: int | None = None


class EventHub:
    def __init__(
        self,
        source: EventSource,
        clock: Clock,
        ring: EventRing | None = None,
        heartbeat_ms: int = HEARTBEAT_MS,
    ) -> None:
        self._source = source
        self._clock = clock
        self._heartbeat_ms = heartbeat_ms
        self._ring = ring or EventRing()
        self._news = asyncio.Event()
        self._ending = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None and not self._ending:
            since_ms = self._clock.wall_ms()
            self._task = asyncio.create_task(self._follow(TraceScope(since_ms=since_ms)))

    async def begin(self, event_filter: EventFilter, last_id: str = "") -> Beginning:
        """Returns the beginning of a stream.

        With `last_id` the stream begins after that event. If the ring no longer has the event,
        events from RESUME_OVERLAP_MS before it are sent again under the same ids. Without
        `last_id` the stream begins with the events since `since_ms` of the filter; if that is 0,
        with new events. Raises `UnreachableError`.
        """
        self.start()
        position, since_ms = self._ring.end, event_filter.since_ms
        if last_id:
            after = self._ring.after(last_id)
            if after is not None:
                return Beginning(after)
            since_ms = max(since_ms, (time_ms_of(last_id) or 0) - RESUME_OVERLAP_MS)
        if not since_ms:
            return Beginning(position)
        event_filter = event_filter._replace(since_ms=since_ms)
        changes = (await self._source.recent(event_filter.scope)).events
        found = await asyncio.to_thread(_newest_before, changes, event_filter, last_id)
        return Beginning(position, found.changes, found.left_out)

    @property
    def is_ending(self) -> bool:
        """Whether the gateway is stopping."""
        return self._ending

    def end_streams(self) -> None:
        """Ends each stream with an `end` message; later streams end at once."""
        self._ending = True
        self._notify()

    async def close(self) -> None:
        self.end_streams()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def stream(
        self, event_filter: EventFilter, beginning: Beginning, bound: Bound
    ) -> AsyncIterator[bytes]:
        """Yields server-sent events, and a comment if no event was sent for `heartbeat_ms`."""
        yield OPENING
        left = _Left(bound, self._clock)
        sent_ms = self._clock.monotonic_ms()
        known: dict[str, None] = {}
        messages = _missed(beginning.missed)
        for begin in range(0, len(beginning.before), MAX_EVENTS_AT_ONCE):
            some = beginning.before[begin : begin + MAX_EVENTS_AT_ONCE]
            before = [entry_of(change) for change in some]
            known |= {entry.id: None for entry in before}
            messages += _events(before, event_filter, left)
            if messages:
                yield b"".join(messages)
            messages = []
            await asyncio.sleep(0)
        position = beginning.position
        while True:
            taken = self._ring.take(position, MAX_EVENTS_AT_ONCE)
            position = taken.position
            messages = _missed(taken.missed)
            messages += _events(
                [one for one in taken.entries if one.id not in known], event_filter, left
            )
            if messages:
                yield b"".join(messages)
                sent_ms = self._clock.monotonic_ms()
            if self._ending:
                yield message(END, {"reason": "the gateway is stopping; connect again"})
                return
            if left.is_over():
                return
            quiet_ms = self._clock.monotonic_ms() - sent_ms
            wait_ms = left.at_most(self._heartbeat_ms - quiet_ms)
            if wait_ms <= 0 or not (taken.entries or await self._more(wait_ms)):
                yield HEARTBEAT
                sent_ms = self._clock.monotonic_ms()

    async def _more(self, wait_ms: int) -> bool:
        news = self._news
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await news.wait()
        except TimeoutError:
            return False
        return True

    async def _follow(self, scope: TraceScope) -> None:
        while True:
            # `follow` reconnects to services by itself.
            try:
                async with contextlib.aclosing(self._source.follow(scope)) as batches:
                    async for batch in batches:
                        await self._add(batch)
            except Exception:
                _log.exception("event_stream_failed")
            await asyncio.sleep(RESTART_PAUSE_MS / 1000)
            scope = TraceScope(since_ms=self._clock.wall_ms() - RESTART_PAUSE_MS)

    async def _add(self, batch: Sequence[StateChange | Silent]) -> None:
        for begin in range(0, len(batch), MAX_EVENTS_IN_A_TURN):
            self._ring.add(batch[begin : begin + MAX_EVENTS_IN_A_TURN])
            self._notify()
            await asyncio.sleep(0)

    def _notify(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


def _newest_before(
    changes: Sequence[StateChange], event_filter: EventFilter, last_id: str
) -> Newest:
    unseen = changes if not last_id else [c for c in changes if event_id(c) != last_id]
    return newest(unseen, event_filter, MAX_EVENTS_BEFORE)


class _Left:
    """The remaining events and time of a stream."""

    def __init__(self, bound: Bound, clock: Clock) -> None:
        self.events = bound.events
        self._clock = clock
        self._end_ms = None
        if bound.duration_ms is not None:
            self._end_ms = clock.monotonic_ms() + bound.duration_ms

    def is_over(self) -> bool:
        return self.events == 0 or (
            self._end_ms is not None and self._clock.monotonic_ms() >= self._end_ms
        )

    def at_most(self, wait_ms: int) -> int:
        if self._end_ms is None:
            return wait_ms
        return min(wait_ms, self._end_ms - self._clock.monotonic_ms())

    def one_more(self) -> bool:
        if self.events is None:
            return True
        if self.events == 0:
            return False
        self.events -= 1
        return True


def _missed(events: int) -> list[bytes]:
    return [message(MISSED, {"events": events})] if events else []


def _events(entries: Sequence[RingEntry], event_filter: EventFilter, left: _Left) -> list[bytes]:
    return [
        one.encoded
        for one in entries
        if isinstance(one.what, Silent) or (event_filter.matches(one.what) and left.one_more())
    ]
