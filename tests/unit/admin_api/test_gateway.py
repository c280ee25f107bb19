"""The gateway as a whole: its OpenAPI document, health and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
from fastapi.routing import APIRoute

from tidelog.caller_limits import GATEWAY_LIMITS
from tidelog.errors import ErrorCode, TidelogError
from tidelog_admin_api.app import ROUTERS
from tidelog_admin_api.bodies.record_bodies import MAX_TIMESTAMP_MS
from tidelog_admin_api.limits import Usage
from tidelog_runtime.telemetry.metrics.service_catalogue import CLIENT_REJECTIONS
from unit.admin_api.fakes import FakeAdmin, FakeCluster, broker, client_of

_OPERATIONS = [
    (method, route.path)
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute) and route.include_in_schema
    for method in sorted(route.methods or ())
]


def test_the_document_has_operations() -> None:
    assert ("GET", "/v1/cluster") in _OPERATIONS


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return FakeCluster().app().openapi()


def resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref", "")
    if not reference:
        return schema
    found: dict[str, Any] = document["components"]["schemas"][reference.rpartition("/")[2]]
    return found


def has_example(document: dict[str, Any], media: dict[str, Any]) -> bool:
    return bool(
        "example" in media
        or media.get("examples")
        or resolved(document, media.get("schema", {})).get("examples")
    )


def keywords(schema: Any) -> Iterator[str]:
    """The keywords of a schema and of all nested schemas, field names included."""
    if isinstance(schema, dict):
        yield from schema
        for held in schema.values():
            yield from keywords(held)
    elif isinstance(schema, list):
        for held in schema:
            yield from keywords(held)


def test_the_document_has_bounds_under_their_json_schema_names(document: dict[str, Any]) -> None:
    assert not {"ge", "le", "gt", "lt"} & set(keywords(document))
    fields = document["components"]["schemas"]["RecordToProduce"]["properties"]
    number, _ = fields["timestamp_ms"]["anyOf"]
    assert number["minimum"] == 0
    assert 2**61 < number["maximum"] <= MAX_TIMESTAMP_MS


def test_the_document_is_openapi_31(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")


@pytest.mark.parametrize(("method", "path"), _OPERATIONS)
def test_every_operation_has_request_and_response_examples(
    document: dict[str, Any], method: str, path: str
) -> None:
    operation = document["paths"][path][method.lower()]
    for media in operation.get("requestBody", {}).get("content", {}).values():
        assert has_example(document, media)
    for status, answer in operation["responses"].items():
        for media in answer.get("content", {}).values():
            assert has_example(document, media), status


@pytest.mark.parametrize(("method", "path"), _OPERATIONS)
def test_every_operation_declares_its_problems_and_has_a_description(
    document: dict[str, Any], method: str, path: str
) -> None:
    operation = document["paths"][path][method.lower()]
    assert operation["description"].strip().endswith(".")
    declared = operation["responses"].keys()
    assert {"400", "403", "413", "421", "422", "429", "500", "503", "504"} <= declared
    assert method == "GET" or {"408", "412", "415"} <= declared
    rejected = [
        media for s, a in operation["responses"].items() if int(s) >= 400 for media in a["content"]
    ]
    assert set(rejected) == {"application/problem+json"}


def test_every_example_matches_its_schema(document: dict[str, Any]) -> None:
    components = document["components"]
    examples = [
        (example, {"$ref": f"#/components/schemas/{name}"})
        for name, schema in components["schemas"].items()
        for example in schema.get("examples", ())
    ]
    for path in document["paths"].values():
        for operation in path.values():
            bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
            media = [one for part in bodies for one in part.get("content", {}).values()]
            media += operation.get("parameters", ())
            for one in media:
                given = [*one.get("examples", ()), *filter(None, [one.get("example")])]
                given += one.get("schema", {}).get("examples", ())
                examples += [(example, one["schema"]) for example in given]
    assert len(examples) > len(_OPERATIONS)
    for example, schema in examples:
        jsonschema_rs.validate({**schema, "components": components}, example)


def test_operation_ids_are_unique_function_names(document: dict[str, Any]) -> None:
    ids = [o["operationId"] for path in document["paths"].values() for o in path.values()]
    assert "describe_cluster" in ids
    assert len(ids) == len(set(ids))


async def test_the_gateway_is_live_whatever_the_cluster_does(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.rejection = TidelogError(ErrorCode.REQUEST_TIMED_OUT, "nobody answers")
    assert (await gateway.get("/health")).json() == {"status": "alive"}


async def test_the_gateway_is_ready_when_a_broker_and_the_controller_answer(
    gateway: httpx.AsyncClient,
) -> None:
    body = (await gateway.get("/ready")).json()
    assert body == {"status": "ready", "controller": "127.0.0.1:7401", "brokers": 1}


@pytest.mark.parametrize("path", ["/health", "/ready", "/v1/cluster", "/v1/operations/never"])
async def test_a_head_request_is_answered_like_a_get_without_the_body(
    gateway: httpx.AsyncClient, path: str
) -> None:
    read, head = await gateway.get(path), await gateway.head(path)
    assert head.status_code == read.status_code
    assert head.headers["Content-Type"] == read.headers["Content-Type"]
    assert head.headers["Content-Length"] == str(len(read.content))
    assert head.content == b""


async def test_a_stream_rejects_head_requests(gateway: httpx.AsyncClient) -> None:
    assert (await gateway.head("/v1/events/stream")).status_code == 405


async def test_a_head_request_is_counted_under_its_route(gateway: httpx.AsyncClient) -> None:
    await gateway.head("/v1/cluster")
    lines = (await gateway.get("/metrics")).text.splitlines()
    counted = 'tidelog_gateway_requests_total{method="other",route="/v1/cluster",status="200"} 1.0'
    assert counted in lines


def test_a_tagged_resource_documents_its_entity_tag(document: dict[str, Any]) -> None:
    documented = document["paths"]["/v1/operations/{operation_id}"]["get"]["responses"]["200"]
    assert "ETag" in documented["headers"]


async def test_without_a_controller_the_gateway_is_not_ready_and_says_why(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.rejections["describe_throttle"] = TidelogError(ErrorCode.REQUEST_TIMED_OUT, "gone")
    answer = await gateway.get("/ready")
    assert answer.status_code == 503
    assert answer.json()["detail"] == ("the active controller did not answer: gone")


async def test_rejections_are_counted_by_limit_as_in_brokers(
    fake_cluster: FakeCluster,
) -> None:
    app = fake_cluster.app()
    usage: Usage = app.state.gateway.usage
    usage.rejected("10.0.0.7", "max_requests_per_client", 128)
    async with client_of(app) as gateway:
        lines = (await gateway.get("/metrics")).text.splitlines()
    counted = f'{CLIENT_REJECTIONS.name}{{limit="%s"}} %s'
    assert counted % ("max_requests_per_client", 1.0) in lines
    for limit in set(GATEWAY_LIMITS) - {"max_requests_per_client"}:
        assert counted % (limit, 0.0) in lines


async def test_requests_are_counted_by_route_and_status(gateway: httpx.AsyncClient) -> None:
    await gateway.get("/v1/cluster")
    await gateway.get("/v1/oceans")
    lines = (await gateway.get("/metrics")).text.splitlines()
    counted = 'tidelog_gateway_requests_total{method="GET",route="%s",status="%s"} 1.0'
    assert counted % ("/v1/cluster", 200) in lines
    assert counted % ("none", 404) in lines
    assert 'tidelog_gateway_request_duration_seconds_count{method="GET"} 2.0' in lines


async def test_the_cluster_description_lists_departed_brokers(
    gateway: httpx.AsyncClient,
) -> None:
    body = (await gateway.get("/v1/cluster")).json()
    assert body["controller"]["controller_id"] == 1
    assert body["brokers"][0]["rack"] == "a"
    statuses = [(b["broker_id"], b["status"]) for b in body["brokers"]]
    assert statuses == [(1, "running"), (2, "gone"), (3, "gone")]


async def test_a_departed_broker_has_the_last_address_that_the_controller_knows(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.brokers += [
        broker(2, status="gone", broker_epoch=0, gone_at_ms=5),
        broker(3, status="gone", broker_epoch=0, gone_at_ms=7),
    ]
    body = (await gateway.get("/v1/cluster")).json()["brokers"]
    listed = (await gateway.get("/v1/brokers")).json()["items"]
    shared = ("broker_id", "status", "address", "rack", "broker_epoch")
    assert [[b[name] for name in shared] for b in body] == [
        [b[name] for name in shared] for b in listed
    ]


async def test_the_previous_name_of_a_status_is_its_alias(gateway: httpx.AsyncClient) -> None:
    body = (await gateway.get("/v1/cluster")).json()["brokers"]
    assert all(b["state"] == b["status"] for b in body)
    fields = (await gateway.get("/openapi.json")).json()["components"]["schemas"]
    assert fields["RegisteredBroker"]["properties"]["state"]["deprecated"] is True
