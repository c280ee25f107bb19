"""What a follower reports of leaders that do not answer."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest
from structlog.testing import capture_logs

from tidelog.errors import ErrorCode, TidelogError
from tidelog.state_changes.event import Kind, Stage
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.replication.fetch_state import UnansweredFetch
from tidelog_broker.replication.transport import ANSWER_TIMEOUT_MS, ControllerUnreachableError
from tidelog_broker.replication.unreachable_leaders import (
    MIN_SILENCE_MS,
    REPORT_INTERVAL_MS,
    LeaderReports,
    reported_after_ms,
    unreachable,
)
from tidelog_runtime.broker_reports import UnreachableLeader, UnreachableLeadersReport
from tidelog_runtime.metadata.schema import ControllerEntry
from tidelog_runtime.telemetry.state_change_log import StateChangeLog
from unit.broker.broker_parts import KEYS, at_work, emitted_events
from unit.broker.fake_log import epoch_of
from unit.metadata.virtual_time import virtual_clock

MAX_WAIT_MS = 500
AFTER_MS = MAX_WAIT_MS + ANSWER_TIMEOUT_MS
CONTROLLER = ControllerEntry(1, "10.0.1.1:7400")


class Follower:
    """Broker 3, its unanswered fetches, and the controller that receives its reports."""

    broker_id = 3
    broker_epoch = epoch_of(3)

    def __init__(self) -> None:
        self.silent: dict[int, UnansweredFetch] = {}
        self.sent_reports: list[tuple[str, UnreachableLeadersReport]] = []
        self.rejection: TidelogError | None = None
        self.is_cut_off = False
        self.stalls_s = 0.0  # in the middle of the next report
        self.cache = MetadataCache(KEYS)
        self.cache.controller = CONTROLLER
        self.state_changes = StateChangeLog("broker-3", virtual_clock())
        self.reports = LeaderReports(self, self, self.cache, self, AFTER_MS)

    def silence(self, leader: int) -> None:
        self.silent[leader] = UnansweredFetch(epoch_of(leader), virtual_clock().time())

    def unanswered(self) -> dict[int, UnansweredFetch]:
        return self.silent

    async def report_unreachable_leaders(
        self, address: str, report: UnreachableLeadersReport
    ) -> TidelogError | None:
        self.sent_reports.append((address, report))
        virtual_clock().stand_still(self.stalls_s)
        self.stalls_s = 0.0
        if self.is_cut_off:
            raise ControllerUnreachableError(f"{address}: no answer")
        return self.rejection

    async def close(self) -> None:
        pass

    @property
    def reported_leaders(self) -> list[list[int]]:
        return [[leader.broker_id for leader in report.leaders] for _, report in self.sent_reports]


def reporting(follower: Follower) -> AbstractAsyncContextManager[None]:
    return at_work(follower.reports.run())


async def intervals(number: int) -> None:
    """Advance by this many intervals and a half, so that the reports have been sent."""
    await asyncio.sleep((number + 0.5) * REPORT_INTERVAL_MS / 1000)


def test_a_leader_is_unreachable_after_the_bound() -> None:
    silent = {2: UnansweredFetch(102, 10.0), 1: UnansweredFetch(101, 8.0)}
    assert unreachable(silent, 12.0, 2_000) == (
        UnreachableLeader(1, 101, 4_000),
        UnreachableLeader(2, 102, 2_000),
    )
    assert unreachable(silent, 11.0, 2_000) == (UnreachableLeader(1, 101, 3_000),)


@pytest.mark.parametrize(
    ("lag_time_max_ms", "after_ms"),
    [
        (2_000, 2_000),
        (MAX_WAIT_MS, MAX_WAIT_MS + MIN_SILENCE_MS),
        (30_000, MAX_WAIT_MS + ANSWER_TIMEOUT_MS),
    ],
)
def test_a_leader_is_reported_once_its_followers_lost_the_isr_because_of_it(
    lag_time_max_ms: int, after_ms: int
) -> None:
    assert reported_after_ms(MAX_WAIT_MS, lag_time_max_ms) == after_ms


async def test_a_follower_whose_leaders_answer_reports_nothing() -> None:
    follower = Follower()
    async with reporting(follower):
        await intervals(5)
    assert follower.sent_reports == []


async def test_a_long_poll_is_not_reported() -> None:
    follower = Follower()
    async with reporting(follower):
        for _ in range(5):
            follower.silence(1)
            await intervals(1)
    assert follower.sent_reports == []


async def test_an_unreachable_leader_is_reported_periodically_in_its_incarnation() -> None:
    follower = Follower()
    follower.silence(1)
    async with reporting(follower):
        await intervals(8)
    address, report = follower.sent_reports[0]
    (first,) = report.leaders
    assert (address, report.broker_id, report.broker_epoch) == (CONTROLLER.address, 3, epoch_of(3))
    assert first[:3] == (1, epoch_of(1), 6_000)
    assert first.unanswered_ms >= AFTER_MS
    assert follower.reported_leaders == [[1], [1], [1]]


async def test_all_reports_have_the_change_id_of_the_first() -> None:
    follower = Follower()
    follower.silence(1)
    async with reporting(follower):
        await intervals(8)
    (asked,) = emitted_events(follower.state_changes, Kind.LEADER_UNREACHABLE)
    assert asked.stage is Stage.REQUESTED
    named = {leader.change.id for _, report in follower.sent_reports for leader in report.leaders}
    assert named == {asked.change_id} != {""}


async def test_a_leader_that_falls_silent_again_is_another_change() -> None:
    follower = Follower()
    async with reporting(follower):
        for _ in range(2):
            follower.silence(1)
            await intervals(6)
            follower.silent.clear()
            await intervals(1)
    events = emitted_events(follower.state_changes, Kind.LEADER_UNREACHABLE)
    first, second = (event for event in events if event.stage is Stage.REQUESTED)
    assert first.change_id != second.change_id


async def test_a_withdrawn_report_has_an_end() -> None:
    follower = Follower()
    follower.silence(1)
    async with reporting(follower):
        await intervals(6)
        follower.silent.clear()
        await intervals(2)
    asked, end = emitted_events(follower.state_changes, Kind.LEADER_UNREACHABLE)
    assert (end.stage, end.change_id) == (Stage.COMPLETED, asked.change_id)
    assert end.duration_ms == REPORT_INTERVAL_MS


@pytest.mark.rule("quiet-partition-reports-its-end")
async def test_a_stalled_broker_does_not_report_its_leaders() -> None:
    follower = Follower()
    follower.silence(1)
    async with reporting(follower):
        await intervals(1)
        virtual_clock().stand_still(23)
        await intervals(4)
        assert (follower.sent_reports, emitted_events(follower.state_changes)) == ([], [])


async def test_after_a_stall_a_leader_has_its_full_time_again() -> None:
    follower = Follower()
    follower.silence(1)
    async with reporting(follower):
        await intervals(1)
        virtual_clock().stand_still(23)
        await intervals(7)
    _, report = follower.sent_reports[0]
    (first,) = report.leaders
    assert AFTER_MS <= first.unanswered_ms < AFTER_MS + REPORT_INTERVAL_MS


async def test_a_stall_in_the_middle_of_a_report_withdraws_it() -> None:
    follower = Follower()
    follower.silence(1)
    async with reporting(follower):
        await intervals(5)
        follower.stalls_s = 23.0
        await intervals(1)
        await intervals(2)
    assert follower.reported_leaders == [[1], []]


async def test_a_leader_that_answers_again_is_withdrawn_once() -> None:
    follower = Follower()
    follower.silence(1)
    async with reporting(follower):
        await intervals(6)
        follower.silent.clear()
        await intervals(3)
    assert follower.reported_leaders == [[1], []]


async def test_without_a_controller_nothing_is_reported_until_there_is_one() -> None:
    follower = Follower()
    follower.cache.controller = None
    follower.silence(1)
    async with reporting(follower):
        await intervals(7)
        assert follower.sent_reports == []
        follower.cache.controller = CONTROLLER
        await intervals(1)
    assert follower.reported_leaders == [[1]]


async def test_a_failed_report_to_the_controller_is_sent_again() -> None:
    follower = Follower()
    follower.is_cut_off = True
    follower.silence(1)
    with capture_logs() as logs:
        async with reporting(follower):
            await intervals(9)
    assert follower.reported_leaders == [[1]] * 4
    untaken = [line for line in logs if line["event"] == "unreachable_leaders_not_reported"]
    assert len(untaken) == 1


async def test_a_rejection_is_logged_once_and_the_next_controller_gets_the_report() -> None:
    follower = Follower()
    follower.rejection = TidelogError(ErrorCode.NOT_CONTROLLER, "another one is active")
    follower.silence(1)
    async with reporting(follower):
        await intervals(6)
        follower.cache.controller = ControllerEntry(2, "10.0.1.2:7400")
        follower.rejection = None
        await intervals(1)
    assert [address for address, _ in follower.sent_reports] == ["10.0.1.1:7400", "10.0.1.2:7400"]


async def test_leaders_are_described_as_silent_until_they_answer() -> None:
    follower = Follower()
    follower.silence(1)
    async with reporting(follower):
        await intervals(4)
        assert follower.reports.silent_ms() == {}
        await intervals(4)
        silent_ms = follower.reports.silent_ms()
        follower.silent.clear()
        assert follower.reports.silent_ms() == {}
    assert list(silent_ms) == [1]
    assert silent_ms[1] >= AFTER_MS
