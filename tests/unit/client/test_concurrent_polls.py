"""Several tasks use one consumer. No record comes twice, none is lost, and each poll continues
where the previous one ended, while batches are decoded in threads.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from tidelog.batch import new_batch, stamp
from tidelog.batch_slices import CHEAP_RECORDS, SLICE_RECORDS
from tidelog.client import Consumer
from tidelog.errors import ClientClosedError, ErrorCode, InvalidBatchError, TidelogError
from tidelog.model import Batch, Codec, TopicPartition
from tidelog.record_batch import encode
from unit.client.idempotent_world import World, milliseconds
from unit.metadata.virtual_time import run

SEA, BAY = TopicPartition("sea", 0), TopicPartition("bay", 0)
COSTLY = CHEAP_RECORDS + 1


class Threads:
    """Replaces `asyncio.to_thread`. Each call waits while `gate` is closed, and for `pause_ms`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.pause_ms: Callable[[], int] = lambda: 0
        self.begun = self.at_once = self.most_at_once = 0
        monkeypatch.setattr(asyncio, "to_thread", self.run)

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        self.begun += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.gate.wait()
            await milliseconds(self.pause_ms())
            return function(*args)
        finally:
            self.at_once -= 1


def append(world: World, *batches: Batch, topic: str = "sea") -> None:
    log = world.cluster.partition(topic)
    for batch in batches:
        log.batches.append(
            stamp(batch, base_offset=log.end, leader_epoch=log.leader_epoch, append_time_ms=1)
        )


def batch_of(count: int) -> Batch:
    return encode([b"v"] * count, timestamps_ms=1)


def unreadable(count: int) -> Batch:
    return new_batch(
        b"\xff" * 9, codec=Codec.NONE, record_count=count, base_timestamp_ms=1, max_timestamp_ms=1
    )


async def offsets(consumer: Consumer, max_records: int = 100, timeout_ms: int = 1_000) -> list[int]:
    return [record.offset for record in await consumer.poll(timeout_ms, max_records)]


def test_concurrent_polls_share_the_opening_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        world, threads = World(), Threads(monkeypatch)
        append(world, batch_of(COSTLY))
        threads.gate.clear()
        async with world.consumer() as consumer:
            consumer.assign([SEA])
            polls = [asyncio.create_task(offsets(consumer)) for _ in range(3)]
            await milliseconds(500)
            threads.gate.set()
            taken = await asyncio.gather(*polls)
            assert taken == [list(range(first, first + 100)) for first in (0, 100, 200)]
            assert await offsets(consumer) == list(range(300, 400))
            assert threads.begun == 1

    run(main())


def test_a_cancelled_poll_leaves_the_opening_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        world, threads = World(), Threads(monkeypatch)
        append(world, batch_of(COSTLY))
        threads.gate.clear()
        async with world.consumer() as consumer:
            consumer.assign([SEA])
            first, second = (asyncio.create_task(offsets(consumer)) for _ in range(2))
            await milliseconds(500)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            threads.gate.set()
            assert await second == list(range(100))
            assert threads.begun == 1

    run(main())


def test_a_poll_whose_records_another_took_ends_after_its_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        world, threads = World(), Threads(monkeypatch)
        append(world, *[batch_of(COSTLY)] * 9)
        threads.pause_ms = lambda: 50
        async with world.consumer() as consumer:
            consumer.assign([SEA])
            polls = [
                asyncio.create_task(offsets(consumer, COSTLY, timeout_ms=ms))
                for ms in (60_000, 60_000, 100)
            ]
            await milliseconds(20)
            started = asyncio.get_running_loop().time()
            assert await polls[2] == []
            assert asyncio.get_running_loop().time() - started < 0.2
            assert [len(await poll) for poll in polls[:2]] == [COSTLY, COSTLY]

    run(main())


