"""/v1/brokers/scrub."""

from __future__ import annotations

from dataclasses import asdict, replace

import httpx
import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc.status import UnreachableError
from tidelog_admin_api.resources.scrub import MAX_CONCURRENT_CALLS
from unit.admin_api.fakes import NO_PASS, FakeAdmin, FakeCluster, broker

ONE, TWO = "127.0.0.1:7501", "127.0.0.1:7502"


@pytest.fixture(autouse=True)
def brokers(admin: FakeAdmin) -> None:
    admin.brokers = [broker(1), broker(2), broker(3, status="gone", gone_at_ms=5, address="a:3")]


async def test_each_running_broker_reports_its_scrub(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    found = replace(NO_PASS, damage_found=2)
    fake_cluster.scrub.progress[TWO] = found
    first = (await gateway.get("/v1/brokers/scrub", params={"page_size": 1})).json()
    token = first["next_page_token"]
    second = (await gateway.get("/v1/brokers/scrub", params={"page_token": token})).json()
    assert first["items"] == [{"broker_id": 1, "status": asdict(NO_PASS), "error": None}]
    assert second == {
        "items": [{"broker_id": 2, "status": asdict(found), "error": None}],
        "next_page_token": "",
    }
    assert fake_cluster.scrub.calls == [(ONE, False, False), (TWO, False, False)]


async def test_a_pass_begins_on_all_running_brokers(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    answer = await gateway.post("/v1/brokers/scrub")
    assert answer.status_code == 200
    assert [item["broker_id"] for item in answer.json()["items"]] == [1, 2]
    assert fake_cluster.scrub.calls == [(ONE, True, False), (TWO, True, False)]


async def test_a_pass_begins_on_the_named_brokers(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster, admin: FakeAdmin
) -> None:
    admin.brokers = [broker(2)]
    body = {"broker_ids": [2], "full_rate": True}
    assert (await gateway.post("/v1/brokers/scrub", json=body)).status_code == 200
    assert fake_cluster.scrub.calls == [(TWO, True, True)]


async def test_a_dry_run_begins_no_pass(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    body = {"full_rate": True}
    answer = await gateway.post("/v1/brokers/scrub", json=body, params={"dry_run": True})
    assert answer.json()["items"][0]["status"] == asdict(NO_PASS)
    assert fake_cluster.scrub.calls == [(ONE, False, False), (TWO, False, False)]


async def test_a_stopped_broker_cannot_begin_a_pass(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    answer = await gateway.post("/v1/brokers/scrub", json={"broker_ids": [1, 3]})
    assert (answer.status_code, answer.json()["code"]) == (404, "UNKNOWN_BROKER")
    assert "broker 3 is not running" in answer.json()["detail"]
    assert fake_cluster.scrub.calls == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnreachableError(TWO, "it refuses connections"), "UNREACHABLE"),
        (TidelogError(ErrorCode.TOO_MANY_REQUESTS, "it is busy"), "TOO_MANY_REQUESTS"),
    ],
)
async def test_an_unanswered_broker_hides_no_other(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster, error: Exception, code: str
) -> None:
    fake_cluster.scrub.rejections[TWO] = error
    for answer in (await gateway.get("/v1/brokers/scrub"), await gateway.post("/v1/brokers/scrub")):
        one, two = answer.json()["items"]
        assert (one["error"], two["status"]) == (None, None)
        assert (two["error"]["code"], two["error"]["message"]) == (code, str(error))
        assert answer.status_code == (200 if answer.request.method == "GET" else 207)


async def test_brokers_are_called_with_bounded_concurrency(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster, admin: FakeAdmin
) -> None:
    admin.brokers = [broker(number) for number in range(1, 3 * MAX_CONCURRENT_CALLS)]
    assert (await gateway.post("/v1/brokers/scrub")).status_code == 200
    assert fake_cluster.scrub.most_at_once == MAX_CONCURRENT_CALLS
