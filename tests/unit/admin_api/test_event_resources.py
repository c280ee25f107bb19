"""Events and records over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from tidelog.client.event_streams import Silent
from tidelog.client.published_events import Published
from tidelog.model import Record
from tidelog.state_changes.event import Kind
from tidelog.state_changes.tracing import TraceScope
from tidelog_admin_api.dependencies import Gateway
from tidelog_admin_api.event_messages import event_id
from tidelog_admin_api.timelines import FRESH_MS, KEPT_MS, Timelines
from unit.admin_api.fakes import FakeCluster, client_of
from unit.admin_api.test_event_hub import messages, times
from unit.admin_api.test_events_asked_for import change
from unit.admin_api.test_operation_resources import problem_of

MAX_TURNS = 10_000


async def test_the_newest_events_are_listed_oldest_first(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    fake_cluster.events.remembered = [change(time_ms, broker=2) for time_ms in (5, 9, 7, 3)]
    fake_cluster.events.silent = (Silent("127.0.0.1:7502", "it refuses connections"),)
    body = (await gateway.get("/v1/events", params={"limit": 2})).json()
    assert [event["time_ms"] for event in body["items"]] == [7, 9]
    assert body["more"] is True
    assert body["silent"] == [{"address": "127.0.0.1:7502", "problem": "it refuses connections"}]
    assert body["items"][0]["id"] == event_id(change(7, broker=2))
    # One more than the page has, so that the page reports older events.
    assert fake_cluster.events.limits == [3]


async def test_inapplicable_fields_are_omitted(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    fake_cluster.events.remembered = [change(5, broker=2)]
    (event,) = (await gateway.get("/v1/events")).json()["items"]
    assert event.keys() == {"id", "time", "time_ms", "service", "kind", "stage", "broker"}


async def test_the_timeline_of_a_partition_has_its_events_and_those_of_its_topic(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    fake_cluster.events.remembered = [
        change(1, topic="sea", partition=0),
        change(2, topic="sea", partition=1),
        change(3, topic="sea"),
        change(4, topic="sea", partition=0),
    ]
    answer = await gateway.get("/v1/topics/sea/partitions/0/events")
    assert [event["time_ms"] for event in answer.json()["items"]] == [1, 3, 4]


@pytest.mark.parametrize("path", ["topics/sea/partitions/0/events", "events?topic=sea&partition=0"])
async def test_a_timeline_has_events_of_a_service_that_has_ended(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster, path: str
) -> None:
    of_the_dead = change(1, topic="sea", partition=0)
    both, other = change(2, topic="sea"), change(3, topic="sea", partition=1)
    fake_cluster.published.result = Published([of_the_dead, both, other], ("It was cut.",))
    fake_cluster.events.remembered = [both]
    body = (await gateway.get(f"/v1/{path}")).json()
    assert [event["time_ms"] for event in body["items"]] == [1, 2]
    assert body["notes"] == ["It was cut."]


async def test_events_of_the_cluster_do_not_wait_for_the_topic(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    assert (await gateway.get("/v1/events")).json()["notes"] == []
    assert fake_cluster.published.scopes == []


async def test_the_topic_is_read_again_only_occasionally(fake_cluster: FakeCluster) -> None:
    timelines = Timelines(fake_cluster.events, fake_cluster.published.read, fake_cluster.clock)
    for since_last_ms in (0, FRESH_MS, 1):
        fake_cluster.clock.now_ms += since_last_ms
        await timelines.timeline(TraceScope("sea", 0))
        await asyncio.sleep(0)
    await timelines.timeline(TraceScope("sea", 1))
    assert [scope.partition for scope in fake_cluster.published.scopes] == [0, 0, 1]


async def test_a_recent_read_is_served_while_the_topic_is_read_again(
    fake_cluster: FakeCluster,
) -> None:
    published, clock = fake_cluster.published, fake_cluster.clock
    timelines = Timelines(fake_cluster.events, published.read, clock)
    await timelines.timeline(TraceScope("sea", 0))
    published.result, published.may_answer = Published([change(1)], ()), asyncio.Event()
    clock.now_ms += FRESH_MS + 1
    assert (await timelines.timeline(TraceScope("sea", 0))).events == []
    published.may_answer.set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert (await timelines.timeline(TraceScope("sea", 0))).events == [change(1)]


async def test_an_old_read_is_not_served(fake_cluster: FakeCluster) -> None:
    published, clock = fake_cluster.published, fake_cluster.clock
    timelines = Timelines(fake_cluster.events, published.read, clock)
    await timelines.timeline(TraceScope("sea", 0))
    published.result = Published([change(1)], ())
    clock.now_ms += KEPT_MS + 1
    assert (await timelines.timeline(TraceScope("sea", 0))).events == [change(1)]


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"topic": "sea"}, [1]),
        ({"topic": "sea", "partition": 4}, []),
        ({"broker": 2}, [2]),
        ({"kind": ["stop", "create"]}, [3]),
        ({"since_ms": 2}, [2, 3]),
        ({"before_ms": 2}, [1]),
    ],
)
async def test_events_are_filtered_as_requested(
    gateway: httpx.AsyncClient,
    fake_cluster: FakeCluster,
    params: dict[str, Any],
    expected: list[int],
) -> None:
    fake_cluster.events.remembered = [
        change(1, topic="sea", partition=3),
        change(2, broker=2),
        change(3, kind=Kind.STOP),
    ]
    body = (await gateway.get("/v1/events", params=params)).json()
    assert [event["time_ms"] for event in body["items"]] == expected


@pytest.mark.parametrize("path", ["/v1/events", "/v1/events/stream"])
async def test_events_of_an_unknown_topic_are_not_found(
    gateway: httpx.AsyncClient, path: str
) -> None:
    answer = await gateway.get(path, params={"topic": "bay"})
    assert problem_of(answer, 404)["code"] == "UNKNOWN_TOPIC_OR_PARTITION"


async def test_missing_answers_of_services_are_reported(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    fake_cluster.events.is_silent = True
    assert problem_of(await gateway.get("/v1/events"), 503)["code"] == "UNREACHABLE"
    since = {"since_ms": 1, "duration_ms": 0}
    assert problem_of(await gateway.get("/v1/events/stream", params=since), 503)


async def test_a_stream_begins_with_remembered_events_and_ends_as_requested(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    fake_cluster.events.remembered = [change(time_ms) for time_ms in (1, 2, 3)]
    params = {"since_ms": 2, "duration_ms": 0}
    answer = await gateway.get("/v1/events/stream", params=params)
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert answer.headers["Cache-Control"] == "no-store"
    assert times([answer.content]) == [2, 3]


async def test_a_stream_follows_new_events(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    await fake_cluster.events.batches.put([change(1, topic="bay"), change(2, topic="sea")])
    answer = await gateway.get("/v1/events/stream", params={"topic": "sea", "limit": 1})
    assert times([answer.content]) == [2]


async def test_an_interrupted_stream_resumes_after_its_last_event(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    await fake_cluster.events.batches.put([change(1), change(2), change(3)])
    first = await gateway.get("/v1/events/stream", params={"limit": 1})
    last_id = messages([first.content])[-1]["id"]
    second = await gateway.get(
        "/v1/events/stream", params={"limit": 2}, headers={"Last-Event-ID": last_id}
    )
    assert times([first.content, second.content]) == [1, 2, 3]


async def test_an_invalid_event_id_is_rejected(gateway: httpx.AsyncClient) -> None:
    answer = await gateway.get("/v1/events/stream", headers={"Last-Event-ID": "7"})
    assert problem_of(answer, 400)["code"] == "MALFORMED_REQUEST"


class Streaming:
    """A stream that stays open until the gateway stops."""

    def __init__(self, client: httpx.AsyncClient, app: FastAPI) -> None:
        self.gateway: Gateway = app.state.gateway
        self.task = asyncio.create_task(client.get("/v1/events/stream"))

    async def until_open(self) -> None:
        for _ in range(MAX_TURNS):
            if self.gateway.usage.streams:
                return
            await asyncio.sleep(0)
        raise AssertionError("the stream was never opened")


async def test_the_number_of_open_streams_is_bounded() -> None:
    app = FakeCluster().app(max_concurrent_streams=1)
    async with client_of(app) as client:
        streaming = Streaming(client, app)
        await streaming.until_open()
        rejected = await client.get("/v1/events/stream", params={"duration_ms": 0})
        assert problem_of(rejected, 429)["code"] == "TOO_MANY_REQUESTS"
        streaming.gateway.hub.end_streams()
        await streaming.task
        assert streaming.gateway.usage.streams == 0


async def test_streams_end_when_the_gateway_stops() -> None:
    app = FakeCluster().app()
    async with client_of(app) as client:
        streaming = Streaming(client, app)
        await streaming.until_open()
        streaming.gateway.hub.end_streams()
        received = messages([(await streaming.task).content])
    assert [message["event"] for message in received] == ["end"]


async def test_written_records_have_their_partitions_and_offsets(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    records = [
        {"key": "north", "value": {"tide": "ebb"}, "timestamp_ms": 7},
        {"value": "AP8=", "value_encoding": "base64", "partition": 0},
    ]
    answer = await gateway.post("/v1/topics/sea/records", json={"records": records})
    assert answer.status_code == 200, answer.text
    assert [(r["partition"], r["offset"]) for r in answer.json()["results"]] == [(0, 0), (0, 1)]
    (first, second) = fake_cluster.producer.sent
    assert first[:2] == (b'{"tide":"ebb"}', b"north")
    assert first[2]["timestamp_ms"] == 7
    assert (second[0], second[2]["partition"]) == (b"\x00\xff", 0)


def texts(*values: str) -> dict[str, Any]:
    return {"encoding": "text", "records": [{"value": value} for value in values]}


async def test_a_partial_failure_has_an_outcome_for_each_record(
    gateway: httpx.AsyncClient,
) -> None:
    answer = await gateway.post("/v1/topics/sea/records", json=texts("calm", "large", "rejected"))
    assert answer.status_code == 207
    calm, large, rejected = answer.json()["results"]
    assert (calm["offset"], calm["error"]) == (0, None)
    assert (large["offset"], large["error"]["code"]) == (None, "BATCH_TOO_LARGE")
    assert rejected["error"]["retriable"] is True


async def test_a_common_failure_of_all_records_is_the_answer(gateway: httpx.AsyncClient) -> None:
    answer = await gateway.post("/v1/topics/bay/records", json=texts("calm", "calm"))
    assert problem_of(answer, 404)["code"] == "UNKNOWN_TOPIC_OR_PARTITION"


async def test_an_unknown_outcome_is_reported_for_each_record(gateway: httpx.AsyncClient) -> None:
    answer = await gateway.post(
        "/v1/topics/sea/records", json=texts("lost"), params={"timeout_ms": 1}
    )
    (lost,) = answer.json()["results"]
    assert (answer.status_code, lost["error"]["outcome_unknown"]) == (207, True)


async def test_one_invalid_record_rejects_the_whole_request(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    body = {"records": [{"value": 1}, {"value": 1, "value_encoding": "text"}, {"key": 1}]}
    problem = problem_of(await gateway.post("/v1/topics/sea/records", json=body), 422)
    assert [e["field"] for e in problem["errors"]] == ["records[1].value", "records[2].key"]
    assert fake_cluster.producer.sent == []


async def test_records_are_read_as_they_were_written(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    fake_cluster.consumer.records = [
        Record("sea", 0, 0, 1_000, b"north", b'{"tide":"ebb"}', (("a", b"b"),), 3),
        Record("sea", 0, 1, 2_000, b"\xff", b"calm", (), 3),
        Record("sea", 0, 2, 3_000, None, None, (), 3),
    ]
    fake_cluster.consumer.end = 3
    page = (await gateway.get("/v1/topics/sea/partitions/0/records")).json()
    assert (page["next_offset"], page["log_start_offset"], page["end_offset"]) == (3, 0, 3)
    assert [(r["value"], r["value_encoding"]) for r in page["items"]] == [
        ({"tide": "ebb"}, "json"),
        ("calm", "text"),
        (None, "json"),
    ]
    assert [(r["key"], r["key_encoding"]) for r in page["items"]] == [
        ("north", "text"),
        ("/w==", "base64"),
        (None, "text"),
    ]
    assert fake_cluster.consumer.is_closed


@pytest.mark.parametrize(
    ("params", "offsets"),
    [
        ({"offset": 18}, [18, 19]),
        ({"timestamp_ms": 1_017}, [17, 18, 19]),
        ({"latest": 1}, [19]),
        ({}, list(range(10, 20))),
        ({"offset": 10, "max_records": 2}, [10, 11]),
        ({"offset": 10, "key": "odd", "max_records": 2}, [11, 13]),
    ],
)
async def test_records_are_read_from_the_requested_position(
    gateway: httpx.AsyncClient,
    fake_cluster: FakeCluster,
    params: dict[str, Any],
    offsets: list[int],
) -> None:
    fake_cluster.consumer.records = [
        Record("sea", 0, n, 1_000 + n, b"odd" if n % 2 else b"even", b"calm", (), 3)
        for n in range(5, 20)
    ]
    fake_cluster.consumer.start, fake_cluster.consumer.end = 5, 20
    answer = await gateway.get("/v1/topics/sea/partitions/0/records", params=params)
    assert [record["offset"] for record in answer.json()["items"]] == offsets


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"offset": 1, "latest": 2}, 422),
        ({"offset": 99}, 422),
        ({"latest": 0}, 422),
        ({"max_bytes": 2**40}, 422),
        ({"encoding": "xml"}, 422),
    ],
)
async def test_an_impossible_read_is_rejected(
    gateway: httpx.AsyncClient, params: dict[str, Any], status: int
) -> None:
    answer = await gateway.get("/v1/topics/sea/partitions/0/records", params=params)
    problem_of(answer, status)
