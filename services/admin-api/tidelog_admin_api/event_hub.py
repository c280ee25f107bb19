"""One ear for all streams: follows the events of a cluster once, however many streams there are.

It begins with the first stream. What it has heard is kept for a while, so that a stream that was
interrupted goes on where it ended.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from tidelog.client.event_streams import Gathered, Silent
from tidelog.state_changes.event import StateChange
from tidelog.state_changes.life import TraceScope
from tidelog_admin_api.bodies.events import event_object
from tidelog_admin_api.event_filter import EventFilter
from tidelog_admin_api.event_ids import event_id
from tidelog_admin_api.event_ring import EventRing, Told
from tidelog_admin_api.server_sent_events import HEARTBEAT, OPENING, message
from tidelog_runtime.clock import Clock

HEARTBEAT_MS = 15_000
# That a stream sends in one piece.
MAX_EVENTS_AT_ONCE = 500
# Following begins anew after so long, where it ended with an error.
RESTART_PAUSE_MS = 1_000
STATE_CHANGE, SERVICE_SILENT, MISSED, END = "state_change", "service_silent", "missed", "end"


class TellsEvents(Protocol):
    """`tidelog.client.event_streams.EventStreams`, as far as the gateway asks it."""

    async def recent(self, scope: TraceScope) -> Gathered: ...

    async def require_known(self, scope: TraceScope, told: Sequence[StateChange]) -> None: ...

    def follow(self, scope: TraceScope) -> AsyncGenerator[list[StateChange | Silent]]: ...


class Beginning(NamedTuple):
    """Where a stream begins: with `before`, then with what was heard from `position` on."""

    position: int
    before: Sequence[StateChange] = ()


class Bound(NamedTuple):
    """When a stream ends by itself; None: never."""

    events: int | None = None
    duration_ms: int | None = None


class EventHub:
    def __init__(self, source: TellsEvents, clock: Clock, ring: EventRing | None = None) -> None:
        self._source = source
        self._clock = clock
        self._ring = ring or EventRing()
        self._news = asyncio.Event()
        self._ending = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None and not self._ending:
            since_ms = self._clock.wall_ms()
            self._task = asyncio.create_task(self._follow(TraceScope(since_ms=since_ms)))

    @property
    def end(self) -> int:
        """The position of what comes next."""
        return self._ring.end

    def after(self, told_id: str) -> int | None:
        """The position behind an event; None: it is not known."""
        return self._ring.after(told_id)

    def end_streams(self) -> None:
        """Each says so and ends; there are none from now on."""
        self._ending = True
        self._tell()

    async def close(self) -> None:
        self.end_streams()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def stream(
        self, wanted: EventFilter, beginning: Beginning, bound: Bound
    ) -> AsyncIterator[bytes]:
        """Server-sent events, with a comment where there was nothing for HEARTBEAT_MS."""
        yield OPENING
        left = _Left(bound, self._clock)
        known = {event_id(change): None for change in beginning.before}
        said = _events([Told(event_id(c), c) for c in beginning.before], wanted, left)
        if said:
            yield b"".join(said)
        position = beginning.position
        while not left.is_over():
            taken = self._ring.take(position, MAX_EVENTS_AT_ONCE)
            position = taken.position
            said = [message(MISSED, {"events": taken.missed})] if taken.missed else []
            said += _events([one for one in taken.told if one.id not in known], wanted, left)
            if said:
                yield b"".join(said)
            if self._ending:
                yield message(END, {"reason": "the gateway stops; connect again"})
                return
            if not taken.told and not await self._more(left.wait_ms()):
                yield HEARTBEAT

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
            # What services tell is heard by `follow` again and again; this is for its own faults.
            with contextlib.suppress(Exception):
                async with contextlib.aclosing(self._source.follow(scope)) as told:
                    async for batch in told:
                        self._ring.add(batch)
                        self._tell()
            await asyncio.sleep(RESTART_PAUSE_MS / 1000)
            scope = TraceScope(since_ms=self._clock.wall_ms() - RESTART_PAUSE_MS)

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


class _Left:
    """How much of its bound a stream has left."""

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

    def wait_ms(self) -> int:
        if self._end_ms is None:
            return HEARTBEAT_MS
        return max(0, min(HEARTBEAT_MS, self._end_ms - self._clock.monotonic_ms()))

    def one_more(self) -> bool:
        if self.events is None:
            return True
        if self.events == 0:
            return False
        self.events -= 1
        return True


def _events(told: Sequence[Told], wanted: EventFilter, left: _Left) -> list[bytes]:
    said: list[bytes] = []
    for one in told:
        if isinstance(one.what, Silent):
            said.append(
                message(SERVICE_SILENT, {"address": one.what.address, "problem": one.what.problem})
            )
        elif wanted.takes(one.what) and left.one_more():
            said.append(message(STATE_CHANGE, event_object(one.what), one.id))
    return said
