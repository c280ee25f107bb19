"""Unused producer names expire, and no others."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.requests.producer_ids import ProducerIds
from tidelog_broker.requests.producer_names import ProducerNames, unused_since, with_mark
from tidelog_runtime.metadata.producer_records import decode_passed_time
from tidelog_runtime.metadata.store import Snapshot, StoreUnavailableError
from unit.broker.broker_parts import KEYS
from unit.broker.flaky_store import FlakyStore
from unit.metadata.virtual_time import virtual_clock

EXPIRATION_MS = 8_000


@pytest.fixture
async def store() -> FlakyStore:
    return FlakyStore(virtual_clock())


class Broker:
    """A broker that leads nothing and reads the store before each check."""

    def __init__(self, store: FlakyStore) -> None:
        self._store = store
        self._cache = MetadataCache(KEYS)
        self._names = ProducerNames(
            store, KEYS, self._cache, lambda: (), virtual_clock(), EXPIRATION_MS
        )

    async def check(self, behind: bool = False) -> set[str]:
        """Check for unused names; returns the names that exist then."""
        if not behind:
            self._cache.load(await self._store.snapshot(KEYS.root))
        await self._names.look()
        return names_in(await self._store.snapshot(KEYS.root))


def names_in(snapshot: Snapshot) -> set[str]:
    cache = MetadataCache(KEYS)
    cache.load(snapshot)
    return set(cache.producer_names)


def test_the_newest_revision_that_is_old_enough_is_returned() -> None:
    passed = ((5, 1_000), (9, 1_000), (20, 1_000))
    assert [unused_since(passed, ms) for ms in (1_000, 1_001, 2_000, 3_000, 3_001)] == [
        20,
        9,
        9,
        5,
        0,
    ]


@given(st.lists(st.integers(1, 50), min_size=2, max_size=40), st.integers(1, 20))
def test_only_needed_marks_are_kept(steps: list[int], expiration_ms: int) -> None:
    revisions = [sum(steps[: n + 1]) for n in range(len(steps))]
    everything: tuple[tuple[int, int], ...] = ()
    kept: tuple[tuple[int, int], ...] = ()
    for revision, after in pairwise(revisions):
        passed_ms = after % 4 + 1
        everything = (*everything, (revision, passed_ms))
        kept = with_mark(kept, revision, passed_ms, expiration_ms).passed
        assert unused_since(kept, expiration_ms) == unused_since(everything, expiration_ms)
        assert len(kept) <= expiration_ms


async def test_an_unused_name_expires_after_its_time(store: FlakyStore) -> None:
    ids, broker = ProducerIds(store, KEYS), Broker(store)
    await ids.handle("old")
    # The first check finds no recorded time, the next begins to record, and eight more add up.
    for _ in range(1 + 8):
        assert await broker.check() == {"old"}
    await ids.handle("new")
    assert await broker.check() == {"new"}


async def test_a_name_that_is_taken_again_has_its_full_time_again(store: FlakyStore) -> None:
    ids, broker = ProducerIds(store, KEYS), Broker(store)
    for _ in range(30):
        assert await broker.check() <= {"sink"}
        first = await ids.handle("sink")
    assert first.producer_epoch == 29


async def test_partition_counts_expire_with_their_name(
    store: FlakyStore,
) -> None:
    ids, broker = ProducerIds(store, KEYS), Broker(store)
    await ids.handle("old", 7, {"sea": 2})
    while await broker.check():
        pass
    assert await store.get(KEYS.partition_counts_of("old")) is None


@pytest.mark.rule("unused-producer-name-expires")
async def test_a_name_taken_again_with_the_same_epoch_has_its_full_time_again(
    store: FlakyStore,
) -> None:
    ids, broker = ProducerIds(store, KEYS), Broker(store)
    first = await ids.handle("sink", 7)
    for _ in range(30):
        assert await broker.check() == {"sink"}
        assert await ids.handle("sink", 7) == first


@pytest.mark.rule("unused-producer-name-expires")
async def test_a_name_taken_while_it_expires_stays(store: FlakyStore) -> None:
    ids, broker = ProducerIds(store, KEYS), Broker(store)
    first = await ids.handle("sink")
    await ids.handle("other")
    for _ in range(9):
        await broker.check()
    await ids.handle("sink")
    assert await broker.check(behind=True) == {"sink"}
    assert (await ids.handle("sink")).producer_id == first.producer_id


async def test_the_times_of_several_brokers_do_not_add_up(store: FlakyStore) -> None:
    ids, brokers = ProducerIds(store, KEYS), [Broker(store) for _ in range(3)]
    await ids.handle("old")
    looks = 0
    while True:
        looks += 1
        there = [await broker.check() for broker in brokers]
        if there[-1] != {"old"}:
            break
    assert looks >= 8


async def test_another_broker_continues_the_count_of_a_stopped_one(store: FlakyStore) -> None:
    ids = ProducerIds(store, KEYS)
    await ids.handle("old")
    for _ in range(5):
        broker = Broker(store)
        for _ in range(4):
            there = await broker.check()
    assert there == set()
    passed = decode_passed_time(store.item(KEYS.passed_time).value).passed
    assert sum(ms for _, ms in passed) >= EXPIRATION_MS


async def test_without_the_store_no_name_expires(store: FlakyStore) -> None:
    ids, broker = ProducerIds(store, KEYS), Broker(store)
    await ids.handle("old")
    await broker.check()
    store.disconnect()
    with pytest.raises(StoreUnavailableError):
        await broker.check(behind=True)
    store.reconnect()
    assert await broker.check() == {"old"}
