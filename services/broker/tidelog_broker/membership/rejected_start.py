"""Stores why this broker did not start, so that `explain` can name the reason."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import structlog

from tidelog_broker.storage.data_directory import Identity
from tidelog_runtime.metadata.broker_directories import (
    REJECTED_START_TTL_SECONDS,
    RejectedStart,
    RejectionCause,
    encode_rejected_start,
)
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import decode_cluster
from tidelog_runtime.metadata.store import (
    CreateRevision,
    KeyValue,
    Lease,
    LeaseLostError,
    MetadataStore,
    Put,
    StoreError,
    Transaction,
)

REPORT_TIMEOUT_S = 3.0
# The registration of the id may appear or vanish between the read and the write.
WRITE_ATTEMPTS = 3
# The reason of a start in progress: read only if the process ends before it reports another one.
NOT_REGISTERED = "it ended before it registered, and reported no reason"

_log = structlog.get_logger()


async def report_rejected_start(
    store: MetadataStore,
    cluster: str,
    broker_id: int,
    rejected: RejectedStart,
    identity: Identity | None,
) -> None:
    """Reports the rejection under the configured cluster and broker id.

    If the data directory belongs to another cluster or broker id, the rejection is reported there
    as well: that broker is missed there, and its operators do not read the configured keys.
    `identity`: that of the data directory; None: it has none.
    """
    reports = [RejectedStartReport(store, Keys(cluster), broker_id, identity=identity)]
    if identity is not None and _belongs_to_another(identity, cluster, broker_id):
        keys, owner = Keys(identity.cluster_name), identity.broker_id
        reports.append(
            RejectedStartReport(store, keys, owner, identity=identity, only_own_cluster=True)
        )
    await asyncio.gather(*(report.write(rejected) for report in reports))


def _belongs_to_another(identity: Identity, cluster: str, broker_id: int) -> bool:
    """Whether the directory belongs to another cluster or broker id.

    Directories of older releases do not name their cluster, and count as not.
    """
    owner = (identity.cluster_name, identity.broker_id)
    return identity.has_registered and owner[0] != "" and owner != (cluster, broker_id)


class RejectedStartReport:
    """The report of a rejected start, written under a lease.

    The next registration of the broker id deletes the key. Otherwise the report of a waiting
    process ends `waiting_ttl_seconds` after the process, and any other one
    REJECTED_START_TTL_SECONDS after it.
    """

    def __init__(
        self,
        store: MetadataStore,
        keys: Keys,
        broker_id: int,
        waiting_ttl_seconds: int = REJECTED_START_TTL_SECONDS,
        *,
        identity: Identity | None = None,
        only_own_cluster: bool = False,
    ) -> None:
        """`identity` is that of the data directory, with the revision that its store had reached.

        `only_own_cluster`: writes only if the keys are those of the directory's cluster.
        """
        self._store = store
        self._keys = keys
        self._broker_id = broker_id
        self._waiting_ttl = waiting_ttl_seconds
        self._identity = identity
        self._only_own_cluster = only_own_cluster
        # One lease for all reports of a process that waits.
        self._waiting_lease: Lease | None = None

    async def write(self, rejected: RejectedStart) -> bool:
        """Writes the report within REPORT_TIMEOUT_S, best effort. Returns whether it was written.

        A store that was wiped or restored from a backup is not written to: its revision would grow
        until no broker can detect the rollback (rule `other-or-older-store-rejected`).
        """
        if rejected.cause is RejectionCause.STORE:
            return False
        try:
            async with asyncio.timeout(REPORT_TIMEOUT_S):
                return await self._write(rejected)
        except LeaseLostError:
            self._waiting_lease = None  # the next report has a lease of its own
            return False
        except (StoreError, TimeoutError) as error:
            _log.warning("rejected_start_not_reported", why=str(error) or "etcd did not answer")
            return False

    async def _write(self, rejected: RejectedStart) -> bool:
        cluster = await self._store.get(self._keys.cluster)
        if cluster is None or not self._may_write(cluster):
            return False
        lease = await self._lease_for(rejected.cause)
        key, owner = self._keys.rejected_start(self._broker_id), self._keys.broker(self._broker_id)
        for _ in range(WRITE_ATTEMPTS):
            registered = await self._store.get(owner)
            revision = 0 if registered is None else registered.create_revision
            value = replace(rejected, after_registration=registered is None)
            written = await self._store.transact(
                Transaction(
                    guards=[
                        CreateRevision(self._keys.cluster, cluster.create_revision),
                        CreateRevision(owner, revision),
                    ],
                    changes=[Put(key, encode_rejected_start(value), lease.id)],
                )
            )
            if written.succeeded:
                return True
        return False

    def _may_write(self, cluster: KeyValue) -> bool:
        identity = self._identity
        if identity is None:
            return True
        if decode_cluster(cluster.value).cluster_id != identity.cluster_id:
            return not self._only_own_cluster
        return self._store.seen_revision >= identity.store_revision

    async def _lease_for(self, cause: RejectionCause) -> Lease:
        if cause is not RejectionCause.WAITS_FOR_LEASE:
            return await self._store.grant_lease(REJECTED_START_TTL_SECONDS)
        if self._waiting_lease is None:
            self._waiting_lease = await self._store.grant_lease(self._waiting_ttl)
        return self._waiting_lease
