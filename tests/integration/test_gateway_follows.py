"""Events and records over the REST gateway of a real cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest_asyncio

from integration.clusters import running_cluster
from integration.topics import new_name
from tidelog_runtime.local.cluster import LocalCluster

PATIENCE_SECONDS = 60.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: Any) -> AsyncIterator[LocalCluster]:
    async with running_cluster(tmp_path_factory.mktemp("follows"), gateway=True) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(cluster: LocalCluster) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        base_url=f"http://{cluster.gateway_address}", timeout=PATIENCE_SECONDS
    ) as client:
        yield client


async def created(gateway: httpx.AsyncClient, what: str) -> str:
    name = new_name(what)
    body = {"topic": name, "partitions": 1, "replication_factor": 3}
    answer = await gateway.post("/v1/topics", json=body)
    assert answer.status_code == 201, answer.text
    return name


async def messages(answer: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """Of an event stream: each message's event, id and data."""
    message: dict[str, Any] = {}
    async for line in answer.aiter_lines():
        name, _, value = line.partition(": ")
        if name:
            message[name] = json.loads(value) if name == "data" else value
        elif "data" in message:
            yield message
            message = {}
        else:
            message = {}


async def first(answer: httpx.Response, **fields: object) -> dict[str, Any]:
    """The first message whose data contain these values."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for message in messages(answer):
            data = message["data"]
            if all(data.get(name) == value for name, value in fields.items()):
                return message
    raise AssertionError(f"the stream ended without {fields}")


async def test_a_stream_sends_events_and_continues_after_a_break(
    gateway: httpx.AsyncClient,
) -> None:
    async with gateway.stream("GET", "/v1/events/stream") as stream:
        topic = await created(gateway, "tide")
        requested = await first(stream, topic=topic, kind="topic_creation", stage="requested")
    again = {"Last-Event-ID": requested["id"]}
    params = {"topic": topic, "kind": "topic_creation"}
    async with gateway.stream("GET", "/v1/events/stream", headers=again, params=params) as stream:
        completed = await first(stream, topic=topic)
    assert completed["data"]["stage"] == "completed"
    listed = (await gateway.get("/v1/events", params=params)).json()
    ids = [event["id"] for event in listed["items"]]
    assert [requested["id"], completed["id"]] == [
        i for i in ids if i in (requested["id"], completed["id"])
    ]
    assert listed["silent"] == []


async def test_records_are_written_and_read_by_scripts(gateway: httpx.AsyncClient) -> None:
    topic = await created(gateway, "log")
    records = f"/v1/topics/{topic}/records"
    values: list[Any] = [{"tide": "ebb"}, "calm", 7, None]
    for acks in ("all", "leader", "none"):
        answer = await gateway.post(
            records,
            json={"records": [{"key": "north", "value": v} for v in values], "acks": acks},
        )
        assert answer.status_code == 200, answer.text
        offsets = [result["offset"] for result in answer.json()["results"]]
        assert (None in offsets) is (acks == "none")

    read = f"/v1/topics/{topic}/partitions/0/records"
    page = (await gateway.get(read, params={"offset": 0, "max_records": 4})).json()
    assert [record["value"] for record in page["items"]] == values
    assert {record["key"] for record in page["items"]} == {"north"}
    latest = (await gateway.get(read, params={"latest": 2})).json()
    assert latest["next_offset"] == latest["end_offset"]
    began_ms = page["items"][0]["timestamp_ms"]
    by_time = (await gateway.get(read, params={"timestamp_ms": began_ms})).json()
    assert by_time["items"][0]["offset"] == 0


async def test_some_records_of_a_request_may_fail(gateway: httpx.AsyncClient) -> None:
    topic = await created(gateway, "part")
    body = {"records": [{"value": 1}, {"value": 2, "partition": 9}]}
    answer = await gateway.post(f"/v1/topics/{topic}/records", json=body)
    written, refused = answer.json()["results"]
    assert (answer.status_code, written["error"]) == (207, None)
    assert refused["error"]["code"] == "UNKNOWN_TOPIC_OR_PARTITION"


async def test_streams_and_the_gateway_end_on_sigterm(
    cluster: LocalCluster, gateway: httpx.AsyncClient
) -> None:
    async with gateway.stream("GET", "/v1/events/stream") as stream:
        received = messages(stream)
        stopping = asyncio.create_task(cluster.gateway_process.stop())
        async with asyncio.timeout(PATIENCE_SECONDS):
            last = [message["event"] async for message in received][-1]
    assert last == "end"
    assert await stopping
    assert cluster.gateway_process.exit_status == 0
    cluster.gateway_process.start()
