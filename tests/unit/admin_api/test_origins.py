"""The host names and page origins that the gateway accepts."""

from __future__ import annotations

import httpx
import pytest

from tidelog_admin_api.origins import check_browser
from tidelog_admin_api.problems import ProblemError
from unit.admin_api.fakes import FakeAdmin

HOSTS = frozenset({"localhost", "tides.example"})
CROSS_SITE = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}


def status_of(method: str, path: str = "/v1/topics", **headers: str) -> int:
    """The response status; 200 means accepted."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        check_browser(method, path, named, HOSTS)
    except ProblemError as rejected:
        return int(rejected.mapping.status)
    return 200


@pytest.mark.parametrize(
    "host", ["127.0.0.1:7600", "[::1]:7600", "localhost:7600", "TIDES.example", "gateway:7600", ""]
)
def test_addresses_own_names_and_network_names_are_accepted_hosts(host: str) -> None:
    assert status_of("GET", host=host) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:7600", "evil.example.", "["]
)
def test_a_name_that_others_may_own_gets_no_data(host: str) -> None:
    assert status_of("GET", host=host) == 421


def test_readiness_is_reported_under_any_name() -> None:
    assert status_of("GET", "/ready", host="balancer.example") == 200


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_page_of_another_origin_may_not_send_requests(method: str) -> None:
    for origin in ("http://evil.example", "http://localhost:3000", "null", "http://["):
        assert status_of(method, host="localhost:7600", origin=origin) == 403


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_own_page_may_send_any_request(method: str) -> None:
    assert status_of(method, host="localhost:7600", origin="http://localhost:7600") == 200


def test_a_page_under_a_network_name_may_read_but_not_change() -> None:
    requested = {"host": "gateway:7600", "origin": "http://gateway:7600"}
    assert [status_of(method, **requested) for method in ("GET", "POST")] == [200, 403]


def test_embedding_by_another_site_is_rejected_and_links_work() -> None:
    assert status_of("GET", host="localhost", **CROSS_SITE) == 403
    link = CROSS_SITE | {"sec-fetch-mode": "navigate"}
    assert status_of("GET", "/console/", host="localhost", **link) == 200
    assert status_of("POST", host="localhost", **link) == 403


async def test_a_rebound_dns_name_reads_no_topic(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    answer = await gateway.get("/v1/topics", headers={"Host": "evil.example:7600"})
    assert (answer.status_code, answer.json()["code"]) == (421, "UNKNOWN_HOST")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert admin.calls == []
