"""No client address can use up the calls that a server accepts: neither with streams of standard
services that never end nor with calls whose request never arrives. Uses a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

from tidelog.caller_limits import RESERVED_FOR_HEALTH_CHECKS, CallerLimits, Callers
from tidelog.errors import ErrorCode, TidelogError
from tidelog.request_bounds import MAX_KEPT_REQUEST_BYTES, MAX_TEXT_BYTES
from tidelog.rpc import admission, channels
from tidelog.rpc.channels import MAX_CONCURRENT_CALLS, new_server, open_channel
from tidelog.rpc.health import HealthService
from tidelog.rpc.status import from_status
from tidelog.v1 import (
    broker_pb2,
    broker_pb2_grpc,
    inspect_pb2,
    inspect_pb2_grpc,
    replica_control_pb2,
    replica_control_pb2_grpc,
)
from tidelog_runtime.config import RegisteredConfig
from tidelog_runtime.health_check import frame
from unit.inspection.explain.described import DescribedCluster

# Of one address, of all together, and of the server.
OF_ONE, OF_ALL, OF_SERVER = 4, 6, 12
LIMITS = CallerLimits(OF_ALL, OF_ONE, OF_ONE)
# Brokers and controllers alone have this many calls, whatever clients do.
LEFT_FOR_INTERNAL = 448
PATIENCE_S = 20.0


class CountedCallers(Callers):
    """Reports each begin and end of a call."""

    def __init__(self, limits: CallerLimits) -> None:
        super().__init__(limits)
        self.begun, self.ended = asyncio.Semaphore(0), asyncio.Semaphore(0)

    def begin(self, peer: str, now_ms: int, reserved: int = 0) -> None:
        super().begin(peer, now_ms, reserved)
        self.begun.release()

    def end(self, peer: str) -> None:
        super().end(peer)
        self.ended.release()


class Broker(broker_pb2_grpc.BrokerServiceServicer):
    async def Metadata(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        return broker_pb2.MetadataResponse(cluster_id="sea")

    async def Produce(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        return broker_pb2.ProduceResponse()

    Fetch = ListOffsets = InitProducerId = DescribeProducers = Produce


class Inspect(inspect_pb2_grpc.InspectServiceServicer):
    async def WatchEvents(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        yield inspect_pb2.WatchEventsResponse()
        await asyncio.Event().wait()

    DescribeService = Explain = WatchEvents


class ReplicaControl(replica_control_pb2_grpc.ReplicaControlServiceServicer):
    async def LeaderAndIsr(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        return replica_control_pb2.LeaderAndIsrResponse()

    StopReplica = DescribeReplicas = LeaderAndIsr
    Watch: Any = LeaderAndIsr


@dataclass
class Serving:
    """`channel` and `other` reach the server from two addresses."""

    port: int
    callers: CountedCallers
    channel: grpc.aio.Channel
    other: grpc.aio.Channel
    streams: list[Any] = field(default_factory=list)

    async def check(self, service: str = "") -> int:
        request = health_pb2.HealthCheckRequest(service=service)
        stub: Any = health_pb2_grpc.HealthStub(self.channel)
        return int((await stub.Check(request)).status)

    async def opened(self, call: Any) -> TidelogError | None:
        """Returns why the stream is rejected; None: it is open, and has had an answer."""
        try:
            assert await call.read() is not grpc.aio.EOF
        except grpc.aio.AioRpcError as status:
            error = from_status(status, "broker")
            assert isinstance(error, TidelogError), error
            return error
        self.streams.append(call)
        return None


@asynccontextmanager
async def serving(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    limits: CallerLimits = LIMITS,
    of_server: int = OF_SERVER,
) -> AsyncIterator[Serving]:
    monkeypatch.setattr(channels, "MAX_CONCURRENT_CALLS", of_server)
    callers = CountedCallers(limits)
    server = new_server(callers)
    broker_pb2_grpc.add_BrokerServiceServicer_to_server(Broker(), server)
    inspect_pb2_grpc.add_InspectServiceServicer_to_server(Inspect(), server)
    replica_control_pb2_grpc.add_ReplicaControlServiceServicer_to_server(ReplicaControl(), server)
    health_pb2_grpc.add_HealthServicer_to_server(HealthService(serving=True), server)
    reflection.enable_server_reflection([reflection.SERVICE_NAME], server)
    port, socket = server.add_insecure_port("127.0.0.1:0"), f"unix:{directory / 'other'}"
    server.add_insecure_port(socket)
    await server.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop, None)
        one = await stack.enter_async_context(open_channel(f"127.0.0.1:{port}"))
        other = await stack.enter_async_context(open_channel(socket))
        async with asyncio.timeout(PATIENCE_S):
            yield Serving(port, callers, one, other)


async def check_others_are_served(on: Serving) -> None:
    broker: Any = broker_pb2_grpc.BrokerServiceStub(on.other)
    assert (await broker.Metadata(broker_pb2.MetadataRequest())).cluster_id == "sea"
    await broker.Produce(broker_pb2.ProduceRequest())
    control: Any = replica_control_pb2_grpc.ReplicaControlServiceStub(on.channel)
    await control.LeaderAndIsr(replica_control_pb2.LeaderAndIsrRequest())


def watch_health(on: Serving) -> Any:
    return health_pb2_grpc.HealthStub(on.channel).Watch(health_pb2.HealthCheckRequest())


def reflect(on: Serving) -> Any:
    async def one_request_and_no_end() -> AsyncIterator[Any]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")
        await asyncio.Event().wait()

    stub: Any = reflection_pb2_grpc.ServerReflectionStub(on.channel)
    return stub.ServerReflectionInfo(one_request_and_no_end())


def watch_events(on: Serving) -> Any:
    stub: Any = inspect_pb2_grpc.InspectServiceStub(on.channel)
    return stub.WatchEvents(inspect_pb2.WatchEventsRequest(follow=True))


@pytest.mark.parametrize("open_stream", [watch_health, reflect, watch_events])
async def test_streams_of_one_address_that_never_end_leave_room_for_others(
    open_stream: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, monkeypatch) as on:
        problems = [await on.opened(open_stream(on)) for _ in range(2 * OF_SERVER)]
        assert len(on.streams) == OF_ONE
        # A client that still sends when it is rejected can report a failed write instead.
        rejection = next(e for e in problems if e and e.code is ErrorCode.TOO_MANY_REQUESTS)
        assert "client 127.0.0.1 may have 4 requests at once" in rejection.message
        await check_others_are_served(on)
        assert await on.check() == health_pb2.HealthCheckResponse.SERVING
        assert on.callers.rejected["max_requests_per_client"] == 2 * OF_SERVER - OF_ONE
        for stream in on.streams:
            stream.cancel()


async def test_a_client_that_is_rejected_for_its_watch_streams_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, monkeypatch) as on:
        for _ in range(OF_ONE + 3):
            await on.opened(watch_health(on))
        (reached,) = on.callers.reached(on.callers.reached(0)[0].last_ms)
        cluster = DescribedCluster()
        cluster.limited_clients[1] = on.callers.limited(reached.last_ms)
        (finding,) = cluster.explain()
        assert finding.cause == "client_limited"
        assert (
            "client 127.0.0.1 has reached max_requests_per_client (4) of broker-1: 3 requests"
            in (finding.summary)
        )
        for stream in on.streams:
            stream.cancel()


async def never() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


def without_request(channel: grpc.aio.Channel, method: str) -> Any:
    """Begins a call and sends no request. The client knows nothing of the method's form."""
    begin: Any = channel.stream_unary(method)
    return begin(never())


