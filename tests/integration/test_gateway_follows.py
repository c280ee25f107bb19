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
from integration.waiting import until
from tidelog.client.partitioner import partition_for_key
from tidelog_runtime.local.cluster import LocalCluster

PATIENCE_SECONDS = 60.0
# Of two partitions.
KEY_OF_PARTITION_1 = next(
    key for key in map(str, range(100)) if partition_for_key(key.encode(), 2) == 1
)


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


async def written(gateway: httpx.AsyncClient, count: int) -> str:
    """A topic with so many records in its partition 0, whose value is their number."""
    topic = await created(gateway, "pages")
    for begin in range(0, count, 1_000):
        values = [{"n": n} for n in range(begin, min(begin + 1_000, count))]
        records = [{"key": f"buoy-{v['n'] % 7}", "value": v} for v in values]
        answer = await gateway.post(f"/v1/topics/{topic}/records", json={"records": records})
        assert answer.status_code == 200, answer.text
    return topic


async def test_pages_of_records_lead_from_the_newest_to_the_oldest(
    gateway: httpx.AsyncClient,
) -> None:
    topic = await written(gateway, 25)
    path: str | None = f"/v1/topics/{topic}/partitions/0/records?latest=10"
    pages = []
    while path is not None:
        page = (await gateway.get(path)).json()
        pages.append([record["value"]["n"] for record in page["items"]])
        path = page["previous"]
    assert pages == [[*range(15, 25)], [*range(5, 15)], [*range(5)]]
    following = (await gateway.get(page["next"])).json()
    assert [record["offset"] for record in following["items"]] == pages[1]


async def test_a_single_record_is_read_or_not_found(gateway: httpx.AsyncClient) -> None:
    topic = await written(gateway, 3)
    records = f"/v1/topics/{topic}/partitions/0/records"
    assert (await gateway.get(f"{records}/2")).json()["value"] == {"n": 2}
    missing = await gateway.get(f"{records}/3")
    assert (missing.status_code, missing.json()["code"]) == (404, "NO_SUCH_RECORD")
    assert "its records are at offsets 0 to 2" in missing.json()["detail"]


async def test_a_search_finds_records_and_continues_from_its_cursor(
    gateway: httpx.AsyncClient,
) -> None:
    topic = await written(gateway, 2_500)
    search = f"/v1/topics/{topic}/search"

    async def lines(**params: Any) -> list[dict[str, Any]]:
        answer = await gateway.get(search, params=params)
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]

    found = await lines(json_path="n", json_equals="2400")
    assert [line["record"]["offset"] for line in found if line["type"] == "match"] == [2_400]
    assert (found[-1]["reason"], found[-1]["scanned"]) == ("complete", 2_500)
    first = await lines(key="buoy-3", max_matches=200)
    rest = await lines(key="buoy-3", cursor=first[-1]["cursor"], max_matches=1_000)
    offsets = [line["record"]["offset"] for line in first + rest if line["type"] == "match"]
    assert offsets == list(range(3, 2_500, 7))


async def test_a_search_ends_when_its_client_closes_the_connection(
    gateway: httpx.AsyncClient,
) -> None:
    topic = await written(gateway, 2_500)
    running = "tidelog_gateway_running_searches"
    params = {"max_matches": 1_000, "max_scanned": 1_000_000}
    async with gateway.stream("GET", f"/v1/topics/{topic}/search", params=params) as search:
        assert json.loads(await anext(search.aiter_lines()))["type"] == "match"

    async def has_ended() -> bool:
        return f"{running} 0.0" in (await gateway.get("/metrics")).text.splitlines()

    await until(has_ended, "no search is running")


async def test_some_records_of_a_request_may_fail(gateway: httpx.AsyncClient) -> None:
    topic = await created(gateway, "part")
    body = {"records": [{"value": 1}, {"value": 2, "partition": 9}]}
    answer = await gateway.post(f"/v1/topics/{topic}/records", json=body)
    written, rejected = answer.json()["results"]
    assert (answer.status_code, written["error"]) == (207, None)
    assert rejected["error"]["code"] == "UNKNOWN_TOPIC_OR_PARTITION"


async def sent_record(gateway: httpx.AsyncClient, topic: str, **request: Any) -> httpx.Response:
    body = {"records": [{"key": KEY_OF_PARTITION_1, "value": "x"}], **request}
    return await gateway.post(f"/v1/topics/{topic}/records", json=body)


async def test_a_running_producer_of_the_gateway_uses_added_partitions(
    gateway: httpx.AsyncClient,
) -> None:
    topic = await created(gateway, "grows")
    before = (await sent_record(gateway, topic)).json()["results"]
    assert [result["partition"] for result in before] == [0]
    count = await gateway.put(f"/v1/topics/{topic}/partition-count", json={"partitions": 2})
    assert count.json()["added"] == 1

    async def arrives_there() -> bool:
        answer = await sent_record(gateway, topic)
        assert answer.status_code == 200, answer.text
        return answer.json()["results"][0]["partition"] == 1  # type: ignore[no-any-return]

    await until(arrives_there, "the gateway's producer knows of the second partition")
    read = f"/v1/topics/{topic}/partitions/1/records"
    page = (await gateway.get(read, params={"offset": 0})).json()
    assert [(record["key"], record["value"]) for record in page["items"]] == [
        (KEY_OF_PARTITION_1, "x")
    ]


async def test_a_topic_that_the_gateways_producers_knew_is_missing_once_it_is_deleted(
    gateway: httpx.AsyncClient,
) -> None:
    topic = await created(gateway, "gone")
    for acks in ("all", "leader"):
        assert (await sent_record(gateway, topic, acks=acks)).status_code == 200
    await gateway.delete(f"/v1/topics/{topic}", params={"confirm": topic})
    # The first request already: none waits until a record's time ends.
    for acks in ("all", "leader"):
        answer = await sent_record(gateway, topic, acks=acks)
        assert (answer.status_code, answer.json()["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")


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
