"""/v1/events: past state changes, and a stream of new ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Header, Query
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from tidelog.state_changes.event import Kind
from tidelog_admin_api.bodies.base import MAX_INT64
from tidelog_admin_api.bodies.event_bodies import EventList, event_list
from tidelog_admin_api.config import AdminApiConfig
from tidelog_admin_api.dependencies import EventsDep, GatewayDep, TimelinesDep
from tidelog_admin_api.event_filter import EventFilter, newest
from tidelog_admin_api.event_hub import END, MISSED, Bound, EventSource
from tidelog_admin_api.event_messages import (
    MEDIA_TYPE,
    SERVICE_SILENT,
    STATE_CHANGE,
    time_ms_of,
)
from tidelog_admin_api.json_bodies import JsonRouter
from tidelog_admin_api.limits import Usage, client_of, stream
from tidelog_admin_api.parameters import (
    DEFAULT_EVENTS,
    MAX_QUERY_ENTRIES,
    BeforeMs,
    BrokerQuery,
    EventLimit,
    PartitionQuery,
    SinceMs,
    TopicQuery,
    require_topic,
)
from tidelog_admin_api.problems import READ_PROBLEMS, malformed
from tidelog_admin_api.timelines import Timeline

MAX_STREAMED_EVENTS = 1_000_000
MAX_DURATION_MS = 24 * 3_600_000
MAX_ID_LENGTH = 100

router = JsonRouter(prefix="/v1/events", tags=["events"])

Kinds = Annotated[
    list[Kind] | None,
    Query(max_length=MAX_QUERY_ENTRIES, description="only these kinds; default: all"),
]

# The schema of one event, whose data is JSON in a string.
_EVENT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["data"],
    "properties": {
        "event": {"type": "string", "enum": [STATE_CHANGE, SERVICE_SILENT, MISSED, END]},
        "id": {"type": "string"},
        "data": {"type": "string", "contentMediaType": "application/json"},
        "retry": {"type": "integer"},
    },
}
_EVENT_EXAMPLE = {
    "event": STATE_CHANGE,
    "id": "1767225600123-9f1c2d3e4a5b",
    "data": '{"id":"1767225600123-9f1c2d3e4a5b","time":"2026-01-01T00:00:00.123Z",'
    '"time_ms":1767225600123,"service":"controller-1","kind":"election","stage":"completed",'
    '"topic":"sea","partition":0}',
}


@router.get("", responses=READ_PROBLEMS, response_model_exclude_unset=True)
async def list_events(
    events: EventsDep,
    timelines: TimelinesDep,
    topic: TopicQuery = "",
    partition: PartitionQuery = None,
    broker: BrokerQuery = None,
    kind: Kinds = None,
    since_ms: SinceMs = 0,
    before_ms: BeforeMs = None,
    limit: EventLimit = DEFAULT_EVENTS,
) -> EventList:
    """Lists the newest state changes that services remember, the oldest first.

    The gateway queries all services and names those that do not answer. For a single topic the
    list includes changes of ended services from the topic __state_changes.
    """
    require_topic(topic, partition)
    event_filter = EventFilter(topic, partition, broker, tuple(kind or ()), since_ms, before_ms)
    if topic:
        timeline = await timelines.timeline(event_filter.scope)
    else:
        timeline = await _of_the_cluster(events, event_filter, limit)
    found = await asyncio.to_thread(newest, timeline.events, event_filter, limit)
    return event_list(found, timeline.silent, timeline.notes)


async def _of_the_cluster(events: EventSource, event_filter: EventFilter, limit: int) -> Timeline:
    """Queries services for the newest changes only, if possible: each remembers thousands.

    The query is for one more than `limit`, to find out whether there are older changes.
    """
    if event_filter.broker is None and event_filter.before_ms is None:
        gathered = await events.newest(
            limit + 1, kinds=event_filter.kinds, since_ms=event_filter.since_ms
        )
    else:
        gathered = await events.recent(event_filter.scope)
    return Timeline(gathered.events, gathered.silent, ())


class EventStream(StreamingResponse):
    """A stream, which counts as an open stream from its first byte to its last."""

    media_type = MEDIA_TYPE

    def __init__(self, content: AsyncIterator[bytes], usage: Usage, bounds: AdminApiConfig) -> None:
        super().__init__(content, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._usage = usage
        self._bounds = bounds

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        with stream(self._usage, self._bounds, client_of(scope)):
            await super().__call__(scope, receive, send)


@router.get(
    "/stream",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Server-sent events.",
            "content": {MEDIA_TYPE: {"schema": _EVENT_SCHEMA, "example": _EVENT_EXAMPLE}},
        },
        **READ_PROBLEMS,
    },
)
async def stream_events(
    gateway: GatewayDep,
    topic: TopicQuery = "",
    partition: PartitionQuery = None,
    broker: BrokerQuery = None,
    kind: Kinds = None,
    since_ms: Annotated[
        int,
        Query(
            ge=0,
            le=MAX_INT64,
            description="start with past events since then, in milliseconds since 1970; 0: only "
            "new events",
        ),
    ] = 0,
    limit: Annotated[
        int | None,
        Query(ge=1, le=MAX_STREAMED_EVENTS, description="events to send; default: no limit"),
    ] = None,
    duration_ms: Annotated[
        int | None,
        Query(ge=0, le=MAX_DURATION_MS, description="end after this time; default: no limit"),
    ] = None,
    last_event_id: Annotated[
        str,
        Header(
            alias="Last-Event-ID",
            max_length=MAX_ID_LENGTH,
            description="id of the event after which the stream continues",
        ),
    ] = "",
) -> Response:
    """Streams state changes as server-sent events as they happen.

    - `state_change`: a change, with an id
    - `service_silent`: a service does not answer
    - `missed`: more changes occurred than could be sent
    - `end`: the gateway is stopping

    The gateway sends a comment after 15 seconds without a message. With Last-Event-ID, which
    browsers send when they reconnect, a stream continues where it ended.
    """
    require_topic(topic, partition)
    if last_event_id and time_ms_of(last_event_id) is None:
        raise malformed(
            f"Last-Event-ID: {last_event_id!r} is not the id of an event; pass an id that the "
            "gateway sent, such as 1767225600123-9f1c2d3e4a5b, or omit it"
        )
    event_filter = EventFilter(topic, partition, broker, tuple(kind or ()), since_ms)
    if topic:
        await gateway.dependencies.events.require_known(event_filter.scope, ())
    beginning = await gateway.hub.begin(event_filter, last_event_id)
    sent = gateway.hub.stream(event_filter, beginning, Bound(limit, duration_ms))
    return EventStream(sent, gateway.usage, gateway.config)
