"""Which requests a server accepts: limits before parsing, before serving, and per client. Uses a
real server, whose service counts the requests that reach it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import grpc.aio
import pytest
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from tidelog import v1
from tidelog.caller_limits import OVER_AFTER_MS, CallerLimits, Callers, LimitReached, address_of
from tidelog.client.cluster_explainer import Explainer
from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.state_reports import ServiceState, StateRequest, StoreHealth
from tidelog.request_bounds import (
    ENTRY_LIMITS,
    MAX_ENTRIES_PER_REQUEST,
    MAX_PRODUCE_REQUEST_BYTES,
    MAX_REQUEST_BYTES,
    MAX_TEXT_BYTES,
)
from tidelog.rpc.admission import new_callers
from tidelog.rpc.channels import new_server, open_channel
from tidelog.rpc.message_bounds import (
    MAX_FIELDS,
    Rejected,
    bounded_deserializer,
    check_field_count,
    check_message,
    is_internal,
)
from tidelog.rpc.status import from_status
from tidelog.rpc.wrapped_handlers import request_type
from tidelog.v1 import (
    admin_pb2,
    broker_pb2,
    broker_pb2_grpc,
    inspect_pb2,
    inspect_pb2_grpc,
    record_batch_pb2,
    scrub_pb2,
)
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.telemetry.inspect_service import ExplainingService, InspectServicer
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

pb = broker_pb2


class Service(broker_pb2_grpc.BrokerServiceServicer):
    def __init__(self) -> None:
        self.served = 0
        self.go = asyncio.Event()
        self.first_there = asyncio.Event()
        self.all_there = asyncio.Event()

    async def Metadata(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        self.served += 1
        self.first_there.set()
        if self.served == 2:
            self.all_there.set()
        await self.go.wait()
        return pb.MetadataResponse()

    Produce = Fetch = ListOffsets = InitProducerId = DescribeProducers = Metadata


@asynccontextmanager
async def serving(
    limits: CallerLimits | None = None,
) -> AsyncIterator[tuple[Service, Callers, broker_pb2_grpc.BrokerServiceAsyncStub]]:
    callers = Callers(limits or CallerLimits())
    server, service = new_server(callers), Service()
    broker_pb2_grpc.add_BrokerServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            stub: Any = broker_pb2_grpc.BrokerServiceStub(channel)
            yield service, callers, stub
    finally:
        service.go.set()
        await server.stop(None)


async def rejection(call: Any) -> TidelogError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = from_status(caught.value, "broker")
    assert isinstance(error, TidelogError)
    return error


async def test_a_request_that_is_too_large_is_rejected_before_it_is_parsed() -> None:
    async with serving() as (service, _, stub):
        error = await rejection(
            stub.Fetch(pb.FetchRequest(partitions=entries(1, MAX_REQUEST_BYTES)))
        )
        assert error.code is ErrorCode.INVALID_REQUEST
        assert f"it has at most {MAX_REQUEST_BYTES}" in error.message
        large = pb.ProducePartition(
            batches=[record_batch_pb2.Batch(records=bytes(MAX_PRODUCE_REQUEST_BYTES))]
        )
        error = await rejection(stub.Produce(pb.ProduceRequest(partitions=[large])))
        assert f"it has at most {MAX_PRODUCE_REQUEST_BYTES}" in error.message
        assert service.served == 0


def public_rpcs() -> Iterator[str]:
    for module in (admin_pb2, broker_pb2, inspect_pb2, scrub_pb2, health_pb2, reflection_pb2):
        for service in module.DESCRIPTOR.services_by_name.values():
            yield from (f"/{service.full_name}/{rpc}" for rpc in service.methods_by_name)


@pytest.mark.parametrize("method", list(public_rpcs()))
def test_undecodable_bytes_are_an_invalid_request(method: str) -> None:
    descriptor = request_type(method)
    assert descriptor is not None
    parse = bounded_deserializer(method, GetMessageClass(descriptor).FromString, descriptor)
    rejected = parse(b"\xff\xff\xff")
    assert isinstance(rejected, Rejected)
    assert rejected.error.code is ErrorCode.INVALID_REQUEST
    name = method.rpartition("/")[2]
    assert f"a {name} request of 3 bytes is no message of that type" in rejected.error.message


def entries(count: int, text: int = 1) -> list[pb.FetchPartition]:
    return [pb.FetchPartition(topic="t" * text)] * count


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            pb.FetchRequest(partitions=entries(1_001)),
            "FetchRequest.partitions has 1001 entries; a request has at most 1000",
        ),
        (
            pb.MetadataRequest(topics=["t"] * (MAX_ENTRIES_PER_REQUEST + 1)),
            "MetadataRequest.topics has 10001 entries",
        ),
        (
            pb.FetchRequest(partitions=entries(1, MAX_TEXT_BYTES + 1)),
            f"FetchPartition.topic has {MAX_TEXT_BYTES + 1} bytes; it has at most {MAX_TEXT_BYTES}",
        ),
        (
            pb.ProduceRequest(
                partitions=[pb.ProducePartition(batches=[record_batch_pb2.Batch()] * 1_001)]
            ),
            "ProducePartition.batches has 1001 entries",
        ),
        (
            pb.ProduceRequest(
                partitions=[pb.ProducePartition(batches=[record_batch_pb2.Batch()] * 1_000)] * 2
            ),
            "ProduceRequest has 2002 entries or more in all its lists together",
        ),
        (
            admin_pb2.ElectPreferredLeadersRequest(
                partitions=[admin_pb2.PartitionSelector(partitions=range(9_000))] * 2
            ),
            "ElectPreferredLeadersRequest has 18002 entries or more in all its lists together",
        ),
        (
            admin_pb2.CreateTopicRequest(topic="t", config={"k": "v" * (MAX_TEXT_BYTES + 1)}),
            "CreateTopicRequest.config has 4097 bytes",
        ),
        (
            inspect_pb2.ExplainRequest(),
            "",
        ),
    ],
)
def test_counts_and_strings_are_bounded_in_every_message(message: Any, said: str) -> None:
    if not said:
        check_message(message)
        return
    with pytest.raises(TidelogError, match="has at most") as caught:
        check_message(message)
    assert said in caught.value.message
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_every_field_with_a_special_limit_exists() -> None:
    for module in iter_modules(v1.__path__):
        import_module(f"{v1.__name__}.{module.name}")
    pool = pb.DESCRIPTOR.pool
    for name in ENTRY_LIMITS:
        assert pool.FindFieldByName(name).is_repeated


def test_a_large_message_with_many_fields_is_not_parsed() -> None:
    many = pb.ProducePartition(batches=[record_batch_pb2.Batch()] * MAX_FIELDS)
    data = pb.ProduceRequest(partitions=[many]).SerializeToString()
    with pytest.raises(TidelogError, match="has more than 16000 fields"):
        check_field_count(data, pb.ProduceRequest.DESCRIPTOR)
    batch = record_batch_pb2.Batch(
        header=record_batch_pb2.BatchHeader(record_count=1), records=bytes(1000)
    )
    largest = pb.ProduceRequest(
        partitions=[
            pb.ProducePartition(topic="sea", partition=n, batches=[batch]) for n in range(1_000)
        ]
    )
    check_field_count(largest.SerializeToString(), pb.ProduceRequest.DESCRIPTOR)
    check_message(largest)


async def test_concurrent_requests_of_one_client_are_bounded_and_released_at_their_end() -> None:
    async with serving(CallerLimits(max_requests_per_client=2)) as (service, callers, stub):
        waiting = [asyncio.ensure_future(stub.Metadata(pb.MetadataRequest())) for _ in range(2)]
        await service.all_there.wait()
        error = await rejection(stub.Metadata(pb.MetadataRequest()))
        assert error.code is ErrorCode.TOO_MANY_REQUESTS
        assert error.retriable
        assert (
            "client 127.0.0.1 may have 2 requests at once (max_requests_per_client)"
            in error.message
        )
        assert callers.rejected["max_requests_per_client"] == 1
        waiting[0].cancel()
        service.go.set()
        await waiting[1]
        # A call is released after its response is sent, which the client may have received before.
        while callers.requests > 1:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await stub.Metadata(pb.MetadataRequest())


def test_limits_on_connections_and_on_all_clients_are_named() -> None:
    callers = Callers(CallerLimits(3, 3, 1))
    callers.begin("ipv4:10.0.0.7:1", 5)
    callers.begin("ipv4:10.0.0.7:1", 5)
    with pytest.raises(TidelogError, match=r"client 10.0.0.7 may have 1 connections .*max_conn"):
        callers.begin("ipv4:10.0.0.7:2", 6)
    callers.begin("ipv6:%5B::1%5D:2", 7)
    with pytest.raises(TidelogError, match=r"all clients together may have 3 requests"):
        callers.begin("ipv4:10.0.0.8:1", 8)
    assert callers.reached(8) == [
        LimitReached("10.0.0.8", "max_client_requests", 3, 1, 8, 8),
        LimitReached("10.0.0.7", "max_connections_per_client", 1, 1, 6, 6),
    ]
    for peer in ("ipv4:10.0.0.7:1", "ipv4:10.0.0.7:1", "ipv6:%5B::1%5D:2"):
        callers.end(peer)
    callers.begin("ipv4:10.0.0.7:2", 9)
    assert (callers.requests, callers.most) == (1, (1, 1))
    assert address_of("unix:/tmp/x") == "unix:/tmp/x"


def test_a_limit_is_reported_once_until_its_client_is_below_it_again() -> None:
    reported: list[LimitReached] = []
    callers = Callers(CallerLimits(9, 1, 9), reported.append)
    callers.begin("ipv4:10.0.0.7:1", 0)

    def rejected_at(now_ms: int) -> None:
        with pytest.raises(TidelogError, match="max_requests_per_client"):
            callers.begin("ipv4:10.0.0.7:1", now_ms)

    rejected_at(5)
    rejected_at(OVER_AFTER_MS + 5)
    assert len(reported) == 1
    now_ms = OVER_AFTER_MS + 5
    assert [(each.requests, each.since_ms) for each in callers.reached(now_ms)] == [(2, 5)]
    assert callers.reached(now_ms + OVER_AFTER_MS + 1) == []
    rejected_at(now_ms + OVER_AFTER_MS + 1)
    assert [each.since_ms for each in reported] == [5, now_ms + OVER_AFTER_MS + 1]
    assert [each.requests for each in callers.reached(now_ms + OVER_AFTER_MS + 1)] == [1]


async def test_a_client_at_its_limit_is_logged_once_and_can_still_describe_the_service(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class SelfDescribing:
        async def describe(self, request: StateRequest) -> ServiceState:  # noqa: ARG002
            return ServiceState("broker", 1, "b:1", "0", 0, 0, StoreHealth())

    callers = new_callers(CallerLimits(max_requests_per_client=1))
    server, service = new_server(callers), Service()
    broker_pb2_grpc.add_BrokerServiceServicer_to_server(service, server)
    clock = SystemClock()
    explained = ExplainingService(SelfDescribing(), Explainer(clock), callers)
    inspect = InspectServicer(explained, StateChangeLog("broker-1", clock))
    inspect_pb2_grpc.add_InspectServiceServicer_to_server(inspect, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with open_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = broker_pb2_grpc.BrokerServiceStub(channel)
        waiting = asyncio.ensure_future(stub.Metadata(pb.MetadataRequest()))
        await service.first_there.wait()
        for _ in range(3):
            await rejection(stub.Metadata(pb.MetadataRequest()))
        inspect_stub: Any = inspect_pb2_grpc.InspectServiceStub(channel)
        state = await inspect_stub.DescribeService(inspect_pb2.DescribeServiceRequest())
        service.go.set()
        await waiting
    await server.stop(None)
    (limited,) = state.limited_clients
    assert (limited.address, limited.limit) == ("127.0.0.1", "max_requests_per_client")
    assert (limited.value, limited.rejected) == (1, 3)
    assert caplog.text.count("client limit reached: requests of client 127.0.0.1") == 1


def test_internal_requests_are_not_counted() -> None:
    assert is_internal("/tidelog.v1.ReplicaService/ReplicaFetch")
    assert is_internal("/tidelog.v1.ReplicaControlService/LeaderAndIsr")
    assert is_internal("/tidelog.v1.ControllerService/ReportUnreachableLeaders")
    assert not is_internal("/tidelog.v1.BrokerService/Produce")
    assert not is_internal("/tidelog.v1.AdminService/CreateTopic")
