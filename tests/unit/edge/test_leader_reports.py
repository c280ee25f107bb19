"""Reports of unreachable leaders over gRPC, from a broker's client to the controller's service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.gateway_reports import GatewayAnnouncement
from tidelog.model import TopicPartition
from tidelog.rpc.channels import new_server
from tidelog.state_changes.event import Cause, Change
from tidelog.v1.controller_pb2_grpc import add_ControllerServiceServicer_to_server
from tidelog_broker.edge.controller_client import GrpcControllers
from tidelog_broker.replication.transport import ControllerUnreachableError
from tidelog_controller.edge.controller_servicer import ControllerServicer
from tidelog_runtime.broker_reports import (
    DiskReport,
    FailingLeadership,
    UnreachableLeader,
    UnreachableLeadersReport,
)

REPORT = UnreachableLeadersReport(
    3,
    103,
    (
        UnreachableLeader(1, 101, 2_500, Change("broker-3-leader-1-report-5", Cause.NO_ANSWER, 5)),
        UnreachableLeader(2, 102, 7_000_000),
    ),
)


class Controller:
    def __init__(self) -> None:
        self.reports: list[UnreachableLeadersReport] = []
        self.disk_reports: list[DiskReport] = []
        self.announcements: list[GatewayAnnouncement] = []
        self.refusal: TidelogError | None = None
        self.address = ""

    def report(self, report: UnreachableLeadersReport) -> TidelogError | None:
        self.reports.append(report)
        return self.refusal

    def report_disk(self, report: DiskReport) -> TidelogError | None:
        self.disk_reports.append(report)
        return self.refusal

    def announce_gateway(self, announcement: GatewayAnnouncement) -> TidelogError | None:
        self.announcements.append(announcement)
        return self.refusal


@asynccontextmanager
async def serving() -> AsyncIterator[Controller]:
    controller, server = Controller(), new_server()
    add_ControllerServiceServicer_to_server(ControllerServicer(controller), server)
    controller.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield controller
    finally:
        await server.stop(None)


async def test_a_report_arrives_with_all_its_fields() -> None:
    controllers = GrpcControllers()
    async with serving() as controller:
        assert await controllers.report_unreachable_leaders(controller.address, REPORT) is None
        await controllers.close()
    assert controller.reports == [REPORT]


async def test_a_disk_report_arrives_with_all_its_fields() -> None:
    controllers = GrpcControllers()
    change = Change("broker-3-disk-5", Cause.DISK_FULL, 5)
    failing = FailingLeadership(TopicPartition("sea", 4), 7, Cause.DISK_FULL, 1_500, change)
    report = DiskReport(3, 103, True, (failing,))
    async with serving() as controller:
        assert await controllers.report_disk(controller.address, report) is None
        controller.refusal = TidelogError(ErrorCode.NOT_CONTROLLER, "controller 2 is active")
        rejection = await controllers.report_disk(controller.address, report)
        await controllers.close()
    assert controller.disk_reports == [report, report]
    assert rejection is not None
    assert rejection.code is ErrorCode.NOT_CONTROLLER


async def test_a_rejection_returns_with_its_code() -> None:
    controllers = GrpcControllers()
    async with serving() as controller:
        controller.refusal = TidelogError(ErrorCode.NOT_CONTROLLER, "controller 2 is active")
        rejection = await controllers.report_unreachable_leaders(controller.address, REPORT)
        await controllers.close()
    assert rejection is not None
    assert (rejection.code, rejection.message) == (
        ErrorCode.NOT_CONTROLLER,
        "controller 2 is active",
    )


async def test_the_next_controller_is_called_at_its_own_address() -> None:
    controllers = GrpcControllers()
    async with serving() as first, serving() as second:
        for controller in (first, second):
            await controllers.report_unreachable_leaders(controller.address, REPORT)
        await controllers.close()
    assert (len(first.reports), len(second.reports)) == (1, 1)


async def test_a_stopped_controller_is_unreachable() -> None:
    controllers = GrpcControllers()
    async with serving() as controller:
        pass
    with pytest.raises(ControllerUnreachableError, match=controller.address):
        await asyncio.wait_for(
            controllers.report_unreachable_leaders(controller.address, REPORT), 30
        )
    await controllers.close()
