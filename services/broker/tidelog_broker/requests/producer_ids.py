"""Ids of idempotent producers, from the metadata store.

See "Metadata" in docs/internals/protocol.md. No new id and no next epoch is given out twice. A
write whose answer is lost may have been applied, or may still be, so its ids are not used. A broker
keeps ids in stock, so that producers without a name can start while the store is unavailable.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import FIRST_NAMED_PRODUCER_ID
from tidelog.request_bounds import MAX_TOPIC_NAME_LENGTH
from tidelog_broker.background import retry_pause
from tidelog_broker.core.partition.producer_state import fenced
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.producer_records import (
    NamedProducer,
    NextProducerId,
    PartitionCounts,
    decode_named_producer,
    decode_next_producer_id,
    decode_partition_counts,
    encode_producer_record,
)
from tidelog_runtime.metadata.store import (
    KeyValue,
    MetadataStore,
    ModRevision,
    Put,
    StoreError,
    StoreUnavailableError,
    Transaction,
)

FIRST_PRODUCER_ID = 1
# Taken from the store at once, and given out one by one.
BLOCK_SIZE = 1_000
# With fewer left, the next block is taken.
LOW_STOCK = BLOCK_SIZE // 2
RETRY_DELAY_S = 0.3
# After a failed compare-and-swap another broker has made progress.
MAX_ATTEMPTS = 10
MAX_PRODUCER_EPOCH = 2**31 - 1
# With this many topics a value stays well below the limit of the store (1.5 MB).
MAX_COUNTED_TOPICS = 4_000
_Value = TypeVar("_Value", NamedProducer, NextProducerId, PartitionCounts)
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
NO_COUNTS: Mapping[str, int] = MappingProxyType({})


class GivenProducer(NamedTuple):
    """A producer id in its epoch. `partition_counts`: those of the requested topics."""

    producer_id: int
    producer_epoch: int
    partition_counts: Mapping[str, int] = NO_COUNTS


class ProducerIds:
    def __init__(self, store: MetadataStore, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._stock: deque[range] = deque()
        self._taking = asyncio.Lock()
        self._is_low = asyncio.Event()
        self._is_low.set()

    async def handle(
        self,
        name: str,
        epoch: int | None = None,
        partition_counts: Mapping[str, int] = NO_COUNTS,
    ) -> GivenProducer:
        """Returns a new id in epoch 0; with a name the name's id in its next epoch, or in `epoch`.

        `partition_counts`: numbers of partitions that every holder of that epoch is given from then
        on, unless another number was given before.

        Raises INVALID_REQUEST for an invalid name, epoch or number of partitions,
        FENCED_PRODUCER_EPOCH for an epoch older than the name's, and METADATA_STORE_UNAVAILABLE.
        After the latter the epoch of the name may have grown all the same.
        """
        if name and _NAME.fullmatch(name) is None:
            raise TidelogError(
                ErrorCode.INVALID_REQUEST,
                f"{name[:200]!r} is not a producer name; give 1 to 200 letters, digits, '.', '_' "
                "or '-', or no name for a new id",
            )
        if epoch is not None and (not name or epoch < 0):
            raise TidelogError(
                ErrorCode.INVALID_REQUEST,
                f"producer_epoch {epoch} for {name!r}; an epoch is at least 0 and belongs to a "
                "name: leave it out, or set a name too",
            )
        _check_counts(epoch, partition_counts)
        try:
            if not name:
                return GivenProducer(await self._new_id(), 0)
            holder = await self._next_holder(name, epoch)
            counts = NO_COUNTS
            if partition_counts:
                counts = await self._counts(name, holder, partition_counts)
            return GivenProducer(holder.producer_id, holder.producer_epoch, counts)
        except StoreError as error:
            raise TidelogError(
                ErrorCode.METADATA_STORE_UNAVAILABLE,
                f"the metadata store provides no producer id now ({error}); try again",
            ) from error

    async def keep_stocked(self, rng: random.Random) -> None:
        """Takes blocks of ids before they are requested. Runs as long as the broker does."""
        while True:
            await self._is_low.wait()
            try:
                async with self._taking:
                    await self._take_block()
            except (StoreUnavailableError, TidelogError):
                await retry_pause(RETRY_DELAY_S, rng)

    async def _new_id(self) -> int:
        if not self._stock:
            async with self._taking:
                if not self._stock:
                    await self._take_block()
        block = self._stock.popleft()
        if len(block) > 1:
            self._stock.appendleft(block[1:])
        self._judge_stock()
        return block[0]

    async def _take_block(self) -> None:
        key = self._keys.producer_ids
        found = await self._store.get(key)
        block = await self._swap(key, found, _after_next_block, decode_next_producer_id)
        end = block.next_producer_id
        self._stock.append(range(end - BLOCK_SIZE, end))
        self._judge_stock()

    def _judge_stock(self) -> None:
        if sum(map(len, self._stock)) < LOW_STOCK:
            self._is_low.set()
        else:
            self._is_low.clear()

    async def _next_holder(self, name: str, epoch: int | None) -> NamedProducer:
        key = self._keys.producer(name)
        found = await self._store.get(key)
        new_id = await self._new_id() if found is None else None

        def next_holder(present: NamedProducer | None) -> NamedProducer:
            if present is not None:
                return _in_epoch(name, present, epoch)
            if new_id is None:
                raise _contended(key)
            return NamedProducer(FIRST_NAMED_PRODUCER_ID + new_id, epoch or 0)

        return await self._swap(key, found, next_holder, decode_named_producer)

    async def _counts(
        self, name: str, holder: NamedProducer, wanted: Mapping[str, int]
    ) -> Mapping[str, int]:
        key = self._keys.partition_counts_of(name)

        def counted(present: PartitionCounts | None) -> PartitionCounts:
            return _with_counts(name, present, holder, wanted)

        found = await self._store.get(key)
        held = counted(None if found is None else decode_partition_counts(found.value))
        if found is None or encode_producer_record(held) != found.value:
            held = await self._swap(key, found, counted, decode_partition_counts)
        return {topic: held.of_topics[topic] for topic in wanted}

    async def _swap(
        self,
        key: str,
        found: KeyValue | None,
        change: Callable[[_Value | None], _Value],
        decode: Callable[[bytes], _Value],
    ) -> _Value:
        """Writes `change` of the key's value, and returns it. `found`: the key as it was read."""
        for _ in range(MAX_ATTEMPTS):
            value = change(None if found is None else decode(found.value))
            revision = 0 if found is None else found.mod_revision
            result = await self._store.transact(
                Transaction([ModRevision(key, revision)], [Put(key, encode_producer_record(value))])
            )
            if result.succeeded:
                return value
            found = result.current[key]
        raise _contended(key)


