"""Tells the controller which leaders do not answer this broker's fetches (section 4 of
docs/internals/protocol.md)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Protocol

import structlog

from tidelog.state_changes.event import Cause, Change, Kind, Stage
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.replication.follower_events import Teller
from tidelog_broker.replication.replica_fetcher import Unanswered
from tidelog_broker.replication.transport import (
    ANSWER_TIMEOUT_MS,
    REPORT_TIMEOUT_MS,
    ControllerUnreachableError,
    TakesLeaderReports,
)
from tidelog_broker.stalls import stalled_ms
from tidelog_runtime.leader_reports import UnreachableLeader, UnreachableLeadersReport

# So often it is looked at, and reported as long as it lasts. The controller believes a report
# for several times as long.
REPORT_INTERVAL_MS = 1_000
# Beyond the long poll itself; who merely is slow for so long is not reported.
LEAST_SILENCE_MS = 1_000

_log = structlog.get_logger()


def unreachable(
    unanswered: Mapping[int, Unanswered], now: float, after_ms: int, awake_since: float = -math.inf
) -> tuple[UnreachableLeader, ...]:
    """The leaders that have left fetches without an answer for so long, by broker id, while
    this broker was there to hear one."""
    silent_ms = {
        leader: int((now - max(entry.since, awake_since)) * 1000)
        for leader, entry in unanswered.items()
    }
    return tuple(
        UnreachableLeader(leader, unanswered[leader].broker_epoch, silent_ms[leader])
        for leader in sorted(unanswered)
        if silent_ms[leader] >= after_ms
    )


def reported_after_ms(fetch_max_wait_ms: int, lag_time_max_ms: int) -> int:
    """How long a fetch is left without an answer before its leader is reported: as long as makes
    its followers leave the ISR, for from then on nothing may be committed there; at the latest
    when the fetch itself is given up."""
    beyond_wait_ms = max(LEAST_SILENCE_MS, lag_time_max_ms - fetch_max_wait_ms)
    return fetch_max_wait_ms + min(ANSWER_TIMEOUT_MS, beyond_wait_ms)


class Fetching(Protocol):
    def unanswered(self) -> Mapping[int, Unanswered]: ...


class LeaderReports:
    """Tells of each that its controller is asked to act on it, once for as long as it lasts;
    that it is silent its fetcher has told at once.

    `after_ms`: how long a fetch is left without an answer before (`reported_after_ms`)."""

    def __init__(
        self,
        reporter: Teller,
        fetching: Fetching,
        cache: MetadataCache,
        controllers: TakesLeaderReports,
        after_ms: int,
    ) -> None:
        self._reporter = reporter
        self._fetching = fetching
        self._cache = cache
        self._controllers = controllers
        self._after_ms = after_ms
        # As which each was told, by leader.
        self._reported: dict[int, Change] = {}
        self._silent: tuple[UnreachableLeader, ...] = ()
        self._said_untaken = False
        # When it last stood still, so that its leaders' answers may yet be unread (loop time).
        self._awake_since = -math.inf

    async def run(self) -> None:
        """One report at a time. What the controller does not hear of it forgets by itself,
        a withdrawal that got lost too. After it was itself stalled a broker accuses nobody
        until its leaders have had all their time anew (interleaving 14)."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await asyncio.sleep(REPORT_INTERVAL_MS / 1000)
            now = self._look_for_stall(began, REPORT_INTERVAL_MS)
            leaders = unreachable(
                self._fetching.unanswered(), now, self._after_ms, self._awake_since
            )
            self._silent = leaders
            if leaders or self._reported:
                await self._report(leaders)
                self._look_for_stall(now, REPORT_TIMEOUT_MS)

    def silent_ms(self) -> dict[int, int]:
        """For how long the leaders that it reports had left fetches without an answer at the last
        check, unless they have answered since."""
        still = self._fetching.unanswered()
        return {
            leader.broker_id: leader.unanswered_ms
            for leader in self._silent
            if leader.broker_id in still
        }

    def _look_for_stall(self, began: float, expected_ms: int) -> float:
        """Loop time now."""
        now = asyncio.get_running_loop().time()
        if stalled_ms(int((now - began) * 1000), expected_ms):
            self._awake_since = now
        return now

    def _tell(self, leader: UnreachableLeader) -> Change:
        """Not as its fetcher has told it: this begins later."""
        state_changes = self._reporter.state_changes
        change = state_changes.standing(f"leader-{leader.broker_id}-report", Cause.NO_ANSWER)
        state_changes.tell(
            Kind.LEADER_UNREACHABLE,
            Stage.REQUESTED,
            change=change,
            broker=leader.broker_id,
            broker_epoch=leader.broker_epoch,
            details={"unanswered_ms": leader.unanswered_ms},
        )
        return change

    def _tell_end(self, leader_id: int, change: Change) -> None:
        """It answers again, or leads here no more. Whether a controller has taken the report,
        or left it because the leader was gone, only the controller tells."""
        self._reporter.state_changes.tell(
            Kind.LEADER_UNREACHABLE, Stage.COMPLETED, change=change, broker=leader_id
        )

    async def _report(self, leaders: tuple[UnreachableLeader, ...]) -> None:
        silent = {leader.broker_id for leader in leaders}
        for leader_id, change in self._reported.items():
            if leader_id not in silent:
                self._tell_end(leader_id, change)
        self._reported = {
            leader.broker_id: self._reported.get(leader.broker_id) or self._tell(leader)
            for leader in leaders
        }
        named = tuple(
            leader._replace(change=self._reported[leader.broker_id]) for leader in leaders
        )
        controller = self._cache.controller
        if controller is None:
            return
        report = UnreachableLeadersReport(
            self._reporter.broker_id, self._reporter.broker_epoch, named
        )
        try:
            refusal = await self._controllers.report_unreachable_leaders(controller.address, report)
            why = refusal.message if refusal is not None else ""
        except ControllerUnreachableError as error:
            why = str(error)
        if why and not self._said_untaken:
            _log.info("unreachable_leaders_not_reported", why=why)
        self._said_untaken = bool(why)