@pytest.mark.parametrize("batches_too", [False, True])
def test_a_batch_being_opened_at_a_seek_is_dropped(
    monkeypatch: pytest.MonkeyPatch, batches_too: bool
) -> None:
    async def main() -> None:
        world, threads = World(), Threads(monkeypatch)
        append(world, batch_of(COSTLY), batch_of(COSTLY))
        threads.gate.clear()
        async with world.consumer() as consumer:
            consumer.assign([SEA])
            poll = asyncio.create_task(offsets(consumer))
            await milliseconds(500)
            if batches_too:
                [taken] = await consumer.poll_batches(max_batches=1)
                assert taken.next_offset == COSTLY
            else:
                await consumer.seek(SEA, 7)
            threads.gate.set()
            first = COSTLY if batches_too else 7
            assert await poll == list(range(first, first + 100))

    run(main())


@pytest.mark.parametrize("seeks", [False, True])
def test_a_batch_that_cannot_be_opened_is_an_error_of_each_poll_until_a_seek(
    monkeypatch: pytest.MonkeyPatch, seeks: bool
) -> None:
    async def main() -> None:
        world, threads = World(), Threads(monkeypatch)
        append(world, unreadable(COSTLY), batch_of(9))
        threads.gate.clear()
        async with world.consumer() as consumer:
            consumer.assign([SEA])
            polls = [asyncio.create_task(offsets(consumer)) for _ in range(2)]
            await milliseconds(500)
            if seeks:
                await consumer.seek(SEA, COSTLY)
            threads.gate.set()
            taken = await asyncio.gather(*polls, return_exceptions=True)
            codes = [getattr(each, "code", each) for each in taken]
            if seeks:
                assert codes == [list(range(COSTLY, COSTLY + 9)), []]
                return
            assert codes == [ErrorCode.INVALID_BATCH] * 2
            with pytest.raises(TidelogError):
                await consumer.poll()
            assert consumer.position(SEA) == 0

    run(main())


def test_taken_records_are_not_lost_to_a_batch_that_cannot_be_opened() -> None:
    async def main() -> None:
        world = World()
        append(world, batch_of(9))
        append(world, unreadable(9), topic="bay")
        async with world.consumer() as consumer:
            consumer.assign([SEA, BAY])
            await milliseconds(500)
            assert await offsets(consumer) == list(range(9))
            for _ in range(2):
                with pytest.raises(TidelogError) as caught:
                    await consumer.poll()
                assert caught.value.code is ErrorCode.INVALID_BATCH

    run(main())


@pytest.mark.parametrize("size", [9, COSTLY])
def test_other_partitions_are_read_beside_a_batch_that_cannot_be_opened(size: int) -> None:
    async def main() -> None:
        world = World()
        append(world, unreadable(size), batch_of(4))
        async with world.consumer() as consumer:
            consumer.assign([SEA, BAY])
            with pytest.raises(InvalidBatchError) as caught:
                await consumer.poll()
            message = str(caught.value)
            assert message.startswith(f"the batch at offset 0 of {SEA} cannot be opened: ")
            assert message.endswith(f"; what follows it begins at offset {size}")
            append(world, batch_of(3), topic="bay")
            await milliseconds(1_000)
            assert await offsets(consumer) == [0, 1, 2]
            with pytest.raises(InvalidBatchError):
                await consumer.poll()
            await consumer.seek(SEA, size)
            await milliseconds(1_000)
            assert await offsets(consumer) == list(range(size, size + 4))

    run(main())


def test_a_batch_of_many_headers_is_opened_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        world, threads = World(), Threads(monkeypatch)
        headers = {index: [("", b"")] * 1_000 for index in range(20)}
        append(world, encode([b"v"] * 20, timestamps_ms=1, headers=headers, codec=Codec.ZSTD))
        threads.gate.clear()
        async with world.consumer() as consumer:
            consumer.assign([SEA])
            poll = asyncio.create_task(offsets(consumer))
            await milliseconds(500)
            assert not poll.done()
            threads.gate.set()
            assert await poll == list(range(20))

    run(main())


