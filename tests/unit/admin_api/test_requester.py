"""Every call to the cluster carries the caller and the trace."""

from __future__ import annotations

import random
from typing import Any

import httpx
import pytest

from tidelog.rpc.trace_context import Metadata, carried
from tidelog_admin_api.middleware import RequestContextMiddleware
from tidelog_admin_api.requester import requested_by, trace_of
from unit.admin_api.fakes import FakeAdmin

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def test_calls_carry_the_caller_and_the_trace(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    headers = {"X-Tidelog-Requested-By": "ada", "traceparent": TRACEPARENT}
    answer = await gateway.get("/v1/cluster", headers=headers)
    metadata = dict(admin.metadata[0] or ())
    assert metadata["tidelog-requested-by"] == "ada"
    assert metadata["traceparent"] == TRACEPARENT
    assert answer.headers["x-tidelog-trace-id"] == "4bf92f3577b34da6a3ce929d0e0e4736"


async def test_the_default_caller_name_is_the_remote_address(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    await gateway.get("/v1/cluster")
    metadata = dict(admin.metadata[0] or ())
    assert metadata["tidelog-requested-by"] == "10.1.2.3"
    assert metadata["tidelog-requested-from"] == "10.1.2.3:4711"


@pytest.mark.parametrize(
    ("client", "forwarded"),
    [
        (("::1", 7), "[::1]:7"),
        (("10.1.2.3", 0), "10.1.2.3"),
        (("\xe9", 0), "unknown"),
        (("a" * 9_000, 0), "unknown"),
        (None, "unknown"),
    ],
)
async def test_a_valid_proxy_supplied_address_is_forwarded(
    client: tuple[str, int] | None, forwarded: str
) -> None:
    seen: list[Metadata | None] = []

    async def app(*_: object) -> None:
        seen.append(carried())

    scope: dict[str, Any] = {"type": "http", "headers": [], "client": client}
    await RequestContextMiddleware(app, random.Random(1))(scope, None, None)  # type: ignore[arg-type]  # not used
    assert dict(seen[0] or ())["tidelog-requested-from"] == forwarded


@pytest.mark.parametrize("said", ["J\xfcrgen".encode(), b"J\xfcrgen", b"a\tb", b"a" * 201])
async def test_an_unencodable_caller_name_is_rejected(
    gateway: httpx.AsyncClient, admin: FakeAdmin, said: bytes
) -> None:
    headers = {b"X-Tidelog-Requested-By": said}
    answer = await gateway.get("/v1/cluster", headers=headers)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "INVALID_REQUEST")
    assert problem["detail"].startswith("X-Tidelog-Requested-By '")
    assert problem["detail"].endswith("give at most 200 printable characters of ASCII")
    assert admin.metadata == []


async def test_a_caller_name_is_forwarded_unchanged(gateway: httpx.AsyncClient) -> None:
    headers = {b"X-Tidelog-Requested-By": "J\xfcrgen".encode()}
    answer = await gateway.get("/v1/cluster", headers=headers)
    assert "'J\xfcrgen' cannot be sent" in answer.json()["detail"]


async def test_monitoring_endpoints_accept_any_caller_name(gateway: httpx.AsyncClient) -> None:
    answer = await gateway.get("/health", headers={b"X-Tidelog-Requested-By": b"\xfc"})
    assert answer.status_code == 200


def test_the_log_has_the_address_in_place_of_a_rejected_name() -> None:
    assert requested_by({"X-Tidelog-Requested-By": "a\nd\xe9a"}, "10.1.2.3") == "10.1.2.3"


def test_an_invalid_trace_is_replaced_by_a_new_one() -> None:
    made = dict(trace_of({"traceparent": "00-zz"}, random.Random(1)))["traceparent"]
    assert made.startswith("00-")
    assert len(made) == len(TRACEPARENT)


def test_trace_state_that_grpc_cannot_carry_is_dropped() -> None:
    for state in ("vendor=a\tb", "vendor=" + "a" * 9_000):
        headers = {"traceparent": TRACEPARENT, "tracestate": state}
        assert trace_of(headers, random.Random(1)) == (("traceparent", TRACEPARENT),)
