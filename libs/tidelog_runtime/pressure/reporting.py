"""Measures a process's shortages of resources.

Brokers and controllers also keep theirs in the metadata store while they last.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import structlog

from tidelog_runtime.clock import Clock
from tidelog_runtime.metadata.store import (
    Delete,
    Lease,
    LeaseLostError,
    MetadataStore,
    Put,
    StoreError,
    Transaction,
)
from tidelog_runtime.pressure.detection import PressureDetector, Usage
from tidelog_runtime.pressure.process_pauses import PauseMeter
from tidelog_runtime.pressure.records import Pressure, encode_pressures

INTERVAL_SECONDS = 2.0
# How long a report outlives its process. A process that ran out of memory is often killed and
# cannot report anything then. The broker's next process deletes the report.
LEASE_TTL_SECONDS = 600
# A continuing shortage is written again after a change by this share of its limit.
REWRITE_PERCENT = 5
# It is written at this interval in any case, because the lease may have been lost.
REWRITE_MS = 10_000
# A process with a slow disk handles answers late.
WRITE_TIMEOUT_SECONDS = 10.0

# After this time without a measurement, the event loop is blocked, and a thread measures instead.
HELD_UP_MS = 4_000

# Writes a key with a value under a lease id; blocks. Raises `StoreError`.
PutDirectly = Callable[[str, bytes, int], None]

_log = structlog.get_logger()


class HasRegistered:
    """Whether this process was registered at least once.

    A process that is short of CPU may lose its lease repeatedly, and should still report the
    reason.
    """

    def __init__(self, is_registered: Callable[[], bool]) -> None:
        self._is_registered = is_registered
        self._has = False

    def __call__(self) -> bool:
        self._has = self._has or self._is_registered()
        return self._has


class PressureMeter:
    """Measures the shortages of this process.

    - `look`: returns the process's use of resources; may block for some milliseconds.
    - `standstill`: runs while this meter does.
    - `current`: the current shortages.
    """

    def __init__(
        self,
        clock: Clock,
        look: Callable[[], Usage],
        max_connections: int = 0,
        standstill: PauseMeter | None = None,
    ) -> None:
        self.standstill = standstill
        self._clock = clock
        self._measure = look
        self._detector = PressureDetector(max_connections)
        self._detecting = threading.Lock()
        self._measured_ms = clock.monotonic_ms()
        self.current: tuple[Pressure, ...] = ()

    async def run(self) -> None:
        """Measures at intervals until it is cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(INTERVAL_SECONDS)

    async def step(self) -> None:
        self._take(await asyncio.to_thread(self._measure))
        self._measured_ms = self._clock.monotonic_ms()

    def step_held_up(self) -> None:
        """Called by a thread: measures if the event loop is blocked."""
        if self._is_held_up():
            self._take(self._measure())

    def _is_held_up(self) -> bool:
        return self._clock.monotonic_ms() - self._measured_ms >= HELD_UP_MS

    def _take(self, usage: Usage) -> None:
        clock = self._clock
        with self._detecting:
            before = {pressure.resource for pressure in self.current}
            self.current = self._detector.take(usage, clock.monotonic_ms(), clock.wall_ms())
        for pressure in self.current:
            if pressure.resource not in before:
                _log.warning(
                    "resource_short",
                    resource=pressure.resource,
                    used=pressure.used,
                    limit=pressure.limit,
                    detail=pressure.detail,
                )
        for resource in before - {pressure.resource for pressure in self.current}:
            _log.info("resource_sufficient", resource=resource)


class PressureReports(PressureMeter):
    """Measures shortages and writes them to the metadata store.

    - `may_write`: whether the store is known to belong to this process's cluster.
    - `put_directly`: writes without the event loop; None: nothing is reported while it is
      blocked.
    """

    def __init__(
        self,
        store: MetadataStore,
        key: str,
        clock: Clock,
        look: Callable[[], Usage],
        may_write: Callable[[], bool],
        max_connections: int = 0,
        standstill: PauseMeter | None = None,
        put_directly: PutDirectly | None = None,
    ) -> None:
        super().__init__(clock, look, max_connections, standstill)
        self._put_directly = put_directly
        self._may_write = may_write
        self._store = store
        self._key = key
        # None: it is unknown what a previous process has left there.
        self._written: tuple[Pressure, ...] | None = None
        self._due_ms = 0
        self._lease: Lease | None = None

    async def step(self) -> None:
        await super().step()
        clock = self._clock
        is_due = bool(self.current) and clock.monotonic_ms() >= self._due_ms
        must_write = self._lease is None or is_due or _differs(self._written, self.current)
        if self._may_write() and must_write:
            try:
                async with asyncio.timeout(WRITE_TIMEOUT_SECONDS):
                    await self._write()
            except LeaseLostError:
                self._lease = None
            except (StoreError, TimeoutError):
                # `tidelog explain` reports the loss of the store itself; the next step tries again.
                return

    def step_held_up(self) -> None:
        is_held_up = self._is_held_up()
        super().step_held_up()
        lease, current = self._lease, self.current
        if not (is_held_up and lease and current and self._put_directly and self._may_write()):
            return
        try:
            self._put_directly(self._key, encode_pressures(current), lease.id)
        except StoreError:
            return
        # The event loop may have written in the meantime, and writes again.
        self._written = None

    async def _write(self) -> None:
        # The lease is granted even before a shortage: a shortage may leave no time for a second
        # request.
        if self._lease is None:
            self._lease = await self._store.grant_lease(LEASE_TTL_SECONDS)
        if not self.current:
            await self._store.transact(Transaction([], [Delete(self._key)]))
        else:
            value = encode_pressures(self.current)
            await self._store.transact(Transaction([], [Put(self._key, value, self._lease.id)]))
        self._written = self.current
        self._due_ms = self._clock.monotonic_ms() + REWRITE_MS


def _differs(written: Sequence[Pressure] | None, current: Sequence[Pressure]) -> bool:
    if written is None:
        return True
    if [p.resource for p in written] != [p.resource for p in current]:
        return True
    return any(
        abs(now.used - before.used) * 100 >= REWRITE_PERCENT * max(1, now.limit)
        or now.limit != before.limit
        for before, now in zip(written, current, strict=True)
    )


@asynccontextmanager
async def reporting_pressure(reports: PressureMeter) -> AsyncIterator[None]:
    if reports.standstill is not None:
        reports.standstill.start()
    ended = threading.Event()
    watching = threading.Thread(
        target=_watching, args=(reports, ended), name="held-up-pressure", daemon=True
    )
    watching.start()
    task = asyncio.create_task(_running(reports), name="pressure-reports")
    try:
        yield
    finally:
        ended.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if reports.standstill is not None:
            await asyncio.to_thread(reports.standstill.stop)


def _watching(reports: PressureMeter, ended: threading.Event) -> None:
    while not ended.wait(INTERVAL_SECONDS):
        try:
            reports.step_held_up()
        except Exception as error:
            _log.error("pressure_reports_ended", why=f"{type(error).__name__}: {error}")
            return


async def _running(reports: PressureMeter) -> None:
    """Logs a fault of the reports. The service continues without them."""
    try:
        await reports.run()
    except Exception as error:
        _log.error("pressure_reports_ended", why=f"{type(error).__name__}: {error}")
