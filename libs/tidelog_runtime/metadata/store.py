"""The interface of the metadata store ("Metadata" in docs/internals/protocol.md).

Every key has a creation revision and a modification revision, which are revisions of the whole
store. A write names the revisions that it depends on, and is atomic. One contract suite
(`tests/contract/test_metadata_store.py`) covers every implementation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

# etcd's default limits are 128 comparisons and 128 operations. The difference is room for the
# guards that every transaction carries.
MAX_TRANSACTION_CHANGES = 120
MAX_TRANSACTION_GUARDS = 128
# etcd's lowest time to live is one and a half election timeouts.
MIN_LEASE_TTL_SECONDS = 2


class KeyValue(NamedTuple):
    key: str
    value: bytes
    create_revision: int
    mod_revision: int


# Guards are not tuples: a guard on the creation and one on the modification of a key at the same
# revision would be equal, and removing duplicates would lose one.
@dataclass(frozen=True, slots=True)
class CreateRevision:
    """Guard: the key was created at this revision; 0: the key is absent."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class ModRevision:
    """Guard: the key was last written at this revision; 0: the key is absent."""

    key: str
    revision: int


Guard = CreateRevision | ModRevision


class Put(NamedTuple):
    key: str
    value: bytes
    lease_id: int = 0


class Delete(NamedTuple):
    key: str


Change = Put | Delete


@dataclass(frozen=True, slots=True)
class Transaction:
    """Applies all changes if every guard holds, else none. Each key may be changed once."""

    guards: Sequence[Guard]
    changes: Sequence[Change]


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """The outcome of a transaction.

    - `revision`: of the store after the transaction. If `succeeded`, it is the modification
      revision of every put. A transaction that only deletes absent keys or has no changes
      leaves it unchanged.
    - `current`: without `succeeded`, every guarded key as it was at that moment (None: absent).
    """

    succeeded: bool
    revision: int
    current: Mapping[str, KeyValue | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All keys under a prefix at one revision."""

    prefix: str
    revision: int
    items: Mapping[str, KeyValue]


class Changed(NamedTuple):
    """The change of a key: written, or (`value` None) deleted, at `revision`.

    If a watch read a snapshot after a compaction, the revision of a deletion is that of the
    snapshot.
    """

    key: str
    value: KeyValue | None
    revision: int


class StoreError(Exception):
    """The store did not carry out a request."""


class StoreUnavailableError(StoreError):
    """No answer. It is unknown whether a transaction was or will be applied."""


class StoreFullError(StoreUnavailableError):
    """The store is full: it answers reads and rejects writes. Nothing was changed."""


class StoreRolledBackError(StoreError):
    """The store's revision has fallen: the store was wiped or restored from a backup.

    From then on, every method raises this, because data that was read before is not reliable.
    """


class StoreClosedError(StoreError):
    """`close` was called."""


class LeaseLostError(StoreError):
    """The lease of a put is gone; nothing was changed."""


class InvalidTransactionError(StoreError):
    """The transaction exceeds a limit or is malformed; nothing was changed."""


class Lease(Protocol):
    """A lease that is kept alive in the background until it is revoked or lost."""

    @property
    def id(self) -> int: ...

    async def wait_lost(self) -> None:
        """Returns once the store has reported that the lease is gone, or after `revoke`.

        An unreachable store is not a lost lease: its state is unknown, and keep-alives
        continue.
        """

    async def revoke(self) -> None:
        """Ends the lease and deletes its keys; does nothing if it is gone already.

        Keep-alives end at once, so that the lease expires if the store is unreachable
        (`StoreUnavailableError`).
        """


class MetadataStore(Protocol):
    """Every method raises `StoreUnavailableError` if no endpoint answers in time."""

    @property
    def seen_revision(self) -> int:
        """The highest revision seen in an answer or passed to `observe_revision`; 0: none yet."""

    def observe_revision(self, revision: int) -> None:
        """Takes note of a revision at which another process has seen the store.

        If the answer to a later request shows an older store, the store was rolled back.
        """

    async def get(self, key: str) -> KeyValue | None:
        """Reads a key, linearizably."""

    async def snapshot(self, prefix: str) -> Snapshot:
        """Reads all keys under a prefix, page by page at one revision."""

    async def transact(self, transaction: Transaction) -> TransactionResult:
        """Sends the transaction once and never repeats it by itself.

        Raises `InvalidTransactionError`, and `LeaseLostError` if the guards hold and the lease
        of a put is gone.
        """

    def watch(self, snapshot: Snapshot) -> AsyncIterator[Sequence[Changed]]:
        """Yields all changes under the snapshot's prefix after its revision, in order and once.

        Changes of one revision are yielded together. The watch survives lost streams, restarts
        and compactions of the store, and waits while the store is unreachable.

        After a compaction, it reads a snapshot and yields the differences together, ordered by
        key. There, a key that was deleted and created again shows only by its creation
        revision.

        The watch never ends by itself. Raises `StoreRolledBackError`, and `StoreClosedError`
        after `close`.
        """

    async def grant_lease(self, ttl_seconds: int) -> Lease:
        """Raises ValueError if `ttl_seconds` is below MIN_LEASE_TTL_SECONDS."""

    async def close(self) -> None:
        """Ends watches and keep-alives. Revokes nothing: leases expire by themselves."""


def has_put(transaction: Transaction) -> bool:
    """Returns whether the transaction uses a revision of the store if its guards hold."""
    return any(isinstance(change, Put) for change in transaction.changes)


def check_transaction(transaction: Transaction) -> None:
    """Raises `InvalidTransactionError` if the transaction exceeds a limit."""
    for what, number, limit in (
        ("changes", len(transaction.changes), MAX_TRANSACTION_CHANGES),
        ("guards", len(transaction.guards), MAX_TRANSACTION_GUARDS),
    ):
        if number > limit:
            raise InvalidTransactionError(
                f"a transaction of {number} {what}; at most {limit} fit into one: split it"
            )
    keys = [change.key for change in transaction.changes]
    if len(set(keys)) < len(keys):
        twice = sorted(key for key, times in Counter(keys).items() if times > 1)
        raise InvalidTransactionError(
            f"a transaction changes {', '.join(twice)} more than once; change each key once"
        )


def check_lease_ttl(ttl_seconds: int) -> None:
    if ttl_seconds < MIN_LEASE_TTL_SECONDS:
        raise ValueError(
            f"a lease of {ttl_seconds} s is too short; the minimum is {MIN_LEASE_TTL_SECONDS} s"
        )
