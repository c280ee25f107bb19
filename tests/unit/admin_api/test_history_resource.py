"""GET /v1/history, and the sizes and rates of topics in GET /v1/topics."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tidelog.client.service_states import ReportedStates
from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.state_reports import FollowerProgress, LeaderState, ServiceState
from tidelog_admin_api.dependencies import Gateway
from tidelog_admin_api.history_sampler import (
    LATE_MS,
    MAX_FIGURES_AGE_MS,
    SAMPLE_INTERVAL_MS,
    ClusterFacts,
)
from tidelog_admin_api.overview import summary_of
from unit.admin_api import fakes
from unit.admin_api.fakes import CLUSTER, FakeCluster, client_of, partition, topic
from unit.inspection.test_topic_sizes import broker, replica

FIRST_MS = 1_700_000_001_000


def reports(end: int, now_ms: int, **differs: Any) -> list[ServiceState]:
    """Broker 1 leads sea/0, which ends at `end`; broker 2 lags by 3 records."""
    leader = LeaderState(followers=[FollowerProgress(2, lag_records=3)])
    fields: dict[str, Any] = {"topic_id": "id-of-sea", "log_end_offset": end, "leader": leader}
    led = replica(0, leads=True, **(fields | differs))
    followed = replica(0, leads=False, topic_id="id-of-sea")
    return [broker(n, each, now_ms=now_ms) for n, each in ((1, led), (2, followed), (3, followed))]


class Sampled:
    """A gateway whose samples a test takes, and its client."""

    def __init__(self, cluster: FakeCluster, gateway: Gateway, client: httpx.AsyncClient) -> None:
        self.cluster, self.client = cluster, client
        self.gateway = gateway

    async def take(
        self, end: int, after_ms: int = SAMPLE_INTERVAL_MS, states: list[ServiceState] | None = None
    ) -> None:
        clock = self.cluster.clock
        clock.now_ms += after_ms
        found = reports(end, clock.now_ms) if states is None else states
        self.cluster.states.reported = ReportedStates(found, ())
        topics = self.cluster.admin.topics
        facts = ClusterFacts(CLUSTER, topics, (await summary_of(topics)).counts)
        await self.gateway.sampler.take(facts, SAMPLE_INTERVAL_MS)

    async def read(self, count: int, **params: object) -> dict[str, list[Any]]:
        """The first values of each series. The gateway may take a sample of its own meanwhile."""
        answer = await self.client.get("/v1/history", params=params)  # type: ignore[arg-type]
        answer.raise_for_status()
        return {
            f"{s['name']} {s['broker_id']}" if s["broker_id"] is not None else s["name"]: s[
                "values"
            ][:count]
            for s in answer.json()["series"]
        }


@pytest.fixture
async def sampled(fake_cluster: FakeCluster) -> Any:
    app = fake_cluster.app()
    async with client_of(app) as client:
        yield Sampled(fake_cluster, app.state.gateway, client)


async def test_samples_from_before_the_request_are_returned(sampled: Sampled) -> None:
    await sampled.take(110, after_ms=0)
    await sampled.take(150)
    answer = (await sampled.client.get("/v1/history")).json()
    assert answer["times_ms"][:2] == [FIRST_MS, FIRST_MS + 2_000]
    assert answer["began_ms"] == FIRST_MS
    cluster = await sampled.read(2)
    assert cluster["records_per_second"] == [None, 20]
    assert cluster["under_replicated"] == [0, 0]


async def test_a_topic_has_rates_sizes_and_its_highest_lag(sampled: Sampled) -> None:
    await sampled.take(110)
    await sampled.take(150)
    assert await sampled.read(2, topic="sea") == {
        "records_per_second": [None, 20],
        "bytes_per_second": [None, 0],
        "approximate_records": [100, 140],
        "leader_bytes": [5_000, 5_000],
        "total_bytes": [15_000, 15_000],
        "max_lag_records": [3, 3],
    }


async def test_a_partition_has_the_lag_of_each_replica(sampled: Sampled) -> None:
    await sampled.take(110)
    read = await sampled.read(1, topic="sea", partition=0)
    assert read == {"lag_records 1": [None], "lag_records 2": [3], "lag_records 3": [None]}


async def test_brokers_have_their_figures(sampled: Sampled) -> None:
    await sampled.take(110)
    read = await sampled.read(1, broker=[1, 2])
    assert read["log_bytes 1"] == [5_000]
    assert {name.rpartition(" ")[2] for name in read} == {"1", "2"}


async def test_a_late_sample_follows_a_gap_and_has_no_rate(sampled: Sampled) -> None:
    await sampled.take(110)
    await sampled.take(150, after_ms=SAMPLE_INTERVAL_MS + LATE_MS + 1)
    await sampled.take(170)
    read = await sampled.read(4, topic="sea")
    assert read["records_per_second"] == [None, None, None, 10]
    assert read["approximate_records"] == [100, None, 140, 160]


async def test_a_broker_that_does_not_answer_is_a_gap(sampled: Sampled) -> None:
    await sampled.take(110)
    await sampled.take(150, states=[])
    read = await sampled.read(2, topic="sea")
    assert read["leader_bytes"] == [5_000, None]


async def test_a_failure_between_two_samples_is_in_the_next_one(sampled: Sampled) -> None:
    failed = await summary_of([topic("sea", partition(isr=(1, 2)))])
    sampled.gateway.sampler.note(failed.counts)
    await sampled.take(110)
    await sampled.take(110)
    assert (await sampled.read(2))["under_replicated"] == [1, 0]


async def test_only_newer_samples_are_returned(sampled: Sampled) -> None:
    await sampled.take(110, after_ms=0)
    await sampled.take(150)
    params = {"since_ms": FIRST_MS}
    answer = (await sampled.client.get("/v1/history", params=params)).json()
    assert answer["times_ms"][0] == FIRST_MS + 2_000


@pytest.mark.parametrize(
    ("params", "status", "says"),
    [
        ({"topic": "no-such"}, 404, "no-such"),
        ({"topic": "sea", "partition": 9}, 404, "9"),
        ({"broker": 77}, 404, "77"),
        ({"partition": 0}, 422, "topic"),
        ({"topic": "sea", "broker": 1}, 422, "one of them"),
        ({"broker": list(range(17))}, 422, "broker"),
        ({"since_ms": -1}, 422, "since_ms"),
        ({"topics": "sea"}, 422, "topics"),
    ],
)
async def test_an_unknown_subject_and_a_wrong_parameter_are_rejected(
    gateway: httpx.AsyncClient, params: dict[str, Any], status: int, says: str
) -> None:
    answer = await gateway.get("/v1/history", params=params)
    assert answer.status_code == status
    assert says in str(answer.json())


async def test_what_was_created_after_the_last_refresh_has_no_values_yet(
    fake_cluster: FakeCluster,
) -> None:
    async with client_of(fake_cluster.app()) as client:
        await client.get("/v1/history")
        admin = fake_cluster.admin
        admin.topics = [*admin.topics, topic("new", partition())]
        admin.brokers = [*admin.brokers, fakes.broker(4)]
        subjects: list[dict[str, Any]] = [
            {"topic": "new"},
            {"topic": "new", "partition": 0},
            {"broker": 4},
        ]
        for params in subjects:
            answer = await client.get("/v1/history", params=params)
            assert answer.status_code == 200, answer.json()
            series = answer.json()["series"]
            assert series
            assert {value for each in series for value in each["values"]} <= {None}


async def test_without_an_answer_of_the_cluster_there_is_no_history(
    fake_cluster: FakeCluster,
) -> None:
    down = TidelogError(ErrorCode.REQUEST_TIMED_OUT, "no broker answers")
    fake_cluster.admin.rejections["describe_cluster"] = down
    async with client_of(fake_cluster.app()) as client:
        answer = await client.get("/v1/history")
    assert answer.status_code == 503
    assert "no broker answers" in answer.json()["detail"]


async def test_topics_have_their_sizes_and_rates(sampled: Sampled) -> None:
    await sampled.take(110)
    await sampled.take(150)
    (listed,) = (await sampled.client.get("/v1/topics")).json()["items"]
    described = (await sampled.client.get("/v1/topics/sea")).json()
    figures = listed["figures"]
    assert (figures["approximate_records"], figures["total_bytes"]) == (140, 15_000)
    assert (figures["records_per_second"], figures["partitions_unmeasured"]) == (20, 0)
    assert described["figures"] == figures


async def test_a_topic_that_is_not_sampled_yet_has_no_figures(sampled: Sampled) -> None:
    (listed,) = (await sampled.client.get("/v1/topics")).json()["items"]
    assert listed["figures"] is None


async def test_old_figures_are_not_listed(sampled: Sampled) -> None:
    await sampled.take(110)
    sampled.cluster.clock.now_ms += MAX_FIGURES_AGE_MS + 1
    (listed,) = (await sampled.client.get("/v1/topics")).json()["items"]
    assert listed["figures"] is None


@pytest.mark.parametrize(
    ("replicas", "interval_ms"), [(3, 2_000), (9_000, 9_000), (90_000, 60_000)]
)
async def test_more_replicas_are_sampled_less_often(
    sampled: Sampled, replicas: int, interval_ms: int
) -> None:
    one = replica(0, leads=False)
    many = [broker(1, *([replace(one)] * replicas))]
    await sampled.take(110, states=many)
    assert sampled.gateway.sampler.interval_ms == interval_ms


async def test_the_overview_samples_all_registered_brokers(fake_cluster: FakeCluster) -> None:
    async with client_of(fake_cluster.app()) as client:
        await client.get("/v1/cluster/overview")
        async with asyncio.timeout(30):
            await fake_cluster.states.was_sampled.wait()
    assert fake_cluster.states.asked_brokers[0] == ["127.0.0.1:7501"]
