"""BrokerService that measures durations, for a broker whose metrics are enabled."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeAlias, TypeVar

import grpc.aio

from tidelog.v1 import broker_pb2 as pb
from tidelog_broker.broker import Broker
from tidelog_broker.edge.broker_service import BrokerService
from tidelog_broker.metrics.request_meter import (
    RequestMeter,
    metered_fetch,
    metered_list_offsets,
    metered_produce,
    metered_producer_ids,
)

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_Response = TypeVar("_Response")


class MeteredBrokerService(BrokerService):
    """Produce and Fetch are measured where their records are counted, below the wire form."""

    def __init__(self, broker: Broker, meter: RequestMeter) -> None:
        super().__init__(
            metered_produce(broker.produce.handle, meter),
            metered_fetch(broker.consumer_fetch.handle, meter),
            metered_list_offsets(broker.list_offsets.handle, meter),
            metered_producer_ids(broker.producer_ids.handle, meter),
            broker.describe_producers,
            broker.cache,
        )
        self._meter = meter

    async def ListOffsets(  # noqa: N802
        self, request: pb.ListOffsetsRequest, context: _Context
    ) -> pb.ListOffsetsResponse:
        return await self._timed("list_offsets", super().ListOffsets(request, context))

    async def Metadata(  # noqa: N802
        self, request: pb.MetadataRequest, context: _Context
    ) -> pb.MetadataResponse:
        return await self._timed("metadata", super().Metadata(request, context))

    async def InitProducerId(  # noqa: N802
        self, request: pb.InitProducerIdRequest, context: _Context
    ) -> pb.InitProducerIdResponse:
        return await self._timed("init_producer_id", super().InitProducerId(request, context))

    async def DescribeProducers(  # noqa: N802
        self, request: pb.DescribeProducersRequest, context: _Context
    ) -> pb.DescribeProducersResponse:
        return await self._timed("describe_producers", super().DescribeProducers(request, context))

    async def _timed(self, request: str, answering: Awaitable[_Response]) -> _Response:
        began = self._meter.seconds()
        try:
            return await answering
        finally:
            self._meter.durations.of(request, "").observe(self._meter.seconds() - began)