@pytest.mark.parametrize(
    "method",
    [
        "/tidelog.v1.BrokerService/Produce",
        "/tidelog.v1.InspectService/WatchEvents",
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    ],
)
async def test_calls_whose_request_never_arrives_leave_room_for_others(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, monkeypatch) as on:
        calls = [without_request(on.channel, method) for _ in range(OF_ONE)]
        for _ in calls:
            await on.callers.begun.acquire()
        rejected = [without_request(on.channel, method) for _ in range(OF_SERVER)]
        for call in rejected:
            assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "max_requests_per_client" in await call.details()
        await check_others_are_served(on)
        for call in calls:
            call.cancel()
        while on.callers.requests:
            await on.callers.ended.acquire()


async def test_a_call_whose_request_does_not_arrive_is_ended_and_no_longer_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "REQUEST_ARRIVAL_TIMEOUT_S", 0.05)
    async with serving(tmp_path, monkeypatch) as on:
        for method in ("tidelog.v1.BrokerService/Metadata", "grpc.health.v1.Health/Watch"):
            call = without_request(on.channel, f"/{method}")
            assert "no request of this" in await call.details()
            await on.callers.ended.acquire()
        assert on.callers.requests == 0
        await check_others_are_served(on)


async def test_a_call_that_ends_without_a_request_is_rejected_and_no_longer_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, monkeypatch) as on:
        for method in ("tidelog.v1.BrokerService/Metadata", "grpc.health.v1.Health/Watch"):
            call: Any = on.channel.stream_unary(f"/{method}")(iter(()))
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "ended without a request" in await call.details()
            await on.callers.ended.acquire()
        assert on.callers.requests == 0


