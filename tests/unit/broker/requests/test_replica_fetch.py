"""The leader's side of replication."""

import asyncio
from itertools import count

import pytest

from tidelog.errors import ErrorCode
from tidelog.model import EpochEnd
from tidelog_broker.core.fetch_messages import (
    ReplicaFetchEntry,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    ReplicaFetchResult,
)
from tidelog_broker.core.partition.exchange import FetchPosition
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.producer_state import ProducerStates
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.replication.move_throttle import MoveThrottle
from tidelog_broker.requests.fetch_wait import PRODUCER_BYTES
from tidelog_broker.requests.replica_fetch import ReplicaFetch
from unit.broker.broker_parts import Replicas, append, position, until_idle
from unit.broker.fake_log import TOPIC_ID, epoch_of, sent_by, state


def ask_for(
    partition: Partition, offset: int, *, epoch: int | None = None, max_bytes: int = 1 << 20
) -> ReplicaFetchEntry:
    key = ReplicaKey(partition.topic_id, partition.name.partition)
    return ReplicaFetchEntry(key, position(partition, offset, epoch), max_bytes)


_numbers = count(1)


def request(
    *entries: ReplicaFetchEntry,
    follower: int = 2,
    follower_epoch: int | None = None,
    leader_epoch: int = epoch_of(1),
    max_bytes: int = 1 << 20,
    min_bytes: int = 1,
) -> ReplicaFetchRequest:
    return ReplicaFetchRequest(
        broker_id=follower,
        broker_epoch=follower_epoch or epoch_of(follower),
        leader_broker_epoch=leader_epoch,
        max_wait_ms=500,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        entries=entries,
        session_sequence=next(_numbers),
    )


class Leader:
    def __init__(self) -> None:
        self.replicas = Replicas()
        self.replica_fetch = ReplicaFetch(
            self.replicas.manager,
            self.replicas.purgatory,
            self.replicas.clock,
            MoveThrottle(1, self.replicas.cache, self.replicas.clock, lambda: None),
            self.replicas.cold_reads,
        )

    def asked(self, request: ReplicaFetchRequest) -> asyncio.Task[ReplicaFetchResponse]:
        return asyncio.create_task(self.replica_fetch.handle(request))

    async def one(self, request: ReplicaFetchRequest) -> ReplicaFetchResult:
        response = await self.replica_fetch.handle(request)
        assert response.error is None
        (result,) = response.results
        return result

    @property
    def now_ms(self) -> int:
        return self.replicas.clock.monotonic_ms()


def offsets(result: ReplicaFetchResult) -> list[int]:
    assert result.answer is not None
    return [batch.header.base_offset for batch in result.answer.batches]


def code_of(result: ReplicaFetchResult) -> ErrorCode:
    assert result.error is not None
    return result.error.code


async def test_a_follower_gets_uncommitted_records() -> None:
    leader = Leader()
    partition = await leader.replicas.lead()
    append(partition)
    result = await leader.one(request(ask_for(partition, 0)))
    assert result.answer is not None
    assert (offsets(result), result.answer.high_watermark) == ([0], 0)


async def test_growth_wakes_a_follower_that_waits() -> None:
    leader = Leader()
    partition = await leader.replicas.lead()
    asked = leader.asked(request(ask_for(partition, 0)))
    await until_idle()
    append(partition)
    (result,) = (await asked).results
    assert offsets(result) == [0]
    assert leader.now_ms == 0


async def test_a_follower_is_answered_at_its_deadline() -> None:
    leader = Leader()
    partition = await leader.replicas.lead()
    result = await leader.one(request(ask_for(partition, 0)))
    assert offsets(result) == []
    assert leader.now_ms == 500


async def test_a_follower_waits_for_min_bytes_too() -> None:
    leader = Leader()
    partition = await leader.replicas.lead()
    append(partition, b"12345")
    asked = leader.asked(request(ask_for(partition, 0), min_bytes=10))
    await until_idle()
    assert not asked.done()
    append(partition, b"67890")
    (result,) = (await asked).results
    assert offsets(result) == [0, 1]


