"""What a process that cannot start leaves in the store for `explain`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from structlog.testing import capture_logs

from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.membership.rejected_start import (
    REPORT_TIMEOUT_S,
    RejectedStartReport,
    report_rejected_start,
)
from tidelog_broker.storage.data_directory import Identity
from tidelog_runtime.metadata.broker_directories import (
    REJECTED_START_TTL_SECONDS,
    RejectedStart,
    RejectionCause,
    decode_rejected_start,
)
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import ClusterEntry, encode
from tidelog_runtime.metadata.store import Delete, Transaction, TransactionResult
from unit.broker.broker_parts import KEYS, registration
from unit.broker.flaky_store import FlakyStore
from unit.metadata.virtual_time import virtual_clock

CLUSTER = KEYS.root.split("/")[2]
REJECTED = RejectedStart(
    RejectionCause.DATA_DIRECTORY, "restore the file", 7, "10.0.0.1:7500", "north", "/data"
)

# The report when the id has no registration.
AFTER = replace(REJECTED, after_registration=True)


def store_of_a_cluster() -> FlakyStore:
    store = FlakyStore(virtual_clock())
    store.put(KEYS.cluster, encode(ClusterEntry("c-1")))
    return store


async def test_the_reason_is_kept_under_its_own_lease() -> None:
    store = store_of_a_cluster()
    assert await RejectedStartReport(store, KEYS, 3).write(REJECTED)
    assert decode_rejected_start(store.item(KEYS.rejected_start(3)).value) == AFTER
    await store.close()
    await asyncio.sleep(REJECTED_START_TTL_SECONDS + 1)
    assert store.data.get(KEYS.rejected_start(3)) is None


async def test_the_report_has_whether_the_id_was_registered() -> None:
    store = store_of_a_cluster()
    store.put(KEYS.broker(3), encode(registration(3)))
    await RejectedStartReport(store, KEYS, 3).write(REJECTED)
    assert decode_rejected_start(store.item(KEYS.rejected_start(3)).value) == REJECTED


async def test_a_registration_that_ends_before_the_write_is_seen() -> None:
    store = store_of_a_cluster()
    store.put(KEYS.broker(3), encode(registration(3)))
    transact = store.transact

    async def after_its_end(transaction: Transaction) -> TransactionResult:
        await transact(Transaction([], [Delete(KEYS.broker(3))]))
        return await transact(transaction)

    with patch.object(store, "transact", after_its_end):
        assert await RejectedStartReport(store, KEYS, 3).write(REJECTED)
    assert decode_rejected_start(store.item(KEYS.rejected_start(3)).value) == AFTER


async def test_a_process_that_waits_long_keeps_one_lease_which_ends_soon_after_it() -> None:
    store = store_of_a_cluster()
    report = RejectedStartReport(store, KEYS, 3, waiting_ttl_seconds=2)
    waits = replace(REJECTED, cause=RejectionCause.WAITS_FOR_LEASE)
    with patch.object(store, "grant_lease", wraps=store.grant_lease) as grant_lease:
        for _ in range(20):
            assert await report.write(waits)
            await asyncio.sleep(10)
    assert grant_lease.call_count == 1
    assert store.data.get(KEYS.rejected_start(3)) is not None
    await store.close()
    await asyncio.sleep(3)
    assert store.data.get(KEYS.rejected_start(3)) is None


async def test_brokers_and_controllers_describe_the_rejected_start() -> None:
    store = store_of_a_cluster()
    await RejectedStartReport(store, KEYS, 3).write(REJECTED)
    cache = MetadataCache(KEYS)
    cache.load(await store.snapshot(KEYS.root))
    (described,) = cache.directories.described_rejections()
    assert (described.broker_id, described.cause) == (3, "data_directory")
    assert described.reason == "restore the file"


async def test_a_store_that_fell_back_or_was_wiped_is_not_written_to() -> None:
    """Rule `other-or-older-store-rejected`: its revision would grow until no broker can notice."""
    store = store_of_a_cluster()
    fell_back = replace(REJECTED, cause=RejectionCause.STORE)
    assert not await RejectedStartReport(store, KEYS, 3).write(fell_back)
    wiped = FlakyStore(virtual_clock())
    assert not await RejectedStartReport(wiped, KEYS, 3).write(REJECTED)
    assert store.data.get(KEYS.rejected_start(3)) is None
    assert wiped.sent == []


def belongs_to(cluster: str, broker_id: int, **known: Any) -> Identity:
    return Identity(
        broker_id,
        "d-1",
        "c-1",
        cluster,
        registration_tokens=("t",),
        **{"store_revision": 0, **known},
    )


@pytest.mark.parametrize(
    ("identity", "cluster", "broker_id"),
    [
        (belongs_to("north", 3), "south", 3),  # started without a cluster name
        (belongs_to("north", 3), "east", 3),  # with the name of another cluster
        (belongs_to("north", 3), "north", 4),  # with another cluster id
    ],
)
async def test_a_start_under_a_wrong_name_or_id_is_reported_where_the_broker_is_missed(
    identity: Identity, cluster: str, broker_id: int
) -> None:
    store = FlakyStore(virtual_clock())
    for name, cluster_id in (("north", "c-1"), ("east", "c-2")):
        store.put(Keys(name).cluster, encode(ClusterEntry(cluster_id)))
    await report_rejected_start(store, cluster, broker_id, REJECTED, identity)
    read = decode_rejected_start(store.item(Keys("north").rejected_start(3)).value)
    assert read == AFTER
    is_held = store.data.get(Keys(cluster).cluster) is not None
    reported = store.data.get(Keys(cluster).rejected_start(broker_id)) is not None
    assert reported == is_held
    assert store.data.get(Keys("north").rejected_start(4)) is None or broker_id == 4


@pytest.mark.parametrize(
    "identity",
    [
        replace(belongs_to("north", 3), cluster_id="c-2"),  # the store holds another cluster
        belongs_to("north", 3, store_revision=1_000),  # it was restored from a backup
        replace(belongs_to("north", 3), registration_tokens=()),  # it belongs to no cluster yet
        belongs_to("", 3),  # an older release wrote it
        None,
    ],
)
async def test_the_keys_of_another_cluster_are_not_written_to(identity: Identity | None) -> None:
    store = FlakyStore(virtual_clock())
    store.put(Keys("north").cluster, encode(ClusterEntry("c-1")))
    await report_rejected_start(store, "south", 3, REJECTED, identity)
    assert store.data.get(Keys("north").rejected_start(3)) is None


async def test_a_store_behind_the_directory_is_not_written_to_whatever_the_cause() -> None:
    store = store_of_a_cluster()
    behind = belongs_to("", 3, store_revision=1_000)
    await report_rejected_start(store, CLUSTER, 3, REJECTED, behind)
    assert store.data.get(KEYS.rejected_start(3)) is None
    current = replace(behind, store_revision=store.seen_revision)
    await report_rejected_start(store, CLUSTER, 3, REJECTED, current)
    assert store.data.get(KEYS.rejected_start(3)) is not None


async def test_the_time_without_a_store_does_not_grow_with_the_second_report() -> None:
    store = FlakyStore(virtual_clock())
    store.disconnect()
    began = virtual_clock().time()
    await report_rejected_start(store, "south", 3, REJECTED, belongs_to("north", 3))
    assert virtual_clock().time() - began <= REPORT_TIMEOUT_S


async def test_the_wait_for_a_store_that_is_away_is_short() -> None:
    store = store_of_a_cluster()
    store.disconnect()
    began = virtual_clock().time()
    with capture_logs() as lines:
        assert not await RejectedStartReport(store, KEYS, 3).write(REJECTED)
    assert virtual_clock().time() - began <= REPORT_TIMEOUT_S
    assert lines[-1]["event"] == "rejected_start_not_reported"


def test_later_causes_and_fields_are_understood() -> None:
    value = b'{"cause":"of_later","reason":"r","at_ms":1,"more":2}'
    assert decode_rejected_start(value) == RejectedStart(RejectionCause.OTHER, "r", 1)
