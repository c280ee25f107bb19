"""What a process that cannot start leaves in the store for `explain`."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from structlog.testing import capture_logs

from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.membership.rejected_start import REPORT_TIMEOUT_S, report_rejected_start
from tidelog_runtime.metadata.broker_directories import (
    REJECTED_START_TTL_SECONDS,
    RejectedStart,
    RejectionCause,
    decode_rejected_start,
)
from tidelog_runtime.metadata.schema import ClusterEntry, encode
from unit.broker.broker_parts import KEYS
from unit.broker.flaky_store import FlakyStore
from unit.metadata.virtual_time import virtual_clock

REJECTED = RejectedStart(
    RejectionCause.DATA_DIRECTORY, "restore the file", 7, "10.0.0.1:7500", "north", "/data"
)


def store_of_a_cluster() -> FlakyStore:
    store = FlakyStore(virtual_clock())
    store.put(KEYS.cluster, encode(ClusterEntry("c-1")))
    return store


async def test_the_reason_is_kept_under_a_lease_of_its_own() -> None:
    store = store_of_a_cluster()
    assert await report_rejected_start(store, KEYS, 3, REJECTED)
    assert decode_rejected_start(store.item(KEYS.rejected_start(3)).value) == REJECTED
    await store.close()
    await asyncio.sleep(REJECTED_START_TTL_SECONDS + 1)
    assert store.data.get(KEYS.rejected_start(3)) is None


async def test_brokers_and_controllers_describe_it() -> None:
    store = store_of_a_cluster()
    await report_rejected_start(store, KEYS, 3, REJECTED)
    cache = MetadataCache(KEYS)
    cache.load(await store.snapshot(KEYS.root))
    (described,) = cache.directories.described_rejections()
    assert (described.broker_id, described.cause) == (3, "data_directory")
    assert described.reason == "restore the file"


async def test_a_store_that_fell_back_or_was_wiped_is_not_written_to() -> None:
    """Interleaving 18: its revision would grow until no broker can tell."""
    store = store_of_a_cluster()
    fell_back = replace(REJECTED, cause=RejectionCause.STORE)
    assert not await report_rejected_start(store, KEYS, 3, fell_back)
    wiped = FlakyStore(virtual_clock())
    assert not await report_rejected_start(wiped, KEYS, 3, REJECTED)
    assert store.data.get(KEYS.rejected_start(3)) is None
    assert wiped.sent == []


async def test_a_store_that_is_away_is_not_waited_for_long() -> None:
    store = store_of_a_cluster()
    store.disconnect()
    began = virtual_clock().time()
    with capture_logs() as lines:
        assert not await report_rejected_start(store, KEYS, 3, REJECTED)
    assert virtual_clock().time() - began <= REPORT_TIMEOUT_S
    assert lines[-1]["event"] == "rejected_start_not_reported"


def test_later_causes_and_fields_are_understood() -> None:
    value = b'{"cause":"of_later","reason":"r","at_ms":1,"more":2}'
    assert decode_rejected_start(value) == RejectedStart(RejectionCause.OTHER, "r", 1)
