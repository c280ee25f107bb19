"""A metadata store in memory that can be unavailable or lose answers, and records its requests."""

from __future__ import annotations

from collections.abc import Callable

from doubles.memory_store import MemoryStore
from tidelog_runtime.clock import Clock
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.store import (
    Change,
    Delete,
    Guard,
    KeyValue,
    Put,
    StoreUnavailableError,
    Transaction,
    TransactionResult,
)
from unit.broker.fake_log import epoch_of


class FlakyStore(MemoryStore):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.sent: list[Transaction] = []
        self.loses_answers = False
        # Called when a transaction has been applied and before it is answered.
        self.before_answer: Callable[[], None] = lambda: None

    async def transact(self, transaction: Transaction) -> TransactionResult:
        self.sent.append(transaction)
        result = await super().transact(transaction)
        self.before_answer()
        if self.loses_answers:
            raise StoreUnavailableError("the answer was lost")
        return result

    def writes(self, *changes: Change, guards: tuple[Guard, ...] = ()) -> int:
        """Write as another client; returns the revision."""
        result = self.data.transact(Transaction(guards, changes))
        assert result.succeeded
        return result.revision

    def put(self, key: str, value: bytes) -> int:
        return self.writes(Put(key, value))

    def delete(self, key: str) -> int:
        return self.writes(Delete(key))

    def item(self, key: str) -> KeyValue:
        found = self.data.get(key)
        assert found is not None
        return found

    def advance_to_broker_epochs(self, keys: Keys) -> None:
        """Advance so that the next created key has the broker epoch of broker 1 as its revision."""
        while self.data.revision < epoch_of(1) - 1:
            self.put(keys.root + "counter", b"")
