"""Ids of idempotent producers, out of the metadata store (section 2 of ARCHITECTURE.md).

Nobody is ever given what somebody else was: a write whose answer is lost may have been
applied, or may still be, so what it would have brought is given to nobody. A broker keeps
ids in stock, so that producers without a name can begin while the store is away.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import FIRST_NAMED_PRODUCER_ID
from tidelog_broker.background import retry_pause
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import (
    NamedProducer,
    NextProducerId,
    decode_named_producer,
    decode_next_producer_id,
    encode,
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
# Taken from the store at once, and given away one by one.
BLOCK_SIZE = 1_000
# With fewer left the next block is taken.
LOW_STOCK = BLOCK_SIZE // 2
RETRY_DELAY_S = 0.3
# Each failure of a compare-and-swap means that another broker got on.
MAX_ATTEMPTS = 10
MAX_PRODUCER_EPOCH = 2**31 - 1
_Value = TypeVar("_Value", NamedProducer, NextProducerId)
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


class ProducerIds:
    def __init__(self, store: MetadataStore, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._stock: deque[range] = deque()
        self._taking = asyncio.Lock()
        self._is_low = asyncio.Event()
        self._is_low.set()

    async def __call__(self, name: str) -> NamedProducer:
        """A new id in epoch 0; with a name the id of that name, in its next epoch.

        Raises INVALID_REQUEST for what is no name, and METADATA_STORE_UNAVAILABLE; then
        the epoch of a name may have grown all the same."""
        if name and _NAME.fullmatch(name) is None:
            raise TidelogError(
                ErrorCode.INVALID_REQUEST,
                f"{name[:200]!r} is no producer name; give 1 to 200 letters, digits, '.', '_' or "
                "'-', or none for a new id",
            )
        try:
            if name:
                return await self._next_holder(name)
            return NamedProducer(await self._new_id(), 0)
        except StoreError as error:
            raise TidelogError(
                ErrorCode.METADATA_STORE_UNAVAILABLE,
                f"no producer id can be had from the metadata store now ({error}); ask again",
            ) from error

    async def keep_stocked(self, rng: random.Random) -> None:
        """Takes blocks ahead of those who will ask; runs as long as the broker does."""
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

    async def _next_holder(self, name: str) -> NamedProducer:
        key = self._keys.producer(name)
        found = await self._store.get(key)
        new_id = await self._new_id() if found is None else None

        def next_holder(present: NamedProducer | None) -> NamedProducer:
            if present is not None:
                return _in_next_epoch(name, present)
            if new_id is None:
                raise _contended(key)
            return NamedProducer(FIRST_NAMED_PRODUCER_ID + new_id, 0)

        return await self._swap(key, found, next_holder, decode_named_producer)

    async def _swap(
        self,
        key: str,
        found: KeyValue | None,
        change: Callable[[_Value | None], _Value],
        decode: Callable[[bytes], _Value],
    ) -> _Value:
        """Writes what `change` makes of the key's value, and returns it. `found`: the key as
        it was read."""
        for _ in range(MAX_ATTEMPTS):
            value = change(None if found is None else decode(found.value))
            revision = 0 if found is None else found.mod_revision
            result = await self._store.transact(
                Transaction([ModRevision(key, revision)], [Put(key, encode(value))])
            )
            if result.succeeded:
                return value
            found = result.current[key]
        raise _contended(key)


def _after_next_block(present: NextProducerId | None) -> NextProducerId:
    first = FIRST_PRODUCER_ID if present is None else present.next_producer_id
    return NextProducerId(first + BLOCK_SIZE)


def _in_next_epoch(name: str, present: NamedProducer) -> NamedProducer:
    if present.producer_epoch == MAX_PRODUCER_EPOCH:
        raise TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"the producer name {name!r} has had as many holders as there are epochs; take "
            "another name",
        )
    return NamedProducer(present.producer_id, present.producer_epoch + 1)


def _contended(key: str) -> TidelogError:
    return TidelogError(
        ErrorCode.METADATA_STORE_UNAVAILABLE,
        f"other brokers changed {key} again and again; ask again",
    )
