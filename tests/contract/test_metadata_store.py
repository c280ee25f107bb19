"""The contract of every metadata store. The simulator's store has to behave like etcd."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from contract.harness import StoreHarness
from tidelog_runtime.metadata.etcd import SNAPSHOT_PAGE_KEYS
from tidelog_runtime.metadata.store import (
    MAX_TRANSACTION_CHANGES,
    MAX_TRANSACTION_GUARDS,
    Change,
    Changed,
    CreateRevision,
    Delete,
    InvalidTransactionError,
    LeaseLostError,
    MetadataStore,
    ModRevision,
    Put,
    StoreClosedError,
    StoreRolledBackError,
    Transaction,
    TransactionResult,
)

SECONDS_TO_WAIT = 15
TTL_SECONDS = 2


async def write(store: MetadataStore, *changes: Change) -> TransactionResult:
    return await store.transact(Transaction([], changes))


async def following(watch: AsyncIterator[Sequence[Changed]]) -> Sequence[Changed]:
    """The next events of the watch."""
    async with asyncio.timeout(SECONDS_TO_WAIT):
        return await anext(watch)


async def lost(wait_lost: asyncio.Future[None]) -> None:
    async with asyncio.timeout(SECONDS_TO_WAIT):
        await wait_lost


class TestTransactions:
    async def test_an_absent_key_reads_as_none(self, store: MetadataStore, prefix: str) -> None:
        assert await store.get(prefix + "a") is None

    async def test_a_created_key_has_the_revision_of_its_transaction(
        self, store: MetadataStore, prefix: str
    ) -> None:
        key = prefix + "a"
        result = await store.transact(Transaction([CreateRevision(key, 0)], [Put(key, b"1")]))
        assert result.succeeded
        assert await store.get(key) == (key, b"1", result.revision, result.revision)

    async def test_a_key_is_created_only_once(self, store: MetadataStore, prefix: str) -> None:
        key = prefix + "a"
        first = await store.transact(Transaction([CreateRevision(key, 0)], [Put(key, b"1")]))
        second = await store.transact(Transaction([CreateRevision(key, 0)], [Put(key, b"2")]))
        assert not second.succeeded
        assert second.current == {key: (key, b"1", first.revision, first.revision)}

    async def test_compare_and_swap_accepts_only_the_current_mod_revision(
        self, store: MetadataStore, prefix: str
    ) -> None:
        key = prefix + "a"
        created = (await write(store, Put(key, b"1"))).revision
        swap = Transaction([ModRevision(key, created)], [Put(key, b"2")])
        swapped = await store.transact(swap)
        assert swapped.succeeded
        again = await store.transact(swap)
        assert not again.succeeded
        assert again.current == {key: (key, b"2", created, swapped.revision)}

    async def test_a_creation_revision_outlives_overwriting(
        self, store: MetadataStore, prefix: str
    ) -> None:
        key = prefix + "a"
        created = (await write(store, Put(key, b"1"))).revision
        await write(store, Put(key, b"2"))
        result = await store.transact(Transaction([CreateRevision(key, created)], [Delete(key)]))
        assert result.succeeded

    async def test_a_key_deleted_and_created_again_has_another_creation_revision(
        self, store: MetadataStore, prefix: str
    ) -> None:
        key = prefix + "a"
        created = (await write(store, Put(key, b"1"))).revision
        await write(store, Delete(key))
        created_again = (await write(store, Put(key, b"1"))).revision
        item = await store.get(key)
        assert item is not None
        assert item.create_revision == created_again > created

    async def test_one_failed_guard_stops_every_change(
        self, store: MetadataStore, prefix: str
    ) -> None:
        a, b, absent = prefix + "a", prefix + "b", prefix + "absent"
        created = (await write(store, Put(a, b"1"))).revision
        result = await store.transact(
            Transaction(
                [ModRevision(a, created), CreateRevision(a, created), ModRevision(absent, 7)],
                [Put(a, b"2"), Put(b, b"2")],
            )
        )
        assert not result.succeeded
        assert result.current == {a: (a, b"1", created, created), absent: None}
        assert await store.get(b) is None

    async def test_a_full_batch_is_atomic(self, store: MetadataStore, prefix: str) -> None:
        keys = [f"{prefix}{i:03}" for i in range(MAX_TRANSACTION_CHANGES)]
        created = await write(store, *(Put(key, b"1") for key in keys))
        guards = [ModRevision(key, created.revision) for key in keys]
        elected = [ModRevision(prefix + "x", 0)] * (MAX_TRANSACTION_GUARDS - len(guards))
        result = await store.transact(
            Transaction([*guards, *elected], [Put(key, b"2") for key in keys])
        )
        assert result.succeeded
        items = (await store.snapshot(prefix)).items
        assert list(items) == keys
        assert {item.mod_revision for item in items.values()} == {result.revision}

    async def test_a_full_batch_that_fails_shows_every_guarded_key(
        self, store: MetadataStore, prefix: str
    ) -> None:
        keys = [f"{prefix}{i:03}" for i in range(MAX_TRANSACTION_CHANGES)]
        created = await write(store, *(Put(key, b"1") for key in keys))
        guards = [ModRevision(key, created.revision) for key in keys]
        await write(store, Put(keys[7], b"by another"))
        result = await store.transact(Transaction(guards, [Delete(key) for key in keys]))
        assert not result.succeeded
        assert list(result.current) == keys
        changed = result.current[keys[7]]
        assert changed is not None
        assert changed.value == b"by another"

    @pytest.mark.parametrize("what", ["changes", "guards"])
    async def test_a_transaction_over_the_limits_is_rejected(
        self, store: MetadataStore, prefix: str, what: str
    ) -> None:
        if what == "changes":
            number = MAX_TRANSACTION_CHANGES + 1
            transaction = Transaction([], [Delete(f"{prefix}{i}") for i in range(number)])
        else:
            number = MAX_TRANSACTION_GUARDS + 1
            transaction = Transaction([ModRevision(f"{prefix}{i}", 0) for i in range(number)], [])
        with pytest.raises(InvalidTransactionError, match=f"{number} {what}; at most"):
            await store.transact(transaction)

    async def test_a_key_changed_twice_is_rejected(self, store: MetadataStore, prefix: str) -> None:
        key = prefix + "a"
        with pytest.raises(InvalidTransactionError, match="more than once"):
            await write(store, Delete(key), Put(key, b"1"))

    async def test_deleting_nothing_takes_no_revision(
        self, store: MetadataStore, prefix: str
    ) -> None:
        before = (await write(store, Put(prefix + "a", b"1"))).revision
        result = await write(store, Delete(prefix + "absent"))
        assert result.succeeded
        assert result.revision == before

    async def test_a_transaction_without_changes_only_compares(
        self, store: MetadataStore, prefix: str
    ) -> None:
        key = prefix + "a"
        before = (await write(store, Put(key, b"1"))).revision
        held = await store.transact(Transaction([ModRevision(key, before)], []))
        assert (held.succeeded, held.revision) == (True, before)
        failed = await store.transact(Transaction([ModRevision(key, 0)], []))
        assert not failed.succeeded

    async def test_a_closed_store_raises_an_error(self, harness: StoreHarness) -> None:
        client = harness.another_client()
        await client.close()
        with pytest.raises(StoreClosedError):
            await client.get(harness.prefix)


class TestSnapshots:
    async def test_a_snapshot_holds_the_keys_of_its_prefix(
        self, store: MetadataStore, prefix: str
    ) -> None:
        result = await write(store, *(Put(prefix + key, b"1") for key in ("b/2", "b/1", "bc", "a")))
        snapshot = await store.snapshot(prefix + "b/")
        assert list(snapshot.items) == [prefix + "b/1", prefix + "b/2"]
        assert snapshot.revision == result.revision

    async def test_more_keys_than_a_page_are_read_at_one_revision(
        self, store: MetadataStore, prefix: str
    ) -> None:
        number = 2 * SNAPSHOT_PAGE_KEYS + 1
        keys = [f"{prefix}{i:06}" for i in range(number)]
        for i in range(0, number, MAX_TRANSACTION_CHANGES):
            await write(store, *(Put(k, b"1") for k in keys[i : i + MAX_TRANSACTION_CHANGES]))

        async def change_all_the_time() -> None:
            while True:
                # Both keys change in one transaction: a single page shows one of them.
                await write(store, Delete(keys[0]), Put(keys[-1], b"2"))
                await write(store, Put(keys[0], b"1"), Put(keys[-1], b"1"))

        changing = asyncio.create_task(change_all_the_time())
        try:
            for _ in range(10):
                items = (await store.snapshot(prefix)).items
                assert (keys[0] in items) == (items[keys[-1]].value == b"1")
                assert set(keys[1:]) <= set(items)
        finally:
            changing.cancel()
            await asyncio.wait([changing])


class TestWatches:
    async def test_changes_come_in_order_and_those_of_one_revision_together(
        self, store: MetadataStore, prefix: str
    ) -> None:
        a, b = prefix + "a", prefix + "b"
        watch = store.watch(await store.snapshot(prefix))
        first = (await write(store, Put(b, b"1"), Put(a, b"1"))).revision
        second = (await write(store, Put(a, b"2"), Delete(b))).revision
        assert await following(watch) == (
            (b, (b, b"1", first, first), first),
            (a, (a, b"1", first, first), first),
        )
        assert await following(watch) == (
            (a, (a, b"2", first, second), second),
            (b, None, second),
        )

    async def test_a_watch_begins_right_after_its_snapshot(
        self, store: MetadataStore, prefix: str
    ) -> None:
        await write(store, Put(prefix + "a", b"1"))
        snapshot = await store.snapshot(prefix)
        missed = [(await write(store, Put(prefix + "a", b"%d" % i))).revision for i in range(3)]
        watch = store.watch(snapshot)
        assert [(await following(watch))[0].revision for _ in missed] == missed
        latest = (await write(store, Put(prefix + "a", b"latest"))).revision
        assert [change.revision for change in await following(watch)] == [latest]

    async def test_a_watch_omits_other_prefixes(self, store: MetadataStore, prefix: str) -> None:
        watch = store.watch(await store.snapshot(prefix + "b/"))
        await write(store, Put(prefix + "b", b"1"), Put(prefix + "b0", b"1"))
        await write(store, Put(prefix + "b/1", b"1"), Put(prefix + "c", b"1"))
        assert [change.key for change in await following(watch)] == [prefix + "b/1"]

    async def test_a_burst_arrives_completely(self, store: MetadataStore, prefix: str) -> None:
        watch = store.watch(await store.snapshot(prefix))
        keys = [f"{prefix}{i:03}" for i in range(MAX_TRANSACTION_CHANGES)]
        value = b"v" * 2_000
        written = await asyncio.gather(
            *(write(store, *(Put(key, value) for key in keys)) for _ in range(20))
        )
        groups = [await following(watch) for _ in written]
        assert [group[0].revision for group in groups] == sorted(r.revision for r in written)
        assert all([change.key for change in group] == keys for group in groups)

    async def test_two_watches_of_one_store_see_the_same(
        self, store: MetadataStore, prefix: str
    ) -> None:
        snapshot = await store.snapshot(prefix)
        watches = [store.watch(snapshot), store.watch(snapshot)]
        await write(store, Put(prefix + "a", b"1"))
        first, second = [await following(watch) for watch in watches]
        assert first == second

    async def test_a_watch_ends_with_the_store(self, harness: StoreHarness) -> None:
        client = harness.another_client()
        watch = client.watch(await client.snapshot(harness.prefix))
        await write(client, Put(harness.prefix + "a", b"1"))
        await following(watch)
        waiting = asyncio.ensure_future(following(watch))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(StoreClosedError):
            await waiting

    async def test_after_a_compaction_a_watch_yields_the_differences_by_key(
        self, harness: StoreHarness, store: MetadataStore, prefix: str
    ) -> None:
        deleted, kept, recreated, new = (prefix + key for key in "abcd")
        created = (await write(store, *(Put(k, b"1") for k in (deleted, kept, recreated)))).revision
        snapshot = await store.snapshot(prefix)
        added = (await write(store, Put(new, b"1"))).revision
        await write(store, Delete(recreated), Delete(deleted))
        again = (await write(store, Put(recreated, b"1"))).revision
        await harness.compact()
        watch = store.watch(snapshot)
        differences = await following(watch)
        assert [(change.key, change.value) for change in differences] == [
            (deleted, None),
            (recreated, (recreated, b"1", again, again)),
            (new, (new, b"1", added, added)),
        ]
        assert again > created

    @pytest.mark.rule("watch-survives-compaction")
    async def test_deletions_of_the_compacted_revision_are_seen(
        self, harness: StoreHarness, store: MetadataStore, prefix: str
    ) -> None:
        await write(store, Put(prefix + "a", b"1"))
        snapshot = await store.snapshot(prefix)
        await write(store, Delete(prefix + "a"))
        await harness.compact()
        watch = store.watch(snapshot)
        assert [(c.key, c.value) for c in await following(watch)] == [(prefix + "a", None)]

    async def test_a_watch_continues_after_a_compaction(
        self, harness: StoreHarness, store: MetadataStore, prefix: str
    ) -> None:
        watch = store.watch(await store.snapshot(prefix))
        await write(store, Put(prefix + "a", b"1"))
        await following(watch)
        await harness.compact()
        revision = (await write(store, Put(prefix + "a", b"2"))).revision
        assert [change.revision for change in await following(watch)] == [revision]


class TestRollbacks:
    async def test_a_revision_that_others_reported_counts_as_seen(
        self, store: MetadataStore, prefix: str
    ) -> None:
        written = (await write(store, Put(prefix + "a", b"1"))).revision
        assert store.seen_revision == written
        store.observe_revision(written)
        await store.get(prefix + "a")
        store.observe_revision(written + 1)
        assert store.seen_revision == written + 1

    async def test_a_store_older_than_a_reported_revision_is_not_trusted(
        self, store: MetadataStore, prefix: str
    ) -> None:
        store.observe_revision((await write(store, Put(prefix + "a", b"1"))).revision + 1)
        with pytest.raises(StoreRolledBackError):
            await store.get(prefix + "a")

    async def test_a_write_does_not_hide_that_the_store_was_older_before_it(
        self, store: MetadataStore, prefix: str
    ) -> None:
        store.observe_revision((await write(store, Put(prefix + "a", b"1"))).revision + 1)
        with pytest.raises(StoreRolledBackError):
            await write(store, Put(prefix + "a", b"2"))


class TestLeases:
    async def test_a_lease_outlives_its_time_to_live_while_it_is_held(
        self, harness: StoreHarness, store: MetadataStore, prefix: str
    ) -> None:
        left, held = prefix + "left", prefix + "held"
        watch = store.watch(await store.snapshot(left))
        lease = await store.grant_lease(TTL_SECONDS)
        await write(store, Put(held, b"1", lease.id))
        # A second lease, granted later and without a holder, shows when the time is over.
        client = harness.another_client()
        await write(client, Put(left, b"1", (await client.grant_lease(TTL_SECONDS)).id))
        await client.close()
        assert (await following(watch))[0].value is not None
        assert await following(watch) == ((left, None, (await store.snapshot(left)).revision),)
        assert await store.get(held) is not None
        await lease.revoke()

    async def test_revoking_deletes_its_keys_at_one_revision(
        self, store: MetadataStore, prefix: str
    ) -> None:
        a, b, other = prefix + "a", prefix + "b", prefix + "other"
        lease = await store.grant_lease(TTL_SECONDS)
        await write(store, Put(b, b"1", lease.id), Put(other, b"1"), Put(a, b"1", lease.id))
        watch = store.watch(await store.snapshot(prefix))
        await lease.revoke()
        assert [(change.key, change.value) for change in await following(watch)] == [
            (a, None),
            (b, None),
        ]
        assert list((await store.snapshot(prefix)).items) == [other]

    async def test_revoking_again_does_nothing(self, store: MetadataStore) -> None:
        lease = await store.grant_lease(TTL_SECONDS)
        await lease.revoke()
        await lease.revoke()
        await lost(asyncio.ensure_future(lease.wait_lost()))

    async def test_the_holder_learns_that_its_lease_is_gone(
        self, harness: StoreHarness, store: MetadataStore
    ) -> None:
        lease = await store.grant_lease(TTL_SECONDS)
        waiting = asyncio.ensure_future(lease.wait_lost())
        await harness.take_lease_away(lease.id)
        await lost(waiting)
        await lease.revoke()

    async def test_a_put_under_an_ended_lease_fails(
        self, harness: StoreHarness, store: MetadataStore, prefix: str
    ) -> None:
        lease = await store.grant_lease(TTL_SECONDS)
        await harness.take_lease_away(lease.id)
        with pytest.raises(LeaseLostError, match="grant another"):
            await write(store, Put(prefix + "b", b"1"), Put(prefix + "a", b"1", lease.id))
        assert not (await store.snapshot(prefix)).items

    async def test_guards_are_checked_before_leases(
        self, store: MetadataStore, prefix: str
    ) -> None:
        lease = await store.grant_lease(TTL_SECONDS)
        await lease.revoke()
        result = await store.transact(
            Transaction([ModRevision(prefix + "a", 7)], [Put(prefix + "a", b"1", lease.id)])
        )
        assert not result.succeeded

    async def test_a_put_without_the_lease_detaches_the_key_from_it(
        self, store: MetadataStore, prefix: str
    ) -> None:
        lease = await store.grant_lease(TTL_SECONDS)
        await write(store, Put(prefix + "a", b"1", lease.id))
        await write(store, Put(prefix + "a", b"2"))
        await lease.revoke()
        assert await store.get(prefix + "a") is not None

    async def test_a_put_under_another_lease_detaches_the_key_from_the_first(
        self, store: MetadataStore, prefix: str
    ) -> None:
        first = await store.grant_lease(TTL_SECONDS)
        second = await store.grant_lease(TTL_SECONDS)
        await write(store, Put(prefix + "a", b"1", first.id))
        await write(store, Put(prefix + "a", b"2", second.id))
        await first.revoke()
        assert await store.get(prefix + "a") is not None
        await second.revoke()
        assert await store.get(prefix + "a") is None

    async def test_a_closed_store_waits_for_no_lease(self, harness: StoreHarness) -> None:
        client = harness.another_client()
        lease = await client.grant_lease(TTL_SECONDS)
        waiting = asyncio.ensure_future(lease.wait_lost())
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(StoreClosedError):
            await lost(waiting)

    async def test_a_time_to_live_that_no_store_supports_is_rejected(
        self, store: MetadataStore
    ) -> None:
        with pytest.raises(ValueError, match="the minimum is 2 s"):
            await store.grant_lease(1)
