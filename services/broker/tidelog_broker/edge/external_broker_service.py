"""BrokerService for clients of `external_listen`: the same answers, with addresses that these
clients reach. It checks the error of each partition, and costs nothing per batch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias

import grpc.aio

from tidelog.rpc.detached_records import AnyProduce
from tidelog.v1 import broker_pb2 as pb
from tidelog.v1 import broker_pb2_grpc, errors_pb2
from tidelog_broker.edge.broker_service import BrokerService
from tidelog_runtime.external_addresses import ExternalAddresses

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class _Result(Protocol):
    @property
    def error(self) -> errors_pb2.Error: ...


class ExternalBrokerService(broker_pb2_grpc.BrokerServiceServicer):
    def __init__(self, inner: BrokerService, addresses: ExternalAddresses) -> None:
        self._inner = inner
        self._addresses = addresses

    async def Produce(  # noqa: N802
        self, request: AnyProduce, context: _Context
    ) -> pb.ProduceResponse:
        response = await self._inner.Produce(request, context)
        self._set_leader_addresses(response.partitions)
        return response

    async def Fetch(  # noqa: N802
        self, request: pb.FetchRequest, context: _Context
    ) -> pb.FetchResponse:
        response = await self._inner.Fetch(request, context)
        self._set_leader_addresses(response.partitions)
        return response

    async def ListOffsets(  # noqa: N802
        self, request: pb.ListOffsetsRequest, context: _Context
    ) -> pb.ListOffsetsResponse:
        response = await self._inner.ListOffsets(request, context)
        self._set_leader_addresses(response.partitions)
        return response

    async def InitProducerId(  # noqa: N802
        self, request: pb.InitProducerIdRequest, context: _Context
    ) -> pb.InitProducerIdResponse:
        response = await self._inner.InitProducerId(request, context)
        self._set_leader_addresses((response,))
        return response

    async def DescribeProducers(  # noqa: N802
        self, request: pb.DescribeProducersRequest, context: _Context
    ) -> pb.DescribeProducersResponse:
        response = await self._inner.DescribeProducers(request, context)
        self._set_leader_addresses(response.partitions)
        return response

    async def Metadata(  # noqa: N802
        self, request: pb.MetadataRequest, context: _Context
    ) -> pb.MetadataResponse:
        response = await self._inner.Metadata(request, context)
        addresses = self._addresses
        for broker in response.brokers:
            broker.address = addresses.of_broker(broker.broker_id, broker.address)
        for process in response.controllers:
            process.address = addresses.of_controller(process.controller_id, process.address)
        if response.HasField("controller"):
            active = response.controller
            active.address = addresses.of_controller(active.controller_id, active.address)
        return response

    def _set_leader_addresses(self, results: Iterable[_Result]) -> None:
        for result in results:
            if result.error.HasField("leader"):
                leader = result.error.leader
                leader.address = self._addresses.of_broker(leader.broker_id, leader.address)
