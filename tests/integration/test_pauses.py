"""No valid request of any RPC blocks an event loop for long.

The largest request of every RPC of every service is sent. A new RPC is included, because the
services' descriptors are enumerated. Here a pause must stay well below a lease, on any machine, and
the processor time of a pause far below that; `make bench-pauses` measures the target of 50 ms on an
idle one."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from bench.pauses import requests
from bench.pauses.expected_rejections import EXPECTED, unexpected
from bench.pauses.operations import of_operations, steps
from bench.pauses.reports import loops_that_report
from bench.pauses.rest import RestCase, of_gateway, writes
from bench.pauses.rest_operations import changes, of_gateway_changes
from bench.pauses.run import Bounds, Pause, of_cluster
from integration.clusters import running_cluster
from tidelog_runtime.local.cluster import LocalCluster
from unit.admin_api.fakes import FakeCluster

PROTOS = Path(__file__).parents[2] / "proto" / "tidelog" / "v1"
SERVICE = re.compile(r"^service (\w+) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
# The shortest pause of each request counts, because other load only lengthens pauses. A request is
# sent again only after a pause that is too long.
MAX_ROUNDS = 3
# Elapsed: a third of a broker's lease: a longer request on a busy machine can cost a registration.
# Processor time, which other load hardly changes: three times the target, for slow machines.
BOUNDS = Bounds(ms=1_000.0, own_ms=150.0)
# Fewer than in the measurement, because a test must not take minutes.
PARTITIONS, BY_HAND, SETTLED_S = 600, 200, 0.2


def test_every_rpc_of_every_service_is_called() -> None:
    called = {case.method for case in requests.cases(requests.all_rpcs())}
    described = {
        f"/tidelog.v1.{service}/{rpc}"
        for proto in PROTOS.glob("*.proto")
        for service, body in re.findall(
            r"^service (\w+) \{(.*?)^\}", proto.read_text(), re.M | re.S
        )
        for rpc in re.findall(r"^  rpc (\w+)\(", body, re.M)
    }
    standard = {
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    }
    assert described
    assert called == described | standard


def test_each_rpc_whose_largest_request_is_rejected_has_a_valid_one() -> None:
    carried_out = {step.case.method for step in steps(0, PARTITIONS)}
    valid = carried_out | requests.EXPENSIVE.keys()
    rejected = {name.partition(":")[0].rpartition(".")[2] for name in EXPECTED}
    # They are fenced: only commands of the controller are valid.
    internal = {"LeaderAndIsr", "StopReplica", "DescribeReplicas", "Watch", "AnnounceGateway"}
    assert rejected - internal <= {method.rpartition("/")[2] for method in valid}


def test_an_unexpected_rejection_is_found_in_any_part_of_an_answer() -> None:
    rejected = Pause("controller", "AddPartitions: 3,000", (0.0,), "rejected: ERROR_CODE_INTERNAL")
    (largest,) = (name for name in EXPECTED if name == "DeleteTopic: largest")
    other = Pause("controller", largest, (0.0,), "rejected: ERROR_CODE_INTERNAL: ")
    taken = Pause("controller", largest, (0.0,), "OK")
    expected = Pause("controller", largest, (0.0,), f"rejected: {EXPECTED[largest]}: ")
    assert len(unexpected([rejected, other, taken, expected])) == 3


def test_every_route_that_changes_something_is_called() -> None:
    def shape(path: str) -> str:
        return re.sub(r"/(pauses[\w-]*|rest-[\w-]+|\d+)(?=/|$)", "/{}", path.partition("?")[0])

    def routes_of(cases: Iterable[RestCase]) -> set[tuple[str, str]]:
        return {(case.verb.lower(), shape(case.path)) for case in cases}

    described = {
        (method, re.sub(r"\{\w+\}", "{}", path))
        for path, methods in FakeCluster().app().openapi()["paths"].items()
        for method in methods.keys() - {"get"}
    }
    assert described - (routes_of(changes(0)) | routes_of(writes())) == set()


@asynccontextmanager
async def _cluster(directory: Path) -> AsyncIterator[LocalCluster]:
    # Enough brokers that the cluster can lose one.
    with loops_that_report(directory / "pauses"):
        async with running_cluster(directory, brokers=3, controllers=1, gateway=True) as cluster:
            yield cluster


def _check(pauses: Iterable[Pause]) -> None:
    found = list(pauses)
    assert found
    # A rejected request costs less than the request that was to be measured.
    assert unexpected(found) == []
    assert all(pause.own_seconds for pause in found)
    assert too_long(found) == []


def too_long(pauses: Iterable[Pause]) -> list[str]:
    return [
        f"{pause.service} {pause.case}: {pause.shortest_ms:.0f} ms, of these "
        f"{pause.own_shortest_ms:.0f} ms of its processor time ({pause.answer})"
        for pause in pauses
        if not BOUNDS.contain(pause)
    ]


def test_a_pause_is_too_long_by_elapsed_time_or_by_its_own_processor_time() -> None:
    waits = Pause("broker", "it waits", (1.1, 1.2), "OK", (0.04, 0.04))
    computes = Pause("broker", "it computes", (0.2, 0.9), "OK", (0.2, 0.16))
    passing = Pause("broker", "it waited once", (2.0, 0.2), "OK", (0.3, 0.1))
    assert [line.split(":")[0] for line in too_long((waits, computes, passing))] == [
        "broker it waits",
        "broker it computes",
    ]


async def test_no_valid_request_holds_an_event_loop_for_long(tmp_path: Path) -> None:
    async with _cluster(tmp_path) as cluster:
        pauses = [pause async for pause in of_cluster(cluster, MAX_ROUNDS, BOUNDS)]
        pauses += [pause async for pause in of_gateway(cluster, MAX_ROUNDS, BOUNDS)]
    _check(pauses)


async def test_no_change_of_the_cluster_holds_an_event_loop_for_long(tmp_path: Path) -> None:
    async with _cluster(tmp_path) as cluster:
        found = of_operations(cluster, MAX_ROUNDS, PARTITIONS, BY_HAND, SETTLED_S, BOUNDS)
        _check([pause async for pause in found])


async def test_no_change_through_the_gateway_holds_an_event_loop_for_long(tmp_path: Path) -> None:
    async with _cluster(tmp_path) as cluster:
        found = of_gateway_changes(cluster, MAX_ROUNDS, BY_HAND, SETTLED_S, BOUNDS)
        _check([pause async for pause in found])
