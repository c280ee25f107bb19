"""Keeps this controller known, active or not, to all who ask which controllers there are."""

from __future__ import annotations

import asyncio

from structlog.typing import FilteringBoundLogger

from tidelog_controller.shell.lease_end import end_lease
from tidelog_runtime.metadata.schema import ControllerProcess, encode
from tidelog_runtime.metadata.store import (
    Lease,
    LeaseLostError,
    MetadataStore,
    Put,
    StoreRolledBackError,
    StoreUnavailableError,
    Transaction,
)

RETRY_SECONDS = 0.5
REVOKE_TIMEOUT_SECONDS = 1.0


class ControllerRegistration:
    """Under a lease of its own, because that of a reign ends with the reign. The key is
    overwritten, not created: nothing is decided by it, and a life that starts within the lease
    of the last takes it over, out of that lease."""

    def __init__(
        self,
        store: MetadataStore,
        key: str,
        process: ControllerProcess,
        lease_ttl_seconds: int,
        log: FilteringBoundLogger,
    ) -> None:
        self._store = store
        self._key = key
        self._process = process
        self._lease_ttl_seconds = lease_ttl_seconds
        self._log = log

    async def run(self) -> None:
        """Until it is cancelled, and then ends it at once."""
        while True:
            try:
                lease = await self._register()
            except StoreRolledBackError:
                # The election says so, and ends the process.
                return
            except (StoreUnavailableError, LeaseLostError):
                await asyncio.sleep(RETRY_SECONDS)
                continue
            try:
                await lease.wait_lost()
            finally:
                await self._end(lease)

    async def _register(self) -> Lease:
        lease = await self._store.grant_lease(self._lease_ttl_seconds)
        written = False
        try:
            put = Put(self._key, encode(self._process), lease.id)
            await self._store.transact(Transaction([], [put]))
            written = True
        finally:
            # Should it be written after all, it goes with the lease.
            if not written:
                await self._end(lease)
        return lease

    async def _end(self, lease: Lease) -> None:
        await end_lease(lease, REVOKE_TIMEOUT_SECONDS, self._log, "controller_registration_left")
