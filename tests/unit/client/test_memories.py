"""How far back the event rings of services reach."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from tidelog.client.event_streams import EventStreams
from tidelog.rpc.event_codec import event_to_wire
from tidelog.rpc.status import UnreachableError
from tidelog.state_changes.event import Kind, Stage
from tidelog.state_changes.tracing import TraceScope
from tidelog.v1 import inspect_pb2 as pb
from unit.state_changes.sample_events import BEGAN_MS, state_change

RING = "127.0.0.1:7501"
EVENT = event_to_wire(state_change(500, "broker-1", Kind.HW_STALLED, Stage.COMPLETED))


class _Ring:
    """A service that only has an event ring. `since_ms`: its oldest event at each request, in
    turn.
    """

    def __init__(self, *since_ms: int) -> None:
        self._since_ms = list(since_ms)
        self.asked: list[pb.WatchEventsRequest] = []

    def broker(self, _: str) -> _Ring:
        return self

    def inspected(self, _: str) -> _Ring:
        return self

    async def metadata(self, *_: object) -> None:
        raise UnreachableError(RING, "it is no broker")

    async def describe_service(self, *_: object) -> None:
        raise UnreachableError(RING, "it reports only what happened")

    async def watch_events(
        self, request: pb.WatchEventsRequest, *_: object
    ) -> AsyncIterator[pb.WatchEventsResponse]:
        self.asked.append(request)
        yield pb.WatchEventsResponse(oldest_kept_ms=self._since_ms.pop(0))
        yield pb.WatchEventsResponse(events=[EVENT])

    async def close(self) -> None:
        pass


async def _memories(*since_ms: int) -> dict[str, int]:
    ring: Any = _Ring(*since_ms)
    async with EventStreams(RING, connections=ring) as streams:
        return (await streams.recent(TraceScope("sea", 0))).memories


async def test_the_memory_of_a_service_begins_with_its_ring() -> None:
    assert await _memories(BEGAN_MS, BEGAN_MS) == {"broker-1": BEGAN_MS}


async def test_the_newest_events_of_a_ring_can_be_requested_alone() -> None:
    ring: Any = _Ring(BEGAN_MS)
    async with EventStreams(RING, connections=ring) as streams:
        await streams.newest(7, kinds=[Kind.HW_STALLED], since_ms=BEGAN_MS)
    kinds = [Kind.HW_STALLED.value]
    assert ring.asked == [
        pb.WatchEventsRequest(kinds=kinds, since_ms=BEGAN_MS, limit=7, skip_unknown_kinds=True)
    ]


async def test_events_evicted_between_two_requests_shorten_the_memory() -> None:
    assert await _memories(BEGAN_MS, BEGAN_MS + 9) == {"broker-1": BEGAN_MS + 9}


async def test_without_a_stated_start_the_oldest_event_counts() -> None:
    assert await _memories(0, 0) == {"broker-1": BEGAN_MS + 500}


async def test_a_returned_event_counts_although_the_clock_went_back() -> None:
    later = BEGAN_MS + 900
    assert await _memories(later, later) == {"broker-1": BEGAN_MS + 500}