def test_consumers_that_share_a_semaphore_hold_few_large_batches_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        world, threads = World(), Threads(monkeypatch)
        append(world, batch_of(COSTLY), batch_of(COSTLY))
        room = asyncio.Semaphore(2)
        consumers = [world.consumer(opening_room=room) for _ in range(4)]
        for consumer in consumers:
            consumer.assign([SEA])
        polls = [asyncio.create_task(offsets(each, COSTLY)) for each in consumers]
        await milliseconds(500)
        # The order of the consumers is unspecified.
        order = sorted(range(4), key=lambda number: not polls[number].done())
        consumers, polls = [consumers[n] for n in order], [polls[n] for n in order]
        assert [poll.done() for poll in polls] == [True, True, False, False]
        # A consumer keeps its place for its next batch.
        assert await offsets(consumers[0], COSTLY)
        assert threads.begun == 3
        await consumers[3].close()
        await consumers[0].close()
        assert len(await polls[2]) == COSTLY
        for consumer in consumers[1:3]:
            await consumer.close()
        assert isinstance(polls[3].exception(), ClientClosedError)
        assert not room.locked()

    run(main())


def test_a_batch_whose_later_slice_cannot_be_opened_is_not_taken_for_complete() -> None:
    async def main() -> None:
        world = World()
        right = batch_of(SLICE_RECORDS + 10)
        # The lengths of the values are the last column: the last record's length is no varint any
        # more.
        wrong = new_batch(
            right.records[:-1] + b"\x80",
            codec=Codec.NONE,
            record_count=right.header.record_count,
            base_timestamp_ms=1,
            max_timestamp_ms=1,
        )
        append(world, wrong)
        async with world.consumer() as consumer:
            consumer.assign([SEA])
            assert len(await offsets(consumer, SLICE_RECORDS)) == SLICE_RECORDS
            for _ in range(2):
                with pytest.raises(TidelogError) as caught:
                    await consumer.poll()
                assert caught.value.code is ErrorCode.INVALID_BATCH
            assert consumer.position(SEA) == SLICE_RECORDS

    run(main())


class Readers:
    """Tasks that poll, are cancelled and seek at random. `position` is the offset of the next
    record.
    """

    def __init__(self, consumer: Consumer, end: int, rng: random.Random) -> None:
        self.consumer = consumer
        self.end = end
        self.rng = rng
        self.position = 0
        self.taken = 0

    def check(self, taken: list[int]) -> None:
        """Runs right after a call, before any other task."""
        assert taken == list(range(self.position, self.position + len(taken)))
        self.position += len(taken)
        self.taken += len(taken)
        assert self.consumer.position(SEA) == self.position

    async def step(self) -> None:
        chance, most = self.rng.random(), self.rng.choice([1, 50, 3_000, 10_000])
        if chance < 0.05:
            offset = self.rng.randrange(self.end)
            sought = self.consumer.seek(SEA, offset)
            self.position = offset
            await sought
        elif chance < 0.15:
            batches = await self.consumer.poll_batches(20, max_batches=1)
            self.check([o for b in batches for o in range(b.first_offset, b.next_offset)])
        elif chance < 0.2:
            self.check([record.offset async for record in _first(self.consumer)])
        else:
            self.check(await offsets(self.consumer, most, timeout_ms=20))

    async def read(self) -> None:
        for _ in range(40):
            step = asyncio.create_task(self.step())
            if self.rng.random() < 0.2:
                asyncio.get_running_loop().call_later(self.rng.random() / 50, step.cancel)
            await asyncio.wait((step,))
            if not step.cancelled():
                step.result()


async def _first(consumer: Consumer) -> Any:
    try:
        async with asyncio.timeout(0.02):
            record = await anext(consumer)
    except TimeoutError:
        return
    yield record


@pytest.mark.parametrize("seed", range(6))
def test_concurrent_readers_get_each_record_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        world, threads = World(), Threads(monkeypatch)
        threads.pause_ms = lambda: rng.randrange(10)
        sizes = [rng.choice([1, 30, COSTLY, 2 * COSTLY]) for _ in range(40)]
        append(world, *map(batch_of, sizes))
        async with world.consumer() as consumer:
            consumer.assign([SEA])
            readers = Readers(consumer, sum(sizes), rng)
            await asyncio.gather(*(readers.read() for _ in range(4)))
            assert readers.taken > COSTLY
            assert threads.begun > 3
            assert threads.most_at_once == 1

    run(main())
