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
        self.blocked: set[TopicPartition] = set()
        self._waiter = waiter

    def add(self, partition: TopicPartition, now_ms: int) -> None:
        self.open.add(
            partition,
            now_ms,
            1,
            key=None,
            value=b"v",
            headers=(),
            timestamp_ms=1,
            waiter=self._waiter,  # type: ignore[arg-type]
        )

    def due(self, now_ms: int) -> tuple[list[TopicPartition], int | None]:
        batches, next_ms = self.open.take_due(now_ms, lambda p: p not in self.blocked)
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


def test_what_cannot_go_gathers_and_holds_up_nothing(bench: Bench) -> None:
    bench.blocked = {P0}
    bench.add(P0, 100)
    bench.add(P1, 105)
    bench.add(P2, 118)
    assert bench.due(115) == ([P1], 128)
    bench.add(P0, 116)
    assert bench.due(128) == ([P2], 110 + MAX_GATHERING_MS)
    assert bench.open.count(P0) == 2
    bench.blocked = set()
    assert bench.due(129) == ([P0], None)


def test_what_cannot_go_gathers_no_longer_than_its_bound(bench: Bench) -> None:
    bench.blocked = {P0}
    bench.add(P0, 100)
    end = 110 + MAX_GATHERING_MS
    assert bench.due(end - 1) == ([], end)
    assert bench.due(end) == ([P0], None)
