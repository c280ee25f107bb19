"""Announces the gateway to all controllers, so that `explain` can report a silent gateway."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Protocol

import structlog

from tidelog.caller_limits import LimitedClient
from tidelog.client.descriptions import ClusterDescription
from tidelog.errors import TidelogError
from tidelog.inspection.gateway_reports import (
    ANNOUNCE_INTERVAL_MS,
    MAX_LIMITED_CLIENTS,
    MAX_PRESSURES,
    GatewayAnnouncement,
)
from tidelog.inspection.resource_pressures import ResourcePressure
from tidelog.rpc.status import UnreachableError
from tidelog.version import installed_version
from tidelog_runtime.clock import Clock
from tidelog_runtime.pressure.records import Pressure

ANNOUNCE_TIMEOUT_MS = 1_500
FAREWELL_TIMEOUT_MS = 1_000
# Pause before the next announcement to a controller of an older release. It may be upgraded then.
NOT_UNDERSTOOD_PAUSE_MS = 60_000
# How often the gateway looks up controllers in the metadata of brokers.
FIND_INTERVAL_MS = 30_000
FIND_TIMEOUT_MS = 5_000
MAX_CONTROLLERS = 32

_ANY_HOST = frozenset({"0.0.0.0", "[::]", "::", "*"})
_log = structlog.get_logger()


class NotUnderstoodError(Exception):
    """A controller rejected the announcement, for example because its release is older."""


class Controllers(Protocol):
    async def announce(
        self, address: str, announcement: GatewayAnnouncement, timeout_ms: int
    ) -> None:
        """Raises `UnreachableError` and `NotUnderstoodError`."""


def own_announcement(address: str, started_at_ms: int) -> GatewayAnnouncement:
    """Returns the announcement of this process.

    - `address`: the advertised address, or the address of the listening socket. The host name
      replaces a host that means all addresses of the machine.
    """
    host, _, port = address.rpartition(":")
    name = socket.gethostname()
    return GatewayAnnouncement(
        f"{name}:{port}" if host in _ANY_HOST else address,
        name,
        os.getpid(),
        started_at_ms,
        installed_version(),
    )


class Announcer:
    """Announces to `addresses` and to the controllers that `describe_cluster` names."""

    def __init__(
        self,
        announcement: GatewayAnnouncement,
        addresses: Sequence[str],
        describe_cluster: Callable[[], Awaitable[ClusterDescription]],
        controllers: Controllers,
        clock: Clock,
        limited_clients: Callable[[], Sequence[LimitedClient]] = tuple,
        pressures: Callable[[], Sequence[Pressure]] = tuple,
    ) -> None:
        """Initializes an announcer.

        - `limited_clients`: returns the clients that are at a limit now, the latest rejection first
        - `pressures`: returns the resources that are short in this process now
        """
        self._announcement = announcement
        self._limited_clients = limited_clients
        self._pressures = pressures
        self._configured = tuple(addresses)
        self._addresses = self._configured[:MAX_CONTROLLERS]
        self._describe_cluster = describe_cluster
        self._controllers = controllers
        self._clock = clock
        # By address: time of the next announcement to a controller that rejected the last one.
        self._paused_until_ms: dict[str, int] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Sends announcements until the context ends, and then announces the stop."""
        tasks = [
            asyncio.create_task(self._keep_announcing(), name="announcing"),
            asyncio.create_task(self._keep_finding(), name="finding-controllers"),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        farewell = replace(self._announcement, is_stopping=True)
        await self._announce(farewell, FAREWELL_TIMEOUT_MS)

    async def _keep_announcing(self) -> None:
        while True:
            limited = tuple(self._limited_clients()[:MAX_LIMITED_CLIENTS])
            short = tuple(ResourcePressure(*each) for each in self._pressures()[:MAX_PRESSURES])
            announcement = replace(self._announcement, limited_clients=limited, pressures=short)
            await self._announce(announcement, ANNOUNCE_TIMEOUT_MS)
            await asyncio.sleep(ANNOUNCE_INTERVAL_MS / 1000)

    async def _announce(self, announcement: GatewayAnnouncement, timeout_ms: int) -> None:
        now_ms = self._clock.monotonic_ms()
        due = [a for a in self._addresses if self._paused_until_ms.get(a, now_ms) <= now_ms]
        await asyncio.gather(*(self._announce_to(a, announcement, timeout_ms) for a in due))

    async def _announce_to(
        self, address: str, announcement: GatewayAnnouncement, timeout_ms: int
    ) -> None:
        try:
            await self._controllers.announce(address, announcement, timeout_ms)
        except UnreachableError:
            return
        except NotUnderstoodError as error:
            if address not in self._paused_until_ms:
                _log.info("gateway_not_announced", controller=address, reason=str(error))
        except Exception:
            # The gateway can serve requests without announcements.
            _log.exception("gateway_not_announced", controller=address)
        else:
            self._paused_until_ms.pop(address, None)
            return
        now_ms = self._clock.monotonic_ms()
        self._paused_until_ms[address] = now_ms + NOT_UNDERSTOOD_PAUSE_MS

    async def _keep_finding(self) -> None:
        while True:
            with suppress(TidelogError, UnreachableError, TimeoutError):
                async with asyncio.timeout(FIND_TIMEOUT_MS / 1000):
                    found = await self._describe_cluster()
                self._found(controller.address for controller in found.controllers)
            interval_ms = FIND_INTERVAL_MS if self._addresses else ANNOUNCE_INTERVAL_MS
            await asyncio.sleep(interval_ms / 1000)

    def _found(self, addresses: Iterable[str]) -> None:
        known = dict.fromkeys((*self._configured, *addresses))
        self._addresses = tuple(known)[:MAX_CONTROLLERS]
