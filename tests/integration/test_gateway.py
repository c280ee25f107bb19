"""The REST gateway beside a real cluster: its own process, its own port."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from integration.clusters import running_cluster
from integration.explaining import faults_of, until_found
from integration.topic_requests import TopicRequest, topic_requests
from integration.waiting import until
from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.telemetry.metrics.gateway_catalogue import GATEWAY_METRICS

# Of requests that wait for a controller to be elected.
PATIENCE_SECONDS = 60.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    async with running_cluster(tmp_path_factory.mktemp("gateway"), gateway=True) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(cluster: LocalCluster) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        base_url=f"http://{cluster.gateway_address}",
        timeout=PATIENCE_SECONDS,
        headers={"X-Tidelog-Requested-By": "ada"},
    ) as client:
        yield client


async def created(gateway: httpx.AsyncClient, name: str, **body: Any) -> httpx.Response:
    answer = await gateway.post(
        "/v1/topics", json={"topic": name, "partitions": 2, "replication_factor": 3, **body}
    )
    assert answer.status_code == 201, answer.text
    return answer


async def test_the_gateway_is_ready_beside_its_cluster(
    gateway: httpx.AsyncClient, cluster: LocalCluster
) -> None:
    ready = (await gateway.get("/ready")).json()
    assert (ready["status"], ready["brokers"]) == ("ready", 3)
    content = json.loads((cluster.directory / "cluster.json").read_text())
    assert content["gateway"]["address"] == cluster.gateway_address


async def test_a_topic_lives_its_whole_life_over_rest(gateway: httpx.AsyncClient) -> None:
    plan = await gateway.post(
        "/v1/topics", params={"dry_run": True}, json={"topic": "life", "partitions": 2}
    )
    placed = plan.json()["assignment"]
    assert len(placed) == 2
    assert (await gateway.get("/v1/topics/life")).status_code == 404
    answer = await created(gateway, "life", assignment=placed)
    assert answer.json()["pending_brokers"] == []

    topic = await gateway.get(answer.headers["location"])
    read = {"If-Match": topic.headers["etag"]}
    changed = await gateway.patch(
        "/v1/topics/life/config", json={"set": {"retention_ms": 60_000}}, headers=read
    )
    assert changed.json()["changes"][0]["after"] == "60000"
    stale = await gateway.patch(
        "/v1/topics/life/config", json={"set": {"retention_ms": 70_000}}, headers=read
    )
    assert (stale.status_code, stale.json()["code"]) == (412, "REVISION_CONFLICT")

    count = "/v1/topics/life/partition-count"
    assert (await gateway.put(count, json={"partitions": 3})).json()["added"] == 1
    refused = await gateway.put(count, json={"partitions": 1})
    assert (refused.status_code, refused.json()["code"]) == (422, "NOT_CONFIRMED")
    fewer = await gateway.put(count, json={"partitions": 1, "confirm": "life"})
    assert fewer.json()["removed"] == 2

    gone = await gateway.delete("/v1/topics/life", params={"confirm": "life"})
    assert gone.json()["pending_brokers"] == []
    assert (await gateway.get("/v1/topics/life")).status_code == 404


async def test_a_partition_is_told_with_every_replica(gateway: httpx.AsyncClient) -> None:
    await created(gateway, "told")

    async def all_tell() -> bool:
        told = (await gateway.get("/v1/topics/told/partitions/1")).json()
        roles = sorted(replica["role"] for replica in told["details"])
        return roles == ["follower", "follower", "leader"] and told["log"] is not None

    await until(all_tell, "all replicas tell how they stand")


async def test_a_paused_gateway_is_no_fault_of_the_cluster_and_serves_when_it_is_resumed(
    gateway: httpx.AsyncClient, cluster: LocalCluster
) -> None:
    """The second fault is named, and nothing else is blamed."""
    await created(gateway, "beside")
    active = await cluster.active_controller()
    standby = next(number for number in (1, 2) if number != active)
    cluster.gateway_process.pause()
    try:
        with pytest.raises(httpx.TimeoutException):
            await gateway.get("/health", timeout=1.0)
        await cluster.kill_controller(standby)
        found = await until_found(cluster, ("no_standby", -1))
        assert [f.cause for f in found.findings if f.severity != "info"] == ["no_standby"]
        assert await faults_of(cluster, "beside/0") == []
        cluster.start_controller(standby)
    finally:
        cluster.gateway_process.resume()
    assert (await gateway.get("/v1/topics/beside")).status_code == 200
    await cluster.ready()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"topic": "no spaces"}, "INVALID_TOPIC_NAME"),
        ({"topic": "t" * 300}, "INVALID_TOPIC_NAME"),
        ({"topic": "t", "partitions": 0}, "INVALID_PARTITION_COUNT"),
        ({"topic": "t", "replication_factor": 9}, "INVALID_REPLICATION_FACTOR"),
        ({"topic": "t", "config": {"retention": 1}}, "INVALID_CONFIG"),
        ({"topic": "t", "assignment": [[1, 1]]}, "INVALID_ASSIGNMENT"),
    ],
)
async def test_bad_input_is_refused_in_the_words_of_the_cluster(
    gateway: httpx.AsyncClient, body: dict[str, Any], code: str
) -> None:
    answer = await gateway.post("/v1/topics", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert answer.json()["fix"]


@pytest.mark.parametrize("existed", [False, True], ids=["never there", "deleted"])
async def test_every_request_for_a_topic_that_does_not_exist_is_answered_with_404(
    gateway: httpx.AsyncClient, existed: bool
) -> None:
    topic = "deleted" if existed else "never"
    if existed:
        await created(gateway, topic)
        record = {"records": [{"value": "in the gateway's cache"}]}
        assert (await gateway.post(f"/v1/topics/{topic}/records", json=record)).status_code == 200
        await gateway.delete(f"/v1/topics/{topic}", params={"confirm": topic})
    requests = topic_requests((await gateway.get("/openapi.json")).json(), topic)

    async def answer(request: TopicRequest) -> tuple[int, str]:
        found = await gateway.request(
            request.method,
            request.path,
            params=request.params,
            headers=request.headers,
            json=request.body,
        )
        problem = found.json() if found.status_code >= 400 else {}
        return found.status_code, problem.get("code", "")

    answers = await asyncio.gather(*map(answer, requests))
    assert {request.method for request in requests} >= {"GET", "POST", "PUT", "PATCH", "DELETE"}
    other = {
        request.path: found
        for request, found in zip(requests, answers, strict=True)
        if found != (404, "UNKNOWN_TOPIC_OR_PARTITION")
    }
    # What happened to a deleted topic can be read for as long as events are kept.
    events = ("/v1/events", f"/v1/topics/{topic}/partitions/0/events") if existed else ()
    assert other == dict.fromkeys(events, (200, ""))


async def test_brokers_are_removed_by_an_operation_with_an_address(
    gateway: httpx.AsyncClient,
) -> None:
    refused = await gateway.post(
        "/v1/brokers/remove", params={"dry_run": True}, json={"broker_ids": [3]}
    )
    assert (refused.status_code, refused.json()["code"]) == (409, "NOT_ENOUGH_BROKERS")
    added = await gateway.post("/v1/brokers/add", json={"broker_ids": [1], "operation_id": "again"})
    assert added.status_code in (200, 202)
    operation = added.json()["operation"]
    assert (operation["operation_id"], operation["requested_by"]) == ("again", "ada")
    same = await gateway.post("/v1/brokers/add", json={"broker_ids": [1], "operation_id": "again"})
    assert same.json()["operation"]["requested_at_ms"] == operation["requested_at_ms"]


async def test_a_dead_broker_is_seen_in_the_overview(
    gateway: httpx.AsyncClient, cluster: LocalCluster
) -> None:
    await gateway.get("/v1/cluster/overview")
    await cluster.kill(3)

    async def statuses() -> dict[int, str]:
        told = (await gateway.get("/v1/cluster/overview")).json()
        return {b["broker_id"]: b["status"] for b in told["brokers"]}

    async def seen() -> bool:
        return (await statuses()).get(3) == "gone"

    await until(seen, "the broker is seen to be gone")
    broker = (await gateway.get("/v1/brokers/3")).json()
    assert broker["process"] is None
    cluster.start_broker(3)
    await cluster.ready()


async def test_a_change_of_controller_in_mid_request_is_followed(
    gateway: httpx.AsyncClient, cluster: LocalCluster
) -> None:
    active = await cluster.active_controller()
    assert active is not None
    await cluster.kill_controller(active)
    answer = await created(gateway, "followed")
    assert answer.json()["topic_id"]
    cluster.start_controller(active)
    await cluster.ready()


async def test_what_a_controller_has_begun_when_it_is_killed_is_answered_by_the_next(
    gateway: httpx.AsyncClient, cluster: LocalCluster
) -> None:
    active = await cluster.active_controller()
    assert active is not None
    # It waits for the start of the replicas there: the request is in flight until they do.
    cluster.pause(3)
    asked = asyncio.create_task(created(gateway, "begun"))
    seen: list[str] = []

    async def has_begun() -> bool:
        answer = await gateway.get("/v1/topics/begun")
        seen.extend([answer.json()["topic_id"]] if answer.status_code == 200 else [])
        return bool(seen)

    try:
        await until(has_begun, "the topic is there")
        assert not asked.done()
        await cluster.kill_controller(active)
    finally:
        cluster.resume(3)
    assert (await asked).json()["topic_id"] == seen[0]
    cluster.start_controller(active)
    await cluster.ready()


async def test_it_measures_itself(gateway: httpx.AsyncClient) -> None:
    families = text_string_to_metric_families((await gateway.get("/metrics")).text)
    names = {family.name for family in families}
    known = {metric.name.removesuffix("_total") for metric in GATEWAY_METRICS}
    assert {"tidelog_gateway_requests", "tidelog_build_info"} <= names
    assert {name for name in names if name.startswith("tidelog_")} <= known


async def test_it_ends_when_it_is_asked_to(cluster: LocalCluster) -> None:
    process = cluster.gateway_process
    assert await process.stop()
    assert process.exit_status == 0
    lines = [json.loads(line) for line in process.log_tail(1_000).splitlines()]
    assert lines[0]["event"] == "admin_api_started"
    assert lines[-1]["event"] == "admin_api_stopped"