def _after_next_block(present: NextProducerId | None) -> NextProducerId:
    first = FIRST_PRODUCER_ID if present is None else present.next_producer_id
    return NextProducerId(first + BLOCK_SIZE)


def _in_epoch(name: str, present: NamedProducer, epoch: int | None) -> NamedProducer:
    if epoch is not None:
        if epoch < present.producer_epoch:
            raise fenced(present.producer_id, epoch, present.producer_epoch, name)
        return NamedProducer(present.producer_id, epoch)
    if present.producer_epoch == MAX_PRODUCER_EPOCH:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"the producer name {name!r} has used all epochs; choose another name",
        )
    return NamedProducer(present.producer_id, present.producer_epoch + 1)


def _with_counts(
    name: str, present: PartitionCounts | None, holder: NamedProducer, wanted: Mapping[str, int]
) -> PartitionCounts:
    """Returns the counts of an epoch.

    The number that is given first for a topic holds for the whole epoch.
    """
    counted: Mapping[str, int] = {}
    if present is not None and present.producer_id == holder.producer_id:
        if present.producer_epoch > holder.producer_epoch:
            raise fenced(holder.producer_id, holder.producer_epoch, present.producer_epoch, name)
        if present.producer_epoch == holder.producer_epoch:
            counted = present.of_topics
    counts = {**wanted, **counted}
    if len(counts) > MAX_COUNTED_TOPICS:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"partition_counts of {len(counts)} topics; at most {MAX_COUNTED_TOPICS} are allowed",
        )
    return PartitionCounts(holder.producer_id, holder.producer_epoch, counts)


def _check_counts(epoch: int | None, counts: Mapping[str, int]) -> None:
    if counts and epoch is None:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            "partition_counts needs the producer_epoch that it is for: set it too",
        )
    for topic, count in counts.items():
        if not 1 <= len(topic) <= MAX_TOPIC_NAME_LENGTH or count < 1:
            raise TidelogError(
                ErrorCode.INVALID_REQUEST,
                f"partition_counts has {count} for {topic[:MAX_TOPIC_NAME_LENGTH]!r}; give topics "
                "that exist, and how many partitions each has",
            )


def _contended(key: str) -> TidelogError:
    return TidelogError(
        ErrorCode.METADATA_STORE_UNAVAILABLE,
        f"other brokers keep changing {key}; try again",
    )
