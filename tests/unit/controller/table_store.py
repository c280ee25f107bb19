"""The store of the controller's driver: the rules without I/O."""

from __future__ import annotations

from collections import deque

from tidelog_runtime.metadata.store import (
    Changed,
    CreateRevision,
    Delete,
    Guard,
    KeyValue,
    Put,
    Snapshot,
    Transaction,
    TransactionResult,
)


class TableStore:
    """`unseen` holds what the watch has yet to deliver."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.items: dict[str, KeyValue] = {}
        self.revision = 0
        self.unseen: deque[Changed] = deque()

    def put(self, key: str, value: bytes) -> int:
        return self.transact(Transaction([], [Put(key, value)])).revision

    def delete(self, key: str) -> int:
        return self.transact(Transaction([], [Delete(key)])).revision

    def transact(self, transaction: Transaction) -> TransactionResult:
        if not all(self._holds(guard) for guard in transaction.guards):
            keys = [guard.key for guard in transaction.guards]
            return TransactionResult(False, self.revision, self.read(keys))
        self.revision += 1
        for change in transaction.changes:
            held = self.items.get(change.key)
            if isinstance(change, Delete):
                if self.items.pop(change.key, None) is not None:
                    self.unseen.append(Changed(change.key, None, self.revision))
                continue
            created = held.create_revision if held else self.revision
            self.items[change.key] = KeyValue(change.key, change.value, created, self.revision)
            self.unseen.append(Changed(change.key, self.items[change.key], self.revision))
        return TransactionResult(True, self.revision)

    def read(self, keys: list[str]) -> dict[str, KeyValue | None]:
        return {key: self.items.get(key) for key in keys}

    def snapshot(self) -> Snapshot:
        return Snapshot(self.root, self.revision, dict(self.items))

    def _holds(self, guard: Guard) -> bool:
        held = self.items.get(guard.key)
        if isinstance(guard, CreateRevision):
            return (held.create_revision if held else 0) == guard.revision
        return (held.mod_revision if held else 0) == guard.revision
