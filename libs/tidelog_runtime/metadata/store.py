"""What Tidelog asks of its metadata store (section 2 of docs/internals/protocol.md).

Every key has a creation revision and a modification revision, which are revisions of
the whole store. A write names the revisions it rests on and happens altogether or not
at all. One contract suite (`tests/contract/test_metadata_store.py`) holds for every
implementation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

# etcd's default limits are 128 comparisons and 128 operations; the rest is room for
# the guards that every transaction carries.
MAX_TRANSACTION_CHANGES = 120
MAX_TRANSACTION_GUARDS = 128
# etcd keeps no lease for less than one and a half election timeouts.
MIN_LEASE_TTL_SECONDS = 2


class KeyValue(NamedTuple):
    key: str
    value: bytes
    create_revision: int
    mod_revision: int


# Guards are no tuples: one on a creation and one on a write of the same key at the same
# revision would be equal, and whoever drops duplicates would lose one.
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
    """All changes if every guard holds, else none. A key may be changed once."""

    guards: Sequence[Guard]
    changes: Sequence[Change]


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """`revision` is the store's after the transaction; with `succeeded`, every put has
    it as its modification revision; deletes of absent keys alone, or no changes at all,
    leave the store's revision as it was. Without `succeeded`, `current` holds every
    guarded key as it was at that moment (None: absent)."""

    succeeded: bool
    revision: int
    current: Mapping[str, KeyValue | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything under a prefix at one revision."""

    prefix: str
    revision: int
    items: Mapping[str, KeyValue]


class Changed(NamedTuple):
    """A key was written, or (value None) deleted at `revision`. In what a watch re-read
    after a compaction, the revision of a deletion is the one at which it was noticed."""

    key: str
    value: KeyValue | None
    revision: int


class StoreError(Exception):
    """The store did not do what was asked."""


class StoreUnavailableError(StoreError):
    """No answer. Of a transaction nobody knows whether it was applied, or will be."""


class StoreFullError(StoreUnavailableError):
    """The store has no room: it answers reads, and rejects what would write. Nothing was
    changed."""


class StoreRolledBackError(StoreError):
    """The store's revision has fallen: it was wiped or restored from a backup. From then
    on every method raises this: nothing that was read before can be relied on."""


class StoreClosedError(StoreError):
    """`close` was called."""


class LeaseLostError(StoreError):
    """A put names a lease that is gone; nothing was changed."""


class InvalidTransactionError(StoreError):
    """No store could take this transaction; nothing was changed."""


class Lease(Protocol):
    """A lease that is kept alive in the background until it is revoked or lost."""

    @property
    def id(self) -> int: ...

    async def wait_lost(self) -> None:
        """Returns once the store has said that the lease is gone, or after `revoke`. An
        unreachable store is not a lost lease: nobody knows, and keep-alives go on."""

    async def revoke(self) -> None:
        """Ends the lease and deletes its keys; does nothing if it is gone already.
        Keep-alives end at once, so that the lease runs out where the store cannot be
        reached (`StoreUnavailableError`)."""


class MetadataStore(Protocol):
    """Every method raises `StoreUnavailableError` when no endpoint answers in time."""

    @property
    def seen_revision(self) -> int:
        """The highest that an answer has shown, or that `heard_of` has told; 0: none yet."""

    def heard_of(self, revision: int) -> None:
        """Somebody else rests on what the store had at this revision: an answer to a later
        request that shows an older store means that it was rolled back."""

    async def get(self, key: str) -> KeyValue | None:
        """Linearizable."""

    async def snapshot(self, prefix: str) -> Snapshot:
        """Reads all under a prefix, page by page at one revision."""

    async def transact(self, transaction: Transaction) -> TransactionResult:
        """Sent once and never again by itself. Raises `LeaseLostError` if the guards
        hold and a put's lease is gone, and `InvalidTransactionError`."""

    def watch(self, snapshot: Snapshot) -> AsyncIterator[Sequence[Changed]]:
        """All that changes under the snapshot's prefix after it, in order, nothing
        twice, and changes of one revision together. Survives lost streams, restarts and
        compactions of the store; after a compaction it re-reads and yields the
        differences together, in the order of their keys, in which a key that was deleted
        and created again shows only by its creation revision. An unreachable store only
        makes it wait. Never ends by itself; raises `StoreRolledBackError`, and after
        `close` `StoreClosedError`."""

    async def grant_lease(self, ttl_seconds: int) -> Lease:
        """`ttl_seconds`: at least MIN_LEASE_TTL_SECONDS, else ValueError."""

    async def close(self) -> None:
        """Ends watches and keep-alives. Revokes nothing: leases run out by themselves."""


def has_put(transaction: Transaction) -> bool:
    """Whether it takes a revision of the store if its guards hold."""
    return any(isinstance(change, Put) for change in transaction.changes)


def check_transaction(transaction: Transaction) -> None:
    """Raises `InvalidTransactionError` for what exceeds the limits of a transaction."""
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
            f"a transaction changes {', '.join(twice)} more than once; make it one change a key"
        )


def check_lease_ttl(ttl_seconds: int) -> None:
    if ttl_seconds < MIN_LEASE_TTL_SECONDS:
        raise ValueError(
            f"a lease of {ttl_seconds} s; the store keeps none under {MIN_LEASE_TTL_SECONDS} s"
        )
