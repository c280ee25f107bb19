"""A failing handler ends only its own request, with a typed error. Uses a real server."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc.channels import new_server, open_channel
from tidelog.rpc.health import HealthService
from tidelog.rpc.status import from_status
from tidelog.v1 import broker_pb2, broker_pb2_grpc, inspect_pb2, inspect_pb2_grpc


class Broker(broker_pb2_grpc.BrokerServiceServicer):
    def __init__(self) -> None:
        self.error: Exception | None = None

    async def Metadata(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        if self.error is not None:
            raise self.error
        return broker_pb2.MetadataResponse(cluster_id="sea")

    Produce = Fetch = ListOffsets = InitProducerId = DescribeProducers = Metadata


class Inspect(inspect_pb2_grpc.InspectServiceServicer):
    async def WatchEvents(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        yield inspect_pb2.WatchEventsResponse(dropped=7)
        raise MemoryError

    Explain = DescribeService = WatchEvents


@asynccontextmanager
async def serving(broker: Broker) -> AsyncIterator[tuple[Any, Any]]:
    server = new_server()
    broker_pb2_grpc.add_BrokerServiceServicer_to_server(broker, server)
    inspect_pb2_grpc.add_InspectServiceServicer_to_server(Inspect(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            yield (
                broker_pb2_grpc.BrokerServiceStub(channel),
                inspect_pb2_grpc.InspectServiceStub(channel),
            )
    finally:
        await server.stop(None)


def typed(error: grpc.aio.AioRpcError) -> TidelogError:
    meant = from_status(error, "broker")
    assert isinstance(meant, TidelogError)
    return meant


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (MemoryError(), ErrorCode.INTERNAL, "MemoryError: the process may not use more memory"),
        (RecursionError("too deep"), ErrorCode.INTERNAL, "RecursionError: too deep"),
        (KeyError("x"), ErrorCode.INTERNAL, "whether it had an effect is not known: KeyError: 'x'"),
        (TidelogError(ErrorCode.STORAGE_ERROR, "full"), ErrorCode.STORAGE_ERROR, "full"),
    ],
)
async def test_a_failing_handler_ends_its_request_with_a_typed_error_and_the_service_continues(
    error: Exception, code: ErrorCode, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker()
    async with serving(broker) as (stub, _):
        for broker.error in (error, error):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Metadata(broker_pb2.MetadataRequest())
            assert typed(caught.value).code is code
            assert said in typed(caught.value).message
        broker.error = None
        assert (await stub.Metadata(broker_pb2.MetadataRequest())).cluster_id == "sea"
    if isinstance(error, MemoryError):
        assert "; raised: test_handler_failures.py:" in caplog.text
        assert "Traceback" not in caplog.text
    logged = caplog.text.count("request failed: Metadata")
    assert logged == (0 if isinstance(error, TidelogError) else 1)


async def test_a_method_that_a_standard_service_lacks_is_reported_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = new_server()
    health_pb2_grpc.add_HealthServicer_to_server(HealthService(serving=True), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with open_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        with pytest.raises(grpc.aio.AioRpcError, match="Health/List is not implemented") as caught:
            await stub.List(health_pb2.HealthListRequest())
    await server.stop(None)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert caplog.text == ""


async def test_a_failing_stream_ends_with_a_typed_error_after_its_messages() -> None:
    async with serving(Broker()) as (_, stub):
        call = stub.WatchEvents(inspect_pb2.WatchEventsRequest())
        assert (await call.read()).dropped == 7
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert typed(caught.value).code is ErrorCode.INTERNAL
        assert "WatchEvents failed in the service" in typed(caught.value).message


async def test_calls_that_grpc_ends_are_logged_in_one_line_at_intervals(
    caplog: pytest.LogCaptureFixture,
) -> None:
    new_server()
    log = logging.getLogger("grpc._cython.cygrpc")
    for method in ("Produce", "Produce", "Fetch"):
        try:
            raise grpc.aio.InternalError
        except grpc.aio.InternalError:
            log.exception(
                "ExecuteBatchError raised in core by servicer method "
                f"[/tidelog.v1.BrokerService/{method}]"
            )
    (record,) = caplog.records
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert record.getMessage().startswith("a Produce call ended before its answer was sent")
