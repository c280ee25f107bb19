import asyncio

from tidelog_runtime.shared_turns import SharedTurns


async def test_steps_run_in_order_and_up_to_the_work_of_a_turn() -> None:
    turns, done = SharedTurns(3), list[int]()

    def step(number: int) -> int:
        done.append(number)
        return 1

    for number in range(8):
        turns.do(lambda number=number: step(number))  # type: ignore[misc]
    assert done == [0, 1, 2]
    await asyncio.sleep(0)
    assert done == [0, 1, 2, 3, 4, 5]
    await asyncio.sleep(0)
    assert done == list(range(8))


async def test_work_beyond_a_turn_leaves_less_room_in_the_next_ones() -> None:
    turns, done = SharedTurns(2), list[str]()
    turns.do(lambda: 7)
    turns.do(lambda: done.append("later") or 1)  # type: ignore[func-returns-value]
    for _ in range(2):
        await asyncio.sleep(0)
        assert not done
    await asyncio.sleep(0)
    assert done == ["later"]


async def test_a_step_that_asks_for_another_one_does_not_run_it_inside() -> None:
    turns, done = SharedTurns(10), list[str]()

    def first() -> int:
        turns.do(second)
        done.append("first")
        return 1

    def second() -> int:
        done.append("second")
        return 1

    turns.do(first)
    assert done == ["first", "second"]


async def test_with_room_taking_it_does_not_wait() -> None:
    turns = SharedTurns(2)
    before = asyncio.create_task(asyncio.sleep(0))
    await turns.take(1)
    await turns.take(1)
    assert not before.done()
    await turns.take(1)
    assert before.done()


async def test_a_cancelled_request_takes_no_room() -> None:
    turns = SharedTurns(1)
    await turns.take(1)
    cancelled, kept = (asyncio.create_task(turns.take(1)) for _ in range(2))
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait_for(kept, 1)
    assert len(turns) == 0
