"""Connections of the client to brokers and controllers: narrow protocols, implemented by gRPC.

Every call raises `UnreachableError` if no answer came, and `TidelogError` if the entire request
was rejected.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Protocol

import grpc.aio

from tidelog.client.admin_api import AdminApi, GrpcController
from tidelog.client.grpc_calls import (
    ReleasableChannel,
    answered,
    channel_closed,
    check_usable,
    ended_by,
)
from tidelog.errors import TidelogError
from tidelog.rpc import forks
from tidelog.rpc.channels import open_channel
from tidelog.rpc.status import UnreachableError, from_status
from tidelog.rpc.trace_context import carried
from tidelog.v1 import (
    broker_pb2,
    broker_pb2_grpc,
    inspect_pb2,
    inspect_pb2_grpc,
)

# Channels of clients that this process inherited from its parent; see `in_child`.
_inherited: list[object] = []

# The method is called by its name, because clients do not depend on the package with its messages.
# The empty message asks for the health of the entire service.
_HEALTH_CHECK = "/grpc.health.v1.Health/Check"


class BrokerApi(Protocol):
    """Calls to one broker. `timeout_ms` bounds the entire call."""

    async def produce(
        self, request: broker_pb2.ProduceRequest, timeout_ms: int
    ) -> broker_pb2.ProduceResponse: ...

    async def fetch(
        self, request: broker_pb2.FetchRequest, timeout_ms: int
    ) -> broker_pb2.FetchResponse: ...

    async def list_offsets(
        self, request: broker_pb2.ListOffsetsRequest, timeout_ms: int
    ) -> broker_pb2.ListOffsetsResponse: ...

    async def metadata(
        self, request: broker_pb2.MetadataRequest, timeout_ms: int
    ) -> broker_pb2.MetadataResponse: ...

    async def init_producer_id(
        self, request: broker_pb2.InitProducerIdRequest, timeout_ms: int
    ) -> broker_pb2.InitProducerIdResponse: ...

    async def describe_producers(
        self, request: broker_pb2.DescribeProducersRequest, timeout_ms: int
    ) -> broker_pb2.DescribeProducersResponse: ...


class InspectApi(Protocol):
    """Calls that every service answers about itself. `timeout_ms` bounds the entire call."""

    def watch_events(
        self, request: inspect_pb2.WatchEventsRequest, timeout_ms: int | None
    ) -> AsyncIterator[inspect_pb2.WatchEventsResponse]:
        """Streams events. Without `timeout_ms`, for as long as the service runs."""

    async def probe(self, timeout_ms: int, *, patient: bool = False) -> None:
        """Returns once the service answers the standard health check, with any status. `patient`:
        retries to connect until `timeout_ms` is over."""

    async def describe_service(
        self, request: inspect_pb2.DescribeServiceRequest, timeout_ms: int
    ) -> inspect_pb2.DescribeServiceResponse: ...

    async def explain(
        self, request: inspect_pb2.ExplainRequest, timeout_ms: int
    ) -> inspect_pb2.ExplainResponse: ...


class InspectConnections(Protocol):
    """Returns the InspectApi of any service, broker or controller."""

    def inspected(self, address: str) -> InspectApi: ...


class Connections(Protocol):
    """Returns the API of the service at an address, and connects on first use."""

    def broker(self, address: str) -> BrokerApi: ...

    def controller(self, address: str) -> AdminApi: ...

    async def close(self) -> None: ...


class GrpcConnections:
    """One channel per address, opened on first use; all are closed together.

    After `close` no channel is opened, and all calls raise CLIENT_CLOSED. The channels are also
    closed before a fork, and opened again afterwards."""

    def __init__(self, open_: Callable[[str], grpc.aio.Channel] = open_channel) -> None:
        self._open = open_
        self._closed = False
        self._channels: dict[str, ReleasableChannel] = {}
        self._brokers: dict[str, _GrpcBroker] = {}
        # The event loop in which the channels were opened, and the identifier of its thread.
        self._home: tuple[asyncio.AbstractEventLoop, int] | None = None
        self._parking: asyncio.Task[None] | None = None
        check_usable()
        forks.register(self)

    def broker(self, address: str) -> BrokerApi:
        broker = self._brokers.get(address)
        if broker is None:
            broker = self._brokers[address] = _GrpcBroker(self._channel(address))
        return broker

    def controller(self, address: str) -> AdminApi:
        return GrpcController(self._channel(address))

    def inspected(self, address: str) -> InspectApi:
        return _GrpcInspected(self._channel(address))

    async def close(self) -> None:
        self._closed = True
        if self._home is not None and self._home[0] is asyncio.get_running_loop():
            await self._until_reported()
        await self._close_channels()

    def before_fork(self) -> forks.Parking | None:
        if not self._channels or self._home is None:
            return None
        loop, thread = self._home
        if thread == threading.get_ident() or not loop.is_running():
            # A channel without references is closed, unless a request is in progress.
            released = [channel.release() for channel in self._channels.values()]
            if loop.is_running():
                # A request in progress crashes the child in gRPC's own threads, unless it is
                # cancelled before the fork.
                _close_at_once(channel for channel in released if channel is not None)
            self._channels.clear()
            self._brokers.clear()
            return None
        parking = forks.Parking(loop)
        try:
            loop.call_soon_threadsafe(self._park, parking)
        except RuntimeError:  # the loop was closed meanwhile
            return None
        return parking

    def in_child(self) -> None:
        # Closing channels that belong to the parent's threads would hang.
        _inherited.append((self._channels, self._brokers))
        self._channels, self._brokers = {}, {}

    def _park(self, parking: forks.Parking) -> None:
        async def park() -> None:
            await self._close_channels()
            # Requests in progress end and drop their references to the channels.
            await forks.until_not_polling()
            parking.stand_still()

        self._parking = asyncio.create_task(park())

    async def _close_channels(self) -> None:
        channels = list(self._channels.values())
        self._channels.clear()
        self._brokers.clear()
        await asyncio.gather(*(channel.close() for channel in channels), return_exceptions=True)

    async def _until_reported(self) -> None:
        """Waits until gRPC has reported the end of the cancelled requests to this event loop.

        It does so later, from a thread. If the loop is closed by then, the loop of another client
        gets the report, and fails. Reports arrive in order, so this waits for that of another
        request, which ends at once and is not sent."""
        for address, channel in list(self._channels.items())[:1]:
            with suppress(UnreachableError, TidelogError):
                # No variable: the traceback of the error would keep gRPC's channel by it.
                await answered(_health_check(channel), address)

    def _channel(self, address: str) -> ReleasableChannel:
        if self._closed:
            raise channel_closed(address)
        channel = self._channels.get(address)
        if channel is None:
            with forks.opening() as may_open:
                if not may_open:
                    raise UnreachableError(address, "this process is about to fork")
                self._home = (asyncio.get_running_loop(), threading.get_ident())
                channel = ReleasableChannel(self._open(address), address)
                self._channels[address] = channel
        return channel


def _health_check(channel: ReleasableChannel) -> grpc.aio.UnaryUnaryCall[bytes, bytes]:
    check: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
    check = channel.channel.unary_unary(_HEALTH_CHECK)
    return check(b"", timeout=0)


def _close_at_once(channels: Iterable[grpc.aio.Channel]) -> None:
    """Closes channels, in the thread of their event loop. Without a grace period, gRPC closes a
    channel and cancels its requests before it first suspends."""
    for channel in channels:
        closing = channel.close()
        with suppress(StopIteration):
            closing.send(None)
        closing.close()


def _broker_stub(channel: grpc.aio.Channel) -> broker_pb2_grpc.BrokerServiceAsyncStub:
    return broker_pb2_grpc.BrokerServiceStub(channel)


def _inspect_stub(channel: grpc.aio.Channel) -> inspect_pb2_grpc.InspectServiceAsyncStub:
    return inspect_pb2_grpc.InspectServiceStub(channel)


class _GrpcBroker:
    def __init__(self, channel: ReleasableChannel) -> None:
        self._channel = channel
        self._address = channel.address

    @property
    def _stub(self) -> broker_pb2_grpc.BrokerServiceAsyncStub:
        return self._channel.stub(_broker_stub)

    async def produce(
        self, request: broker_pb2.ProduceRequest, timeout_ms: int
    ) -> broker_pb2.ProduceResponse:
        return await answered(
            self._stub.Produce(request, timeout=timeout_ms / 1000, metadata=carried()),
            self._address,
        )

    async def fetch(
        self, request: broker_pb2.FetchRequest, timeout_ms: int
    ) -> broker_pb2.FetchResponse:
        return await answered(
            self._stub.Fetch(request, timeout=timeout_ms / 1000, metadata=carried()), self._address
        )

    async def list_offsets(
        self, request: broker_pb2.ListOffsetsRequest, timeout_ms: int
    ) -> broker_pb2.ListOffsetsResponse:
        return await answered(
            self._stub.ListOffsets(request, timeout=timeout_ms / 1000), self._address
        )

    async def metadata(
        self, request: broker_pb2.MetadataRequest, timeout_ms: int
    ) -> broker_pb2.MetadataResponse:
        return await answered(
            self._stub.Metadata(request, timeout=timeout_ms / 1000), self._address
        )

    async def init_producer_id(
        self, request: broker_pb2.InitProducerIdRequest, timeout_ms: int
    ) -> broker_pb2.InitProducerIdResponse:
        return await answered(
            self._stub.InitProducerId(request, timeout=timeout_ms / 1000), self._address
        )

    async def describe_producers(
        self, request: broker_pb2.DescribeProducersRequest, timeout_ms: int
    ) -> broker_pb2.DescribeProducersResponse:
        return await answered(
            self._stub.DescribeProducers(request, timeout=timeout_ms / 1000), self._address
        )


class _GrpcInspected:
    def __init__(self, channel: ReleasableChannel) -> None:
        self._channel = channel
        self._address = channel.address

    @property
    def _stub(self) -> inspect_pb2_grpc.InspectServiceAsyncStub:
        return self._channel.stub(_inspect_stub)

    async def watch_events(
        self, request: inspect_pb2.WatchEventsRequest, timeout_ms: int | None
    ) -> AsyncIterator[inspect_pb2.WatchEventsResponse]:
        timeout_s = None if timeout_ms is None else timeout_ms / 1000
        failure: BaseException
        try:
            async for response in self._stub.WatchEvents(
                request, timeout=timeout_s, metadata=carried()
            ):
                yield response
            return
        except grpc.aio.AioRpcError as error:
            failure = from_status(error, self._address)
        except asyncio.CancelledError as error:
            failure = ended_by(error, self._address)
        # Not within the handlers: as its context, gRPC's error would keep the channel.
        raise failure

    async def probe(self, timeout_ms: int, *, patient: bool = False) -> None:
        with suppress(TidelogError):
            await answered(self._check_health(timeout_ms / 1000, patient), self._address)

    def _check_health(
        self, timeout_s: float, wait_for_ready: bool
    ) -> grpc.aio.UnaryUnaryCall[bytes, bytes]:
        check: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.channel.unary_unary(
            _HEALTH_CHECK
        )
        entire_service = b""
        return check(entire_service, timeout=timeout_s, wait_for_ready=wait_for_ready)

    async def describe_service(
        self, request: inspect_pb2.DescribeServiceRequest, timeout_ms: int
    ) -> inspect_pb2.DescribeServiceResponse:
        return await answered(
            self._stub.DescribeService(request, timeout=timeout_ms / 1000, metadata=carried()),
            self._address,
        )

    async def explain(
        self, request: inspect_pb2.ExplainRequest, timeout_ms: int
    ) -> inspect_pb2.ExplainResponse:
        return await answered(
            self._stub.Explain(request, timeout=timeout_ms / 1000, metadata=carried()),
            self._address,
        )
