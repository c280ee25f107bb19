"""Moves are throttled at both ends, and nothing else is slowed down."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count

import pytest

from tidelog_broker.core.fetch_messages import (
    ReplicaFetchEntry,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
)
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.token_bucket import BURST_MS, CHUNK_MS
from tidelog_broker.membership.metadata_cache import VersionedState
from tidelog_broker.replication.move_throttle import MAX_THROTTLE_PAUSE_MS, MoveThrottle
from tidelog_broker.requests.replica_fetch import ReplicaFetch
from tidelog_runtime.metadata.schema import LeaderAndIsr, Moving
from unit.broker.broker_parts import Replicas, append, position, until_idle
from unit.broker.fake_log import epoch_of, state
from unit.broker.scripted_leader import ME, Follower, following, log_of
from unit.metadata.virtual_time import virtual_clock

RATE = 10_000
CHUNK = RATE * CHUNK_MS // 1_000
# Broker 2 is added, led by broker 1.
TO_2 = Moving("op", (1, 3), (1, 2))


def adding(isr: tuple[int, ...] = (1, 3)) -> LeaderAndIsr:
    return replace(state(isr=isr), replicas=TO_2.replicas, moving=TO_2)


# -- the leader ---------------------------------------------------------------------------


class Leader:
    """Partition 0 is being moved to broker 2, partition 1 is not."""

    def __init__(self, rate: int | None = RATE) -> None:
        self.rate = rate
        self.replicas = Replicas()
        clock = self.replicas.clock
        self.throttle = MoveThrottle(1, self.replicas.cache, clock, lambda: self.rate)
        self.fetch = ReplicaFetch(
            self.replicas.manager,
            self.replicas.purgatory,
            clock,
            self.throttle,
            self.replicas.cold_reads,
        )
        self._numbers = count(1)

    async def leads(self, isr: tuple[int, ...] = (1, 3)) -> tuple[Partition, Partition]:
        moved = await self.replicas.lead(0, adding(isr))
        other = await self.replicas.lead(1)
        # The bucket fills from here on.
        self.throttle.sendable_bytes(moved, ME)
        return moved, other

    async def ask(
        self, *positions: tuple[Partition, int], follower: int = ME, wait_ms: int = 500
    ) -> ReplicaFetchResponse:
        return await self.fetch.handle(
            ReplicaFetchRequest(
                broker_id=follower,
                broker_epoch=epoch_of(follower),
                leader_broker_epoch=epoch_of(1),
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=1 << 20,
                entries=[
                    ReplicaFetchEntry(partition.key, position(partition, offset), 1 << 20)
                    for partition, offset in positions
                ],
                session_sequence=next(self._numbers),
            )
        )

    @property
    def now_ms(self) -> int:
        return self.replicas.clock.monotonic_ms()


def sizes(response: ReplicaFetchResponse) -> dict[int, int]:
    return {
        result.replica.partition: sum(len(batch.records) for batch in result.answer.batches)
        for result in response.results
        if result.answer is not None
    }


@pytest.mark.rule("moves-throttled-at-both-ends")
async def test_a_leader_sends_no_more_to_added_replicas_than_the_throttle_allows() -> None:
    leader = Leader()
    moved, _ = await leader.leads()
    for _ in range(100):
        append(moved, b"x" * CHUNK)
    sent = 0
    while leader.now_ms < 3_000:
        sent += sum(sizes(await leader.ask((moved, sent // CHUNK))).values())
    assert RATE * 2 <= sent <= RATE * 3 + CHUNK


async def test_a_throttled_fetch_waits_for_tokens_and_not_for_the_deadline() -> None:
    leader = Leader()
    moved, _ = await leader.leads()
    append(moved, b"x")
    assert sizes(await leader.ask((moved, 0))) == {0: 1}
    assert leader.now_ms == CHUNK_MS


async def test_other_partitions_of_the_same_fetch_do_not_wait_for_the_throttle() -> None:
    leader = Leader()
    moved, other = await leader.leads()
    append(moved, b"x")
    append(other, b"yz")
    assert sizes(await leader.ask((moved, 0), (other, 0))) == {1: 2}
    assert leader.now_ms == 0


async def test_a_throttled_partition_does_not_hold_up_growth_of_another() -> None:
    leader = Leader(rate=1_024)
    moved, other = await leader.leads()
    append(moved, b"x" * 4_096)
    leader.throttle.sent(moved, ME, 10_000)
    received = asyncio.create_task(leader.ask((moved, 0), (other, 0)))
    await asyncio.sleep(0.2)
    append(other, b"y")
    assert sizes(await received) == {1: 1}
    assert leader.now_ms == 200


@pytest.mark.rule("moves-throttled-at-both-ends")
async def test_a_replica_in_the_isr_is_not_throttled() -> None:
    leader = Leader()
    moved, _ = await leader.leads(isr=(1, 2, 3))
    append(moved, b"x")
    leader.throttle.sent(moved, 3, 1 << 20)
    assert sizes(await leader.ask((moved, 0))) == {0: 1}
    assert leader.now_ms == 0


async def test_only_bytes_sent_to_added_replicas_are_counted() -> None:
    leader = Leader()
    moved, other = await leader.leads()
    for size in (100, 20):
        leader.throttle.sent(moved, ME, size)
    leader.throttle.sent(other, ME, 7)
    assert leader.throttle.sent_bytes == {ME: 120}


async def test_a_replica_that_no_move_adds_is_not_throttled() -> None:
    leader = Leader()
    moved, _ = await leader.leads()
    append(moved, b"x")
    assert sizes(await leader.ask((moved, 0), follower=3)) == {0: 1}
    assert leader.now_ms == 0


async def test_a_replica_proposed_for_the_isr_is_not_throttled_any_more() -> None:
    """The high watermark waits for it from then on."""
    leader = Leader()
    moved, _ = await leader.leads()
    await leader.ask((moved, 0), wait_ms=0)
    assert moved.is_added_out_of_sync(ME)
    running = {b: epoch_of(b) for b in (1, 2, 3)}
    assert moved.propose_isr(running, now_ms=leader.now_ms, lag_time_max_ms=10_000) is not None
    assert not moved.is_added_out_of_sync(ME)


async def test_without_a_throttle_nothing_waits() -> None:
    leader = Leader(rate=None)
    moved, _ = await leader.leads()
    append(moved, b"x" * 10 * RATE)
    assert sizes(await leader.ask((moved, 0))) == {0: 10 * RATE}
    assert leader.now_ms == 0


async def test_a_lifted_throttle_releases_waiting_fetches_at_the_next_check() -> None:
    leader = Leader(rate=1_024)
    moved, _ = await leader.leads()
    append(moved, b"x")
    leader.throttle.sent(moved, ME, 1 << 20)
    assert sizes(await leader.ask((moved, 0))) == {}
    leader.rate = None
    assert sizes(await leader.ask((moved, 0))) == {0: 1}


# -- the follower -------------------------------------------------------------------------


@pytest.mark.rule("moves-throttled-at-both-ends")
async def test_a_follower_requests_no_more_than_it_may_receive() -> None:
    follower = Follower()
    follower.rate = RATE
    follower.follow(0, new_state=adding())
    async with following(follower):
        first = await follower.next(0)
        assert first.at >= CHUNK_MS / 1_000
        assert first.entry().max_bytes == CHUNK


async def test_received_bytes_are_paid_for_before_the_next_request() -> None:
    follower = Follower()
    follower.rate = RATE
    partition = follower.follow(0, new_state=adding())
    async with following(follower):
        first = await follower.next(0)
        first.answer(first.data(0, 1))
        second = await follower.next(1)
        received = sum(len(batch.records) for batch in log_of(partition).batches)
        assert second.at - first.at >= (received + CHUNK) / RATE - CHUNK_MS / 1_000 - 0.001


async def test_other_partitions_are_fetched_meanwhile() -> None:
    follower = Follower()
    follower.rate = 1_024
    follower.follow(0, new_state=adding())
    follower.follow(1)
    async with following(follower):
        first = await follower.next(0)
        assert (first.numbers, first.at) == ([1], 0.0)
        assert first.entry(1).max_bytes == 1024
        assert first.request.max_wait_ms == 500
        # It is hurried only once tokens are available again.
        await asyncio.sleep((CHUNK_MS - 1) / 1_000)
        assert first.completed_early == 0
        await asyncio.sleep(2 / 1_000)
        assert first.completed_early == 1


async def test_a_fetch_is_not_completed_early_for_tokens_that_another_fetch_used() -> None:
    follower = Follower()
    follower.rate = RATE
    taken_by_another = follower.follow(0, new_state=adding())
    follower.follow(1)
    async with following(follower):
        first = await follower.next(0)
        follower.moves.received(taken_by_another, RATE // 10)
        await asyncio.sleep((CHUNK_MS + 99) / 1_000)
        assert first.completed_early == 0
        await asyncio.sleep(2 / 1_000)
        assert first.completed_early == 1
        await asyncio.sleep(1)
        assert first.completed_early == 1


async def test_a_follower_in_the_isr_is_not_throttled_though_no_command_says_so() -> None:
    follower = Follower()
    follower.rate = 1_024
    partition = follower.follow(0, new_state=adding())
    follower.keys[partition.name] = VersionedState(adding(isr=(1, 2, 3)), 11)
    async with following(follower):
        first = await follower.next(0)
        assert (first.at, first.entry().max_bytes) == (0.0, 1024)


async def test_a_follower_that_joins_the_isr_is_fetched_for_again_soon() -> None:
    follower = Follower()
    follower.rate = 1_024
    partition = follower.follow(0, new_state=adding())
    follower.moves.received(partition, 1 << 20)
    async with following(follower):
        await asyncio.sleep(1)
        assert not follower.received
        joined_at = virtual_clock().time()
        follower.keys[partition.name] = VersionedState(adding(isr=(1, 2, 3)), 11)
        first = await follower.next(0)
        assert first.at - joined_at <= MAX_THROTTLE_PAUSE_MS / 1_000


async def test_a_lifted_throttle_is_noticed_soon() -> None:
    follower = Follower()
    follower.rate = 1_024
    partition = follower.follow(0, new_state=adding())
    follower.moves.received(partition, 1 << 20)
    async with following(follower):
        await asyncio.sleep(1)
        assert not follower.received
        follower.rate = None
        first = await follower.next(0)
        assert first.at <= 1 + MAX_THROTTLE_PAUSE_MS / 1_000


async def test_several_added_replicas_share_the_receive_throttle() -> None:
    follower = Follower()
    follower.rate = RATE
    follower.follow(0, new_state=adding())
    follower.follow(1, new_state=adding())
    async with following(follower):
        first = await follower.next(0)
        received = [first.entry(0).max_bytes, first.entry(1).max_bytes]
        assert sum(received) <= RATE * BURST_MS // 1_000 + 1


async def test_a_session_requests_nothing_of_a_move_while_it_is_throttled() -> None:
    follower = Follower()
    follower.rate = RATE
    partition = follower.follow(0, new_state=adding())
    follower.follow(1)
    async with following(follower):
        first = await follower.next(0)
        await asyncio.sleep((CHUNK_MS + 1) / 1_000)
        assert first.completed_early == 1
        first.answer(session_id=7)
        second = await follower.next(1)
        assert (first.numbers, second.numbers) == ([1], [0])
        follower.moves.received(partition, 1 << 20)
        second.answer(session_id=7)
        third = await follower.next(2)
        assert third.request.forgotten == [partition.key]


async def test_while_a_move_adds_a_replica_fetches_wait_long_and_their_data_is_taken() -> None:
    """Otherwise the copied data would have to be sent again."""
    follower = Follower()
    partition = follower.follow(0, new_state=adding())
    async with following(follower):
        first = await follower.next(0)
        follower.follow(1)
        await until_idle()
        first.answer(first.data(0))
        second = await follower.next(1)
    assert not first.given_up
    assert first.request.max_wait_ms == 500
    assert partition.log.log_end_offset == 1
    assert second.numbers == [0, 1]
