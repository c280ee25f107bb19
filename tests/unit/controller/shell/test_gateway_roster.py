"""The controller's list of gateways."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.caller_limits import LimitedClient
from tidelog.errors import ErrorCode
from tidelog.inspection.gateway_reports import (
    GATEWAY_FORGOTTEN_MS,
    GATEWAY_SILENT_MS,
    MAX_GATEWAYS,
    MAX_LIMITED_CLIENTS,
    MAX_PRESSURES,
    GatewayAnnouncement,
)
from tidelog.inspection.resource_pressures import ResourcePressure
from tidelog_controller.shell.gateway_roster import MAX_NAME_BYTES, GatewayRoster


class ManualClock:
    def __init__(self) -> None:
        self.now_ms = 5_000_000

    def advance(self, ms: int) -> None:
        self.now_ms += ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        raise AssertionError("wall clocks jump")


ONE = GatewayAnnouncement("gate:7600", "one", 7, 1_000, "0.1.0")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def roster(clock: ManualClock) -> GatewayRoster:
    return GatewayRoster(clock)


def hosts(roster: GatewayRoster) -> list[str]:
    return [gateway.host for gateway in roster.described()]


def test_it_reports_how_long_ago_it_heard_from_a_gateway(
    roster: GatewayRoster, clock: ManualClock
) -> None:
    assert roster.announce(ONE) is None
    clock.advance(3_000)
    [known] = roster.described()
    assert (known.address, known.host, known.pid, known.version) == ("gate:7600", "one", 7, "0.1.0")
    assert (known.last_heard_ms, known.is_stopped) == (3_000, False)
    roster.announce(ONE)
    assert roster.described()[0].last_heard_ms == 0


def test_the_ages_of_limited_clients_grow_with_that_of_the_announcement(
    roster: GatewayRoster, clock: ManualClock
) -> None:
    limited = LimitedClient("10.0.0.7", "max_requests_per_client", 128, 5, 900)
    roster.announce(replace(ONE, limited_clients=(limited,)))
    clock.advance(3_000)
    assert roster.described()[0].limited_clients == (replace(limited, last_ms=3_900),)


@pytest.mark.parametrize(
    "limited",
    [
        [LimitedClient("10.0.0.7", "connections", 800, 1, 0)] * (MAX_LIMITED_CLIENTS + 1),
        [LimitedClient("x" * (MAX_NAME_BYTES + 1), "connections", 800, 1, 0)],
        [LimitedClient("10.0.0.7", "x" * (MAX_NAME_BYTES + 1), 800, 1, 0)],
    ],
)
def test_oversized_lists_of_limited_clients_are_rejected(
    roster: GatewayRoster, limited: list[LimitedClient]
) -> None:
    rejection = roster.announce(replace(ONE, limited_clients=limited))
    assert rejection is not None
    assert rejection.code is ErrorCode.INVALID_REQUEST
    assert hosts(roster) == []


def test_pressures_of_a_gateway_are_kept_and_bounded(roster: GatewayRoster) -> None:
    files = ResourcePressure("open_files", 90, 100, 5, "why")
    assert roster.announce(replace(ONE, pressures=(files,))) is None
    assert roster.described()[0].pressures == (files,)
    long = replace(files, detail="x" * (MAX_NAME_BYTES + 1))
    for wrong in ([files] * (MAX_PRESSURES + 1), [long]):
        rejection = roster.announce(replace(ONE, pressures=wrong))
        assert rejection is not None
        assert rejection.code is ErrorCode.INVALID_REQUEST


def test_a_gateway_is_forgotten_a_day_after_its_last_announcement(
    roster: GatewayRoster, clock: ManualClock
) -> None:
    roster.announce(ONE)
    clock.advance(GATEWAY_FORGOTTEN_MS - 1)
    assert hosts(roster) == ["one"]
    clock.advance(1)
    assert hosts(roster) == []


def test_the_gateway_silent_for_longest_is_evicted(roster: GatewayRoster) -> None:
    for i in range(MAX_GATEWAYS):
        roster.announce(replace(ONE, host=f"host-{i:03}"))
    roster.announce(replace(ONE, host="host-000"))
    roster.announce(replace(ONE, host="new"))
    assert len(hosts(roster)) == MAX_GATEWAYS
    assert "host-000" in hosts(roster)
    assert "host-001" not in hosts(roster)


def test_a_stopped_process_stays_stopped_and_a_new_one_does_not(roster: GatewayRoster) -> None:
    roster.announce(replace(ONE, is_stopping=True))
    roster.announce(ONE)
    assert roster.described()[0].is_stopped
    new = replace(ONE, pid=8, started_at_ms=2_000)
    roster.announce(new)
    roster.announce(replace(ONE, is_stopping=True))
    [known] = roster.described()
    assert (known.pid, known.is_stopped) == (8, False)


def test_a_recreated_container_replaces_the_silent_one(
    roster: GatewayRoster, clock: ManualClock
) -> None:
    roster.announce(ONE)
    clock.advance(GATEWAY_SILENT_MS)
    roster.announce(replace(ONE, host="two"))
    assert hosts(roster) == ["two"]


def test_gateways_behind_one_address_are_distinguished(
    roster: GatewayRoster, clock: ManualClock
) -> None:
    roster.announce(ONE)
    roster.announce(replace(ONE, host="two"))
    clock.advance(GATEWAY_SILENT_MS)
    roster.announce(replace(ONE, host="two"))
    assert hosts(roster) == ["one", "two"]


def test_the_loopback_addresses_of_two_hosts_are_distinct(
    roster: GatewayRoster, clock: ManualClock
) -> None:
    local = replace(ONE, address="127.0.0.1:7600")
    roster.announce(local)
    clock.advance(GATEWAY_SILENT_MS)
    roster.announce(replace(local, host="two"))
    assert hosts(roster) == ["one", "two"]


@pytest.mark.parametrize(
    "wrong", [{"address": ""}, {"host": "h" * 257}, {"version": "v" * 65}], ids=str
)
def test_texts_are_bounded(roster: GatewayRoster, wrong: dict[str, str]) -> None:
    error = roster.announce(replace(ONE, **wrong))  # type: ignore[arg-type]
    assert error is not None
    assert error.code is ErrorCode.INVALID_REQUEST
    assert next(iter(wrong)) in error.message
    assert hosts(roster) == []


def test_a_gateway_that_is_replaced_without_a_stop_has_crashed(
    roster: GatewayRoster, clock: ManualClock
) -> None:
    for process in range(4):
        clock.advance(10_000)
        roster.announce(replace(ONE, pid=process))
        roster.announce(replace(ONE, pid=process))
    [crashes] = roster.crashes()
    assert (crashes.role, crashes.address, crashes.count) == ("gateway", "gate:7600", 3)
    assert (crashes.since_ms, crashes.last_ms) == (20_000, 0)
    roster.announce(replace(ONE, pid=3, is_stopping=True))
    roster.announce(replace(ONE, pid=4))
    assert list(roster.crashes()) == []
