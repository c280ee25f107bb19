"""The metadata of a cluster in memory: one client, one writer, no leases and no watches."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_runtime.metadata.store import (
    Change,
    Changed,
    CreateRevision,
    Guard,
    KeyValue,
    Put,
    Transaction,
    TransactionResult,
)


class MemoryMetadata:
    """Keys with their revisions, as far as the broker's requests need a store. The broker's cache
    has each change at once, so that its answers are never behind."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._items: dict[str, KeyValue] = {}
        self.revision = 0

    async def get(self, key: str) -> KeyValue | None:
        return self._items.get(key)

    async def transact(self, transaction: Transaction) -> TransactionResult:
        if not all(map(self._holds, transaction.guards)):
            current = {guard.key: self._items.get(guard.key) for guard in transaction.guards}
            return TransactionResult(False, self.revision, current)
        return TransactionResult(True, self.write(transaction.changes))

    def write(self, changes: Sequence[Change]) -> int:
        """Applies all changes at the next revision, which it returns."""
        self.revision += 1
        self._cache.apply([Changed(c.key, self._apply(c), self.revision) for c in changes])
        return self.revision

    def _apply(self, change: Change) -> KeyValue | None:
        before = self._items.pop(change.key, None)
        if not isinstance(change, Put):
            return None
        created = self.revision if before is None else before.create_revision
        item = KeyValue(change.key, change.value, created, self.revision)
        self._items[change.key] = item
        return item

    def _holds(self, guard: Guard) -> bool:
        item = self._items.get(guard.key)
        if item is None:
            return guard.revision == 0
        if isinstance(guard, CreateRevision):
            return item.create_revision == guard.revision
        return item.mod_revision == guard.revision
