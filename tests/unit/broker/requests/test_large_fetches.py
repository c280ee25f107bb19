"""Fetches of very many partitions yield to other work, and nothing that happens in between is
lost.
"""

import asyncio

import pytest

from tidelog_broker.replication import fetch_sessions
from tidelog_broker.replication.transport import NO_SESSION
from tidelog_runtime.cooperative import ITEMS_PER_SLICE
from unit.broker.requests.test_session_fetch import Follower, named
from unit.loop_turns import Turns


async def test_a_request_of_very_many_partitions_yields() -> None:
    follower = Follower()
    partitions = await follower.replicas.take(numbers=range(3 * ITEMS_PER_SLICE))
    async with Turns() as turns:
        response = await follower.ask(*((partition, 0) for partition in partitions))
        # It yields when the partitions are recorded, and when they are answered.
        assert turns.taken() >= 4
    assert named(response) == list(range(3 * ITEMS_PER_SLICE))


async def test_a_new_session_is_recorded_after_the_previous_one_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_sessions, "DROPPED_AT_ONCE", 1)
    follower = Follower()
    partitions = await follower.replicas.take(numbers=(0, 1, 2))
    for _ in range(2):
        follower.session_id = NO_SESSION
        await follower.ask(*((partition, 0) for partition in partitions))
        watches = follower.replicas.purgatory._watches
        assert [len(watches[partition]) for partition in partitions] == [1, 1, 1]


async def test_a_session_that_ends_while_it_is_recorded_takes_no_more() -> None:
    follower = Follower()
    partitions = await follower.replicas.take(numbers=range(2 * ITEMS_PER_SLICE))
    positions = [(partition, 0) for partition in partitions]
    first = asyncio.create_task(follower.fetch(follower.next_request(positions)))
    await asyncio.sleep(0)
    assert len(follower.replicas.purgatory._watches) == ITEMS_PER_SLICE
    second = await follower.ask()
    assert (await first).session_id == NO_SESSION
    assert second.session_id != NO_SESSION
    assert follower.replicas.purgatory._watches == {}
