"""/v1/brokers and /v1/throttle."""

from __future__ import annotations

import httpx
import pytest

from tidelog.admin_messages import LeaderChange, RestartCheck, RestartFinding, Throttle
from tidelog.client.service_states import ReportedStates
from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.explain import Listening, SilentService
from tidelog.inspection.state_reports import BrokerState, ServiceState, StoreHealth
from unit.admin_api.fakes import FakeAdmin, FakeCluster, broker, operation


async def test_brokers_are_listed_in_pages_by_id(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.brokers = [broker(number) for number in (10, 2, 1)]
    first = (await gateway.get("/v1/brokers", params={"page_size": 2})).json()
    rest = await gateway.get("/v1/brokers", params={"page_token": first["next_page_token"]})
    assert [b["broker_id"] for b in first["items"]] == [1, 2]
    assert [b["broker_id"] for b in rest.json()["items"]] == [10]
    assert rest.json()["next_page_token"] == ""


async def test_departed_brokers_are_listed_on_request(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.brokers = [broker(1), broker(2, status="gone")]
    body = (await gateway.get("/v1/brokers", params={"status": "gone"})).json()
    assert [b["broker_id"] for b in body["items"]] == [2]


async def test_a_broker_describes_its_process(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    state = BrokerState(17, "running", True, 3, disk_free_bytes=5_000)
    state_of_broker = ServiceState("broker", 1, "a:1", "0.1.0", 7, 8, StoreHealth(), broker=state)
    fake_cluster.states.reported = ReportedStates((state_of_broker,), ())
    process = (await gateway.get("/v1/brokers/1")).json()["process"]
    assert process["disk_free_bytes"] == 5_000
    assert process["move_bytes_per_second"] is None


async def test_an_unanswered_broker_has_a_reason(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    silent = SilentService("a:1", Listening.REFUSES, "gave no answer", "broker", 1)
    fake_cluster.states.reported = ReportedStates((), (silent,))
    body = (await gateway.get("/v1/brokers/1")).json()
    assert body["process"] is None
    assert body["problem"] == "broker-1 at a:1 gave no answer"


async def test_an_unknown_broker_is_not_found(gateway: httpx.AsyncClient, admin: FakeAdmin) -> None:
    admin.rejection = TidelogError(ErrorCode.UNKNOWN_BROKER, "broker 9 is not registered")
    assert (await gateway.get("/v1/brokers/9")).status_code == 404


async def test_a_restart_check_lists_the_worst_first(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.restart_check = RestartCheck(
        False,
        1,
        0,
        0,
        1,
        (
            RestartFinding("air", 0, "leader_moves", "only its leader changes"),
            RestartFinding("sea", 3, "unavailable", "no other replica is in sync"),
        ),
    )
    body = (await gateway.get("/v1/brokers/1/restart-check")).json()
    assert body["safe"] is False
    assert [found["effect"] for found in body["items"]] == ["unavailable", "leader_moves"]


async def test_maintenance_reports_which_leaders_moved_and_which_stay(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    rejected = TidelogError(ErrorCode.NOT_ELIGIBLE_LEADER, "no replica is in sync")
    admin.leader_changes = [
        LeaderChange("sea", 0, 1, 2, None),
        LeaderChange("sea", 1, 1, 3, rejected),
    ]
    answer = await gateway.put(
        "/v1/brokers/1/maintenance",
        params={"dry_run": True, "timeout_ms": 50},
        json={"maintenance": True},
    )
    assert admin.calls == [("set_maintenance", ([1], 50), {"maintenance": True, "dry_run": True})]
    assert answer.status_code == 207
    assert answer.json()["leaders_kept"] == 1
    assert [c["error"] and c["error"]["code"] for c in answer.json()["leaders"]] == [
        None,
        "NOT_ELIGIBLE_LEADER",
    ]


@pytest.mark.parametrize("verb", ["add", "remove"])
async def test_a_running_operation_has_an_address(
    gateway: httpx.AsyncClient, admin: FakeAdmin, verb: str
) -> None:
    body = {"broker_ids": [4, 5, 4], "operation_id": "op-1", "expected_plan": "d1"}
    answer = await gateway.post(f"/v1/brokers/{verb}", json=body)
    assert (answer.status_code, answer.headers["location"]) == (202, "/v1/operations/op-1")
    assert answer.headers["etag"] == '"55"'
    assert answer.json()["plan"]["moves"][0]["target"] == [4, 2]
    requested = {"operation_id": "op-1", "dry_run": False, "expected_plan": "d1"}
    assert admin.calls == [(f"{verb}_brokers", ([4, 5],), requested)]


async def test_one_request_puts_several_brokers_into_maintenance(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    body = {"broker_ids": [2, 1, 2], "maintenance": True}
    answer = await gateway.put("/v1/brokers/maintenance", json=body, params={"timeout_ms": 50})
    assert (answer.status_code, answer.json()["broker_ids"]) == (200, [2, 1])
    assert admin.calls == [
        ("set_maintenance", ([2, 1], 50), {"maintenance": True, "dry_run": False})
    ]


async def test_a_dry_run_has_the_plan_and_no_operation(gateway: httpx.AsyncClient) -> None:
    answer = await gateway.post(
        "/v1/brokers/add", params={"dry_run": "true"}, json={"broker_ids": [4]}
    )
    assert answer.status_code == 200
    assert answer.json()["operation"] is None
    assert "location" not in answer.headers


async def test_an_immediate_change_returns_without_an_operation(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.operation = operation(state="done", ended_at_ms=2)
    answer = await gateway.post("/v1/brokers/add", json={"broker_ids": [4]})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"broker_ids": None}, "broker_ids"),
        ({"broker_ids": [-(2**31) - 1]}, "broker_ids[0]"),
        ({"broker_ids": ["1"]}, "broker_ids[0]"),
        ({"broker_ids": [1], "operation_id": 7}, "operation_id"),
        ({"broker_ids": [1], "dry_run": True}, "dry_run"),
    ],
)
async def test_an_invalid_body_is_rejected_with_the_name_of_the_field(
    gateway: httpx.AsyncClient, admin: FakeAdmin, body: dict[str, object], field: str
) -> None:
    answer = await gateway.post("/v1/brokers/add", json=body)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert admin.calls == []


async def test_an_integer_may_be_written_with_a_decimal_point(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    body = b'{"broker_ids": [4.0], "operation_id": "op-1"}'
    json = {"Content-Type": "application/json"}
    answer = await gateway.post("/v1/brokers/add", content=body, headers=json)
    assert answer.status_code == 202
    assert admin.calls[0][1] == ([4],)
    assert (await gateway.post("/v1/brokers/add", json={"broker_ids": [4.5]})).status_code == 422


async def test_the_throttle_has_a_tag(gateway: httpx.AsyncClient, admin: FakeAdmin) -> None:
    admin.throttle = Throttle(5_000, 44)
    answer = await gateway.get("/v1/throttle")
    assert answer.headers["etag"] == '"44"'
    assert answer.json() == {"bytes_per_second": 5_000, "revision": 44}


async def test_a_throttle_is_changed_only_at_the_revision_that_was_read(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    answer = await gateway.put(
        "/v1/throttle", json={"bytes_per_second": None}, headers={"If-Match": '"44"'}
    )
    assert admin.calls == [("set_throttle", (None,), {"expected_revision": 44, "dry_run": False})]
    assert answer.json()["bytes_per_second"] is None


async def test_a_throttle_request_must_set_or_remove_the_rate(gateway: httpx.AsyncClient) -> None:
    answer = await gateway.put("/v1/throttle", json={})
    assert answer.json()["errors"][0]["message"] == "is required and missing"


async def test_the_feature_level_has_a_tag_and_names_each_process(
    gateway: httpx.AsyncClient,
) -> None:
    answer = await gateway.get("/v1/cluster/feature-level")
    assert answer.headers["etag"] == '"44"'
    described = answer.json()
    assert (described["level"], described["raisable_level"]) == (1, 2)
    assert described["processes"][0]["version"] == "0.1.0"


async def test_the_feature_level_is_raised_only_at_the_revision_that_was_read(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    answer = await gateway.put(
        "/v1/cluster/feature-level", json={"level": 2}, headers={"If-Match": '"44"'}
    )
    assert answer.status_code == 200
    assert admin.calls[0] == (
        "raise_feature_level",
        (2,),
        {"expected_revision": 44, "dry_run": False},
    )


async def test_a_process_that_is_too_old_for_a_level_is_a_conflict(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    why = TidelogError(ErrorCode.UNSUPPORTED_VERSION, "broker 1 (0.1.0) is too old")
    admin.rejections["raise_feature_level"] = why
    answer = await gateway.put("/v1/cluster/feature-level", json={"level": 3})
    assert answer.status_code == 409
    assert answer.json()["code"] == "UNSUPPORTED_VERSION"


@pytest.mark.parametrize("level", [0, 1.5, "2", 10_001])
async def test_an_invalid_feature_level_is_rejected(
    gateway: httpx.AsyncClient, level: object
) -> None:
    answer = await gateway.put("/v1/cluster/feature-level", json={"level": level})
    assert answer.status_code == 422
