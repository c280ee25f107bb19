"""The cluster's id and its feature level: who may start, and with what a registration is written.

The level only rises (rule `level-never-falls`). A registration names the level at which it was
checked, and leaves a mark at which a rise of the level notices it: of two such transactions that
run at once, one fails (rule `registered-process-supports-level`).
"""

from __future__ import annotations

import json
import random
from typing import NamedTuple

from tidelog.feature_levels import FIRST_LEVEL, SUPPORTED, LevelRange, unsupported
from tidelog.version import installed_version
from tidelog_runtime.identifiers import new_id
from tidelog_runtime.metadata.broker_directories import RejectionCause
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import ClusterEntry, decode_cluster, encode
from tidelog_runtime.metadata.store import (
    CreateRevision,
    KeyValue,
    MetadataStore,
    ModRevision,
    Put,
    StoreError,
    Transaction,
)


class UnsupportedLevelError(StoreError):
    """This release does not support the cluster's feature level. Nothing was written."""

    cause = RejectionCause.VERSION


class HeldCluster(NamedTuple):
    """The cluster in the store. `level_revision`: the revision at which its level was written."""

    cluster_id: str
    level_revision: int


async def held_cluster(
    store: MetadataStore, keys: Keys, levels: LevelRange = SUPPORTED
) -> HeldCluster | None:
    """Returns the store's cluster; None: the store has none.

    Raises as `ensure_cluster` does.
    """
    held = await store.get(keys.cluster)
    return None if held is None else _supported(held, levels)


async def ensure_cluster(
    store: MetadataStore, keys: Keys, rng: random.Random, levels: LevelRange = SUPPORTED
) -> HeldCluster:
    """Returns the store's cluster. Creates it, at the newest of `levels`, if the store has none.

    Raises `UnsupportedLevelError` unless its level is one of `levels`; and
    `StoreUnavailableError`, after which the call can be repeated.
    """
    held = await store.get(keys.cluster)
    if held is None:
        entry = ClusterEntry(new_id(rng), levels.newest)
        result = await store.transact(
            Transaction([CreateRevision(keys.cluster, 0)], [Put(keys.cluster, encode(entry))])
        )
        if result.succeeded:
            return HeldCluster(entry.cluster_id, result.revision)
        held = result.current[keys.cluster]
        if held is None:
            raise StoreError(f"{keys.cluster} was deleted while it was being created; start again")
    return _supported(held, levels)


def _supported(held: KeyValue, levels: LevelRange) -> HeldCluster:
    entry = decode_cluster(held.value)
    if not levels.supports(entry.format_version):
        whose = f"cluster {entry.cluster_id}"
        raise UnsupportedLevelError(
            unsupported(whose, entry.format_version, levels, installed_version())
        )
    return HeldCluster(entry.cluster_id, held.mod_revision)


async def level_guard(store: MetadataStore, keys: Keys, levels: LevelRange) -> ModRevision:
    """Checks the present level, and returns the guard that it is still in force.

    A store without a cluster counts as one at the first level. Raises as `ensure_cluster` does.
    """
    held = await held_cluster(store, keys, levels)
    if held is None and not levels.supports(FIRST_LEVEL):
        reason = unsupported("the metadata store", FIRST_LEVEL, levels, installed_version())
        raise UnsupportedLevelError(reason)
    return ModRevision(keys.cluster, 0 if held is None else held.level_revision)


def registration_mark(keys: Keys, registered: str) -> Put:
    """Returns the change that every registration makes. `registered`: its key, for people."""
    return Put(keys.last_registration, json.dumps({"key": registered}).encode())
