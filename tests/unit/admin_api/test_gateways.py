"""/v1/gateways."""

from __future__ import annotations

import httpx
import pytest

from tidelog.caller_limits import LimitedClient
from tidelog.client.service_states import ReportedStates
from tidelog.inspection.gateway_reports import GATEWAY_SILENT_MS, AnnouncedGateway
from tidelog.inspection.resource_pressures import ResourcePressure
from tidelog.inspection.state_reports import (
    ControllerState,
    ServiceState,
    StateRequest,
    StoreHealth,
)
from unit.admin_api.fakes import FakeCluster

LIMITED = LimitedClient("10.0.0.7", "max_requests_per_client", 128, 5, 900)


def gateway_at(address: str, last_heard_ms: int, **fields: object) -> AnnouncedGateway:
    values: dict[str, object] = {"pid": 7, "version": "0.1.0", "started_at_ms": 5, **fields}
    return AnnouncedGateway(address, "gate", last_heard_ms=last_heard_ms, **values)  # type: ignore[arg-type]


def controller(id_: int, *gateways: AnnouncedGateway) -> ServiceState:
    state = ControllerState(active=id_ == 1, controller_epoch=3, gateways=gateways)
    return ServiceState(
        "controller", id_, f"c-{id_}:7400", "0.1.0", 0, 0, StoreHealth(), controller=state
    )


@pytest.fixture
def announced(fake_cluster: FakeCluster) -> None:
    fake_cluster.states.reported = ReportedStates(
        (
            controller(
                1,
                gateway_at("gate:1", 900, limited_clients=(LIMITED,)),
                gateway_at("gate:3", 5, is_stopped=True),
            ),
            controller(2, gateway_at("gate:1", 40), gateway_at("gate:2", GATEWAY_SILENT_MS)),
        ),
        (),
    )


@pytest.mark.usefixtures("announced")
async def test_gateways_are_paged_with_the_newest_announcement_of_each(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    first = (await gateway.get("/v1/gateways", params={"page_size": 2})).json()
    token = first["next_page_token"]
    rest = (await gateway.get("/v1/gateways", params={"page_token": token})).json()
    assert [(g["address"], g["state"]) for g in (*first["items"], *rest["items"])] == [
        ("gate:1", "alive"),
        ("gate:2", "silent"),
        ("gate:3", "stopped"),
    ]
    assert first["items"][0] == {
        "address": "gate:1",
        "host": "gate",
        "pid": 7,
        "version": "0.1.0",
        "started_at_ms": 5,
        "last_heard_ms": 40,
        "state": "alive",
        "limited_clients": [],
        "pressures": [],
    }
    assert rest["next_page_token"] == ""
    assert fake_cluster.states.requests[0] == StateRequest(services_only=True)


async def test_clients_at_a_limit_are_listed_with_the_gateway(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    at_limit = gateway_at("gate:1", 9, limited_clients=(LIMITED,))
    fake_cluster.states.reported = ReportedStates((controller(1, at_limit),), ())
    [item] = (await gateway.get("/v1/gateways")).json()["items"]
    assert item["limited_clients"] == [
        {
            "address": "10.0.0.7",
            "limit": "max_requests_per_client",
            "value": 128,
            "rejected": 5,
            "last_ms": 900,
        }
    ]


async def test_shortages_are_listed_with_the_gateway(
    gateway: httpx.AsyncClient, fake_cluster: FakeCluster
) -> None:
    files = ResourcePressure("open_files", 90, 100, 5, "why")
    short = gateway_at("gate:1", 9, pressures=(files,))
    fake_cluster.states.reported = ReportedStates((controller(1, short),), ())
    [item] = (await gateway.get("/v1/gateways")).json()["items"]
    assert item["pressures"] == [
        {"resource": "open_files", "used": 90, "limit": 100, "since_ms": 5, "detail": "why"}
    ]


async def test_without_a_controller_the_list_is_an_error_and_not_empty(
    gateway: httpx.AsyncClient,
) -> None:
    answer = await gateway.get("/v1/gateways")
    assert answer.status_code == 503
    assert "only controllers know gateways" in answer.json()["detail"]


async def test_the_list_is_served_only_under_the_gateways_own_names(
    gateway: httpx.AsyncClient,
) -> None:
    answer = await gateway.get("/v1/gateways", headers={"Host": "elsewhere.example"})
    assert answer.status_code == 421
