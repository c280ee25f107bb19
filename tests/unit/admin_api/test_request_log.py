"""Log events of requests."""

from __future__ import annotations

import httpx
from structlog.testing import capture_logs

from tidelog.errors import ErrorCode, TidelogError
from unit.admin_api.fakes import FakeAdmin


async def test_a_change_is_logged_with_its_caller(gateway: httpx.AsyncClient) -> None:
    with capture_logs() as lines:
        answer = await gateway.put(
            "/v1/throttle",
            params={"dry_run": True},
            json={"bytes_per_second": None},
            headers={"X-Tidelog-Requested-By": "ada"},
        )
    (line,) = lines
    assert (line["event"], line["log_level"], line["status"]) == ("request_answered", "info", 200)
    assert (line["method"], line["path"]) == ("PUT", "/v1/throttle")
    assert (line["query"], line["requested_by"]) == ("dry_run=true", "ada")
    assert line["trace_id"] == answer.headers["x-tidelog-trace-id"]


async def test_a_read_is_not_logged_at_info(gateway: httpx.AsyncClient) -> None:
    with capture_logs() as lines:
        await gateway.get("/v1/cluster")
    assert [line["log_level"] for line in lines] == ["debug"]


async def test_a_failed_request_is_logged_as_a_warning(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.rejection = TidelogError(ErrorCode.REQUEST_TIMED_OUT, "nobody answered")
    with capture_logs() as lines:
        await gateway.get("/v1/cluster")
    assert [(line["log_level"], line["status"]) for line in lines] == [("warning", 504)]


async def test_a_fault_is_logged_once_with_its_cause(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    admin.rejection = ZeroDivisionError("a mistake")
    with capture_logs() as lines:
        answer = await gateway.get("/v1/cluster")
    faults = [line for line in lines if line["event"] == "request_failed"]
    assert len(faults) == 1
    assert faults[0]["exc_info"]
    assert faults[0]["trace_id"] == answer.json()["trace_id"]
