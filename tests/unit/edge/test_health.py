"""The standard health service."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tidelog.rpc.channels import new_server, open_channel
from tidelog.rpc.health import HealthService

SERVING, NOT_SERVING, UNKNOWN = (
    health_pb2.HealthCheckResponse.SERVING,
    health_pb2.HealthCheckResponse.NOT_SERVING,
    health_pb2.HealthCheckResponse.SERVICE_UNKNOWN,
)


@pytest.fixture
def service() -> HealthService:
    return HealthService(["tidelog.v1.BrokerService"])


@pytest.fixture
async def stub(service: HealthService) -> AsyncIterator[Any]:
    server = new_server()
    health_pb2_grpc.add_HealthServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with open_channel(f"127.0.0.1:{port}") as channel:
        yield health_pb2_grpc.HealthStub(channel)
    await server.stop(None)


def of(name: str) -> Any:
    return health_pb2.HealthCheckRequest(service=name)


@pytest.mark.parametrize("name", ["", "tidelog.v1.BrokerService"])
async def test_a_check_and_a_watch_answer_the_status_and_its_changes(
    service: HealthService, stub: Any, name: str
) -> None:
    watching = stub.Watch(of(name))
    assert (await watching.read()).status == NOT_SERVING
    assert (await stub.Check(of(name))).status == NOT_SERVING

    service.set_serving(True)

    assert (await watching.read()).status == SERVING
    assert (await stub.Check(of(name))).status == SERVING
    watching.cancel()


async def test_an_unknown_service_is_not_found(stub: Any) -> None:
    watching = stub.Watch(of("tidelog.v1.Nothing"))
    assert (await watching.read()).status == UNKNOWN
    watching.cancel()
    with pytest.raises(grpc.aio.AioRpcError, match="there is no service"):
        await stub.Check(of("tidelog.v1.Nothing"))


async def test_a_watcher_that_takes_no_status_does_not_hold_up_others(
    service: HealthService,
) -> None:
    context: Any = None
    idle = service.Watch(of(""), context)
    assert (await anext(idle)).status == NOT_SERVING
    other = service.Watch(of(""), context)
    assert (await anext(other)).status == NOT_SERVING

    service.set_serving(True)

    assert (await anext(other)).status == SERVING
