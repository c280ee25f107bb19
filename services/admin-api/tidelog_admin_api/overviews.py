"""Refreshes the overview in the background.

Each part is refreshed separately: a controller that does not answer delays neither the other
parts nor the readers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

import structlog

from tidelog.admin_messages import BrokerDetails, Operation
from tidelog.client.descriptions import ClusterDescription, TopicDescription
from tidelog.errors import TidelogError
from tidelog.inspection.state_reports import Explanation, Scope
from tidelog.rpc.status import UnreachableError
from tidelog_admin_api.bodies.cluster_bodies import Overview, OverviewPart, PartitionMap
from tidelog_admin_api.history_sampler import SAMPLE_INTERVAL_MS, ClusterFacts, HistorySampler
from tidelog_admin_api.overview import TopicsSummary, map_of, overview_of, summary_of
from tidelog_runtime.clock import Clock

INTERVAL_MS = 1_000
# Explain queries the full state of all services, which costs more than a list of topics.
EXPLAIN_INTERVAL_MS = 2_000
# Timeout of one refresh of a part.
PART_TIMEOUT_MS = 5_000
EXPLAIN_TIMEOUT_MS = 1_000
# For this time after the last read, parts are refreshed at their own intervals. After that, at
# IDLE_INTERVAL_MS.
IN_USE_MS = 60_000
IDLE_INTERVAL_MS = 10_000
# A part with a longer interval of its own costs more, and is refreshed less often, too: at its
# interval times this, up to this time.
IDLE_FACTOR = 5
MAX_IDLE_INTERVAL_MS = 80_000
# Longest wait of a reader for a part that has had no answer yet, and for a stale part.
FIRST_ANSWER_MS = 3_000
STALE_ANSWER_MS = 200
UNFINISHED = ("running", "cancelling")

_Value = TypeVar("_Value")
_log = structlog.get_logger()


def idle_interval_ms(interval_ms: int) -> int:
    """Returns the interval of a part that no client has read for IN_USE_MS."""
    return max(min(IDLE_FACTOR * interval_ms, MAX_IDLE_INTERVAL_MS), IDLE_INTERVAL_MS)


class Admin(Protocol):
    async def describe_cluster(self) -> ClusterDescription: ...

    async def list_topics(self, *, internal: bool = False) -> list[TopicDescription]: ...

    async def describe_brokers(self, broker_ids: Sequence[int] = ()) -> list[BrokerDetails]: ...

    async def list_operations(
        self, states: Sequence[str] = (), kinds: Sequence[str] = ()
    ) -> list[Operation]: ...


# Explains a part of the cluster; the timeout is in milliseconds. Raises `TidelogError` and
# `UnreachableError`.
Explain = Callable[[Scope, int], Awaitable[Explanation]]


class _Part(Generic[_Value]):
    """One part of the overview. `value` is None until the first answer."""

    def __init__(
        self, name: str, ask: Callable[[], Awaitable[_Value]], clock: Clock, interval_ms: int
    ) -> None:
        self.name = name
        self.value: _Value | None = None
        self.problem = ""
        self.interval_ms = interval_ms
        # The pause after the last refresh.
        self.pause_ms = interval_ms
        self.tried = asyncio.Event()
        self._ask = ask
        self._clock = clock
        self._as_of_ms = 0
        self._answered_ms: int | None = None
        self._tried_ms: int | None = None
        self._due = asyncio.Event()
        self._refreshing = False

    @property
    def age(self) -> OverviewPart:
        return OverviewPart(as_of_ms=self._as_of_ms, problem=self.problem)

    @property
    def age_ms(self) -> int | None:
        """Time since the last answer, or None if there has been no answer."""
        if self._answered_ms is None:
            return None
        return self._clock.monotonic_ms() - self._answered_ms

    @property
    def is_new(self) -> bool:
        return self._tried_ms is None

    @property
    def is_stale(self) -> bool:
        """Whether the part has not been refreshed for two intervals and no refresh is running."""
        if self._tried_ms is None or self._refreshing:
            return False
        return self._clock.monotonic_ms() - self._tried_ms > 2 * self.interval_ms

    def refresh_soon(self) -> None:
        self.tried.clear()
        self._due.set()

    async def pause(self, interval_ms: int) -> None:
        self.pause_ms = interval_ms
        with suppress(TimeoutError):
            async with asyncio.timeout(interval_ms / 1000):
                await self._due.wait()
        self._due.clear()

    async def refresh(self) -> None:
        self._refreshing = True
        try:
            async with asyncio.timeout(PART_TIMEOUT_MS / 1000):
                self.value = await self._ask()
        except (TidelogError, UnreachableError) as error:
            self.problem = str(error)
        except TimeoutError:
            self.problem = f"no answer within {PART_TIMEOUT_MS} ms"
        except Exception:
            # The other parts continue, and this one is refreshed again.
            _log.exception("overview_failed", part=self.name)
            self.problem = "the gateway failed to refresh this part; its log has the cause"
        else:
            self.problem = ""
            self._as_of_ms = self._clock.wall_ms()
            self._answered_ms = self._clock.monotonic_ms()
        self._refreshing = False
        self._tried_ms = self._clock.monotonic_ms()
        self.tried.set()


class Overviews:
    """The overview in memory. `run` refreshes it, and samples the history, from the first `read`
    on."""

    def __init__(
        self, admin: Admin, explain: Explain, sampler: HistorySampler, clock: Clock
    ) -> None:
        self._sampler = sampler
        self._clock = clock
        self._first_read = asyncio.Event()
        self._read_ms = 0
        self._cluster = _Part("cluster", admin.describe_cluster, clock, INTERVAL_MS)

        async def topics() -> TopicsSummary:
            listed = await admin.list_topics(internal=True)
            summary = await summary_of(listed)
            sampler.note(summary.counts)
            return summary

        self._topics = _Part("topics", topics, clock, INTERVAL_MS)
        self._brokers = _Part("brokers", admin.describe_brokers, clock, INTERVAL_MS)

        async def operations() -> Sequence[Operation]:
            return await admin.list_operations(UNFINISHED)

        self._operations = _Part("operations", operations, clock, INTERVAL_MS)

        async def findings() -> Explanation:
            return await explain(Scope(), EXPLAIN_TIMEOUT_MS)

        self._findings = _Part("findings", findings, clock, EXPLAIN_INTERVAL_MS)
        # No part of the answer, and no reader waits for it.
        self._history = _Part("history", self._take_sample, clock, SAMPLE_INTERVAL_MS)

    @property
    def age_ms(self) -> int | None:
        """Age of the oldest part, or None if a part has not had an answer yet."""
        ages = [part.age_ms for part in self._parts()]
        known = [age for age in ages if age is not None]
        return max(known) if len(known) == len(ages) else None

    async def read(self) -> Overview:
        """Returns the overview from memory. Waits briefly for missing and stale parts."""
        await self._refreshed(self._parts())
        return overview_of(
            self._cluster.value,
            self._topics.value,
            self._brokers.value,
            self._operations.value,
            self._findings.value,
            {part.name: part.age for part in self._parts()},
        )

    async def read_map(self) -> PartitionMap:
        """Returns the partition map from memory. Waits briefly if it is missing or stale.

        Raises `UnreachableError` if no list of topics has been received yet.
        """
        await self._refreshed((self._topics,))
        summary = self._topics.value
        if summary is None:
            raise UnreachableError("the cluster", self._topics.problem or "no answer in time")
        return await map_of(summary.topics)

    async def read_facts(self) -> ClusterFacts:
        """Returns what the history is about, from memory. Waits as `read_map` does.

        Raises `UnreachableError` if no list of topics or brokers has been received yet.
        """
        parts = (self._cluster, self._topics)
        await self._refreshed(parts)
        facts = self._facts()
        if facts is None:
            problems = [part.problem for part in parts if part.problem]
            raise UnreachableError("the cluster", (problems or ["no answer in time"])[0])
        return facts

    def _facts(self) -> ClusterFacts | None:
        cluster, topics = self._cluster.value, self._topics.value
        if cluster is None or topics is None:
            return None
        return ClusterFacts(cluster, topics.topics, None if self._topics.problem else topics.counts)

    async def _take_sample(self) -> None:
        for part in (self._cluster, self._topics):
            await part.tried.wait()
        facts = self._facts()
        if facts is not None:
            await self._sampler.take(facts, self._history.pause_ms)
        self._history.interval_ms = self._sampler.interval_ms

    async def _refreshed(self, parts: Sequence[_Part[Any]]) -> None:
        """Starts a refresh of stale parts, and waits for the missing and stale ones of `parts`."""
        self._read_ms = self._clock.monotonic_ms()
        self._first_read.set()
        waited_for = [part for part in parts if part.is_new or part.is_stale]
        patience_ms = FIRST_ANSWER_MS if any(part.is_new for part in parts) else STALE_ANSWER_MS
        for part in self._kept():
            if part.is_stale:
                part.refresh_soon()
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_ms / 1000):
                for part in waited_for:
                    await part.tried.wait()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for part in self._kept():
                group.create_task(self._keep(part))

    def _parts(self) -> Sequence[_Part[object]]:
        return (  # type: ignore[return-value]  # callers only read the parts
            self._cluster,
            self._topics,
            self._brokers,
            self._operations,
            self._findings,
        )

    def _kept(self) -> Sequence[_Part[Any]]:
        return (*self._parts(), self._history)

    async def _keep(self, part: _Part[object]) -> None:
        await self._first_read.wait()
        while True:
            await part.refresh()
            is_in_use = self._clock.monotonic_ms() - self._read_ms <= IN_USE_MS
            interval_ms = part.interval_ms
            await part.pause(interval_ms if is_in_use else idle_interval_ms(interval_ms))
