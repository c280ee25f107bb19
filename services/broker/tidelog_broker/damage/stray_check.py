"""Decides whether set-aside replicas may be deleted: the last check of the metadata store before
data is lost permanently (rule `other-or-older-store-rejected`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import structlog

from tidelog_broker.storage.strays import Stray
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import (
    LeaderAndIsr,
    decode_cluster,
    decode_leader_and_isr,
)
from tidelog_runtime.metadata.store import (
    KeyValue,
    MetadataStore,
    ModRevision,
    StoreError,
    Transaction,
)

# Each is a guard of one transaction, beside that of the cluster's key.
MAX_CHECKED_AT_ONCE = 100

_log = structlog.get_logger()


def may_delete(found: LeaderAndIsr | None, topic_id: str, broker_id: int) -> bool:
    """Returns whether a stray may be deleted.

    It may not while the partition is assigned here, unless its new copy here is in the ISR: a
    replica that was set aside and assigned again starts empty. Until it has caught up, the previous
    copy may be needed."""
    if found is None or found.topic_id != topic_id or broker_id not in found.replicas:
        return True
    return broker_id in found.isr_ids


class StrayCheck:
    """Checks strays. `cluster_id` and `seen_revision` are what this broker knows of the store. A
    store with another id, or an older revision, is not trusted."""

    def __init__(
        self,
        store: MetadataStore,
        keys: Keys,
        broker_id: int,
        cluster_id: Callable[[], str],
        seen_revision: Callable[[], int],
    ) -> None:
        self._store = store
        self._keys = keys
        self._broker_id = broker_id
        self._cluster_id = cluster_id
        self._seen_revision = seen_revision

    async def __call__(self, strays: Sequence[Stray]) -> list[Stray]:
        """Returns the strays that may be deleted; none if the store is unavailable. The others are
        checked again next time."""
        checked = strays[:MAX_CHECKED_AT_ONCE]
        keys = dict.fromkeys(self._keys.leader_and_isr(stray.name) for stray in checked)
        seen = self._seen_revision()
        try:
            # A failed comparison returns every compared key at one revision, which is a
            # linearizable read of them all. That of the cluster's key must fail.
            result = await self._store.transact(
                Transaction([ModRevision(key, 0) for key in (self._keys.cluster, *keys)], [])
            )
        except StoreError as error:
            _log.warning("strays_kept", strays=len(strays), why=str(error))
            return []
        problem = self._distrust_reason(
            result.current.get(self._keys.cluster), result.revision, seen
        )
        if problem is not None:
            _log.critical("strays_kept", strays=len(strays), why=problem)
            return []
        return [stray for stray in checked if self._is_stray(stray, result.current)]

    def _distrust_reason(self, cluster: KeyValue | None, revision: int, seen: int) -> str | None:
        if cluster is None:
            return "the metadata store holds no cluster: it was wiped"
        cluster_id = decode_cluster(cluster.value).cluster_id
        if cluster_id != self._cluster_id():
            return f"the metadata store is that of cluster {cluster_id}, not {self._cluster_id()}"
        if revision < seen:
            return (
                f"the metadata store is at revision {revision}, and this broker has followed it to "
                f"{seen} already: it was restored from an old backup"
            )
        return None

    def _is_stray(self, stray: Stray, current: Mapping[str, KeyValue | None]) -> bool:
        item = current.get(self._keys.leader_and_isr(stray.name))
        try:
            found = decode_leader_and_isr(item.value) if item is not None else None
        except (ValueError, KeyError, TypeError, AttributeError):
            return False
        if may_delete(found, stray.key.topic_id, self._broker_id):
            return True
        _log.info("stray_still_assigned", name=stray.directory)
        return False
