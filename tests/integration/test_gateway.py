"""The REST gateway beside a real cluster: its own process, its own port."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpx
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from integration.clusters import running_cluster
from integration.explaining import causes_of, faults_of, text_of, the, tidelog, until_present
from integration.process_limits import without_open_files
from integration.suggested_steps import until_gone, without_standby
from integration.topic_requests import TopicRequest, topic_requests
from integration.waiting import until
from tidelog.inspection.state_reports import Finding
from tidelog_runtime.local.addresses import choose_port
from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.local.process import LocalProcess
from tidelog_runtime.telemetry.metrics.gateway_catalogue import GATEWAY_METRICS

# For requests that wait for the election of a controller.
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


async def test_a_topic_is_created_changed_and_deleted_over_rest(gateway: httpx.AsyncClient) -> None:
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
    rejected = await gateway.put(count, json={"partitions": 1})
    assert (rejected.status_code, rejected.json()["code"]) == (422, "NOT_CONFIRMED")
    fewer = await gateway.put(count, json={"partitions": 1, "confirm": "life"})
    assert fewer.json()["removed"] == 2

    gone = await gateway.delete("/v1/topics/life", params={"confirm": "life"})
    assert gone.json()["pending_brokers"] == []
    assert (await gateway.get("/v1/topics/life")).status_code == 404


async def test_a_partition_is_described_with_every_replica(gateway: httpx.AsyncClient) -> None:
    await created(gateway, "described")

    async def all_report() -> bool:
        description = (await gateway.get("/v1/topics/described/partitions/1")).json()
        roles = sorted(replica["role"] for replica in description["details"])
        return roles == ["follower", "follower", "leader"] and description["log"] is not None

    await until(all_report, "all replicas report their state")


class OtherGateway(NamedTuple):
    address: str
    process: LocalProcess


def other_gateway(cluster: LocalCluster, name: str, taken: set[int], *options: str) -> OtherGateway:
    """Not started yet. `taken`: the ports of other gateways."""
    brokers = ",".join(broker.address for broker in cluster.describe().brokers)
    address = f"127.0.0.1:{choose_port(None, taken=taken, rng=random.Random())}"
    command = [sys.executable, "-m", "tidelog_admin_api", "--listen", address]
    process = LocalProcess(
        name,
        [*command, "--bootstrap", brokers, *options],
        log_path=cluster.directory / f"{name}.log",
        environment={k: v for k, v in os.environ.items() if not k.startswith("TIDELOG_")},
    )
    return OtherGateway(address, process)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def other_gateways(cluster: LocalCluster) -> AsyncIterator[list[OtherGateway]]:
    """Two gateways, which find the controllers by themselves."""
    taken: set[int] = set()
    gateways = [other_gateway(cluster, name, taken) for name in ("gateway-2", "gateway-3")]
    for gateway in gateways:
        gateway.process.start()
    for gateway in gateways:
        await until_announced(cluster, gateway.address)
    yield gateways
    await asyncio.gather(*(gateway.process.stop() for gateway in gateways))


async def gateways_of(cluster: LocalCluster) -> dict[str, str]:
    """Their states by address, as `tidelog cluster describe` shows them."""
    _, output = await tidelog(cluster, "cluster", "describe", "--json")
    return {each["address"]: each["state"] for each in json.loads(output)["gateways"]}


async def until_announced(cluster: LocalCluster, address: str, state: str = "alive") -> None:
    async def check() -> bool:
        return (await gateways_of(cluster)).get(address) == state

    await until(check, f"the gateway at {address} is {state}")


async def _carry_out(cluster: LocalCluster, finding: Finding) -> None:
    """Runs one of the commands that a finding about a gateway suggests."""
    if resume := re.search(r"`kill -CONT (\d+)`", finding.next_step):
        os.kill(int(resume.group(1)), signal.SIGCONT)
        return
    start = re.search(r"`make start PART=([\w-]+)`", finding.next_step)
    assert start, finding.next_step
    # `make start` makes a running `make up` do this.
    cluster.restart(start.group(1))


async def test_paused_and_killed_gateways_are_found_beside_a_dead_standby(
    gateway: httpx.AsyncClient, cluster: LocalCluster, other_gateways: list[OtherGateway]
) -> None:
    """The third gateway and the topics are not blamed, and the suggested steps end the problem."""
    paused, healthy = other_gateways
    await created(gateway, "beside")
    await until_announced(cluster, cluster.gateway_address)
    killed_pid = cluster.gateway_process.pid
    async with without_standby(cluster):
        paused.process.pause()
        await cluster.gateway_process.kill()
        found = await until_present(
            cluster,
            *(("gateway_silent", -1), ("no_standby", -1)),
            containing=(
                f"gateway at {cluster.gateway_address} on {socket.gethostname()} has ended",
                f"gateway at {paused.address} on {socket.gethostname()} is paused",
                f"process {killed_pid},",
                f"process {paused.process.pid},",
            ),
        )
        silent = [finding for finding in found.findings if finding.cause == "gateway_silent"]
        faults = [finding.cause for finding in found.findings if finding.severity != "info"]
        assert faults == ["no_standby", "gateway_silent", "gateway_silent"]
        assert await faults_of(cluster, "beside/0") == []
        for finding in silent:
            assert healthy.address not in finding.summary
            assert f"alive gateways: {healthy.address}" in text_of(finding)
            await _carry_out(cluster, finding)
        await until_gone(cluster, "gateway_silent")
    for address in (cluster.gateway_address, paused.address):
        async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
            assert (await client.get(f"http://{address}/v1/topics/beside")).status_code == 200


async def test_a_gateway_out_of_open_files_is_explained(
    cluster: LocalCluster, other_gateways: list[OtherGateway]
) -> None:
    short, healthy = other_gateways
    pid = short.process.pid
    assert pid is not None
    async with without_standby(cluster):
        with without_open_files(pid, short.address) as limit:
            found = await until_present(
                cluster, ("open_files", -1), ("no_standby", -1), containing=("get no answer",)
            )
            finding = the(found, "open_files")
            faults = {cause for cause, _ in causes_of(found)}
        name = f"the gateway at {short.address} on {socket.gethostname()}"
        assert f"{name} has reached its limit of open files" in finding.summary
        assert f"of {limit:,} are open" in finding.summary
        assert f"limit of open files of {name}" in finding.next_step
        assert "prlimit --pid PID --nofile=" in finding.next_step
        assert healthy.address not in text_of(finding)
        assert "gateway_silent" not in faults
        # The limit was raised, as the finding suggests.
        await until_gone(cluster, "open_files")
    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
        assert (await client.get(f"http://{short.address}/v1/brokers")).status_code == 200


async def test_a_gateway_that_stopped_cleanly_withdraws_its_announcement(
    cluster: LocalCluster, other_gateways: list[OtherGateway]
) -> None:
    address, process = other_gateways[0]
    await process.stop()
    assert (await gateways_of(cluster))[address] == "stopped"


async def test_a_client_at_a_gateway_limit_is_a_finding_and_is_listed(
    gateway: httpx.AsyncClient, cluster: LocalCluster
) -> None:
    narrow = other_gateway(
        cluster,
        "gateway-4",
        set(),
        "--max-requests-per-client",
        "1",
        "--max-concurrent-streams",
        "1",
    )
    narrow.process.start()
    try:
        await until_announced(cluster, narrow.address)
        async with (
            httpx.AsyncClient(base_url=f"http://{narrow.address}", timeout=60) as client,
            client.stream("GET", "/v1/events/stream"),
        ):
            rejected = await client.get("/v1/topics")
            assert (rejected.status_code, rejected.json()["code"]) == (429, "TOO_MANY_REQUESTS")
            found = await until_present(cluster, ("client_limited", -1))
            metrics = (await client.get("/metrics")).text
        [limited] = [f for f in found.findings if f.cause == "client_limited"]
        assert "client 127.0.0.1 has reached max_requests_per_client (1)" in limited.summary
        assert f"the gateway at {narrow.address}" in limited.summary
        name = "tidelog_client_rejected_requests_total"
        assert f'{name}{{limit="max_requests_per_client"}} 1.0' in metrics
        listed = {g["address"]: g for g in (await gateway.get("/v1/gateways")).json()["items"]}
        assert listed[cluster.gateway_address or ""]["limited_clients"] == []
        [client_of_it] = listed[narrow.address]["limited_clients"]
        assert (client_of_it["address"], client_of_it["rejected"]) == ("127.0.0.1", 1)
        assert listed[narrow.address]["state"] == "alive"
    finally:
        await narrow.process.stop()


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
async def test_invalid_input_is_rejected_with_the_message_of_the_cluster(
    gateway: httpx.AsyncClient, body: dict[str, Any], code: str
) -> None:
    answer = await gateway.post("/v1/topics", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert answer.json().get("fix") != ""


@pytest.mark.parametrize("existed", [False, True], ids=["never there", "deleted"])
async def test_every_request_for_an_unknown_topic_is_answered_with_404(
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
    # Events of a deleted topic can be read for as long as they are kept.
    events = ("/v1/events", f"/v1/topics/{topic}/partitions/0/events") if existed else ()
    assert other == dict.fromkeys(events, (200, ""))


async def test_brokers_are_removed_by_an_operation_with_an_address(
    gateway: httpx.AsyncClient,
) -> None:
    rejected = await gateway.post(
        "/v1/brokers/remove", params={"dry_run": True}, json={"broker_ids": [3]}
    )
    assert (rejected.status_code, rejected.json()["code"]) == (409, "NOT_ENOUGH_BROKERS")
    added = await gateway.post("/v1/brokers/add", json={"broker_ids": [1], "operation_id": "again"})
    assert added.status_code in (200, 202)
    operation = added.json()["operation"]
    assert (operation["operation_id"], operation["requested_by"]) == ("again", "ada")
    same = await gateway.post("/v1/brokers/add", json={"broker_ids": [1], "operation_id": "again"})
    assert same.json()["operation"]["requested_at_ms"] == operation["requested_at_ms"]


async def test_all_views_agree_about_a_dead_broker(
    gateway: httpx.AsyncClient, cluster: LocalCluster
) -> None:
    # A broker without replicas is not reported missing.
    await created(gateway, "missed")
    await gateway.get("/v1/cluster/overview")
    await cluster.kill(3)

    async def statuses() -> dict[int, tuple[str, str]]:
        return states_of((await gateway.get("/v1/cluster/overview")).json()["brokers"])

    agreed = {b: ("running", cluster.broker_address(b)) for b in (1, 2)}
    gone = ("gone", cluster.broker_address(3))

    async def seen() -> bool:
        return (await statuses()).get(3) == gone

    await until(seen, "the broker is seen to be gone")
    broker = (await gateway.get("/v1/brokers/3")).json()
    assert broker["process"] is None
    seen_by = {
        "overview": await statuses(),
        "/v1/cluster": states_of((await gateway.get("/v1/cluster")).json()["brokers"]),
        "/v1/brokers": states_of((await gateway.get("/v1/brokers")).json()["items"]),
        "/v1/brokers/3": agreed | states_of([broker]),
    }
    _, listed = await tidelog(cluster, "brokers", "list", "--json")
    seen_by["brokers list"] = states_of(json.loads(listed))
    _, described = await tidelog(cluster, "cluster", "describe", "--json")
    seen_by["cluster describe"] = states_of(json.loads(described)["brokers"])
    assert not {k: v for k, v in seen_by.items() if v != agreed | {3: gone}}
    assert "Broker    3, gone since" in (await tidelog(cluster, "brokers", "describe", "3"))[1]
    assert "broker 3 is gone" in (await tidelog(cluster, "explain"))[1]
    cluster.start_broker(3)
    await cluster.ready()


def states_of(brokers: list[dict[str, Any]]) -> dict[int, tuple[str, str]]:
    return {b["broker_id"]: (b["status"], b["address"]) for b in brokers}


async def test_a_request_follows_a_controller_change(
    gateway: httpx.AsyncClient, cluster: LocalCluster
) -> None:
    active = await cluster.active_controller()
    assert active is not None
    await cluster.kill_controller(active)
    answer = await created(gateway, "followed")
    assert answer.json()["topic_id"]
    cluster.start_controller(active)
    await cluster.ready()


async def test_a_request_in_flight_at_a_killed_controller_is_answered_by_the_next(
    gateway: httpx.AsyncClient, cluster: LocalCluster
) -> None:
    active = await cluster.active_controller()
    assert active is not None
    # The request waits for the start of the replicas there: it is in flight until they start.
    cluster.pause(3)
    creation = asyncio.create_task(created(gateway, "begun"))
    seen: list[str] = []

    async def has_begun() -> bool:
        answer = await gateway.get("/v1/topics/begun")
        seen.extend([answer.json()["topic_id"]] if answer.status_code == 200 else [])
        return bool(seen)

    try:
        await until(has_begun, "the topic is there")
        assert not creation.done()
        await cluster.kill_controller(active)
    finally:
        cluster.resume(3)
    assert (await creation).json()["topic_id"] == seen[0]
    cluster.start_controller(active)
    await cluster.ready()


async def test_the_gateway_serves_its_metrics(gateway: httpx.AsyncClient) -> None:
    families = text_string_to_metric_families((await gateway.get("/metrics")).text)
    names = {family.name for family in families}
    known = {metric.name.removesuffix("_total") for metric in GATEWAY_METRICS}
    assert {"tidelog_gateway_requests", "tidelog_build_info"} <= names
    assert {name for name in names if name.startswith("tidelog_")} <= known


async def test_the_gateway_ends_on_sigterm(cluster: LocalCluster) -> None:
    process = cluster.gateway_process
    assert await process.stop()
    assert process.exit_status == 0
    lines = [json.loads(line) for line in process.log_tail(1_000).splitlines()]
    assert lines[0]["event"] == "admin_api_started"
    assert lines[-1]["event"] == "admin_api_stopped"
