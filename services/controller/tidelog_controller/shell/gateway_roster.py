"""The gateways that announced themselves to this controller: soft state, only in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.controller_reports import ServiceCrashes
from tidelog.inspection.gateway_reports import (
    GATEWAY_FORGOTTEN_MS,
    GATEWAY_SILENT_MS,
    MAX_GATEWAYS,
    MAX_LIMITED_CLIENTS,
    MAX_PRESSURES,
    AnnouncedGateway,
    GatewayAnnouncement,
    is_loopback,
)
from tidelog.inspection.state_reports import NOT_KNOWN
from tidelog_controller.state.crash_series import CrashSeries
from tidelog_runtime.clock import Clock

MAX_NAME_BYTES = 256
MAX_VERSION_BYTES = 64


class _Heard(NamedTuple):
    announcement: GatewayAnnouncement
    first_ms: int
    last_ms: int
    crashes: CrashSeries = CrashSeries()


class GatewayRoster:
    """One gateway for each address and host, with times of this process's monotonic clock.

    At most MAX_GATEWAYS; the one that has been silent longest is forgotten first.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard: dict[tuple[str, str], _Heard] = {}

    def announce(self, announcement: GatewayAnnouncement) -> TidelogError | None:
        """Returns why the announcement was rejected; None: it was accepted."""
        error = _problem(announcement)
        if error is not None:
            return error
        now_ms = self._forget()
        key = (announcement.address, announcement.host)
        known = self._heard.get(key)
        if known is not None and not _is_news(announcement, known.announcement):
            return None
        if known is None:
            self._replace_silent(announcement, now_ms)
        first_ms = now_ms if known is None else known.first_ms
        crashes = CrashSeries() if known is None else _crashes(announcement, known, now_ms)
        self._heard.pop(key, None)
        self._heard[key] = _Heard(announcement, first_ms, now_ms, crashes)
        if len(self._heard) > MAX_GATEWAYS:
            del self._heard[next(iter(self._heard))]
        return None

    def described(self) -> tuple[AnnouncedGateway, ...]:
        """Sorted by address and host."""
        now_ms = self._forget()
        return tuple(
            AnnouncedGateway(
                heard.announcement.address,
                heard.announcement.host,
                heard.announcement.pid,
                heard.announcement.version,
                heard.announcement.started_at_ms,
                now_ms - heard.last_ms,
                heard.announcement.is_stopping,
                tuple(
                    replace(client, last_ms=client.last_ms + now_ms - heard.last_ms)
                    for client in heard.announcement.limited_clients
                ),
                heard.announcement.pressures,
            )
            for _, heard in sorted(self._heard.items())
        )

    def crashes(self) -> Iterator[ServiceCrashes]:
        """Yields gateways that crash again and again, sorted by address and host."""
        now_ms = self._forget()
        for (address, _), heard in sorted(self._heard.items()):
            if not heard.crashes.is_over(now_ms):
                yield heard.crashes.described("gateway", NOT_KNOWN, address, now_ms)

    def _forget(self) -> int:
        """Forgets silent gateways; returns the current time.

        Entries are in the order of their last announcement.
        """
        now_ms = self._clock.monotonic_ms()
        for key, heard in list(self._heard.items()):
            if now_ms - heard.last_ms < GATEWAY_FORGOTTEN_MS:
                break
            del self._heard[key]
        return now_ms

    def _replace_silent(self, new: GatewayAnnouncement, now_ms: int) -> None:
        """Forgets silent gateways at the same address, unless it is a loopback address.

        A container that is created again has another host name.
        """
        if is_loopback(new.address):
            return
        for key, heard in list(self._heard.items()):
            if key[0] == new.address and now_ms - heard.last_ms >= GATEWAY_SILENT_MS:
                del self._heard[key]


def _crashes(new: GatewayAnnouncement, known: _Heard, now_ms: int) -> CrashSeries:
    """Another process in the place of one that did not announce its stop: that one crashed."""
    old = known.announcement
    if (new.pid, new.started_at_ms) == (old.pid, old.started_at_ms):
        return known.crashes
    return CrashSeries() if old.is_stopping else known.crashes.extended(now_ms)


def _is_news(announced: GatewayAnnouncement, known: GatewayAnnouncement) -> bool:
    """Whether the announcement is newer than the known one.

    A final announcement (`is_stopping`) concerns only its own process. An earlier announcement of
    the same process may arrive after it.
    """
    is_same = (announced.pid, announced.started_at_ms) == (known.pid, known.started_at_ms)
    return not known.is_stopping if is_same else not announced.is_stopping


def _problem(announced: GatewayAnnouncement) -> TidelogError | None:
    limits = {"address": MAX_NAME_BYTES, "host": MAX_NAME_BYTES, "version": MAX_VERSION_BYTES}
    for name, limit in limits.items():
        length = len(getattr(announced, name).encode())
        if not 0 < length <= limit:
            return TidelogError(
                ErrorCode.INVALID_REQUEST,
                f"the gateway's {name} has {length} bytes; give 1 to {limit}",
            )
    if len(announced.limited_clients) > MAX_LIMITED_CLIENTS or any(
        len(text.encode()) > MAX_NAME_BYTES
        for client in announced.limited_clients
        for text in (client.address, client.limit)
    ):
        return TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"the gateway names more than {MAX_LIMITED_CLIENTS} limited clients, or one by more "
            f"than {MAX_NAME_BYTES} bytes",
        )
    if len(announced.pressures) > MAX_PRESSURES or any(
        len(text.encode()) > MAX_NAME_BYTES
        for pressure in announced.pressures
        for text in (pressure.resource, pressure.detail)
    ):
        return TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"the gateway names more than {MAX_PRESSURES} resources that it is short of, or one by "
            f"more than {MAX_NAME_BYTES} bytes",
        )
    return None
