"""Operations, leaders, recovery and explanations over HTTP."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tidelog.admin_messages import LeaderChange, Move, RecoveredPartition, RecoveryChoice
from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.state_reports import Explanation, Finding, Scope
from tidelog.model import TopicPartition
from unit.admin_api.fake_operations import operation, recovery
from unit.admin_api.fakes import FakeAdmin, FakeCluster

MOVES = {"moves": [{"topic": "sea", "partition": 0, "target": [4, 2, 3]}]}
BEGINNINGS = [
    ("/v1/reassignments", MOVES),
    ("/v1/rebalance", {}),
    ("/v1/operations/op/reverse", {}),
]


def problem_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    return document


@pytest.mark.parametrize(("path", "body"), BEGINNINGS)
async def test_a_running_operation_is_accepted_with_its_location(
    gateway: httpx.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    answer = await gateway.post(path, json=body | {"operation_id": "grow"})
    assert answer.status_code == 202
    assert answer.headers["Location"] == "/v1/operations/grow"
    assert answer.headers["ETag"] == '"412"'
    assert answer.json()["operation"]["operation_id"] == "grow"


@pytest.mark.parametrize(("path", "body"), BEGINNINGS)
async def test_an_immediate_change_returns_without_an_operation(
    gateway: httpx.AsyncClient, admin: FakeAdmin, path: str, body: dict[str, Any]
) -> None:
    admin.ends = True
    answer = await gateway.post(path, json=body)
    assert (answer.status_code, answer.json()["operation"]["state"]) == (200, "done")


@pytest.mark.parametrize(("path", "body"), BEGINNINGS)
async def test_a_dry_run_shows_only_the_plan(
    gateway: httpx.AsyncClient, admin: FakeAdmin, path: str, body: dict[str, Any]
) -> None:
    answer = await gateway.post(path, params={"dry_run": True}, json=body)
    assert answer.status_code == 200
    assert "Location" not in answer.headers
    assert answer.json()["operation"] is None
    assert answer.json()["plan"]["moves"][0]["target"] == [4, 2, 3]
    (call,) = admin.calls
    assert call[2]["dry_run"] is True


@pytest.mark.parametrize("path", ["/v1/rebalance", "/v1/operations/op/reverse"])
async def test_an_optional_body_may_be_absent(gateway: httpx.AsyncClient, path: str) -> None:
    assert (await gateway.post(path)).status_code == 202


async def test_moves_are_forwarded_unchanged(gateway: httpx.AsyncClient, admin: FakeAdmin) -> None:
    move = {"original": [1, 2, 3], "topic_id": "id-of-sea", **MOVES["moves"][0]}
    await gateway.post("/v1/reassignments", json={"moves": [move]})
    assert admin.calls[0][1] == ([Move("sea", 0, (4, 2, 3), (1, 2, 3), "id-of-sea")],)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"moves": None}, "moves"),
        ({"moves": [{"topic": "sea", "partition": 0}]}, "moves[0].target"),
        ({"moves": [{"topic": "sea", "partition": 2**31, "target": [1]}]}, "moves[0].partition"),
        ({"moves": [{"topic": "sea", "partition": "0", "target": [1]}]}, "moves[0].partition"),
        ({"moves": [{"topic": "sea", "partition": 0, "target": [2**31]}]}, "moves[0].target[0]"),
        ({**MOVES, "operation_id": "a" * 1_001}, "operation_id"),
        ({**MOVES, "operation": "a"}, "operation"),
    ],
)
async def test_an_unencodable_move_is_rejected_by_its_field(
    gateway: httpx.AsyncClient, admin: FakeAdmin, body: dict[str, Any], field: str
) -> None:
    problem = problem_of(await gateway.post("/v1/reassignments", json=body), 422)
    assert [error["field"] for error in problem["errors"]] == [field]
    assert admin.calls == []


async def test_operations_are_paged_newest_first(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.operations = [operation(f"op-{n}", requested_at_ms=n) for n in (2, 3, 1)]
    first = (await gateway.get("/v1/operations", params={"page_size": 2})).json()
    token: dict[str, Any] = {"page_size": 2, "page_token": first["next_page_token"]}
    second = (await gateway.get("/v1/operations", params=token)).json()
    assert [o["operation_id"] for o in first["items"] + second["items"]] == ["op-3", "op-2", "op-1"]
    assert second["next_page_token"] == ""


async def test_operations_are_listed_by_state_and_kind(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    await gateway.get(
        "/v1/operations", params={"state": ["running", "cancelling"], "kind": "rebalance"}
    )
    assert admin.calls[0][1] == (["running", "cancelling"], ["rebalance"])
    problem = problem_of(await gateway.get("/v1/operations", params={"state": "over"}), 422)
    assert "running" in problem["errors"][0]["message"]


async def test_reassignments_are_the_operations_of_their_kind(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.operations = [operation("op")]
    reported = await gateway.get("/v1/reassignments", params={"state": "running"})
    assert [one["operation_id"] for one in reported.json()["items"]] == ["op"]
    assert admin.calls[0][1] == (["running"], ["reassignment"])


async def test_an_operation_has_its_progress_and_its_revision(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.operations = [operation()]
    answer = await gateway.get("/v1/operations/op")
    assert answer.headers["ETag"] == '"412"'
    assert answer.json()["progress"]["moves_done"] == 1


async def test_an_unknown_operation_is_not_found(gateway: httpx.AsyncClient) -> None:
    problem = problem_of(await gateway.get("/v1/operations/never"), 404)
    assert problem["code"] == "UNKNOWN_OPERATION"


async def test_moves_are_paged(gateway: httpx.AsyncClient, admin: FakeAdmin) -> None:
    params: dict[str, Any] = {"page_size": 7, "page_token": "former"}
    page = (await gateway.get("/v1/operations/op/moves", params=params)).json()
    assert admin.calls[0][1] == ("op", 7, "former")
    assert (page["items"][0]["waits_for"], page["next_page_token"]) == ([4], "next")


async def test_a_cancellation_that_reverts_moves_is_an_operation(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.operations = [operation()]
    answer = await gateway.post("/v1/operations/op/cancel", headers={"If-Match": '"412"'})
    assert (answer.status_code, answer.json()["operation"]["state"]) == (202, "cancelling")
    assert admin.calls[0] == ("cancel_operation", ("op",), {"expected_revision": 412})
    admin.ends = True
    assert (await gateway.post("/v1/operations/op/cancel")).status_code == 200


async def test_a_dry_run_of_a_cancellation_shows_what_is_reverted(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.operations = [operation()]
    answer = await gateway.post(
        "/v1/operations/op/cancel", params={"dry_run": True}, headers={"If-Match": '"9"'}
    )
    assert answer.json()["operation"] is None
    assert answer.json()["plan"]["move_count"] == 1
    assert admin.calls == [("plan_cancellation", ("op",), {"expected_revision": 9})]


async def test_a_cancellation_at_an_outdated_revision_is_rejected(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.rejections["cancel_operation"] = TidelogError(
        ErrorCode.REVISION_CONFLICT, "it is 413 now"
    )
    answer = await gateway.post("/v1/operations/op/cancel", headers={"If-Match": '"412"'})
    assert problem_of(answer, 412)["code"] == "REVISION_CONFLICT"


async def test_leaders_that_could_not_be_elected_have_a_reason(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    why = TidelogError(ErrorCode.NOT_ELIGIBLE_LEADER, "broker 3 is not in sync")
    admin.changes = [LeaderChange("sea", 0, 2, 1, None), LeaderChange("sea", 1, -1, 3, why)]
    for path, body in (
        ("elect-preferred", {}),
        ("move", {"moves": [{"topic": "sea", "partition": 0, "leader": 1}]}),
    ):
        answer = await gateway.post(f"/v1/leaders/{path}", json=body)
        assert answer.status_code == 207
        errors = [item["error"] for item in answer.json()["items"]]
        assert errors[0] is None
        assert errors[1]["code"] == "NOT_ELIGIBLE_LEADER"


async def test_preferred_leaders_are_elected_on_request(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    body = {"partitions": [{"topic": "sea", "partitions": [0, 2]}, {"topic": "bay"}]}
    params = {"timeout_ms": 5, "dry_run": True}
    await gateway.post("/v1/leaders/elect-preferred", json=body, params=params)
    await gateway.post("/v1/leaders/elect-preferred")
    assert admin.calls[0][1:] == (({"sea": [0, 2], "bay": []}, 5), {"dry_run": True})
    assert admin.calls[1][1][0] is None


async def test_leadership_moves_to_the_chosen_broker(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    body = {"moves": [{"topic": "sea", "partition": n, "leader": n + 1} for n in (0, 1)]}
    assert (await gateway.post("/v1/leaders/move", json=body)).status_code == 200
    assert admin.calls[0][1][0] == {TopicPartition("sea", 0): 1, TopicPartition("sea", 1): 2}


async def test_an_ambiguous_leader_request_is_rejected(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    body = {"moves": [{"topic": "sea", "partition": 0, "leader": n} for n in (1, 2)]}
    problem = problem_of(await gateway.post("/v1/leaders/move", json=body), 422)
    assert problem["detail"] == "sea/0 is named twice; name each partition once"
    assert admin.calls == []


async def test_a_topic_given_both_with_partitions_and_without_means_the_whole_topic(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    named: list[dict[str, Any]] = [
        {"topic": "sea", "partitions": [1]},
        {"topic": "sea"},
        {"topic": "bay", "partitions": [0]},
        {"topic": "bay", "partitions": [2]},
    ]
    await gateway.post("/v1/leaders/elect-preferred", json={"partitions": named})
    assert admin.calls[0][1][0] == {"sea": [], "bay": [0, 2]}


async def test_recovery_reports_what_each_choice_would_lose(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.recoveries = [recovery(1), recovery(0)]
    params: dict[str, Any] = {"topic": "sea", "partition": [0, 1], "timeout_ms": 7}
    found = (await gateway.get("/v1/recovery", params=params)).json()["items"]
    assert [r["partition"] for r in found] == [0, 1]
    survivor = found[0]["survivors"][0]
    assert (survivor["log_end_offset"], survivor["high_watermark"]) == (1_200, 1_198)
    assert (survivor["last_epoch"], survivor["lost_records"]) == (4, 0)
    assert admin.calls[0][1] == ("sea", [0, 1], 7)


CHOICE = {
    "topic": "sea",
    "choices": [{"partition": 0, "broker_id": 3, "expected_revision": 412}],
    "confirm": "sea",
}


async def test_consent_to_a_loss_names_the_choice(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    answer = await gateway.post("/v1/recovery", json=CHOICE)
    assert (answer.status_code, answer.json()["results"][0]["error"]) == (200, None)
    ((name, _, named),) = admin.calls
    assert name == "recover_partitions"
    assert named["choices"] == [RecoveryChoice(0, 3, 412)]


@pytest.mark.parametrize("confirm", ["", "bay", "Sea"])
async def test_a_lossy_recovery_needs_the_name_of_the_topic(
    gateway: httpx.AsyncClient, admin: FakeAdmin, confirm: str
) -> None:
    problem = problem_of(
        await gateway.post("/v1/recovery", json=CHOICE | {"confirm": confirm}), 422
    )
    assert problem["code"] == "NOT_CONFIRMED"
    assert [name for name, *_ in admin.calls] == ["topic_details"]


async def test_a_dry_run_of_a_recovery_elects_no_leader(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    body = {key: CHOICE[key] for key in ("topic", "choices")}
    answer = await gateway.post("/v1/recovery", json=body, params={"dry_run": True})
    assert answer.json()["results"] == []
    assert answer.json()["described"][0]["survivors"][0]["broker_id"] == 3
    ((name, arguments, named),) = admin.calls
    assert (name, arguments[:2]) == ("describe_recovery", ("sea", []))
    assert named == {"choices": [RecoveryChoice(0, 3, 412)]}


async def test_a_dry_run_of_a_recovery_without_topics_is_empty(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    body = {"topic": "", "choices": CHOICE["choices"]}
    answer = await gateway.post("/v1/recovery", json=body, params={"dry_run": True})
    assert (answer.status_code, answer.json()["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
    assert admin.calls == []


async def test_a_partition_that_still_has_no_leader_is_reported(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    waits = TidelogError(ErrorCode.REQUEST_TIMED_OUT, "it waits for broker 1")
    admin.recovered = [RecoveredPartition(0, waits)]
    answer = await gateway.post("/v1/recovery", json=CHOICE)
    assert answer.status_code == 207
    assert answer.json()["results"][0]["error"]["retriable"] is True


@pytest.mark.parametrize("path", ["explain", "events", "events/stream"])
async def test_a_partition_needs_its_topic(gateway: httpx.AsyncClient, path: str) -> None:
    answer = await gateway.get(f"/v1/{path}", params={"partition": 0})
    assert "topic" in problem_of(answer, 422)["detail"]


async def test_an_explanation_has_the_problem_and_the_next_step(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    finding = Finding("replica_dead", "warning", "broker 2 is dead", ("e",), "start it", broker=2)
    fake_cluster.explains.explanation = Explanation((finding,), ("a", "b"), ("b",), ("refuses",))
    params: dict[str, Any] = {"topic": "sea", "partition": 3, "broker": 2}
    body = (await gateway.get("/v1/explain", params=params)).json()
    assert fake_cluster.explains.scopes == [Scope("sea", 3, 2)]
    assert (body["well"], body["silent"]) == (False, ["b"])
    assert body["findings"][0]["next_step"] == "start it"


async def test_an_informational_finding_is_not_a_fault(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    finding = Finding("not_preferred_leader", "info", "it leads", (), "")
    fake_cluster.explains.explanation = Explanation((finding,))
    assert (await gateway.get("/v1/explain")).json()["well"] is True


async def test_an_unsupported_precondition_is_not_ignored(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    answer = await gateway.post("/v1/rebalance", headers={"If-Match": '"412"'})
    assert problem_of(answer, 412)["code"] == "NO_ENTITY_TAG"
    assert admin.calls == []
    assert (await gateway.post("/v1/rebalance", headers={"If-Match": "*"})).status_code == 202


@pytest.mark.parametrize(
    ("path", "name", "hint"),
    [
        ("/v1/brokers/remove", "dryrun", "did you mean dry_run?"),
        ("/v1/topics", "force", "valid parameters are "),
        ("/v1/operations/op/cancel", "timeout_ms", "dry_run"),
    ],
)
async def test_an_unknown_parameter_is_rejected_without_effect(
    gateway: httpx.AsyncClient, admin: FakeAdmin, path: str, name: str, hint: str
) -> None:
    answer = await gateway.post(path, params={name: "true"}, json={"broker_ids": [3]})
    (error,) = problem_of(answer, 422)["errors"]
    assert error["field"] == name
    assert hint in error["message"]
    assert admin.calls == []


async def test_monitoring_endpoints_accept_any_parameter(
    gateway: httpx.AsyncClient,
) -> None:
    assert (await gateway.get("/health", params={"probe": "balancer"})).status_code == 200


async def test_paging_and_filter_parameters_are_known(gateway: httpx.AsyncClient) -> None:
    params: dict[str, Any] = {"page_size": 1, "page_token": "", "state": "running"}
    assert (await gateway.get("/v1/operations", params=params)).status_code == 200