async def test_a_fetch_commits_everything_below_its_offset_before_it_waits() -> None:
    leader = Leader()
    partition = await leader.replicas.lead(new_state=state(isr=(1, 2)))
    append(partition)
    asked = leader.asked(request(ask_for(partition, 1)))
    await until_idle()
    assert partition.high_watermark == 1
    assert not asked.done()
    asked.cancel()


async def test_a_divergence_is_answered_without_waiting() -> None:
    leader = Leader()
    partition = await leader.replicas.lead()
    append(partition)
    longer_of_old = FetchPosition(1, 5, 9, 4, 0, 0)
    result = await leader.one(
        request(ReplicaFetchEntry(ReplicaKey(TOPIC_ID, 0), longer_of_old, 1000))
    )
    assert result.answer is not None
    assert result.answer.diverging == EpochEnd(-1, 0)
    assert offsets(result) == []
    assert leader.now_ms == 0


async def test_data_of_other_partitions_is_answered_with_a_divergence() -> None:
    leader = Leader()
    parting, agreeing = await leader.replicas.take(numbers=(0, 1))
    append(agreeing)
    result, other = (
        await leader.replica_fetch.handle(
            request(
                ReplicaFetchEntry(ReplicaKey(TOPIC_ID, 0), FetchPosition(1, 5, 9, 4, 0, 0), 1000),
                ask_for(agreeing, 0),
            )
        )
    ).results
    assert result.answer is not None
    assert result.answer.diverging is not None
    assert offsets(other) == [0]
    assert parting.high_watermark == 0


async def test_a_fetch_for_a_previous_incarnation_of_the_leader_is_rejected() -> None:
    leader = Leader()
    partition = await leader.replicas.lead()
    response = await leader.replica_fetch.handle(
        request(ask_for(partition, 0), leader_epoch=epoch_of(1) - 1)
    )
    assert response.error is not None
    assert response.error.code is ErrorCode.STALE_BROKER_EPOCH
    assert response.results == ()


async def test_a_follower_of_an_older_epoch_is_fenced_at_once() -> None:
    leader = Leader()
    partition = await leader.replicas.lead()
    result = await leader.one(request(ask_for(partition, 0, epoch=4)))
    assert code_of(result) is ErrorCode.FENCED_LEADER_EPOCH
    assert leader.now_ms == 0


async def test_a_waiting_follower_is_fenced_by_its_answer_when_the_epoch_ends() -> None:
    """The controller commands which leader to follow next."""
    leader = Leader()
    partition = await leader.replicas.lead()
    asked = leader.asked(request(ask_for(partition, 0)))
    await until_idle()
    await leader.replicas.take(state(epoch=6), revision=11)
    (result,) = (await asked).results
    assert code_of(result) is ErrorCode.FENCED_LEADER_EPOCH
    assert leader.now_ms == 500


async def test_a_waiting_fetch_is_answered_at_once_when_it_is_completed_early() -> None:
    leader = Leader()
    partition = await leader.replicas.lead()
    wanted = request(ask_for(partition, 0))
    asked = leader.asked(wanted)
    await until_idle()
    leader.replica_fetch.complete_early(wanted.name)
    (result,) = (await asked).results
    assert (offsets(result), leader.now_ms) == ([], 0)


async def test_hurrying_another_fetch_than_the_waiting_one_has_no_effect() -> None:
    leader = Leader()
    partition = await leader.replicas.lead()
    wanted = request(ask_for(partition, 0))
    asked = leader.asked(wanted)
    await until_idle()
    for other in (
        wanted._replace(session_sequence=wanted.session_sequence - 1),
        wanted._replace(session_id=7),
        wanted._replace(synced=True),
        wanted._replace(broker_epoch=epoch_of(2) - 1),
        wanted._replace(broker_id=3),
    ):
        leader.replica_fetch.complete_early(other.name)
    await asked
    assert leader.now_ms == 500


