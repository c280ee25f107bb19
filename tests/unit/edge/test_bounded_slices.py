"""Handlers of broker and controller RPCs yield to the event loop while they read the largest
request that their limits allow. A slice makes a bounded number of function calls, which does not
depend on the machine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any

import grpc
import pytest

from bench.pauses.requests import empty_entries, largest, method_name, rpcs_of
from tidelog.errors import ErrorCode, TidelogError
from tidelog.request_bounds import MAX_RANGE_BATCHES
from tidelog.rpc.message_bounds import check_in_slices, is_internal
from tidelog.v1 import admin_pb2, broker_pb2, controller_pb2, replica_control_pb2, replica_pb2
from tidelog_broker.core.partition.range_digest import DIGEST_VERSION
from tidelog_broker.edge.replica_codec import request_from_wire
from tidelog_broker.edge.replica_control_service import ReplicaControlService
from tidelog_controller.edge.admin import AdminServicer
from tidelog_controller.edge.controller_servicer import ControllerServicer
from tidelog_controller.state.commands import AdminReply
from tidelog_runtime.replica_control import CommandResult, DescribeReplicasResult

# A C function call takes about 0.1 µs, and a Python call 0.3 µs with its body,
# so a slice of this many calls takes some five milliseconds.
MAX_CALLS = 30_000
ERROR = TidelogError(ErrorCode.INVALID_REQUEST, "not done")

PUBLIC = [
    pytest.param(rpc, id=rpc.name) for rpc in rpcs_of((broker_pb2, admin_pb2, controller_pb2))
]


class Calls:
    """Function calls since the loop's turn began; `most` is the maximum over all turns."""

    def __init__(self) -> None:
        self.most = self._now = 0

    def __enter__(self) -> Calls:
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        self.turn()

    def turn(self) -> None:
        self.most, self._now = max(self.most, self._now), 0

    def _count(self, frame: Any, event: str, argument: Any) -> None:  # noqa: ARG002
        if event in ("call", "c_call"):
            self._now += 1


async def most_calls(work: Coroutine[Any, Any, Any]) -> int:
    """The maximum number of calls in any one turn of the loop while the work is done."""
    calls = Calls()

    async def others() -> None:
        while True:
            calls.turn()
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    await asyncio.sleep(0)
    with calls:
        await work
    beside.cancel()
    return calls.most


@pytest.mark.parametrize("rpc", PUBLIC)
def test_checking_the_largest_request_yields_to_the_loop(rpc: Any) -> None:
    request = largest(rpc)
    with Calls() as calls:
        for _ in check_in_slices(request):
            calls.turn()
    assert calls.most <= MAX_CALLS


class Admin:
    async def submit(self, request: Any) -> AdminReply:  # noqa: ARG002
        return AdminReply(ERROR)


class Reports:
    def report(self, report: Any) -> TidelogError:  # noqa: ARG002
        return ERROR

    report_disk = report
    announce_gateway = report


class Replicas:
    broker_epoch = 1

    def fenced(self, name: str, command: Any, partitions: int) -> TidelogError | None:  # noqa: ARG002
        return None

    async def leader_and_isr(self, command: Any) -> CommandResult:  # noqa: ARG002
        return CommandResult(ERROR)

    stop_replica = leader_and_isr

    async def describe_replicas(self, command: Any) -> DescribeReplicasResult:  # noqa: ARG002
        return DescribeReplicasResult(ERROR)


class Context:
    def invocation_metadata(self) -> tuple[()]:
        return ()

    def peer(self) -> str:
        return "ipv4:10.0.0.7:1"

    async def abort(self, code: grpc.StatusCode, details: str, *_: object) -> None:
        raise AssertionError((code, details))


def handlers(
    module: ModuleType, servicer: Any
) -> list[tuple[Any, Callable[[Any, Any], Coroutine[Any, Any, Any]]]]:
    return [
        (rpc, getattr(servicer, rpc.name)) for rpc in rpcs_of((module,)) if not rpc.server_streaming
    ]


HANDLERS = (
    *handlers(admin_pb2, AdminServicer(Admin())),
    *handlers(controller_pb2, ControllerServicer(Reports())),
    *handlers(replica_control_pb2, ReplicaControlService(Replicas(), asyncio.Event())),  # type: ignore[arg-type]
)


@pytest.mark.parametrize(("rpc", "handle"), HANDLERS, ids=[method_name(r) for r, _ in HANDLERS])
async def test_reading_the_largest_request_yields_to_the_loop(
    rpc: Any, handle: Callable[[Any, Any], Coroutine[Any, Any, Any]]
) -> None:
    request = largest(rpc)
    assert await most_calls(handle(request, Context())) <= MAX_CALLS


INTERNAL = [pytest.param(r, h, id=r.name) for r, h in HANDLERS if is_internal(method_name(r))]
# The check that counts calls is slow; further entries cost as much as these.
COUNTED_ENTRIES = 150_000


@pytest.mark.parametrize(("rpc", "handle"), INTERNAL)
async def test_reading_full_nested_lists_yields_to_the_loop(
    rpc: Any, handle: Callable[[Any, Any], Coroutine[Any, Any, Any]]
) -> None:
    request = empty_entries(rpc, COUNTED_ENTRIES)
    assert await most_calls(handle(request, Context())) <= MAX_CALLS


async def test_reading_a_full_digest_yields_to_the_loop() -> None:
    (rpc,) = rpcs_of((replica_pb2,))
    request = empty_entries(rpc)
    assert len(request.digests[0].contents) == MAX_RANGE_BATCHES
    del request.partitions[:]
    for digest in request.digests:
        digest.version = DIGEST_VERSION
    assert await most_calls(request_from_wire(request)) <= MAX_CALLS


def test_every_handler_of_large_requests_is_tested() -> None:
    """Handlers of BrokerService need logs, so `bench/pauses` measures them and those of
    ReplicaService."""
    tried = {method_name(rpc) for rpc, _ in HANDLERS}
    modules = (admin_pb2, broker_pb2, controller_pb2, replica_control_pb2)
    missing = {method_name(rpc) for rpc in rpcs_of(modules) if not rpc.server_streaming} - tried
    assert {name.split("/")[1] for name in missing} == {"tidelog.v1.BrokerService"}
