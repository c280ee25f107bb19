"""The overview page of the console."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tidelog.admin_messages import Progress
from tidelog.client.descriptions import PARTITIONS_PER_TURN, TopicDescription
from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.state_reports import Explanation, Finding
from tidelog_admin_api.bodies.cluster_bodies import OverviewPart
from tidelog_admin_api.overview import (
    MAX_UNWELL,
    map_of,
    overview_of,
    summary_of,
)
from tidelog_admin_api.overviews import FIRST_ANSWER_MS, idle_interval_ms
from unit.admin_api.fakes import (
    CLUSTER,
    FakeAdmin,
    FakeCluster,
    broker,
    client_of,
    operation,
    partition,
    topic,
)
from unit.loop_turns import Turns, in_one_turn


def health_of(*topics: TopicDescription, findings: tuple[Finding, ...] = ()) -> str:
    explained = Explanation(findings)
    summary = in_one_turn(summary_of(topics))
    return overview_of(CLUSTER, summary, None, None, explained, {}).health


def test_a_cluster_without_a_fault_is_ok() -> None:
    assert health_of(topic()) == "ok"


def test_a_partition_without_a_leader_is_critical() -> None:
    assert health_of(topic("sea", partition(leader=-1))) == "critical"


def test_a_replica_out_of_sync_is_a_warning() -> None:
    assert health_of(topic("sea", partition(isr=(1, 2)))) == "warning"


def test_findings_of_explain_count_too() -> None:
    found = Finding("store_unreachable", "critical", "etcd does not answer", (), "start it")
    assert health_of(topic(), findings=(found,)) == "critical"


def test_without_answers_health_is_unknown() -> None:
    assert overview_of(None, None, None, None, None, {}).health == "unknown"


async def test_health_becomes_unknown_when_the_cluster_stops_answering() -> None:
    summary = await summary_of([topic()])
    parts = {"topics": OverviewPart(as_of_ms=5, problem="silent")}
    assert overview_of(CLUSTER, summary, None, None, None, parts).health == "unknown"


async def test_the_worst_partitions_are_listed_first_up_to_a_limit() -> None:
    lagging = [partition(number, isr=(1, 2)) for number in range(200)]
    summary = await summary_of([topic("sea", *lagging), topic("sky", partition(leader=-1, isr=()))])
    assert len(summary.unwell) == MAX_UNWELL
    assert summary.unwell[0].topic == "sky"
    assert [p.partition for p in summary.unwell[1:4]] == [0, 1, 2]
    assert summary.counts.under_replicated == 201


async def test_a_summary_and_a_map_of_many_partitions_give_others_a_turn_in_between() -> None:
    wide = [topic("sea", *(partition(n) for n in range(1_000))), topic("sky")]
    async with Turns() as turns:
        for make in (summary_of, map_of):
            turns.taken()
            await make(wide)
            assert turns.taken() >= 1_000 // PARTITIONS_PER_TURN


@pytest.mark.parametrize(
    ("interval_ms", "idle_ms"), [(1_000, 10_000), (9_000, 45_000), (60_000, 80_000)]
)
def test_a_part_that_costs_more_is_refreshed_less_often_while_it_is_not_read(
    interval_ms: int, idle_ms: int
) -> None:
    assert idle_interval_ms(interval_ms) == idle_ms


async def test_a_map_has_every_partition() -> None:
    wide = [topic("sea", *(partition(n) for n in range(1_000))), topic("sky", partition(leader=-1))]
    mapped = await map_of(wide)
    assert [(t.topic, len(t.partitions)) for t in mapped.topics] == [("sea", 1_000), ("sky", 1)]
    assert mapped.topics[1].partitions[0][0] is None


async def test_the_overview_has_all_parts(gateway: httpx.AsyncClient, admin: FakeAdmin) -> None:
    admin.brokers = [broker(), broker(2, status="gone", gone_at_ms=5)]
    body = (await gateway.get("/v1/cluster/overview")).json()
    assert body["cluster_id"] == "cluster-id"
    assert [(b["broker_id"], b["status"]) for b in body["brokers"]] == [(1, "running"), (2, "gone")]
    assert sorted(body["parts"]) == ["brokers", "cluster", "findings", "operations", "topics"]
    assert all(part["problem"] == "" for part in body["parts"].values())


async def test_running_operations_have_their_bytes(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    progress = Progress(3, 1, 1, 0, 3, 1, 0, bytes_to_copy=900, bytes_copied=300)
    admin.operations = [operation(progress=progress), operation(state="done")]
    (body,) = (await gateway.get("/v1/cluster/overview")).json()["operations"]
    assert (body["moves_done"], body["bytes_copied"], body["bytes_to_copy"]) == (1, 300, 900)


async def test_the_overview_is_served_from_memory(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    await gateway.get("/v1/cluster/overview")
    calls = len(admin.calls)
    await gateway.get("/v1/cluster/overview")
    assert len(admin.calls) == calls


async def test_an_unviewed_cluster_is_not_polled(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    await gateway.get("/health")
    assert admin.calls == []


async def test_stale_data_is_refreshed_before_it_is_served(
    fake_cluster: FakeCluster,
) -> None:
    async with client_of(fake_cluster.app()) as client:
        await client.get("/v1/cluster/overview")
        fake_cluster.admin.brokers = [broker(), broker(2)]
        fake_cluster.clock.now_ms += 600_000
        body = (await client.get("/v1/cluster/overview")).json()
    assert len(body["brokers"]) == 2


async def test_an_unanswered_part_delays_no_request(
    fake_cluster: FakeCluster,
) -> None:
    async with client_of(fake_cluster.app()) as client:
        await client.get("/v1/cluster/overview")
        fake_cluster.admin.before_answer = asyncio.Event().wait()
        fake_cluster.clock.now_ms += 600_000
        answer = await client.get("/v1/cluster/overview")
    assert answer.json()["cluster_id"] == "cluster-id"
    assert answer.elapsed.total_seconds() < FIRST_ANSWER_MS / 1_000


async def test_a_failed_part_is_reported_and_the_others_are_served(
    fake_cluster: FakeCluster,
) -> None:
    fake_cluster.admin.rejections["list_operations"] = TidelogError(
        ErrorCode.REQUEST_TIMED_OUT, "no controller"
    )
    async with client_of(fake_cluster.app()) as client:
        body = (await client.get("/v1/cluster/overview")).json()
    assert body["parts"]["operations"] == {"as_of_ms": 0, "problem": "no controller"}
    assert body["counts"]["partitions"] == 1


async def test_the_map_has_leader_and_replicas_of_each_partition(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.topics = [topic("sea", partition(), partition(1, leader=-1, isr=(2,)))]
    body = (await gateway.get("/v1/cluster/partition-map")).json()
    partitions = [[1, [1, 2, 3], [1, 2, 3]], [None, [1, 2, 3], [2]]]
    assert body == {"topics": [{"topic": "sea", "partitions": partitions}]}


async def test_an_unavailable_map_is_a_problem_with_a_cause(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.rejection = TidelogError(ErrorCode.NOT_CONTROLLER, "no controller is active")
    answer = await gateway.get("/v1/cluster/partition-map")
    assert answer.status_code == 503
    assert "no controller is active" in answer.json()["detail"]
