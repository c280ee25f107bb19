"""ControllerService: reports of brokers to the active controller, and gateways' announcements."""

from __future__ import annotations

from typing import Any, Protocol

import grpc.aio

from tidelog.caller_limits import LimitedClient
from tidelog.errors import TidelogError
from tidelog.inspection.gateway_reports import (
    MAX_LIMITED_CLIENTS,
    MAX_PRESSURES,
    GatewayAnnouncement,
)
from tidelog.inspection.resource_pressures import ResourcePressure
from tidelog.model import TopicPartition
from tidelog.rpc.message_codec import from_wire
from tidelog.rpc.wire import error_to_wire
from tidelog.v1 import controller_pb2 as pb
from tidelog.v1.controller_pb2_grpc import ControllerServiceServicer
from tidelog_runtime.broker_reports import (
    DiskReport,
    FailingLeadership,
    UnreachableLeader,
    UnreachableLeadersReport,
)
from tidelog_runtime.cooperative import map_yielding
from tidelog_runtime.replica_control_codec import change_from_wire

Context = grpc.aio.ServicerContext[Any, Any]


class Reports(Protocol):
    def report(self, report: UnreachableLeadersReport) -> TidelogError | None: ...

    def report_disk(self, report: DiskReport) -> TidelogError | None: ...

    def announce_gateway(self, announcement: GatewayAnnouncement) -> TidelogError | None: ...


class ControllerServicer(ControllerServiceServicer):
    def __init__(self, reports: Reports) -> None:
        self._reports = reports

    async def ReportUnreachableLeaders(  # noqa: N802 - the generated name
        self,
        request: pb.ReportUnreachableLeadersRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.ReportUnreachableLeadersResponse:
        leaders = await map_yielding(_unreachable_leader, request.leaders)
        error = self._reports.report(
            UnreachableLeadersReport(request.broker_id, request.broker_epoch, tuple(leaders))
        )
        return pb.ReportUnreachableLeadersResponse(error=error_to_wire(error) if error else None)

    async def ReportDisk(  # noqa: N802 - the generated name
        self,
        request: pb.ReportDiskRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.ReportDiskResponse:
        led = await map_yielding(_failing_leadership, request.led)
        error = self._reports.report_disk(
            DiskReport(request.broker_id, request.broker_epoch, request.is_rejecting, tuple(led))
        )
        return pb.ReportDiskResponse(error=error_to_wire(error) if error else None)

    async def AnnounceGateway(  # noqa: N802 - the generated name
        self,
        request: pb.AnnounceGatewayRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.AnnounceGatewayResponse:
        error = self._reports.announce_gateway(
            GatewayAnnouncement(
                request.address,
                request.host,
                request.pid,
                request.started_at_ms,
                request.version,
                request.is_stopping,
                tuple(
                    from_wire(client, LimitedClient)
                    for client in request.limited_clients[:MAX_LIMITED_CLIENTS]
                ),
                tuple(
                    from_wire(pressure, ResourcePressure)
                    for pressure in request.pressures[:MAX_PRESSURES]
                ),
            )
        )
        return pb.AnnounceGatewayResponse(error=error_to_wire(error) if error else None)


def _unreachable_leader(wire: pb.UnreachableLeader) -> UnreachableLeader:
    return UnreachableLeader(
        wire.broker_id, wire.broker_epoch, wire.unanswered_ms, change_from_wire(wire.change)
    )


def _failing_leadership(wire: pb.FailingLeadership) -> FailingLeadership:
    change = change_from_wire(wire.change)
    return FailingLeadership(
        TopicPartition(wire.topic, wire.partition),
        wire.leader_epoch,
        change.cause,
        wire.failing_for_ms,
        change,
    )
