"""Bodies of state changes, which all services report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field
from pydantic.config import JsonDict

from tidelog.client.event_streams import Silent
from tidelog_admin_api.bodies.base import AnswerBody, example
from tidelog_admin_api.event_filter import Newest
from tidelog_admin_api.event_messages import event_id, event_object

_EVENT: JsonDict = {
    "id": "1767225600123-9f1c2d3e4a5b",
    "time": "2026-01-01T00:00:00.123Z",
    "time_ms": 1_767_225_600_123,
    "service": "controller-1",
    "kind": "election",
    "stage": "completed",
    "cause": "broker_crashed",
    "change_id": "c1-17",
    "topic": "sea",
    "topic_id": "0TQ1sZ0QTeSyBWq3kKMI3Q",
    "partition": 0,
    "leader_epoch": 5,
    "revision": 4711,
    "duration_ms": 12,
    "details": {"leader": 1, "leader_before": 2},
}


class Event(AnswerBody):
    """One stage of one state change. Fields that do not apply are absent."""

    model_config = example(**_EVENT)

    id: str = Field(description="id of the event, the same in all answers of all gateways")
    time: str = Field(description="UTC, with milliseconds")
    time_ms: int = Field(description="milliseconds since 1970, by the clock of `service`")
    service: str = Field(description="service that reports the event, such as controller-1")
    kind: str
    stage: str = Field(description="requested, received, completed, failed, ignored, acknowledged")
    cause: str | None = None
    change_id: str | None = Field(default=None, description="the same for all stages of a change")
    topic: str | None = None
    topic_id: str | None = None
    partition: int | None = None
    broker: int | None = Field(default=None, description="broker that the event is about")
    broker_epoch: int | None = None
    controller_epoch: int | None = None
    leader_epoch: int | None = None
    revision: int | None = Field(default=None, description="revision of the metadata store")
    duration_ms: int | None = Field(
        default=None, description="milliseconds since the change was requested"
    )
    trace_id: str | None = None
    details: dict[str, Any] | None = None


class SilentService(AnswerBody):
    address: str
    problem: str


class EventList(AnswerBody):
    """State changes in order of time, the oldest first."""

    model_config = example(items=[_EVENT], more=False, silent=[], notes=[])

    items: list[Event]
    more: bool = Field(
        description="true: there are older events; their before_ms is the time of the first item"
    )
    silent: list[SilentService] = Field(
        description="services that did not answer; events that only they remember are missing"
    )
    notes: list[str] = Field(
        description="what could not be read from the topic __state_changes, which holds events of "
        "ended services, and why; for people"
    )


def event_list(found: Newest, silent: Sequence[Silent], notes: Sequence[str] = ()) -> EventList:
    return EventList(
        items=[
            Event.model_validate(event_object(change, event_id(change))) for change in found.changes
        ],
        more=found.left_out > 0,
        silent=[SilentService.model_validate(service) for service in silent],
        notes=list(notes),
    )
