"""Virtual time, and processes that are paused and killed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

import pytest

from simulation.loop import LivelockError, SimLoop, SimProcess


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop()  # type: ignore[abstract]
    yield loop
    loop.close()


async def ticks(seen: list[float], loop: SimLoop) -> None:
    try:
        while True:
            await asyncio.sleep(1)
            seen.append(round(loop.time()))
    finally:
        seen.append(-1)


def test_sleeping_takes_virtual_time_alone(loop: SimLoop) -> None:
    loop.run(asyncio.sleep(3_600))
    assert 3_600 <= loop.time() < 3_601
    assert loop.steps < 10


def test_a_paused_process_goes_on_where_it_was(loop: SimLoop) -> None:
    seen: list[float] = []
    process = SimProcess("a", 1)

    async def main() -> None:
        loop.spawn(process, ticks(seen, loop))
        await asyncio.sleep(2.5)
        loop.pause(process)
        await asyncio.sleep(5)
        assert seen == [1, 2]
        loop.resume(process)
        await asyncio.sleep(1.2)

    loop.run(main())
    assert seen == [1, 2, 8, 9]


def test_a_killed_process_does_not_even_run_its_finally(loop: SimLoop) -> None:
    seen: list[float] = []
    process = SimProcess("a", 1)

    async def main() -> None:
        loop.spawn(process, ticks(seen, loop))
        await asyncio.sleep(1.5)
        loop.kill(process)
        await asyncio.sleep(5)

    loop.run(main())
    assert seen == [1]


def test_what_a_process_starts_belongs_to_it(loop: SimLoop) -> None:
    seen: list[float] = []
    process = SimProcess("a", 1)

    async def child() -> None:
        await asyncio.create_task(ticks(seen, loop))

    async def main() -> None:
        loop.spawn(process, child())
        await asyncio.sleep(1.5)
        loop.kill(process)
        await asyncio.sleep(5)

    loop.run(main())
    assert seen == [1]


def test_only_steps_of_observed_processes_are_looked_at(loop: SimLoop) -> None:
    looked: list[str] = []
    loop.after_step.append(lambda: looked.append(loop.stepped.host if loop.stepped else "-"))

    async def main() -> None:
        loop.spawn(SimProcess("seen", 1), asyncio.sleep(0))
        loop.spawn(SimProcess("unseen", 1, observed=False), asyncio.sleep(0))
        await asyncio.sleep(1)

    loop.run(main())
    assert set(looked) == {"seen"}


def test_an_endless_loop_is_found(loop: SimLoop) -> None:
    async def spin() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(LivelockError, match="callbacks within"):
        loop.run(spin())


def test_a_wait_that_nothing_will_end_is_found(loop: SimLoop) -> None:
    with pytest.raises(LivelockError, match="no timer will end it"):
        loop.run(asyncio.Event().wait())


def test_an_unhandled_exception_ends_the_run(loop: SimLoop) -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(1, lambda: 1 // 0)
        await asyncio.sleep(10)

    with pytest.raises(ZeroDivisionError):
        loop.run(main())


def test_sets_of_tasks_iterate_alike_in_every_loop() -> None:
    async def main() -> list[str]:
        tasks = [asyncio.create_task(asyncio.sleep(0), name=str(n)) for n in range(20)]
        await asyncio.sleep(1)
        return [task.get_name() for task in set(tasks)]

    orders = []
    for _ in range(3):
        loop = SimLoop()  # type: ignore[abstract]
        orders.append(loop.run(main()))
        loop.close()
    assert orders[0] == orders[1] == orders[2]
