"""Input that a request would silently ignore is rejected."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from tidelog_admin_api.app import ROUTERS
from unit.admin_api.fake_operations import operation
from unit.admin_api.fakes import FakeAdmin

CANCEL = "/v1/operations/op/cancel"
DRY_RUN = {"dry_run": True}
WITHOUT_BODY = sorted(
    (method, route.path.replace("{operation_id}", "op").replace("{topic}", "sea"))
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute) and route.body_field is None
    for method in (route.methods or set()) - {"GET", "HEAD"}
)


async def errors_of(
    gateway: httpx.AsyncClient, method: str, path: str, body: bytes, query: str = ""
) -> list[tuple[str, str]]:
    """The rejected fields."""
    answer = await gateway.request(
        method, f"{path}?{query}", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 422, answer.text
    errors: list[dict[str, Any]] = answer.json().get("errors", [{"field": "", "message": ""}])
    return [(error["field"], error["message"]) for error in errors]


@pytest.mark.parametrize(("method", "path"), WITHOUT_BODY)
async def test_dry_run_in_a_body_is_rejected(
    gateway: httpx.AsyncClient, admin: FakeAdmin, method: str, path: str
) -> None:
    query = "confirm=sea" if method == "DELETE" else ""
    rejected = await errors_of(gateway, method, path, json.dumps(DRY_RUN).encode(), query)
    assert rejected == [
        ("dry_run", "this operation has no body; give it in the query, as ?dry_run=…")
    ]
    assert admin.calls == []


@pytest.mark.parametrize("body", [b'["dry_run"]', b"dry_run=true", b"[" * 100_000, b"false"])
async def test_an_unexpected_body_is_rejected(
    gateway: httpx.AsyncClient, admin: FakeAdmin, body: bytes
) -> None:
    assert await errors_of(gateway, "POST", CANCEL, body) == [("", "")]
    assert admin.calls == []


@pytest.mark.parametrize("body", [b"", b" { } ", b"null"])
async def test_an_empty_body_is_no_body(
    gateway: httpx.AsyncClient, admin: FakeAdmin, body: bytes
) -> None:
    admin.operations = [operation()]
    assert (await gateway.post(CANCEL, content=body)).status_code == 202


@pytest.mark.parametrize(
    ("path", "body", "field", "message"),
    [
        (
            "/v1/topics",
            {"topic": "sea", "partition": 3},
            "partition",
            "unknown field; did you mean partitions? Valid fields are ",
        ),
        ("/v1/topics", {"topic": "sea", "zeal": 3}, "zeal", "unknown field; valid fields are "),
        (
            "/v1/topics/sea/records",
            {"records": [{"vlaue": 1}]},
            "records[0].vlaue",
            "did you mean value? Valid fields are headers, key, key_encoding, partition, ",
        ),
        (
            "/v1/topics/sea/records",
            {"records": [{"headers": [{"key": "a", "value": "b", "name": "c"}]}]},
            "records[0].headers[0].name",
            "valid fields are key, value, value_encoding",
        ),
        # A body that may be missing.
        ("/v1/rebalance", {"operation": "x"}, "operation", "did you mean operation_id?"),
    ],
)
async def test_an_unknown_field_is_rejected_with_the_valid_ones(
    gateway: httpx.AsyncClient,
    admin: FakeAdmin,
    path: str,
    body: dict[str, Any],
    field: str,
    message: str,
) -> None:
    (rejected,) = await errors_of(gateway, "POST", path, json.dumps(body).encode())
    assert rejected[0] == field
    assert message in rejected[1]
    assert admin.calls == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"topic":"sea","topic":"bay"}', "topic"),
        (b'{"topic":"sea","config":{"retention_ms":1,"retention_ms":2}}', "retention_ms"),
    ],
)
async def test_a_duplicate_field_is_rejected(
    gateway: httpx.AsyncClient, admin: FakeAdmin, body: bytes, field: str
) -> None:
    (rejected,) = await errors_of(gateway, "POST", "/v1/topics", body)
    assert rejected == (field, "is repeated; give it once")
    assert admin.calls == []


async def test_a_duplicate_parameter_is_rejected(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    (rejected,) = await errors_of(gateway, "POST", CANCEL, b"", "dry_run=true&dry_run=false")
    assert rejected[0] == "dry_run"
    assert admin.calls == []


async def test_a_duplicate_condition_is_rejected(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    tags = [("If-Match", "*"), ("If-Match", '"412"')]
    answer = await gateway.post(CANCEL, headers=tags)
    assert (answer.status_code, admin.calls) == (422, [])
