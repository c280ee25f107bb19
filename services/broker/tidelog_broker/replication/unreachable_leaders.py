"""Reports to the controller which leaders do not answer this broker's fetches.

See rule `cut-off-leader-is-replaced`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Protocol

import structlog

from tidelog.state_changes.event import Cause, Change, Kind, Stage
from tidelog_broker.core.stalls import stalled_ms
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.replication.fetch_state import UnansweredFetch
from tidelog_broker.replication.follower_events import EventSource
from tidelog_broker.replication.transport import (
    ANSWER_TIMEOUT_MS,
    REPORT_TIMEOUT_MS,
    ControllerUnreachableError,
    LeaderReportReceiver,
)
from tidelog_runtime.broker_reports import UnreachableLeader, UnreachableLeadersReport

# Interval of checks, and of reports as long as a leader is silent. A report counts at the
# controller for several times as long.
REPORT_INTERVAL_MS = 1_000
# Silence beyond the long poll itself; a leader that is slower by less is not reported.
MIN_SILENCE_MS = 1_000

_log = structlog.get_logger()


def unreachable(
    unanswered: Mapping[int, UnansweredFetch],
    now: float,
    after_ms: int,
    awake_since: float = -math.inf,
) -> tuple[UnreachableLeader, ...]:
    """Returns the leaders that have left fetches without an answer for `after_ms`, by broker id.

    Only time since `awake_since` counts, in which this broker could receive an answer.
    """
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
    """Returns how long a fetch has no answer before its leader is reported.

    That is as long as it takes until followers leave the ISR, because from then on the leader may
    commit nothing. It is reported at the latest when the fetch itself is given up.
    """
    beyond_wait_ms = max(MIN_SILENCE_MS, lag_time_max_ms - fetch_max_wait_ms)
    return fetch_max_wait_ms + min(ANSWER_TIMEOUT_MS, beyond_wait_ms)


class Fetching(Protocol):
    def unanswered(self) -> Mapping[int, UnansweredFetch]: ...


class LeaderReports:
    """Reports silent leaders to the controller.

    For each leader it emits one event while it reports it. The silence itself was emitted by the
    fetcher before. `after_ms`: see `reported_after_ms`.
    """

    def __init__(
        self,
        reporter: EventSource,
        fetching: Fetching,
        cache: MetadataCache,
        controllers: LeaderReportReceiver,
        after_ms: int,
    ) -> None:
        self._reporter = reporter
        self._fetching = fetching
        self._cache = cache
        self._controllers = controllers
        self._after_ms = after_ms
        # By leader, the change of the event that was emitted.
        self._reported: dict[int, Change] = {}
        self._silent: tuple[UnreachableLeader, ...] = ()
        self._is_rejection_logged = False
        # When this broker last stalled (loop time): answers of its leaders may still be unread
        # then.
        self._awake_since = -math.inf

    async def run(self) -> None:
        """Reports periodically, one report at a time.

        The controller forgets a report that is not repeated, so a withdrawal may be lost. After a
        stall of its own this broker reports no leader until its leaders have had all of their time
        again (rule `quiet-partition-reports-its-end`).
        """
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await asyncio.sleep(REPORT_INTERVAL_MS / 1000)
            now = self._note_stall(began, REPORT_INTERVAL_MS)
            leaders = unreachable(
                self._fetching.unanswered(), now, self._after_ms, self._awake_since
            )
            self._silent = leaders
            if leaders or self._reported:
                await self._report(leaders)
                self._note_stall(now, REPORT_TIMEOUT_MS)

    def silent_ms(self) -> dict[int, int]:
        """Returns how long reported leaders had not answered fetches at the last check.

        Leaders that have answered since are left out.
        """
        still = self._fetching.unanswered()
        return {
            leader.broker_id: leader.unanswered_ms
            for leader in self._silent
            if leader.broker_id in still
        }

    def _note_stall(self, began: float, expected_ms: int) -> float:
        """Notes a stall of this broker. Returns the loop time now."""
        now = asyncio.get_running_loop().time()
        if stalled_ms(int((now - began) * 1000), expected_ms):
            self._awake_since = now
        return now

    def _emit(self, leader: UnreachableLeader) -> Change:
        """Emits that a leader is reported.

        This change is not the fetcher's, which began earlier.
        """
        state_changes = self._reporter.state_changes
        change = state_changes.condition_change(
            f"leader-{leader.broker_id}-report", Cause.NO_ANSWER
        )
        state_changes.emit(
            Kind.LEADER_UNREACHABLE,
            Stage.REQUESTED,
            change=change,
            broker=leader.broker_id,
            broker_epoch=leader.broker_epoch,
            details={"unanswered_ms": leader.unanswered_ms},
        )
        return change

    def _emit_end(self, leader_id: int, change: Change) -> None:
        """Emits that the leader answers again, or leads here no more.

        Only the controller reports whether it accepted the report, or ignored it because the leader
        was gone.
        """
        self._reporter.state_changes.emit(
            Kind.LEADER_UNREACHABLE, Stage.COMPLETED, change=change, broker=leader_id
        )

    async def _report(self, leaders: tuple[UnreachableLeader, ...]) -> None:
        silent = {leader.broker_id for leader in leaders}
        for leader_id, change in self._reported.items():
            if leader_id not in silent:
                self._emit_end(leader_id, change)
        self._reported = {
            leader.broker_id: self._reported.get(leader.broker_id) or self._emit(leader)
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
            rejection = await self._controllers.report_unreachable_leaders(
                controller.address, report
            )
            why = rejection.message if rejection is not None else ""
        except ControllerUnreachableError as error:
            why = str(error)
        if why and not self._is_rejection_logged:
            _log.info("unreachable_leaders_not_reported", why=why)
        self._is_rejection_logged = bool(why)
