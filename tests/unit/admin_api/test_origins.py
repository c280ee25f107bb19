"""Which names and pages the gateway answers."""

from __future__ import annotations

import httpx
import pytest

from tidelog_admin_api.origins import check_browser
from tidelog_admin_api.problems import ProblemError
from unit.admin_api.fakes import FakeAdmin

HOSTS = frozenset({"localhost", "tides.example"})
CROSS_SITE = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}


def status_of(method: str, path: str = "/v1/topics", **headers: str) -> int:
    """200: it is let in."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        check_browser(method, path, named, HOSTS)
    except ProblemError as refused:
        return int(refused.meaning.status)
    return 200


@pytest.mark.parametrize(
    "host", ["127.0.0.1:7600", "[::1]:7600", "localhost:7600", "TIDES.example", "gateway:7600", ""]
)
def test_it_is_asked_by_addresses_its_own_names_and_names_of_the_network(host: str) -> None:
    assert status_of("GET", host=host) == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:7600", "evil.example.", "["]
)
def test_a_name_that_somebody_else_may_own_is_told_nothing(host: str) -> None:
    assert status_of("GET", host=host) == 421


def test_whether_it_is_ready_is_told_by_any_name() -> None:
    assert status_of("GET", "/ready", host="balancer.example") == 200


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_page_of_another_origin_asks_nothing(method: str) -> None:
    for origin in ("http://evil.example", "http://localhost:3000", "null", "http://["):
        assert status_of(method, host="localhost:7600", origin=origin) == 403


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_its_own_page_asks_anything(method: str) -> None:
    assert status_of(method, host="localhost:7600", origin="http://localhost:7600") == 200


def test_a_page_under_a_name_of_the_network_reads_and_changes_nothing() -> None:
    asked = {"host": "gateway:7600", "origin": "http://gateway:7600"}
    assert [status_of(method, **asked) for method in ("GET", "POST")] == [200, 403]


def test_what_a_page_of_another_site_embeds_is_refused_and_a_link_followed() -> None:
    assert status_of("GET", host="localhost", **CROSS_SITE) == 403
    link = CROSS_SITE | {"sec-fetch-mode": "navigate"}
    assert status_of("GET", "/console/", host="localhost", **link) == 200
    assert status_of("POST", host="localhost", **link) == 403


async def test_a_name_that_points_here_by_somebody_elses_doing_reads_no_topic(
    gateway: httpx.AsyncClient, admin: FakeAdmin
) -> None:
    answer = await gateway.get("/v1/topics", headers={"Host": "evil.example:7600"})
    assert (answer.status_code, answer.json()["code"]) == (421, "UNKNOWN_HOST")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert admin.calls == []