@pytest.mark.rule("recreated-topic-is-another-topic")
async def test_a_missing_replica_is_an_unknown_topic_id() -> None:
    leader = Leader()
    partition = await leader.replicas.lead()
    entry = ask_for(partition, 0)._replace(replica=ReplicaKey("another-id-another-id-", 0))
    assert code_of(await leader.one(request(entry))) is ErrorCode.UNKNOWN_TOPIC_ID


async def test_out_of_range_has_the_leaders_log_start() -> None:
    leader = Leader()
    partition = await leader.replicas.lead()
    empty_log_at_40 = FetchPosition(1, 5, 40, -1, 0, 0)
    result = await leader.one(
        request(ReplicaFetchEntry(ReplicaKey(TOPIC_ID, 0), empty_log_at_40, 1000))
    )
    assert code_of(result) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert result.log_start_offset == partition.log.log_start_offset == 0


async def test_a_log_start_that_moves_while_a_follower_waits_is_out_of_range() -> None:
    leader = Leader()
    partition, other = await leader.replicas.take(numbers=(0, 1))
    asked = leader.asked(request(ask_for(partition, 0), ask_for(other, 0)))
    await until_idle()
    partition.log.reset_to(5)
    append(other)
    results = {r.replica.partition: r for r in (await asked).results}
    assert code_of(results[0]) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert results[0].log_start_offset == 5
    assert offsets(results[1]) == [0]


@pytest.mark.rule("one-fetch-for-all-partitions")
async def test_a_busy_partition_does_not_starve_those_behind_it() -> None:
    leader = Leader()
    first, second = await leader.replicas.take(numbers=(0, 1))
    append(first, bytes(100))
    append(second, bytes(100))
    entries = (ask_for(first, 0), ask_for(second, 0))
    served = set()
    for _ in range(2):
        # Two followers that fetch by turns.
        for follower in (2, 3):
            response = await leader.replica_fetch.handle(
                request(*entries, follower=follower, max_bytes=100)
            )
            served |= {(follower, r.replica.partition) for r in response.results if offsets(r)}
    assert served == {(2, 0), (2, 1), (3, 0), (3, 1)}


async def test_a_cancelled_fetch_leaves_nothing_behind() -> None:
    leader = Leader()
    partition = await leader.replicas.lead()
    asked = leader.asked(request(ask_for(partition, 0)))
    await until_idle()
    asked.cancel()
    await asyncio.wait([asked])
    assert len(leader.replicas.purgatory) == 0


# -- followers that reset --------------------------------------------------------------------


async def reset_partitions(leader: Leader, count: int) -> list[ReplicaFetchEntry]:
    """Empty partitions that begin at 7, each with one producer below."""
    entries = []
    for number in range(count):
        partition = await leader.replicas.lead(number)
        states = ProducerStates()
        states.note(sent_by(5, 0).header)
        partition.log.reset_to(7)
        partition.log.producers.adopt_below_start(states)
        entry = ask_for(partition, 7)
        asked = entry.position._replace(last_fetched_epoch=-1, needs_producers=True)
        entries.append(entry._replace(position=asked))
    return entries


async def test_producers_below_the_log_start_are_sent_at_once() -> None:
    leader = Leader()
    result = await leader.one(request(*await reset_partitions(leader, 1)))
    assert result.answer is not None
    assert result.answer.producers is not None
    assert (len(result.answer.producers), leader.now_ms) == (1, 0)


async def test_an_answer_carries_no_more_producers_than_fit() -> None:
    """An answer larger than a message may be would be requested again forever."""
    leader = Leader()
    entries = await reset_partitions(leader, 5)
    counts = []
    while entries:
        response = await leader.replica_fetch.handle(
            request(*entries, max_bytes=2 * PRODUCER_BYTES)
        )
        answered = {result.replica for result in response.results}
        entries = [entry for entry in entries if entry.replica not in answered]
        counts.append(len(answered))
    assert counts == [2, 2, 1]
