import asyncio
from collections.abc import Iterator

import pytest

from tidelog.client.open_batches import MAX_GATHERING_MS, OpenBatches
from tidelog.model import TopicPartition

P0, P1, P2 = (TopicPartition("sea", number) for number in range(3))
LINGER_MS = 10


@pytest.fixture
def waiter() -> Iterator["asyncio.Future[object]"]:
    loop = asyncio.new_event_loop()
    yield loop.create_future()
    loop.close()


class Bench:
    def __init__(self, waiter: "asyncio.Future[object]") -> None:
        self.open = OpenBatches(1000, LINGER_MS)
        self.until_ms: dict[TopicPartition, int] = {}
        self._waiter = waiter

    def add(self, partition: TopicPartition, now_ms: int) -> None:
        batch = self.open.get(partition) or self.open.open(partition, now_ms, now_ms + 1_000)
        record = (None, b"v", (), 1, self._waiter)
        self.open.add(batch, 1, record)  # type: ignore[arg-type]

    def due(self, now_ms: int) -> tuple[list[TopicPartition], int | None]:
        def gathers_until(partition: TopicPartition) -> int:
            return self.until_ms.get(partition, now_ms)

        batches, next_ms = self.open.take_due(now_ms, gathers_until)
        return [batch.partition for batch in batches], next_ms


@pytest.fixture
def bench(waiter: "asyncio.Future[object]") -> Bench:
    return Bench(waiter)


def test_a_batch_is_due_when_it_has_lingered(bench: Bench) -> None:
    assert bench.due(0) == ([], None)
    bench.add(P0, 100)
    bench.add(P1, 105)
    bench.add(P0, 107)
    assert bench.due(109) == ([], 110)
    assert bench.due(110) == ([P0], 115)
    assert bench.due(115) == ([P1], None)


def test_a_gathering_batch_delays_no_other(bench: Bench) -> None:
    bench.until_ms = {P0: 140}
    bench.add(P0, 100)
    bench.add(P1, 105)
    bench.add(P2, 118)
    assert bench.due(115) == ([P1], 128)
    bench.add(P0, 116)
    assert bench.due(128) == ([P2], 140)
    batch = bench.open.get(P0)
    assert batch is not None
    assert len(batch.values) == 2
    assert bench.due(140) == ([P0], None)


def test_gathering_ends_at_its_limit(bench: Bench) -> None:
    end = 110 + MAX_GATHERING_MS
    bench.until_ms = {P0: end + 1}
    bench.add(P0, 100)
    assert bench.due(end - 1) == ([], end)
    assert bench.due(end) == ([P0], None)


def test_a_batch_that_has_lingered_is_recognised_while_it_gathers(bench: Bench) -> None:
    assert not bench.open.has_lingered(P0, 1_000)
    bench.add(P0, 100)
    assert not bench.open.has_lingered(P0, 110)
    assert bench.open.has_lingered(P0, 111)
    assert not bench.open.has_lingered(P1, 111)


def test_the_next_batch_to_linger_is_found(bench: Bench) -> None:
    bench.add(P0, 100)
    assert bench.open.last_is_next(100)
    bench.add(P1, 105)
    assert not bench.open.last_is_next(105), "there is a time when the one before is due"
    bench.until_ms = {P0: 140}
    assert bench.due(112) == ([], 115)
    bench.open.take(P1)
    bench.add(P2, 113)
    assert bench.open.last_is_next(113), "the one before it has lingered and gathers on"
