"""Unit tests of `tidelog.client.handover`: what a caller in another thread has not returned is read
again next, whatever has happened to its partition meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from tidelog.batch import new_fence, stamp
from tidelog.client import SyncConsumer
from tidelog.client.fetch_state import OnOutOfRange
from tidelog.client.handover import Handover
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import FIRST_NAMED_PRODUCER_ID, OffsetPosition, Record
from unit.client.fake_broker import FakeCluster
from unit.client.test_fetch_state import P0, P1, Bench, batch

OFFSETS = [15, 16, 17, 18, 20, 21]


def lending(**policies: Any) -> Bench:
    """Batches at 15 and 17, a producer fence at 19, and a batch at 20."""
    bench = Bench(**{"prefetch_bytes": 100_000} | policies)
    bench.state.taking.lending.lends = True
    fence = stamp(
        new_fence(FIRST_NAMED_PRODUCER_ID, 3, now_ms=1),
        base_offset=19,
        leader_epoch=1,
        append_time_ms=1,
    )
    bench.receive(bench.plan(), batch(15), batch(17), fence, batch(20))
    return bench


def take(bench: Bench, kind: str, limit: int) -> tuple[list[Any], Handover]:
    state = bench.state
    takes: dict[str, Callable[[int], list[Any]]] = {
        "records": state.take_records,
        "batches": state.take_batches,
    }
    taken = takes[kind](limit)
    handover = Handover()
    state.taking.lending.hand_over(taken, handover)
    return taken, handover


def offsets(items: list[Any]) -> list[int]:
    found: list[int] = []
    for item in items:
        records = [item] if isinstance(item, Record) else item.records()
        found += [record.offset for record in records]
    return found


each_kind = pytest.mark.parametrize("kind", ["records", "batches"])


@each_kind
@pytest.mark.parametrize("limit", range(1, 8))
def test_what_is_not_returned_is_read_again(kind: str, limit: int) -> None:
    for returned in range(limit + 1):
        bench = lending()
        buffered_bytes = bench.state.buffered_bytes
        taken, handover = take(bench, kind, limit)
        read = offsets([item for _ in range(returned) if (item := handover.consume_next())])
        assert read == offsets(taken[:returned])
        left = OFFSETS[len(read) :]
        # The fence may be passed with the records before it, or with those after it.
        positions = {[*left, 22][0], [*left, 22][0] - (left[:1] == [20])}
        assert bench.state.position(P0) in positions
        bench.state.taking.lending.recall()
        assert bench.state.position(P0) in positions
        assert bench.state.buffered_bytes == buffered_bytes or returned
        again, _ = take(bench, kind, 10)
        assert offsets(again) == left
        assert bench.state.buffered_bytes == 0
        assert handover.consume_next() is None
        assert not handover.consume()


def test_what_is_returned_is_not_read_again() -> None:
    bench = lending()
    _, handover = take(bench, "records", 3)
    assert handover.consume()
    bench.state.taking.lending.recall()
    assert bench.state.position(P0) == 18
    assert handover._sources == handover._items == (), "the batches are released"


def test_a_fetch_in_flight_continues_what_is_read_again() -> None:
    bench = lending()
    plan = bench.plan()
    take(bench, "records", 10)
    bench.state.taking.lending.recall()
    bench.receive(plan, batch(22))
    assert offsets(take(bench, "records", 10)[0]) == [*OFFSETS, 22, 23]


@pytest.mark.parametrize("kind", ["records", "batches"])
@pytest.mark.parametrize("policy", [OnOutOfRange.EARLIEST, OnOutOfRange.LATEST])
def test_a_partition_that_was_reset_meanwhile_is_read_from_what_was_not_returned(
    kind: str, policy: OnOutOfRange
) -> None:
    bench = lending(policy=policy)
    plan = bench.plan()
    take(bench, kind, 10)
    bench.out_of_range(plan, epoch=1)
    bench.out_of_range(bench.plan(100), epoch=1, now_ms=100)
    assert bench.assigned.position is None
    assert bench.state.position(P0) == 15
    bench.state.taking.lending.recall()
    assert offsets(take(bench, kind, 10)[0]) == OFFSETS
    assert bench.plan(1_000).wants[0][0].offset == 22


def test_a_batch_that_cannot_be_opened_is_reported_after_what_was_not_returned() -> None:
    bench = lending()
    take(bench, "records", 10)
    bench.state._cannot_open(bench.assigned, TidelogError(ErrorCode.INVALID_BATCH, "odd"))
    bench.state.taking.lending.recall()
    taken, handover = take(bench, "records", 10)
    assert offsets(taken) == OFFSETS
    assert handover.consume()
    with pytest.raises(TidelogError, match="odd"):
        bench.state.take_records(1)


@pytest.mark.parametrize(
    "change",
    [
        lambda bench: bench.state.assign([P1], OffsetPosition.EARLIEST),
        lambda bench: bench.state.assign([P0, P1], OffsetPosition.EARLIEST),
    ],
    ids=["unassigned", "another-assigned"],
)
def test_an_assignment_recalls_what_was_not_returned(change: Callable[[Bench], None]) -> None:
    bench = lending()
    _, handover = take(bench, "records", 3)
    handover.consume_next()
    change(bench)
    assert handover.consume_next() is None
    if P0 in bench.state.partitions:
        assert bench.state.position(P0) == 16


def test_only_the_result_of_the_last_taking_is_handed_over() -> None:
    bench = lending()
    first = bench.state.take_records(1)
    second = bench.state.take_records(2)
    handover = Handover()
    bench.state.taking.lending.hand_over(first, handover)
    assert handover.count == 0
    bench.state.taking.lending.hand_over(second, handover)
    assert handover.count == 0, "a result is handed over at once or never"


async def test_a_closed_client_leaves_no_report_for_the_event_loops_of_others(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    def reads() -> None:
        for _ in range(15):
            with SyncConsumer(cluster.bootstrap()) as consumer:
                consumer.assign([("sea", 0)])
                consumer.poll(5)

    with caplog.at_level(logging.ERROR, logger="asyncio"):
        await asyncio.gather(*(asyncio.to_thread(reads) for _ in range(3)))
    assert "Event loop is closed" not in caplog.text
