"""The gateway announces itself to controllers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tidelog.caller_limits import LimitedClient
from tidelog.client.descriptions import ClusterDescription, ControllerProcessDescription
from tidelog.inspection.gateway_reports import (
    MAX_LIMITED_CLIENTS,
    MAX_PRESSURES,
    GatewayAnnouncement,
)
from tidelog.inspection.resource_pressures import ResourcePressure
from tidelog.rpc.channels import new_server
from tidelog.rpc.status import UnreachableError
from tidelog.v1.controller_pb2_grpc import add_ControllerServiceServicer_to_server
from tidelog_admin_api.announcing import Announcer, NotUnderstoodError, own_announcement
from tidelog_admin_api.controller_client import GrpcControllers
from tidelog_controller.edge.controller_servicer import ControllerServicer
from tidelog_runtime.pressure.records import Pressure
from unit.metadata.virtual_time import run, virtual_clock

ONE, TWO = "127.0.0.1:7401", "127.0.0.1:7402"
LIMITED = LimitedClient("10.0.0.7", "max_requests_per_client", 128, 5, 900)
OWN = GatewayAnnouncement("gate-1:7600", "gate-1", 7, 1_000, "0.1.0")


@dataclass
class FakeControllers:
    """`old`: controllers without the announcement RPC. `away`: controllers that do not answer."""

    old: set[str] = field(default_factory=set)
    away: set[str] = field(default_factory=set)
    sent: list[tuple[str, bool]] = field(default_factory=list)
    named: list[str] = field(default_factory=list)
    announcements: list[GatewayAnnouncement] = field(default_factory=list)

    async def announce(
        self, address: str, announcement: GatewayAnnouncement, timeout_ms: int
    ) -> None:
        self.sent.append((address, announcement.is_stopping))
        self.announcements.append(announcement)
        if address in self.old:
            raise NotUnderstoodError("UNIMPLEMENTED")
        if address in self.away:
            await asyncio.sleep(timeout_ms / 1000)
            raise UnreachableError(address, "DEADLINE_EXCEEDED")

    async def describe_cluster(self) -> ClusterDescription:
        if not self.named:
            raise UnreachableError("any broker", "none answers")
        processes = (ControllerProcessDescription(i, a, 0) for i, a in enumerate(self.named))
        return ClusterDescription("c", None, (), tuple(processes))

    def to(self, address: str) -> int:
        return sum(where == address and not stops for where, stops in self.sent)


def for_seconds(controllers: FakeControllers, seconds: float, *configured: str) -> None:
    async def main() -> None:
        announcer = Announcer(
            OWN, configured, controllers.describe_cluster, controllers, virtual_clock()
        )
        async with announcer.running():
            await asyncio.sleep(seconds)

    run(main())


def test_the_gateway_announces_itself_every_two_seconds_and_says_goodbye() -> None:
    controllers = FakeControllers()
    for_seconds(controllers, 9, ONE, TWO)
    assert (controllers.to(ONE), controllers.to(TWO)) == (5, 5)
    assert controllers.sent[-2:] == [(ONE, True), (TWO, True)]


def test_announcements_carry_the_latest_limited_clients_first() -> None:
    controllers = FakeControllers()
    limited = [replace(LIMITED, last_ms=n) for n in range(MAX_LIMITED_CLIENTS + 1)]

    async def main() -> None:
        announcer = Announcer(
            OWN,
            (ONE,),
            controllers.describe_cluster,
            controllers,
            virtual_clock(),
            lambda: limited,
        )
        async with announcer.running():
            await asyncio.sleep(1)
            limited.clear()
            await asyncio.sleep(2)

    run(main())
    assert [len(each.limited_clients) for each in controllers.announcements] == [
        MAX_LIMITED_CLIENTS,
        0,
        0,
    ]
    assert controllers.announcements[0].limited_clients[0].last_ms == 0


def test_announcements_carry_the_shortages_of_the_process() -> None:
    controllers = FakeControllers()
    files = Pressure("open_files", 90, 100, 5, "why")
    short = [files] * (MAX_PRESSURES + 1)

    async def main() -> None:
        announcer = Announcer(
            OWN,
            (ONE,),
            controllers.describe_cluster,
            controllers,
            virtual_clock(),
            pressures=lambda: short,
        )
        async with announcer.running():
            await asyncio.sleep(1)

    run(main())
    assert controllers.announcements[0].pressures == (ResourcePressure(*files),) * MAX_PRESSURES


def test_controllers_are_found_without_settings() -> None:
    controllers = FakeControllers(named=[TWO])
    for_seconds(controllers, 9)
    assert controllers.to(TWO) >= 4


def test_unanswered_brokers_are_queried_again() -> None:
    controllers = FakeControllers()

    async def later() -> None:
        await asyncio.sleep(5)
        controllers.named.append(ONE)

    async def main() -> None:
        announcer = Announcer(OWN, (), controllers.describe_cluster, controllers, virtual_clock())
        async with announcer.running():
            await later()
            await asyncio.sleep(6)

    run(main())
    assert controllers.to(ONE) >= 2


def test_an_absent_controller_delays_no_other() -> None:
    controllers = FakeControllers(away={ONE})
    for_seconds(controllers, 20, ONE, TWO)
    # Ten seconds of silence are a fault.
    assert controllers.to(TWO) >= 5


def test_a_controller_of_an_older_release_is_called_rarely() -> None:
    controllers = FakeControllers(old={ONE})
    for_seconds(controllers, 65, ONE, TWO)
    assert controllers.to(ONE) == 2
    assert controllers.to(TWO) > 30


def test_a_fault_is_not_reported_as_an_orderly_stop() -> None:
    controllers = FakeControllers()

    async def main() -> None:
        announcer = Announcer(
            OWN, (ONE,), controllers.describe_cluster, controllers, virtual_clock()
        )
        with contextlib.suppress(RuntimeError):
            async with announcer.running():
                await asyncio.sleep(1)
                raise RuntimeError

    run(main())
    assert controllers.sent == [(ONE, False)]


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("127.0.0.1:7600", "127.0.0.1:7600"),
        ("0.0.0.0:7600", f"{socket.gethostname()}:7600"),
        ("gate:80", "gate:80"),
    ],
)
def test_the_gateway_announces_its_own_address(listen: str, address: str) -> None:
    assert own_announcement(listen, 1).address == address


class _Taking:
    def __init__(self) -> None:
        self.taken: list[GatewayAnnouncement] = []

    def announce_gateway(self, announcement: GatewayAnnouncement) -> None:
        self.taken.append(announcement)


async def _with_server(
    add: Callable[[Any], None], use: Callable[[str], Coroutine[Any, Any, None]]
) -> None:
    server = new_server()
    add(server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        await use(address)
    finally:
        await server.stop(None)


async def test_an_announcement_arrives_with_all_its_fields() -> None:
    taking, client = _Taking(), GrpcControllers()
    servicer = ControllerServicer(taking)  # type: ignore[arg-type]
    announcement = replace(OWN, limited_clients=(LIMITED,))

    async def use(address: str) -> None:
        await client.announce(address, announcement, 5_000)
        await client.close()

    await _with_server(lambda s: add_ControllerServiceServicer_to_server(servicer, s), use)
    assert taking.taken == [announcement]


async def test_a_controller_without_the_rpc_counts_as_too_old() -> None:
    client = GrpcControllers()

    async def use(address: str) -> None:
        with pytest.raises(NotUnderstoodError):
            await client.announce(address, OWN, 5_000)

    await _with_server(lambda _: None, use)
    with pytest.raises(UnreachableError):
        await client.announce("127.0.0.1:1", OWN, 200)
    await client.close()
