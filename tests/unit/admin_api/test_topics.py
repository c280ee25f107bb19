"""/v1/topics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from tidelog.admin_messages import PartitionDetails, PartitionMove
from tidelog.errors import ErrorCode, TidelogError, unknown_topic
from unit.admin_api.fakes import FakeAdmin, details, partition, topic


def names(answer: httpx.Response) -> list[str]:
    return [item["topic"] for item in answer.json()["items"]]


async def test_topics_are_listed_by_name_with_their_health(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.topics = [topic("sky"), topic("sea", partition(isr=(1, 2)), partition(1))]
    body = (await gateway.get("/v1/topics")).json()["items"]
    assert [(t["topic"], t["health"]) for t in body] == [
        ("sea", "1 under-replicated"),
        ("sky", "ok"),
    ]
    assert body[0]["partitions"] == 2


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"name_contains": "ea"}, ["sea"]),
        ({"unwell": "true"}, ["sky"]),
        ({"page_size": "1"}, ["sea"]),
    ],
)
async def test_topics_are_filtered(
    gateway: httpx.AsyncClient, admin: FakeAdmin, filters: dict[str, str], found: list[str]
) -> None:
    admin.topics = [topic("sky", partition(isr=(1,))), topic("sea")]
    assert names(await gateway.get("/v1/topics", params=filters)) == found


async def test_a_topic_is_created_and_has_an_address(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    body = {
        "topic": "sea",
        "partitions": 6,
        "replication_factor": 2,
        "config": {"retention_ms": 5, "unclean_leader_election": True},
        "operation_id": "op-1",
    }
    answer = await gateway.post("/v1/topics", params={"timeout_ms": 70}, json=body)
    assert (answer.status_code, answer.headers["location"]) == (201, "/v1/topics/sea")
    assert answer.json()["topic_id"] == "new-id"
    assert answer.json()["pending_brokers"] == [3]
    assert answer.json()["warnings"] == ["a warning"]
    config = {"retention_ms": "5", "unclean_leader_election": "true"}
    named = {"assignment": [], "operation_id": "op-1", "dry_run": False}
    assert admin.calls == [("create_topic", ("sea", 6, 2, config, 70), named)]


async def test_the_default_factor_is_one_replica_per_broker_up_to_three(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    await gateway.post("/v1/topics", json={"topic": "sea"})
    assert admin.calls[-1][1][:3] == ("sea", 1, 1)


async def test_a_repeated_creation_returns_the_existing_factor(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    body = {"topic": "sea", "operation_id": "op-1"}
    await gateway.post("/v1/topics", json=body)
    admin.rejections["topic_details"] = unknown_topic("sea")
    await gateway.post("/v1/topics", json=body)
    assert [call[1][2] for call in admin.calls if call[0] == "create_topic"] == [3, 1]


async def test_an_assignment_implies_both_counts(gateway: httpx.AsyncClient) -> None:
    body = {"topic": "sea", "assignment": [[1, 2], [2, 1], [3, 1]]}
    answer_body = (await gateway.post("/v1/topics", json=body)).json()
    assert (answer_body["partitions"], answer_body["replication_factor"]) == (3, 2)


async def test_a_dry_run_creates_nothing_and_shows_the_replicas(
    gateway: httpx.AsyncClient,
) -> None:
    answer = await gateway.post("/v1/topics", params={"dry_run": 1}, json={"topic": "sea"})
    assert answer.status_code == 200
    assert answer.json()["assignment"] == [[1, 2]]
    assert "location" not in answer.headers


async def test_a_topic_has_its_configuration_and_its_revision_as_a_tag(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    move = PartitionMove("op", (1, 2), (2, 3))
    admin.details = details(
        partition_count=2,
        partitions=(
            PartitionDetails(0, 1, 4, (1, 2, 3), (1, 2), (), 2, 9, move, -1),
            PartitionDetails(1, -1, 4, (1, 2), (), (), 2, 9, None, -1),
        ),
    )
    answer = await gateway.get("/v1/topics/sea")
    body = answer.json()
    assert answer.headers["etag"] == '"55"'
    assert body["config"][0]["default_value"] == "9"
    assert (body["moving"], body["without_leader"], body["under_replicated"]) == (1, 1, 1)


async def test_a_deletion_needs_the_topic_name_as_confirmation(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    rejected = await gateway.delete("/v1/topics/sea", params={"confirm": "see"})
    assert (rejected.status_code, rejected.json()["code"]) == (422, "NOT_CONFIRMED")
    assert "delete_topic" not in [name for name, _, _ in admin.calls]
    answer = await gateway.delete("/v1/topics/sea", params={"confirm": "sea"})
    assert answer.json()["deleted"] is True
    assert answer.json()["pending_brokers"] == [3]


@pytest.mark.parametrize("confirm", ["", "none", "see"])
async def test_an_unknown_topic_cannot_be_deleted(
    gateway: httpx.AsyncClient, admin: FakeAdmin, confirm: str
) -> None:
    admin.rejection = unknown_topic("none")
    answer = await gateway.delete("/v1/topics/none", params={"confirm": confirm})
    assert (answer.status_code, answer.json()["code"]) == (404, "UNKNOWN_TOPIC_OR_PARTITION")


async def test_a_dry_run_of_a_deletion_needs_no_confirmation(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    body = (await gateway.delete("/v1/topics/sea", params={"dry_run": True})).json()
    assert (body["deleted"], body["partitions"], body["brokers"]) == (False, 6, [1, 2])
    assert [call[0] for call in admin.calls] == ["plan_deletion"]


async def test_a_topic_is_deleted_at_the_revision_that_was_read(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    read = {"If-Match": '"54"'}
    admin.rejections["delete_topic"] = TidelogError(ErrorCode.REVISION_CONFLICT, "it is at 55")
    answer = await gateway.delete("/v1/topics/sea", params={"confirm": "sea"}, headers=read)
    assert answer.status_code == 412
    await gateway.delete("/v1/topics/sea", params={"dry_run": True}, headers=read)
    assert [(name, named["expected_revision"]) for name, _, named in admin.calls] == [
        ("delete_topic", 54),
        ("plan_deletion", 54),
    ]


async def test_configuration_is_changed_at_the_revision_that_was_read(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    answer = await gateway.patch(
        "/v1/topics/sea/config",
        json={"set": {"retention_ms": 2}, "unset": ["segment_ms"]},
        headers={"If-Match": '"55"'},
    )
    assert answer.headers["etag"] == '"56"'
    assert answer.json()["changes"] == [{"key": "retention_ms", "before": "1", "after": "2"}]
    (_, arguments, named) = admin.calls[0]
    assert arguments == ("sea", {"retention_ms": "2"}, ["segment_ms"], 30_000)
    assert named == {"expected_revision": 55, "dry_run": False}


async def test_a_revision_conflict_is_a_failed_precondition(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.rejection = TidelogError(ErrorCode.REVISION_CONFLICT, "it is at revision 57")
    answer = await gateway.patch("/v1/topics/sea/config", json={})
    assert (answer.status_code, answer.json()["detail"]) == (412, "it is at revision 57")


@pytest.mark.parametrize(
    ("partitions", "call", "added", "removed"),
    [(9, "add_partitions", 3, 0), (6, "add_partitions", 0, 0), (4, "remove_partitions", 0, 2)],
)
async def test_the_partition_count_can_grow_and_shrink(
    gateway: httpx.AsyncClient,
    admin: FakeAdmin,
    partitions: int,
    call: str,
    added: int,
    removed: int,
) -> None:
    body: dict[str, Any] = {"partitions": partitions, "confirm": "sea"}
    answer_body = (await gateway.put("/v1/topics/sea/partition-count", json=body)).json()
    assert admin.calls[-1][0] == call
    assert (answer_body["partitions"], answer_body["added"], answer_body["removed"]) == (
        partitions,
        added,
        removed,
    )


async def test_only_added_partitions_are_placed(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    body = {"partitions": 4, "confirm": "sea", "assignment": [[1, 2, 3]]}
    rejected = await gateway.put("/v1/topics/sea/partition-count", json=body)
    assert (rejected.status_code, rejected.json()["code"]) == (422, "INVALID_REQUEST")
    assert "remove_partitions" not in {call[0] for call in admin.calls}


@pytest.mark.parametrize("value", [1.5, None, ["5000"], {"ms": 5000}])
async def test_an_unknown_configuration_key_is_a_single_fault(
    gateway: httpx.AsyncClient, value: object
) -> None:
    body = {"set": {"retention_ms": value}}
    rejected = (await gateway.patch("/v1/topics/sea/config", json=body)).json()
    expected = "must be a string, an integer, true or false"
    assert rejected["errors"] == [{"field": "set.retention_ms", "message": expected}]


async def test_the_cluster_checks_the_confirmation_of_a_removal(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    body = {"partitions": 1, "confirm": "see"}
    await gateway.put("/v1/topics/sea/partition-count", json=body)
    named = admin.calls[-1][2]
    assert (named["confirm_topic"], named["topic_id"]) == ("see", "id-of-sea")


@pytest.mark.parametrize(("said", "confirm"), [("", "sea"), ("see", "see")])
async def test_a_repeated_removal_waits_and_removes_no_more(
    gateway: httpx.AsyncClient, admin: FakeAdmin, said: str, confirm: str
) -> None:
    admin.details = replace(admin.details, partitions_being_removed=2)
    body = {"partitions": admin.details.partition_count, "confirm": said}
    answer_body = (await gateway.put("/v1/topics/sea/partition-count", json=body)).json()
    name, _, named = admin.calls[-1]
    assert (name, named["confirm_topic"]) == ("remove_partitions", confirm)
    assert named["expected_revision"] == admin.details.revision
    assert (answer_body["added"], answer_body["removed"]) == (0, 0)


async def test_changing_the_factor_is_an_operation(gateway: httpx.AsyncClient) -> None:
    answer = await gateway.put("/v1/topics/sea/replication-factor", json={"replication_factor": 2})
    assert (answer.status_code, answer.headers["location"]) == (202, "/v1/operations/op-1")


async def test_changing_the_factor_of_several_topics_is_one_operation(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    body = {"topics": ["sea", "bay", "sea"], "replication_factor": 2}
    answer = await gateway.put("/v1/replication-factor", json=body)
    assert answer.status_code == 202
    assert admin.calls[0][1] == (["sea", "bay"], 2)
