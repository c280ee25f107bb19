"""Event streams: where they begin, how they continue, and how they end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, cast

import pytest

from tidelog.client.event_streams import Silent
from tidelog.rpc.status import UnreachableError
from tidelog.state_changes.event import StateChange
from tidelog_admin_api.event_filter import EventFilter
from tidelog_admin_api.event_hub import (
    HEARTBEAT_MS,
    MAX_EVENTS_BEFORE,
    RESUME_OVERLAP_MS,
    Beginning,
    Bound,
    EventHub,
)
from tidelog_admin_api.event_messages import HEARTBEAT, OPENING, EventRing, event_id
from unit.admin_api.fake_operations import FakeEvents
from unit.admin_api.test_events_asked_for import change

NOW_MS = 1_000_000
ALL = EventFilter()
FROM_THE_FIRST = Beginning(0)


class ManualClock:
    """A clock that advances only when `now_ms` is set."""

    def __init__(self) -> None:
        self.now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return NOW_MS


async def messages_of(
    hub: EventHub,
    event_filter: EventFilter = ALL,
    beginning: Beginning = FROM_THE_FIRST,
    events: int | None = None,
    duration_ms: int | None = 0,
) -> list[bytes]:
    """All messages of a stream that ends by itself, without its opening."""
    stream = hub.stream(event_filter, beginning, Bound(events, duration_ms))
    opening, *reported = [piece async for piece in stream]
    assert opening == OPENING
    return reported


def messages(pieces: Sequence[bytes]) -> list[dict[str, Any]]:
    """The event, id and data of each message."""
    found = []
    for text in b"".join(pieces).decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in text.split("\n") if line[:1] not in ("", ":"))
        if "data" in fields:
            fields["data"] = json.loads(fields["data"])
            found.append(fields)
    return found


def times(pieces: Sequence[bytes]) -> list[int]:
    return [m["data"]["time_ms"] for m in messages(pieces) if m["event"] == "state_change"]


def hub_of(changes: Sequence[StateChange | Silent], max_kept: int = 1_000) -> EventHub:
    """A hub that has received these events and gets no others."""
    ring = EventRing(max_kept)
    ring.add(changes)
    return EventHub(FakeEvents(), ManualClock(), ring)


async def test_an_event_is_sent_with_its_id_and_all_its_fields() -> None:
    event = change(7, topic="sea", partition=3)
    (sent,) = messages(await messages_of(hub_of([event]), events=1))
    assert (sent["event"], sent["id"]) == ("state_change", event_id(event))
    assert sent["data"]["topic"] == "sea"
    assert sent["data"]["id"] == sent["id"]


async def test_a_stream_has_only_requested_events() -> None:
    hub = hub_of([change(1, topic="sea"), change(2, topic="bay"), change(3, topic="sea")])
    assert times(await messages_of(hub, EventFilter(topic="sea"), events=2)) == [1, 3]


async def test_a_stream_ends_after_the_requested_number_of_events() -> None:
    hub = hub_of([change(1), change(2), change(3)])
    assert times(await messages_of(hub, events=2, duration_ms=None)) == [1, 2]


async def test_a_silent_service_is_reported() -> None:
    hub = hub_of([Silent("127.0.0.1:7501", "it refuses connections"), change(1)])
    first, _ = messages(await messages_of(hub, events=1))
    assert first["event"] == "service_silent"
    assert first["data"] == {"address": "127.0.0.1:7501", "problem": "it refuses connections"}


async def test_a_slow_reader_is_informed_how_many_events_it_missed() -> None:
    hub = hub_of([change(time_ms) for time_ms in range(100)], max_kept=10)
    missed, *rest = messages(await messages_of(hub, events=10))
    assert (missed["event"], missed["data"]) == ("missed", {"events": 90})
    assert len(rest) == 10


async def test_an_idle_stream_sends_heartbeats() -> None:
    hub = EventHub(FakeEvents(), ManualClock(), heartbeat_ms=0)
    async with aclosing(endless(hub)) as stream:
        assert [await anext(stream) for _ in range(3)] == [OPENING, HEARTBEAT, HEARTBEAT]


async def test_filtered_events_do_not_suppress_heartbeats() -> None:
    clock, ring = ManualClock(), EventRing()
    hub = EventHub(FakeEvents(), clock, ring)
    stream = hub.stream(EventFilter(topic="sea"), Beginning(0), Bound())
    assert await anext(stream) == OPENING
    following = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    clock.now_ms += HEARTBEAT_MS
    ring.add([change(1, topic="bay")])
    hub._notify()
    assert await following == HEARTBEAT


def endless(hub: EventHub, position: int = 0) -> AsyncGenerator[bytes]:
    stream: AsyncIterator[bytes] = hub.stream(EventFilter(), Beginning(position), Bound())
    return cast("AsyncGenerator[bytes]", stream)


async def test_an_event_reaches_every_stream_at_once() -> None:
    source = FakeEvents()
    hub = EventHub(source, ManualClock())
    beginning = await hub.begin(EventFilter())
    streams = [endless(hub, beginning.position) for _ in range(3)]
    for stream in streams:
        assert await anext(stream) == OPENING
    coming = [asyncio.ensure_future(anext(stream)) for stream in streams]
    await source.batches.put([change(5)])
    assert [times([await piece]) for piece in coming] == [[5], [5], [5]]
    assert len(source.followed) == 1
    await hub.close()


async def test_a_stopping_gateway_ends_every_stream_with_a_message() -> None:
    hub = EventHub(FakeEvents(), ManualClock())
    stream = endless(hub)
    assert await anext(stream) == OPENING
    last = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    hub.end_streams()
    assert [message["event"] for message in messages([await last])] == ["end"]
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert messages(await messages_of(hub, duration_ms=None))[0]["event"] == "end"


async def test_following_continues_after_an_internal_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidelog_admin_api.event_hub.RESTART_PAUSE_MS", 0)
    source = FakeEvents()
    hub = EventHub(source, ManualClock())
    beginning = await hub.begin(EventFilter())
    await source.batches.put(RuntimeError("planted"))
    await source.batches.put([change(5)])
    received = await messages_of(hub, beginning=beginning, events=1, duration_ms=None)
    assert times(received) == [5]
    await hub.close()


async def test_a_stream_begins_with_new_events() -> None:
    hub = hub_of([change(1), change(2)])
    assert await hub.begin(EventFilter()) == Beginning(2)
    await hub.close()


async def test_a_stream_from_a_time_begins_with_remembered_events() -> None:
    source = FakeEvents()
    source.remembered = [change(30, topic="sea"), change(10), change(20)]
    hub = EventHub(source, ManualClock())
    beginning = await hub.begin(EventFilter(since_ms=15))
    await source.batches.put([change(20), change(40)])
    received = await messages_of(hub, beginning=beginning, events=3, duration_ms=None)
    # A remembered event that is also received is sent once.
    assert times(received) == [20, 30, 40]
    await hub.close()


async def test_an_interrupted_stream_resumes_after_its_last_event() -> None:
    hub = hub_of([change(1), change(2), change(3)])
    assert await hub.begin(EventFilter(), event_id(change(2))) == Beginning(2)
    await hub.close()


async def test_a_stream_whose_last_event_is_gone_repeats_recent_events() -> None:
    source = FakeEvents()
    last = change(100_000)
    late = change(last.time_ms - RESUME_OVERLAP_MS)
    source.remembered = [change(last.time_ms - RESUME_OVERLAP_MS - 1), late, last, change(100_001)]
    hub = EventHub(source, ManualClock())
    beginning = await hub.begin(EventFilter(), event_id(last))
    assert beginning.before == [late, change(100_001)]
    await hub.close()


async def test_a_stream_with_too_large_a_backlog_reports_how_many_events_are_missing() -> None:
    source = FakeEvents()
    source.remembered = [change(time_ms) for time_ms in range(1, MAX_EVENTS_BEFORE + 8)]
    hub = EventHub(source, ManualClock())
    received = await messages_of(hub, beginning=await hub.begin(EventFilter(since_ms=1)), events=1)
    assert messages(received)[0]["data"] == {"events": 7}
    await hub.close()


async def test_a_stream_from_the_past_needs_a_service_that_answers() -> None:
    source = FakeEvents()
    source.is_silent = True
    hub = EventHub(source, ManualClock())
    with pytest.raises(UnreachableError):
        await hub.begin(EventFilter(since_ms=1))
    await hub.close()
