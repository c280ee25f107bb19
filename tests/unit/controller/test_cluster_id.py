from __future__ import annotations

import random

import pytest

from doubles.memory_store import MemoryStore
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.metadata.cluster_id import UnknownFormatError, ensure_cluster
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import ClusterEntry, encode
from tidelog_runtime.metadata.store import Put, Transaction

KEYS = Keys("test")


async def test_the_first_process_to_start_chooses_the_cluster_id() -> None:
    store = MemoryStore(SystemClock())
    first = await ensure_cluster(store, KEYS, random.Random(1))
    second = await ensure_cluster(store, KEYS, random.Random(2))
    assert first == second
    assert len(first) == 22


async def test_metadata_of_a_later_version_is_rejected() -> None:
    store = MemoryStore(SystemClock())
    later = encode(ClusterEntry("id", format_version=99))
    await store.transact(Transaction([], [Put(KEYS.cluster, later)]))
    with pytest.raises(UnknownFormatError, match=r"format 99.*newer version"):
        await ensure_cluster(store, KEYS, random.Random(1))
