"""How a broker answers while it is starting."""

from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tidelog.inspection.state_reports import OPENS_LOGS, READS_METADATA, REGISTERS
from tidelog.rpc.channels import new_server, open_channel
from tidelog.rpc.health import HealthService
from tidelog.v1 import broker_pb2, broker_pb2_grpc, inspect_pb2, inspect_pb2_grpc
from tidelog.v1 import replica_control_pb2 as control_pb2
from tidelog.v1 import replica_control_pb2_grpc as control_pb2_grpc
from tidelog_broker.core.start_progress import StartProgress
from tidelog_broker.edge.start_gate import StartGate

Call = Callable[[grpc.aio.Channel], Awaitable[None]]


class Broker(broker_pb2_grpc.BrokerServiceServicer):
    async def Metadata(self, *_: object) -> broker_pb2.MetadataResponse:  # noqa: N802
        return broker_pb2.MetadataResponse()


class Control(control_pb2_grpc.ReplicaControlServiceServicer):
    async def Watch(self, *_: object) -> AsyncIterator[control_pb2.WatchResponse]:  # noqa: N802
        yield control_pb2.WatchResponse()


class Inspect(inspect_pb2_grpc.InspectServiceServicer):
    async def DescribeService(self, *_: object) -> inspect_pb2.DescribeServiceResponse:  # noqa: N802
        return inspect_pb2.DescribeServiceResponse()


@pytest.fixture
def start() -> StartProgress:
    return StartProgress()


@pytest.fixture
async def channel(start: StartProgress) -> AsyncIterator[grpc.aio.Channel]:
    """Of a server with generated services."""
    server = new_server(first=[StartGate(lambda: start.rejection_reason(3))])
    broker_pb2_grpc.add_BrokerServiceServicer_to_server(Broker(), server)  # type: ignore[abstract]
    control_pb2_grpc.add_ReplicaControlServiceServicer_to_server(Control(), server)  # type: ignore[abstract]
    inspect_pb2_grpc.add_InspectServiceServicer_to_server(Inspect(), server)  # type: ignore[abstract]
    health_pb2_grpc.add_HealthServicer_to_server(HealthService(serving=True), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with open_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(None)


async def metadata(channel: grpc.aio.Channel) -> None:
    await broker_pb2_grpc.BrokerServiceStub(channel).Metadata(broker_pb2.MetadataRequest())


async def watch(channel: grpc.aio.Channel) -> None:
    stub = control_pb2_grpc.ReplicaControlServiceStub(channel)
    async for _ in stub.Watch(control_pb2.WatchRequest()):
        pass


async def describe(channel: grpc.aio.Channel) -> None:
    stub = inspect_pb2_grpc.InspectServiceStub(channel)
    await stub.DescribeService(inspect_pb2.DescribeServiceRequest())


async def check(channel: grpc.aio.Channel) -> None:
    await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())


@pytest.mark.parametrize("call", [metadata, watch])
async def test_requests_fail_as_at_a_broker_that_is_down(
    start: StartProgress, channel: grpc.aio.Channel, call: Call
) -> None:
    start.enter(OPENS_LOGS)
    start.count(120, 5_003)

    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call(channel)

    assert (failed.value.code(), failed.value.details()) == (
        grpc.StatusCode.UNAVAILABLE,
        "broker 3 is starting: it opens its logs, 120 of 5,003",
    )


async def test_a_request_that_is_never_sent_is_rejected(channel: grpc.aio.Channel) -> None:
    call: grpc.aio.Call = channel.stream_unary("/tidelog.v1.BrokerService/Metadata")()

    assert await call.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("call", [describe, check])
async def test_health_checks_and_inspections_are_answered(
    channel: grpc.aio.Channel, call: Call
) -> None:
    await call(channel)


@pytest.mark.parametrize("call", [metadata, watch])
async def test_requests_are_accepted_once_the_metadata_has_been_read(
    start: StartProgress, channel: grpc.aio.Channel, call: Call
) -> None:
    start.enter(READS_METADATA)
    with pytest.raises(grpc.aio.AioRpcError):
        await call(channel)

    start.enter(REGISTERS)
    await call(channel)