def call_frames(stream: int, method: bytes) -> bytes:
    """The frames of a call with an empty request."""

    def text(value: bytes) -> bytes:
        return len(value).to_bytes(1) + value

    headers = b"\x83\x86\x04" + text(method) + b"\x01" + text(b"localhost")
    headers += b"\x0f\x10" + text(b"application/grpc") + b"\x00" + text(b"te") + text(b"trailers")
    return frame(1, 0x4, stream, headers) + frame(0, 0x1, stream, bytes(5))


async def test_calls_whose_response_is_not_taken_leave_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, monkeypatch) as on:
        reader, writer = await asyncio.open_connection("127.0.0.1", on.port)
        no_window = (4).to_bytes(2) + (0).to_bytes(4)
        writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, no_window))
        for number in range(OF_SERVER):
            writer.write(call_frames(2 * number + 1, b"/tidelog.v1.BrokerService/Metadata"))
        answered = 0
        while answered < OF_SERVER:
            head = await reader.readexactly(9)
            await reader.readexactly(int.from_bytes(head[:3]))
            answered += head[3] == 1
        assert on.callers.requests == OF_ONE
        await check_others_are_served(on)
        writer.close()
        while on.callers.requests:
            await on.callers.ended.acquire()


async def test_health_checks_have_room_beyond_the_limits_and_are_limited_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = RESERVED_FOR_HEALTH_CHECKS
    async with serving(tmp_path, monkeypatch, CallerLimits(1, 1, 1), room + OF_SERVER) as on:
        assert await on.opened(watch_health(on)) is None
        assert await on.check() == health_pb2.HealthCheckResponse.SERVING
        waiting = [without_request(on.channel, "/grpc.health.v1.Health/Check") for _ in range(room)]
        for _ in range(room + 2):
            await on.callers.begun.acquire()
        with pytest.raises(grpc.aio.AioRpcError, match="max_client_requests"):
            await on.check()
        for call in (*waiting, *on.streams):
            call.cancel()


def test_clients_at_the_highest_limit_leave_calls_for_brokers_and_controllers() -> None:
    (highest,) = (
        each.le
        for each in RegisteredConfig.model_fields["max_client_requests"].metadata
        if hasattr(each, "le")
    )
    of_clients = highest + RESERVED_FOR_HEALTH_CHECKS
    assert of_clients + LEFT_FOR_INTERNAL <= MAX_CONCURRENT_CALLS


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (MAX_TEXT_BYTES + 1, "HealthCheckRequest.service has 4097 bytes; it has at most 4096"),
        (MAX_KEPT_REQUEST_BYTES, f"it has at most {MAX_KEPT_REQUEST_BYTES}"),
    ],
)
@pytest.mark.parametrize("method", ["Check", "Watch"])
async def test_a_health_request_with_a_long_service_name_is_rejected(
    method: str, size: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, monkeypatch) as on:
        request = health_pb2.HealthCheckRequest(service="n" * size)
        call = getattr(health_pb2_grpc.HealthStub(on.channel), method)(request)
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert message in await call.details()
        await on.callers.ended.acquire()
        assert on.callers.requests == 0


async def test_a_long_reflection_request_is_rejected_behind_a_valid_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, monkeypatch) as on:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(on.channel)
        long = reflection_pb2.ServerReflectionRequest(file_by_filename="n" * (MAX_TEXT_BYTES + 1))
        valid = reflection_pb2.ServerReflectionRequest(list_services="")
        call = stub.ServerReflectionInfo(iter([valid, long]))
        assert (await call.read()).list_services_response.service
        with pytest.raises(
            grpc.aio.AioRpcError, match=r"ServerReflectionRequest.file_by_filename has 4097 bytes"
        ):
            await call.read()


async def test_an_event_stream_keeps_no_large_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, monkeypatch) as on:
        stub: Any = inspect_pb2_grpc.InspectServiceStub(on.channel)
        kinds = ["n" * MAX_TEXT_BYTES] * 4
        error = await on.opened(stub.WatchEvents(inspect_pb2.WatchEventsRequest(kinds=kinds)))
        assert error is not None
        assert f"it has at most {MAX_KEPT_REQUEST_BYTES}" in error.message
