"""The gRPC client for the active controller."""

from __future__ import annotations

import grpc.aio

from tidelog.errors import TidelogError
from tidelog.rpc.channels import open_channel
from tidelog.rpc.wire import error_from_wire
from tidelog.v1 import controller_pb2 as pb
from tidelog.v1 import controller_pb2_grpc
from tidelog_broker.replication.transport import (
    REPORT_TIMEOUT_MS,
    ControllerUnreachableError,
)
from tidelog_runtime.broker_reports import DiskReport, UnreachableLeadersReport
from tidelog_runtime.replica_control_codec import change_to_wire


class GrpcControllers:
    """Keeps a connection to the controller of the last report, and to no other."""

    def __init__(self) -> None:
        self._address = ""
        self._channel: grpc.aio.Channel | None = None

    async def report_unreachable_leaders(
        self, address: str, report: UnreachableLeadersReport
    ) -> TidelogError | None:
        request = pb.ReportUnreachableLeadersRequest(
            broker_id=report.broker_id,
            broker_epoch=report.broker_epoch,
            leaders=[
                pb.UnreachableLeader(
                    broker_id=leader.broker_id,
                    broker_epoch=leader.broker_epoch,
                    unanswered_ms=leader.unanswered_ms,
                    change=change_to_wire(leader.change),
                )
                for leader in report.leaders
            ],
        )
        stub = await self._stub(address)
        try:
            answer = await stub.ReportUnreachableLeaders(request, timeout=REPORT_TIMEOUT_MS / 1000)
        except grpc.aio.AioRpcError as error:
            raise _unreachable(address, error) from error
        return error_from_wire(answer.error) if answer.HasField("error") else None

    async def report_disk(self, address: str, report: DiskReport) -> TidelogError | None:
        request = pb.ReportDiskRequest(
            broker_id=report.broker_id,
            broker_epoch=report.broker_epoch,
            is_rejecting=report.is_rejecting,
            led=[
                pb.FailingLeadership(
                    topic=failing.partition.topic,
                    partition=failing.partition.partition,
                    leader_epoch=failing.leader_epoch,
                    failing_for_ms=failing.failing_for_ms,
                    change=change_to_wire(failing.change._replace(cause=failing.cause)),
                )
                for failing in report.led
            ],
        )
        stub = await self._stub(address)
        try:
            answer = await stub.ReportDisk(request, timeout=REPORT_TIMEOUT_MS / 1000)
        except grpc.aio.AioRpcError as error:
            raise _unreachable(address, error) from error
        return error_from_wire(answer.error) if answer.HasField("error") else None

    async def _stub(self, address: str) -> controller_pb2_grpc.ControllerServiceAsyncStub:
        channel = await self._channel_to(address)
        stub: controller_pb2_grpc.ControllerServiceAsyncStub
        stub = controller_pb2_grpc.ControllerServiceStub(channel)
        return stub

    async def close(self) -> None:
        channel, self._channel, self._address = self._channel, None, ""
        if channel is not None:
            await channel.close()

    async def _channel_to(self, address: str) -> grpc.aio.Channel:
        if self._channel is None or address != self._address:
            await self.close()
            self._channel, self._address = open_channel(address), address
        return self._channel


def _unreachable(address: str, error: grpc.aio.AioRpcError) -> ControllerUnreachableError:
    return ControllerUnreachableError(f"{address}: {error.code().name}: {error.details()}")
