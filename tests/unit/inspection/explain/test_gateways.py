"""Gateways that no longer announce themselves."""

from __future__ import annotations

import pytest

from tidelog.inspection.explain import Listening
from tidelog.inspection.explain.observation import SilentGateway
from tidelog.inspection.gateway_reports import AnnouncedGateway, known_gateways, state_of
from tidelog.inspection.state_reports import ControllerState, ServiceState, StoreHealth
from unit.inspection.explain.described import NOW_MS, DescribedCluster, causes_of, found, text_of

ADDRESS, OTHER = "gate-1:7600", "gate-2:7600"


def gateway(
    address: str = ADDRESS, last_heard_ms: int = 14_000, is_stopped: bool = False
) -> AnnouncedGateway:
    host = address.partition(":")[0]
    return AnnouncedGateway(
        address, host, 4711, "0.1.0", NOW_MS - 60_000, last_heard_ms, is_stopped
    )


@pytest.fixture
def cluster() -> DescribedCluster:
    described = DescribedCluster()
    described.partition("sea/0")
    return described


def silence(cluster: DescribedCluster, listening: Listening | None, ago_ms: int = 14_000) -> None:
    silent = gateway(last_heard_ms=ago_ms)
    cluster.gateways.append(silent)
    cluster.silent_gateways.append(SilentGateway(silent, listening))


@pytest.mark.parametrize(
    ("listening", "state", "step"),
    [
        (Listening.ACCEPTS, "is paused", "`kill -CONT 4711` lets it continue"),
        (
            Listening.REFUSES,
            "has ended without a clean stop",
            "make start PART=admin-api",
        ),
        (Listening.SILENT, "is dead or cut off", "Check the machine gate-1 and the network to it"),
        (Listening.UNRESOLVED, "does not resolve", "Check the machine gate-1"),
        (None, "cannot be reached from other machines", "On gate-1, check whether process 4711"),
    ],
)
def test_a_silent_gateway_is_judged_by_probing_its_address(
    cluster: DescribedCluster, listening: Listening | None, state: str, step: str
) -> None:
    silence(cluster, listening)
    finding = found(cluster.explain(), "gateway_silent")
    assert finding.severity == "warning"
    assert finding.summary.startswith(f"the gateway at {ADDRESS} on gate-1 ")
    assert state in finding.summary
    assert "silent since 2023-11-14T22:13:06Z (14.0 s)" in finding.summary
    assert "gRPC clients and `tidelog` commands do not need it" in finding.summary
    assert "controller-1: the last announcement" in text_of(finding)
    assert "process 4711, release 0.1.0" in text_of(finding)
    assert step in finding.next_step


def test_a_long_silent_gateway_that_answers_http_is_cut_off(
    cluster: DescribedCluster,
) -> None:
    silence(cluster, Listening.BUSY)
    assert cluster.explain() == []
    cluster.gateways.clear()
    cluster.silent_gateways.clear()
    silence(cluster, Listening.BUSY, 30_000)
    finding = found(cluster.explain(), "gateway_silent")
    assert "cut off from the controllers, though it answers HTTP" in finding.summary
    assert "Check the network from gate-1" in finding.next_step


def test_other_gateways_are_listed_and_not_blamed(cluster: DescribedCluster) -> None:
    cluster.gateways.append(gateway(OTHER, 100))
    silence(cluster, Listening.ACCEPTS)
    finding = found(cluster.explain(), "gateway_silent")
    assert OTHER not in finding.summary
    assert f"alive gateways: {OTHER} on gate-2" in text_of(finding)


def test_a_silent_gateway_concerns_the_whole_cluster(cluster: DescribedCluster) -> None:
    silence(cluster, Listening.ACCEPTS)
    assert causes_of(cluster.explain()) == ["gateway_silent"]
    assert cluster.explain(topic="sea") == []


def controller(controller_id: int, *gateways: AnnouncedGateway) -> ServiceState:
    state = ControllerState(active=False, controller_epoch=-1, gateways=gateways)
    return ServiceState("controller", controller_id, "", "", 0, 0, StoreHealth(), controller=state)


def test_the_newest_announcement_of_any_controller_counts() -> None:
    [known] = known_gateways([controller(1, gateway()), controller(2, gateway(last_heard_ms=900))])
    assert (known.last_heard_ms, state_of(known)) == (900, "alive")


def test_a_goodbye_to_one_controller_suffices() -> None:
    last, farewell = gateway(last_heard_ms=13_000), gateway(is_stopped=True)
    [known] = known_gateways([controller(1, last), controller(2, farewell)])
    assert state_of(known) == "stopped"


@pytest.mark.parametrize(("ago_ms", "state"), [(9_999, "alive"), (10_000, "silent")])
def test_a_few_lost_announcements_are_no_finding(ago_ms: int, state: str) -> None:
    assert state_of(gateway(last_heard_ms=ago_ms)) == state
