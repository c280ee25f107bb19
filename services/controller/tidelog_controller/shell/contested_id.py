"""Reports that this process waits because another one is registered under its controller id."""

from __future__ import annotations

from structlog.typing import FilteringBoundLogger

from tidelog.inspection.controller_reports import WaitingController
from tidelog_controller.shell.lease_end import end_lease
from tidelog_runtime.clock import Clock
from tidelog_runtime.metadata.controller_records import encode_waiting_controller
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import ControllerProcess
from tidelog_runtime.metadata.store import Lease, MetadataStore, Put, Transaction

# Added to the time after which the lease of a dead process has expired.
REPORT_DELAY_MS = 1_000
# The interval of log lines and writes; the lease may have been lost in between.
REPORT_INTERVAL_MS = 60_000
END_TIMEOUT_SECONDS = 1.0


class ContestedId:
    """The wait for a controller id that another process holds.

    Call `waits` after each failed registration, and `end` once the wait is over. The registration
    of a dead process ends with its lease; only a longer one is reported.
    """

    def __init__(
        self,
        store: MetadataStore,
        keys: Keys,
        controller_id: int,
        own: ControllerProcess,
        lease_ttl_seconds: int,
        clock: Clock,
        log: FilteringBoundLogger,
    ) -> None:
        self._store = store
        self._key = keys.waiting_controller(controller_id)
        self._controller_id = controller_id
        self._own = own
        self._ttl_seconds = lease_ttl_seconds
        self._clock = clock
        self._log = log
        self._since_ms: int | None = None
        self._due_ms = 0
        self._lease: Lease | None = None

    async def waits(self, other: ControllerProcess) -> None:
        """Raises `StoreError`."""
        now_ms = self._clock.monotonic_ms()
        if self._since_ms is None:
            self._since_ms = now_ms
            self._due_ms = now_ms + self._ttl_seconds * 1_000 + REPORT_DELAY_MS
        if now_ms < self._due_ms:
            return
        self._due_ms = now_ms + REPORT_INTERVAL_MS
        self._log.error(
            "controller_id_taken",
            controller_id=self._controller_id,
            by=other.address,
            host=other.host,
            fix="stop one of the two processes; give each controller a controller_id of its own",
        )
        await self._write(other, self._clock.wall_ms() - (now_ms - self._since_ms))

    async def end(self) -> None:
        self._since_ms = None
        await self._end_lease()

    async def _end_lease(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            await end_lease(lease, END_TIMEOUT_SECONDS, self._log, "controller_wait_left")

    async def _write(self, other: ControllerProcess, since_ms: int) -> None:
        own = self._own
        waiting = WaitingController(
            self._controller_id, own.address, own.host, since_ms, other.address, other.host
        )
        await self._end_lease()
        self._lease = await self._store.grant_lease(self._ttl_seconds)
        put = Put(self._key, encode_waiting_controller(waiting), self._lease.id)
        await self._store.transact(Transaction([], [put]))
