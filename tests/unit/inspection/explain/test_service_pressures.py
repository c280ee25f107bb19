"""Controllers and gateways that are short of open files, memory or CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.caller_limits import LimitedClient
from tidelog.inspection.explain import Listening, SilentService
from tidelog.inspection.explain.observation import SilentGateway
from tidelog.inspection.gateway_reports import AnnouncedGateway
from tidelog.inspection.resource_pressures import ControllerPressure, ResourcePressure
from tidelog.inspection.state_reports import TAKES_STATES, MissingController
from unit.inspection.explain.described import NOW_MS, DescribedCluster, causes_of, found, text_of

ONE, TWO = "127.0.0.1:7401", "127.0.0.1:7402"
GATE = AnnouncedGateway("gate-1:7600", "gate-1", 4711, "0.1.0", NOW_MS - 60_000, 500)


@pytest.fixture
def cluster() -> DescribedCluster:
    described = DescribedCluster()
    described.partition("sea/0")
    return described


def short(
    cluster: DescribedCluster, controller_id: int, resource: str, used: int, limit: int = 1_024
) -> None:
    pressure = ControllerPressure(controller_id, resource, used, limit, NOW_MS - 8_000)
    cluster.controller_pressures.append(pressure)


def silence(cluster: DescribedCluster, controller_id: int, listening: Listening) -> None:
    address = f"127.0.0.1:740{controller_id}"
    cluster.silent.append(
        SilentService(address, listening, "gave no answer", "controller", controller_id)
    )


def active_is_silent(cluster: DescribedCluster, listening: Listening) -> None:
    """Controller 1, which brokers name as the active one, is silent."""
    cluster.stop_controller()
    for broker_id, broker in cluster.brokers.items():
        cluster.brokers[broker_id] = replace(broker, controller_address=ONE)
    silence(cluster, 1, listening)


def test_a_controller_near_its_limit_is_a_warning_with_the_limit_and_how_to_raise_it(
    cluster: DescribedCluster,
) -> None:
    short(cluster, 1, "open_files", 850)
    [near] = cluster.explain()
    assert (near.cause, near.severity, near.broker) == ("open_files", "warning", -1)
    assert near.summary == "controller 1 is near its limit of open files: 850 of 1,024 are open"
    assert "limit of open files of controller 1" in near.next_step
    assert "controller-1 reports: open_files 850 of 1,024 since" in text_of(near)


@pytest.mark.parametrize("listening", [Listening.ACCEPTS, Listening.SILENT, Listening.BUSY])
def test_an_active_controller_without_files_works_and_is_not_paused(
    cluster: DescribedCluster, listening: Listening
) -> None:
    short(cluster, 1, "open_files", 1_020)
    active_is_silent(cluster, listening)
    [finding] = cluster.explain()
    assert (finding.cause, finding.severity) == ("open_files", "critical")
    assert "controller 1 has reached its limit of open files" in finding.summary
    assert "it keeps its lease" in finding.summary
    assert finding.summary.endswith("no other controller can take over")
    assert "prlimit --pid PID" in finding.next_step


def test_an_active_controller_without_files_transfers_leadership_to_a_standby(
    cluster: DescribedCluster,
) -> None:
    short(cluster, 1, "open_files", 1_024)
    active_is_silent(cluster, Listening.ACCEPTS)
    silence(cluster, 2, Listening.BUSY)
    files = found(cluster.explain(), "open_files")
    assert "it hands over to a standby (controller 2) once it could open no file for 10 s" in (
        files.summary
    )


def test_a_starting_broker_waits_for_the_controller_without_files(
    cluster: DescribedCluster,
) -> None:
    short(cluster, 1, "open_files", 1_020)
    active_is_silent(cluster, Listening.ACCEPTS)
    cluster.brokers[2] = replace(
        cluster.brokers[2], has_full_state=False, state="starting", start_phase=TAKES_STATES
    )
    starting = found(cluster.explain(), "broker_starting")
    assert starting.because == ("open_files of controller 1",)
    assert starting.next_step.startswith("See open_files of controller 1: broker 2 waits for a")


def test_a_controller_near_its_limit_is_paused_for_another_reason(
    cluster: DescribedCluster,
) -> None:
    short(cluster, 1, "open_files", 850)
    active_is_silent(cluster, Listening.ACCEPTS)
    assert causes_of(cluster.explain()) == ["no_controller", "open_files"]


def test_a_departed_controller_has_no_shortage(cluster: DescribedCluster) -> None:
    short(cluster, 1, "open_files", 1_024)
    active_is_silent(cluster, Listening.REFUSES)
    assert causes_of(cluster.explain()) == ["no_controller"]


def test_an_active_controller_that_gets_no_cpu_is_starved(cluster: DescribedCluster) -> None:
    short(cluster, 1, "cpu", 9_000, 10_000)
    active_is_silent(cluster, Listening.BUSY)
    [starved] = cluster.explain()
    assert (starved.cause, starved.severity) == ("cpu_starved", "warning")
    assert "controller 1 gets too little CPU" in starved.summary
    assert starved.summary.endswith("it is active, and does not answer in time")


def test_requests_to_an_active_controller_at_its_memory_limit_fail_for_that_reason(
    cluster: DescribedCluster,
) -> None:
    short(cluster, 1, "memory", 99, 100)
    active_is_silent(cluster, Listening.ERRS)
    findings = cluster.explain()
    assert causes_of(findings) == ["controller_unreachable", "memory_short"]
    assert findings[0].because == ("memory_short of controller 1",)
    assert findings[0].next_step.startswith("See memory_short of controller 1.")


def test_lease_losses_for_lack_of_cpu_explain_a_missing_active_controller(
    cluster: DescribedCluster,
) -> None:
    short(cluster, 1, "cpu", 9_000, 10_000)
    cluster.stop_controller()
    silence(cluster, 1, Listening.ACCEPTS)
    findings = cluster.explain()
    no_controller = found(findings, "no_controller")
    assert no_controller.because == ("cpu_starved of controller 1",)
    assert no_controller.next_step.startswith("See cpu_starved of controller 1.")
    assert "cpu_starved" in causes_of(findings)


@pytest.mark.parametrize("others", [True, False])
def test_a_standby_without_files_cannot_take_over(cluster: DescribedCluster, others: bool) -> None:
    short(cluster, 2, "open_files", 1_024)
    silence(cluster, 2, Listening.ACCEPTS)
    if others:
        silence(cluster, 3, Listening.BUSY)
    [finding] = cluster.explain()
    assert (finding.cause, finding.severity) == ("open_files", "warning")
    assert "it cannot take over from controller-1" in finding.summary
    assert ("no other controller can" in finding.summary) is not others


@pytest.mark.parametrize("answers", [True, False])
def test_a_controller_that_ended_for_lack_of_memory_is_reported_so(
    cluster: DescribedCluster, answers: bool
) -> None:
    short(cluster, 2, "memory", 97, 100)
    fault = "it ended for lack of memory: MemoryError"
    cluster.missing_controllers.append(
        MissingController(2, TWO, NOW_MS - 9_000, fault=fault, fault_at_ms=NOW_MS - 9_000)
    )
    silence(cluster, 2, Listening.REFUSES)
    if not answers:
        active_is_silent(cluster, Listening.REFUSES)
    findings = cluster.explain()
    missing = found(findings, "no_standby" if answers else "no_controller")
    assert f"as it reported at 2023-11-14T22:13:11Z (9.0 s ago), {fault}" in text_of(missing)
    assert "it used 97 % of its memory limit when it ended" in text_of(missing)
    assert "memory_short" not in causes_of(findings)
    if answers:
        assert missing.next_step.startswith("Raise the memory limit of controller 2")
        assert "Start controller 2 again" in missing.next_step


def test_a_standby_killed_at_its_memory_limit_is_known_before_its_lease_expires(
    cluster: DescribedCluster,
) -> None:
    short(cluster, 2, "memory", 97, 100)
    silence(cluster, 2, Listening.REFUSES)
    missing = found(cluster.explain(), "no_standby")
    assert "it used 97 % of its memory limit when it ended" in text_of(missing)
    assert missing.next_step.startswith("Raise the memory limit of controller 2")


def test_an_announced_gateway_reports_its_shortages(
    cluster: DescribedCluster,
) -> None:
    files = ResourcePressure("open_files", 1_020, 1_024, NOW_MS - 8_000)
    memory = ResourcePressure("memory", 95, 100, NOW_MS - 8_000)
    later = ResourcePressure("ports", 95, 100, NOW_MS - 8_000)
    cluster.gateways.append(replace(GATE, pressures=(files, later, memory)))
    findings = cluster.explain()
    assert causes_of(findings) == ["open_files", "memory_short"]
    assert "the gateway at gate-1:7600 on gate-1 has reached its limit of open files" in text_of(
        findings[0]
    )
    assert "new connections to its REST API and console get no answer" in findings[0].summary
    assert "memory limit of the gateway at gate-1:7600 on gate-1" in findings[1].next_step


def test_the_shortage_of_a_silent_gateway_is_reported_with_its_silence(
    cluster: DescribedCluster,
) -> None:
    memory = ResourcePressure("memory", 97, 100, NOW_MS - 8_000)
    silent = replace(GATE, pressures=(memory,), last_heard_ms=14_000)
    cluster.gateways.append(silent)
    cluster.silent_gateways.append(SilentGateway(silent, Listening.REFUSES))
    [finding] = cluster.explain()
    assert finding.cause == "gateway_silent"
    assert "in its last announcement: it is near its memory limit: it uses 97 %" in finding.summary
    assert finding.next_step.startswith("Raise the memory limit of the gateway at gate-1:7600")
    assert "make start PART=admin-api" in finding.next_step


def test_a_client_with_many_gateway_connections_is_one_finding(
    cluster: DescribedCluster,
) -> None:
    many = ResourcePressure("connections", 250, 256, NOW_MS - 8_000, "from 10.0.0.7")
    client = LimitedClient("10.0.0.7", "max_connections_per_client", 256, 5, 900)
    other = LimitedClient("10.0.0.8", "max_connections_per_client", 256, 5, 900)
    cluster.gateways.append(replace(GATE, pressures=(many,), limited_clients=(client,)))
    assert causes_of(cluster.explain()) == ["many_connections"]
    cluster.gateways[:] = [replace(GATE, pressures=(many,), limited_clients=(other,))]
    assert causes_of(cluster.explain()) == ["many_connections", "client_limited"]
