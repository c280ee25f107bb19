"""The state of an in-memory metadata store: keys, revisions, history, leases. No I/O.

It behaves as etcd does:

- revisions start at 1;
- a write without effect uses no revision;
- a put without a lease detaches its key from the previous lease.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog_runtime.metadata.store import (
    Change,
    Changed,
    CreateRevision,
    Delete,
    Guard,
    KeyValue,
    LeaseLostError,
    Put,
    Snapshot,
    Transaction,
    TransactionResult,
    check_transaction,
)

FIRST_REVISION = 1
# Older history is compacted, so that a long simulation needs no more memory.
MAX_HISTORY_REVISIONS = 20_000


class MemoryData:
    def __init__(self) -> None:
        self.revision = FIRST_REVISION
        # A dict, because its order is deterministic: a simulation has to replay exactly.
        self._listeners: dict[Callable[[], None], None] = {}
        self._items: dict[str, KeyValue] = {}
        self._compacted_revision = FIRST_REVISION
        # The changes of each revision after the compacted one, without gaps.
        self._history: list[Sequence[Changed]] = []
        self._last_lease_id = 0
        self._lease_keys: dict[int, set[str]] = {}
        self._lease_of: dict[str, int] = {}

    def listen(self, listener: Callable[[], None]) -> None:
        """Adds a function that is called after every change of keys, history or leases."""
        self._listeners[listener] = None

    def stop_listening(self, listener: Callable[[], None]) -> None:
        self._listeners.pop(listener, None)

    def get(self, key: str) -> KeyValue | None:
        return self._items.get(key)

    def snapshot(self, prefix: str) -> Snapshot:
        keys = sorted(key for key in self._items if key.startswith(prefix))
        return Snapshot(prefix, self.revision, {key: self._items[key] for key in keys})

    def transact(self, transaction: Transaction) -> TransactionResult:
        check_transaction(transaction)
        if not all(self._holds(guard) for guard in transaction.guards):
            current = {guard.key: self._items.get(guard.key) for guard in transaction.guards}
            return TransactionResult(False, self.revision, current)
        for change in transaction.changes:
            if isinstance(change, Put) and change.lease_id and not self.has_lease(change.lease_id):
                raise LeaseLostError(
                    f"lease {change.lease_id:x} is gone; grant another before writing {change.key}"
                )
        self._apply(transaction.changes)
        return TransactionResult(True, self.revision)

    def history_reaches(self, revision: int) -> bool:
        """Returns whether every single change after `revision` is still available."""
        return revision >= self._compacted_revision

    def changes_after(self, revision: int, prefix: str) -> list[Changed]:
        return [
            change
            for changes in self._history[revision - self._compacted_revision :]
            for change in changes
            if change.key.startswith(prefix)
        ]

    def compact(self, revision: int) -> None:
        """Discards the single changes up to `revision`."""
        revision = min(revision, self.revision)
        if revision > self._compacted_revision:
            del self._history[: revision - self._compacted_revision]
            self._compacted_revision = revision
            self._notify()

    def backup(self) -> MemoryData:
        """Returns a copy of keys and revision, without history and leases."""
        copy = MemoryData()
        copy.revision = copy._compacted_revision = self.revision
        copy._items = dict(self._items)
        return copy

    def wipe(self) -> None:
        """Resets the store, as if its disk had been lost."""
        self.revision = self._compacted_revision = FIRST_REVISION
        self._items, self._history = {}, []
        self._lease_keys, self._lease_of = {}, {}
        self._notify()

    def grant_lease(self) -> int:
        self._last_lease_id += 1
        self._lease_keys[self._last_lease_id] = set()
        return self._last_lease_id

    def has_lease(self, lease_id: int) -> bool:
        return lease_id in self._lease_keys

    def end_lease(self, lease_id: int) -> None:
        """Ends a revoked or expired lease and deletes its keys, at one revision."""
        keys = self._lease_keys.pop(lease_id, set())
        self._apply([Delete(key) for key in sorted(keys)])
        self._notify()

    def _holds(self, guard: Guard) -> bool:
        item = self._items.get(guard.key)
        if item is None:
            return guard.revision == 0
        if isinstance(guard, CreateRevision):
            return item.create_revision == guard.revision
        return item.mod_revision == guard.revision

    def _apply(self, changes: Sequence[Change]) -> None:
        effective = [c for c in changes if isinstance(c, Put) or c.key in self._items]
        if not effective:
            return
        self.revision += 1
        self._history.append(tuple(self._change(change) for change in effective))
        if len(self._history) > MAX_HISTORY_REVISIONS:
            self.compact(self.revision - MAX_HISTORY_REVISIONS // 2)
        self._notify()

    def _change(self, change: Change) -> Changed:
        self._lease_keys.get(self._lease_of.pop(change.key, 0), set()).discard(change.key)
        if isinstance(change, Delete):
            del self._items[change.key]
            return Changed(change.key, None, self.revision)
        if change.lease_id:
            self._lease_of[change.key] = change.lease_id
            self._lease_keys[change.lease_id].add(change.key)
        former = self._items.get(change.key)
        created = self.revision if former is None else former.create_revision
        item = KeyValue(change.key, change.value, created, self.revision)
        self._items[change.key] = item
        return Changed(change.key, item, self.revision)

    def _notify(self) -> None:
        for listener in list(self._listeners):
            listener()
