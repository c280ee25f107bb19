"""The cluster's id, which the first service to start writes once."""

from __future__ import annotations

import random

from tidelog_runtime.identifiers import new_id
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import (
    FORMAT_VERSION,
    ClusterEntry,
    decode_cluster,
    encode,
)
from tidelog_runtime.metadata.store import (
    CreateRevision,
    KeyValue,
    MetadataStore,
    Put,
    StoreError,
    Transaction,
)


class UnknownFormatError(StoreError):
    """A later version of Tidelog wrote the metadata."""


async def held_cluster(store: MetadataStore, keys: Keys) -> str | None:
    """Returns the id of the store's cluster; None: the store has no cluster.

    Raises as `ensure_cluster` does.
    """
    held = await store.get(keys.cluster)
    return None if held is None else _id_of(held)


async def ensure_cluster(store: MetadataStore, keys: Keys, rng: random.Random) -> str:
    """Returns the id of the store's cluster, and creates the cluster if the store has none.

    Raises `UnknownFormatError`, and `StoreUnavailableError`, after which the call can be
    repeated.
    """
    held = await store.get(keys.cluster)
    if held is None:
        entry = ClusterEntry(new_id(rng))
        result = await store.transact(
            Transaction([CreateRevision(keys.cluster, 0)], [Put(keys.cluster, encode(entry))])
        )
        if result.succeeded:
            return entry.cluster_id
        held = result.current[keys.cluster]
        if held is None:
            raise StoreError(f"{keys.cluster} was deleted while it was being created; start again")
    return _id_of(held)


def _id_of(held: KeyValue) -> str:
    entry = decode_cluster(held.value)
    if entry.format_version > FORMAT_VERSION:
        raise UnknownFormatError(
            f"the metadata of cluster {entry.cluster_id} has format {entry.format_version}, and "
            f"this version knows formats up to {FORMAT_VERSION}; start a newer version of Tidelog"
        )
    return entry.cluster_id
