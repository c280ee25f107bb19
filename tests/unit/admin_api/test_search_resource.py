"""The search as a resource of the gateway: parameters, lines, limits and cancellation."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Record
from tidelog_admin_api.dependencies import Gateway
from unit.admin_api.fake_operations import FakeConsumer
from unit.admin_api.fakes import FakeAdmin, FakeCluster, client_of, partition, topic

PATH = "/v1/topics/sea/search"
MAX_TURNS = 1_000


def stored(offset: int, value: bytes) -> Record:
    return Record("sea", 0, offset, 1_000 + offset, b"north", value, (("source", b"gps"),), 3)


@pytest.fixture
def records(fake_cluster: FakeCluster) -> FakeConsumer:
    values = [b'{"tide":"ebb","metres":%d}' % n for n in range(10)]
    fake_cluster.consumer = FakeConsumer([stored(n, value) for n, value in enumerate(values)])
    return fake_cluster.consumer


async def lines_of(gateway: httpx.AsyncClient, **params: Any) -> list[dict[str, Any]]:
    answer = await gateway.get(PATH, params=params)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


async def found(gateway: httpx.AsyncClient, **params: Any) -> list[int]:
    """The offsets of the matches."""
    lines = await lines_of(gateway, **params)
    return [line["record"]["offset"] for line in lines if line["type"] == "match"]


@pytest.mark.parametrize(
    ("params", "offsets"),
    [
        ({"json_path": "metres", "json_equals": "3"}, [3]),
        ({"value_contains": '"metres":7'}, [7]),
        ({"key": "north", "offset": 8}, [8, 9]),
        ({"key_contains": "ort", "before_offset": 1}, [0]),
        ({"header": "source", "header_value": "gps", "timestamp_ms": 1_009}, [9]),
        ({"before_timestamp_ms": 1_002}, [0, 1]),
        ({"key": "south"}, []),
        ({"partition": 0, "max_matches": 1}, [0]),
    ],
)
@pytest.mark.usefixtures("records")
async def test_records_are_found_by_each_criterion_within_the_range(
    gateway: httpx.AsyncClient, params: dict[str, Any], offsets: list[int]
) -> None:
    assert await found(gateway, **params) == offsets


@pytest.mark.usefixtures("records")
async def test_the_lines_are_matches_and_progress_and_an_end(gateway: httpx.AsyncClient) -> None:
    lines = await lines_of(gateway, max_matches=2, encoding="text")
    assert [line["type"] for line in lines] == ["match", "match", "progress", "end"]
    assert lines[0]["record"]["value"] == '{"tide":"ebb","metres":0}'
    end = lines[-1]
    assert (end["reason"], end["cursor"], end["scanned"]) == ("max_matches", "0:2", 2)
    assert lines[2]["before_offset"] == 10
    assert await found(gateway, cursor=end["cursor"], max_matches=3) == [2, 3, 4]


async def test_skipped_records_are_a_line_with_the_error(
    gateway: httpx.AsyncClient, records: FakeConsumer
) -> None:
    records.damaged = [(2, 9)]
    [skipped] = [line for line in await lines_of(gateway) if line["type"] == "skipped"]
    assert (skipped["first_offset"], skipped["next_offset"]) == (2, 9)
    assert skipped["error"]["code"] == "RECORDS_DAMAGED"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"offset": 1, "timestamp_ms": 2}, "exclude each other"),
        ({"before_offset": 1, "before_timestamp_ms": 2}, "exclude each other"),
        ({"header_value": "gps"}, "without header"),
        ({"json_equals": "3"}, "without json_path"),
        ({"json_path": "a..b"}, "json_path: it has no name"),
        ({"cursor": "later"}, "cursor is not one of a search"),
        ({"cursor": "1:0"}, "partition 1 is not one of this search"),
        ({"max_scanned": 0}, "max_scanned"),
    ],
)
async def test_wrong_parameters_are_rejected_before_the_search(
    gateway: httpx.AsyncClient, params: dict[str, Any], message: str
) -> None:
    answer = await gateway.get(PATH, params=params)
    assert answer.status_code == 422
    assert message in answer.json()["detail"]


async def test_an_offset_needs_a_single_partition(
    gateway: httpx.AsyncClient, admin: FakeAdmin, fake_cluster: FakeCluster
) -> None:
    admin.topics = [topic("sea", partition(0), partition(1))]
    answer = await gateway.get(PATH, params={"offset": 3})
    assert answer.status_code == 422
    assert "give one partition" in answer.json()["detail"]
    fake_cluster.consumer = FakeConsumer([stored(n, b"calm") for n in range(5)])
    assert await found(gateway, offset=3, partition=0) == [3, 4]


@pytest.mark.parametrize(
    ("path", "params"), [("/v1/topics/none/search", {}), (PATH, {"partition": [0, 7]})]
)
async def test_an_unknown_topic_or_partition_is_not_found(
    gateway: httpx.AsyncClient, path: str, params: dict[str, Any]
) -> None:
    answer = await gateway.get(path, params=params)
    assert (answer.status_code, answer.json()["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")


async def test_a_search_rejects_head_requests(gateway: httpx.AsyncClient) -> None:
    assert (await gateway.head(PATH)).status_code == 405


class Stalled(FakeConsumer):
    """A consumer that never gets a record."""

    async def poll(self, timeout_ms: int = 0, max_records: int = 0) -> list[Record]:  # noqa: ARG002
        await asyncio.sleep(timeout_ms / 1000)
        return []


class Running:
    """A search that runs until it is cancelled."""

    def __init__(self, client: httpx.AsyncClient, app: FastAPI) -> None:
        self.gateway: Gateway = app.state.gateway
        self.task = asyncio.create_task(client.get(PATH))

    async def until_searches(self, expected: int) -> None:
        for _ in range(MAX_TURNS):
            if self.gateway.usage.searches.total() == expected:
                return
            await asyncio.sleep(0)
        raise AssertionError(f"{self.gateway.usage.searches} searches run, and not {expected}")

    async def cancel(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def stalled_cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.consumer = Stalled([stored(0, b"calm")])
    return cluster


@pytest.mark.parametrize("limit", ["max_searches_per_client", "max_concurrent_searches"])
async def test_the_number_of_running_searches_is_bounded(limit: str) -> None:
    app = stalled_cluster().app(**{limit: 1})
    async with client_of(app) as client:
        running = Running(client, app)
        await running.until_searches(1)
        rejected = await client.get(PATH)
        assert rejected.status_code == 429
        assert f"({limit})" in rejected.json()["detail"]
        assert running.gateway.usage.rejections[limit] == 1
        await running.cancel()
        await running.until_searches(0)
        assert not running.gateway.usage.searches


async def test_a_cancelled_search_ends_and_closes_its_consumer() -> None:
    cluster = stalled_cluster()
    app = cluster.app()
    async with client_of(app) as client:
        running = Running(client, app)
        await running.until_searches(1)
        await running.cancel()
        await running.until_searches(0)
    assert cluster.consumer.is_closed


async def test_a_search_ends_when_the_gateway_stops() -> None:
    app = stalled_cluster().app()
    async with client_of(app) as client:
        running = Running(client, app)
        await running.until_searches(1)
        running.gateway.hub.end_streams()
        answer = await running.task
    end = json.loads(answer.text.splitlines()[-1])
    assert (end["reason"], end["cursor"]) == ("stopping", "0:0")


@pytest.mark.usefixtures("records")
async def test_searches_and_their_records_are_metrics(gateway: httpx.AsyncClient) -> None:
    await lines_of(gateway)
    metrics = (await gateway.get("/metrics")).text.splitlines()
    assert "tidelog_gateway_searched_records_total 10.0" in metrics
    assert "tidelog_gateway_running_searches 0.0" in metrics


async def test_an_unavailable_cluster_is_an_error_and_no_stream(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.rejection = TidelogError(ErrorCode.METADATA_STORE_UNAVAILABLE, "etcd does not answer")
    answer = await gateway.get(PATH)
    assert (answer.status_code, answer.json()["retriable"]) == (503, True)
