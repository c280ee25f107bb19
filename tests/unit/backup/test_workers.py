"""Workers on many partitions, and their common rate."""

from __future__ import annotations

import asyncio
import threading
from collections import deque

import pytest

from tidelog.backup.workers import Pace, run_to_end, work_on


class StillClock:
    """A clock that stands at one second."""

    def monotonic_ms(self) -> int:
        return 1_000

    def wall_ms(self) -> int:
        return 0


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The requested pauses, in seconds, none of which is made."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr("tidelog.backup.workers.asyncio.sleep", sleep)
    return found


async def test_transfers_of_all_workers_share_one_rate(pauses: list[float]) -> None:
    pace = Pace(1_000, StillClock())
    for size in (500, 250, 250):
        await pace.spend(size)
    assert pauses == [0.5, 0.75, 1.0]


async def test_without_a_rate_nothing_waits(pauses: list[float]) -> None:
    await Pace(None, StillClock()).spend(1 << 40)
    assert pauses == []


async def test_each_item_is_taken_once() -> None:
    taken: list[int] = []

    async def work(left: deque[int]) -> None:
        while left:
            taken.append(left.popleft())
            await asyncio.sleep(0)

    await work_on(range(10), 3, work)
    assert sorted(taken) == list(range(10))


async def test_a_cancelled_caller_waits_for_the_end_of_its_thread() -> None:
    began, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        may_end.wait(20)
        ended.set()

    task = asyncio.ensure_future(run_to_end(work))
    await asyncio.to_thread(began.wait, 20)
    task.cancel()
    asyncio.get_running_loop().call_later(0.05, may_end.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_an_error_ends_all_workers() -> None:
    ended: list[bool] = []

    async def work(left: deque[int]) -> None:
        if left.popleft() == 1:
            raise ValueError("the second")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with pytest.raises(ValueError, match="the second"):
        await work_on(range(3), 3, work)
    assert ended == [True, True]
