"""Expires names of producers that have not been used for long.

See "Named producers" in docs/internals/producers.md. A name is used when a producer takes it, and
as long as its producer writes: both write the key of the name. The age is measured by revisions,
because clocks jump and keys have no time. The brokers record how much time has passed since the
store was at which revision. Each measures with a clock of its own that does not jump, and one
broker records at a time. Time in which no broker runs does not count.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import structlog

from tidelog_broker.background import retry_pause
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.producer_state import is_named
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_runtime.clock import Clock
from tidelog_runtime.cooperative import map_yielding
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.producer_records import (
    PassedTime,
    decode_passed_time,
    encode_producer_record,
)
from tidelog_runtime.metadata.store import (
    Delete,
    MetadataStore,
    ModRevision,
    Put,
    StoreError,
    Transaction,
)

# How often names are checked within their expiration time.
LOOKS = 8
# Each name has two keys.
NAMES_AT_ONCE = 50

_log = structlog.get_logger()


class UnusedName(NamedTuple):
    name: str
    revision: int


def unused_since(passed: Sequence[tuple[int, int]], expiration_ms: int) -> int:
    """Returns the newest revision that the store had `expiration_ms` ago; 0: none is known.

    `passed`: revisions, and how many milliseconds at least passed from each to the next.
    """
    elapsed_ms = 0
    for revision, passed_ms in reversed(passed):
        elapsed_ms += passed_ms
        if elapsed_ms >= expiration_ms:
            return revision
    return 0


def with_mark(
    passed: Sequence[tuple[int, int]], revision: int, passed_ms: int, expiration_ms: int
) -> PassedTime:
    """Adds a mark: `passed_ms` have passed since `revision`, the newest one.

    Marks that are older than needed are left out.
    """
    marks = (*passed, (revision, passed_ms))
    oldest = unused_since(marks, expiration_ms)
    return PassedTime(tuple(mark for mark in marks if mark[0] >= oldest))


class ProducerNames:
    def __init__(
        self,
        store: MetadataStore,
        keys: Keys,
        cache: MetadataCache,
        partitions: Callable[[], Iterable[Partition]],
        clock: Clock,
        expiration_ms: int,
    ) -> None:
        self._store = store
        self._keys = keys
        self._cache = cache
        self._partitions = partitions
        self._clock = clock
        self._expiration_ms = expiration_ms
        self._interval_ms = expiration_ms // LOOKS
        # Revision of the key with the passed time, at the last check; 0: it did not exist.
        self._marked_at: int | None = None

    async def run(self, rng: random.Random) -> None:
        """Checks names as long as the broker runs."""
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            # Brokers that started together must not all write.
            await retry_pause(self._interval_ms / 1000 / 100, rng)
            try:
                await self.look()
            except StoreError as error:
                _log.warning("producer_names_not_looked_at", why=str(error))
                self._marked_at = None

    async def look(self) -> None:
        """Checks names.

        Since the last check, at least the expiration time divided by LOOKS has passed.
        """
        await self._renew_writing()
        key = self._keys.passed_time
        found = await self._store.get(key)
        revision = 0 if found is None else found.mod_revision
        if revision != self._marked_at:
            # Another broker records the time, or did so before this one started.
            self._marked_at = revision
            return
        marks = PassedTime()
        if found is not None:
            passed = decode_passed_time(found.value).passed
            marks = with_mark(passed, revision, self._interval_ms, self._expiration_ms)
        result = await self._store.transact(
            Transaction([ModRevision(key, revision)], [Put(key, encode_producer_record(marks))])
        )
        if not result.succeeded:
            self._marked_at = None
            return
        self._marked_at = result.revision
        await self._give_up(unused_since(marks.passed, self._expiration_ms))

    async def _renew_writing(self) -> None:
        """Renews the names of producers that have written to partitions led here.

        This is done once between two marks.
        """
        since_ms = self._clock.wall_ms() - 2 * self._interval_ms

        def writing(partition: Partition) -> set[int]:
            if partition.leading is None:
                return set()
            return {
                producer_id
                for producer_id, entry in partition.log.producers.states.entries
                if is_named(producer_id) and entry.last_append_time_ms >= since_ms
            }

        ids = set[int]().union(*await map_yielding(writing, list(self._partitions())))
        names = self._cache.producer_names
        for name in [n for n, known in names.items() if known.producer.producer_id in ids]:
            known = names[name]
            if known.revision < (self._marked_at or 0):
                key = self._keys.producer(name)
                # If it fails, another broker has written the name.
                await self._store.transact(
                    Transaction(
                        [ModRevision(key, known.revision)],
                        [Put(key, encode_producer_record(known.producer))],
                    )
                )

    async def _give_up(self, since_revision: int) -> None:
        unused = [
            UnusedName(name, known.revision)
            for name, known in self._cache.producer_names.items()
            if known.revision < since_revision
        ]
        given_up = 0
        for first in range(0, len(unused), NAMES_AT_ONCE):
            given_up += await self._delete(unused[first : first + NAMES_AT_ONCE])
        if given_up:
            _log.info("producer_names_given_up", names=given_up)

    async def _delete(self, names: Sequence[UnusedName]) -> int:
        """Deletes names that were not used meanwhile. Returns their number."""
        revisions = {self._keys.producer(unused.name): unused.revision for unused in names}
        counts = {
            self._keys.producer(unused.name): self._keys.partition_counts_of(unused.name)
            for unused in names
        }
        while revisions:
            result = await self._store.transact(
                Transaction(
                    [ModRevision(key, revision) for key, revision in revisions.items()],
                    [Delete(each) for key in revisions for each in (key, counts[key])],
                )
            )
            if result.succeeded:
                break
            revisions = {
                key: revision
                for key, revision in revisions.items()
                if (now := result.current[key]) is not None and now.mod_revision == revision
            }
        return len(revisions)
