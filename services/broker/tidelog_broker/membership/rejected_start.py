"""Leaves in the store why this broker did not start, so that `explain` can name the reason."""

from __future__ import annotations

import asyncio

import structlog

from tidelog_runtime.metadata.broker_directories import (
    REJECTED_START_TTL_SECONDS,
    RejectedStart,
    RejectionCause,
    encode_rejected_start,
)
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.store import (
    CreateRevision,
    MetadataStore,
    Put,
    StoreError,
    Transaction,
)

REPORT_TIMEOUT_S = 3.0

_log = structlog.get_logger()


async def report_rejected_start(
    store: MetadataStore, keys: Keys, broker_id: int, rejected: RejectedStart
) -> bool:
    """Writes it under a lease of its own, which ends by itself unless the caller's process lives
    on; returns whether it did. Best effort, and bounded by REPORT_TIMEOUT_S.

    A store that was wiped or restored from a backup is not written to: its revision would grow
    until no broker can tell that it fell back (interleaving 18 of ARCHITECTURE.md)."""
    if rejected.cause is RejectionCause.STORE:
        return False
    try:
        async with asyncio.timeout(REPORT_TIMEOUT_S):
            cluster = await store.get(keys.cluster)
            if cluster is None:
                return False
            lease = await store.grant_lease(REJECTED_START_TTL_SECONDS)
            key = keys.rejected_start(broker_id)
            written = await store.transact(
                Transaction(
                    guards=[CreateRevision(keys.cluster, cluster.create_revision)],
                    changes=[Put(key, encode_rejected_start(rejected), lease.id)],
                )
            )
            return written.succeeded
    except (StoreError, TimeoutError) as error:
        _log.warning("rejected_start_not_reported", why=str(error) or "etcd did not answer")
        return False
