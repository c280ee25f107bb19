"""The gateway's gRPC client of ControllerService."""

from __future__ import annotations

import asyncio

import grpc.aio

from tidelog.errors import TidelogError
from tidelog.inspection.gateway_reports import GatewayAnnouncement
from tidelog.rpc.channels import open_channel
from tidelog.rpc.message_codec import to_wire
from tidelog.rpc.status import UnreachableError
from tidelog.rpc.wire import error_from_wire
from tidelog.v1 import controller_pb2 as pb
from tidelog.v1 import controller_pb2_grpc
from tidelog_admin_api.announcing import NotUnderstoodError


class GrpcControllers:
    """Has one channel for each address, opened at first use."""

    def __init__(self) -> None:
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def announce(
        self, address: str, announcement: GatewayAnnouncement, timeout_ms: int
    ) -> None:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = open_channel(address)
        stub = controller_pb2_grpc.ControllerServiceStub(channel)
        request = to_wire(announcement, pb.AnnounceGatewayRequest)
        try:
            answer = await stub.AnnounceGateway(request, timeout=timeout_ms / 1000)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                raise NotUnderstoodError(f"{address} does not know the request") from error
            raise UnreachableError(address, f"{error.code().name}: {error.details()}") from error
        if answer.HasField("error"):
            error_: TidelogError = error_from_wire(answer.error)
            raise NotUnderstoodError(f"{address} rejected it: {error_.message}")

    async def close(self) -> None:
        channels, self._channels = list(self._channels.values()), {}
        await asyncio.gather(*(channel.close() for channel in channels), return_exceptions=True)
