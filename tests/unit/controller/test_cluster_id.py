from __future__ import annotations

import json
import random

import pytest

from doubles.memory_store import MemoryStore
from tidelog.feature_levels import LevelRange
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.metadata.cluster_id import (
    UnsupportedLevelError,
    ensure_cluster,
    held_cluster,
    level_guard,
)
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import ClusterEntry, decode_cluster, encode
from tidelog_runtime.metadata.store import ModRevision, Put, Transaction

KEYS = Keys("test")


async def at_level(level: int) -> MemoryStore:
    store = MemoryStore(SystemClock())
    entry = encode(ClusterEntry("id", format_version=level))
    await store.transact(Transaction([], [Put(KEYS.cluster, entry)]))
    return store


async def level_in(store: MemoryStore) -> int:
    held = await store.get(KEYS.cluster)
    assert held is not None
    return decode_cluster(held.value).format_version


async def test_the_first_process_to_start_chooses_the_cluster_id() -> None:
    store = MemoryStore(SystemClock())
    first = await ensure_cluster(store, KEYS, random.Random(1))
    second = await ensure_cluster(store, KEYS, random.Random(2))
    assert first == second == await held_cluster(store, KEYS)
    assert len(first.cluster_id) == 22


async def test_a_new_cluster_begins_at_the_newest_level() -> None:
    store = MemoryStore(SystemClock())
    await ensure_cluster(store, KEYS, random.Random(1), LevelRange(1, 3))
    assert await level_in(store) == 3


async def test_an_existing_cluster_keeps_its_level() -> None:
    store = await at_level(1)
    await ensure_cluster(store, KEYS, random.Random(1), LevelRange(1, 3))
    assert await level_in(store) == 1


@pytest.mark.rule("registered-process-supports-level")
@pytest.mark.parametrize(
    ("level", "word"), [(4, "too old; start a release that supports level 4"), (1, "too new")]
)
async def test_a_cluster_outside_the_levels_of_the_release_is_rejected(
    level: int, word: str
) -> None:
    store, levels = await at_level(level), LevelRange(2, 3)
    with pytest.raises(
        UnsupportedLevelError, match=f"cluster id is at feature level {level}.*{word}"
    ):
        await ensure_cluster(store, KEYS, random.Random(1), levels)
    with pytest.raises(UnsupportedLevelError):
        await level_guard(store, KEYS, levels)


async def test_release_0_1_0_rejects_a_level_above_1_by_the_name_of_the_field() -> None:
    """It reads `format_version`, and ends for a value above 1."""
    assert json.loads(encode(ClusterEntry("id", 2))) == {"cluster_id": "id", "format_version": 2}


async def test_a_store_without_a_cluster_counts_as_one_at_the_first_level() -> None:
    store = MemoryStore(SystemClock())
    assert await level_guard(store, KEYS, LevelRange(1, 1)) == ModRevision(KEYS.cluster, 0)
    with pytest.raises(UnsupportedLevelError):
        await level_guard(store, KEYS, LevelRange(2, 3))
