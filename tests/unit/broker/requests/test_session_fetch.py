"""Fetch sessions as the leader serves them: what counts and what is answered of partitions
that a request leaves out (rule `fetch-session-bound-to-incarnations`)."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tidelog.errors import ErrorCode
from tidelog.model import NO_OFFSET
from tidelog_broker.partition.isr import FollowerProgress, is_lagging
from tidelog_broker.partition.partition import Partition
from tidelog_broker.partition.replica_key import ReplicaKey
from tidelog_broker.replication.move_throttle import MoveThrottle
from tidelog_broker.replication.transport import (
    NO_SESSION,
    DivergedRange,
    ReplicaFetchEntry,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    ReportedDigest,
)
from tidelog_broker.requests.replica_fetch import ReplicaFetch
from unit.broker.broker_parts import Replicas, append, position, settled
from unit.broker.fake_log import epoch_of, state

LAG_TIME_MAX_MS = 1000


def key_of(partition: Partition) -> ReplicaKey:
    return ReplicaKey(partition.topic_id, partition.name.partition)


def named(response: ReplicaFetchResponse) -> list[int]:
    return sorted(result.replica.partition for result in response.results)


class Follower:
    """Broker 2 as one leader sees it."""

    def __init__(self, broker_id: int = 2) -> None:
        self.replicas = Replicas()
        self.fetch = ReplicaFetch(
            self.replicas.manager,
            self.replicas.purgatory,
            self.replicas.clock,
            MoveThrottle(1, self.replicas.cache, self.replicas.clock, lambda: None),
            self.replicas.cold_reads,
            self._compare,
        )
        self.broker_id = broker_id
        # Up to where each partition's log agrees, as the last comparison was given it.
        self.agreed: dict[int, int] = {}
        self.broker_epoch = epoch_of(broker_id)
        self.session_id = NO_SESSION
        self.sequence = 0
        self.sessions = 0

    def _compare(
        self,
        follower: int,
        reported: Sequence[ReportedDigest],
        agreed_offset: Callable[[ReplicaKey], int],
    ) -> Sequence[DivergedRange]:
        assert follower == self.broker_id
        assert reported == ()
        partitions = self.replicas.manager.all()
        self.agreed = {p.name.partition: agreed_offset(p.key) for p in partitions}
        return ()

    async def ask(
        self,
        *told: tuple[Partition, int],
        epoch: int | None = None,
        forgotten: Sequence[Partition] = (),
        wait_ms: int = 0,
    ) -> ReplicaFetchResponse:
        """Partitions and how far the follower is there."""
        response = await self.fetch(self.next_request(told, epoch, forgotten, wait_ms))
        assert response.error is None
        self.session_id = response.session_id
        return response

    def next_request(
        self,
        told: Sequence[tuple[Partition, int]],
        epoch: int | None = None,
        forgotten: Sequence[Partition] = (),
        wait_ms: int = 0,
    ) -> ReplicaFetchRequest:
        if self.session_id == NO_SESSION:
            self.sessions += 1
            self.sequence = 0
        else:
            self.sequence += 1
        return ReplicaFetchRequest(
            broker_id=self.broker_id,
            broker_epoch=self.broker_epoch,
            leader_broker_epoch=epoch_of(1),
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            entries=[
                ReplicaFetchEntry(key_of(p), position(p, offset, epoch), 1 << 20)
                for p, offset in told
            ],
            session_id=self.session_id,
            session_sequence=self.sequence or self.sessions,
            forgotten=[key_of(p) for p in forgotten],
        )

    def progress(self, partition: Partition) -> FollowerProgress:
        """As it is judged."""
        assert partition.leading is not None
        partition.propose_isr({}, now_ms=self.now_ms, lag_time_max_ms=LAG_TIME_MAX_MS)
        partition.leading.proposed = None
        return partition.leading.followers[self.broker_id]

    def lags(self, partition: Partition) -> bool:
        progress = self.progress(partition)
        return is_lagging(progress, now_ms=self.now_ms, lag_time_max_ms=LAG_TIME_MAX_MS)

    @property
    def now_ms(self) -> int:
        return self.replicas.clock.monotonic_ms()


async def idle(follower: Follower, milliseconds: int) -> None:
    """Requests that name nothing, twice a second."""
    for _ in range(milliseconds // 500):
        await follower.ask(wait_ms=500)


# -- what is compared --------------------------------------------------------------------


async def test_digests_are_compared_up_to_where_the_logs_agree() -> None:
    follower = Follower()
    one, other, unnamed = await follower.replicas.take(numbers=(0, 1, 2))
    for partition in (one, other, unnamed):
        append(partition, b"first", b"second")
    await follower.ask((one, 2), (other, 1))
    assert follower.agreed == {0: 2, 1: 1, 2: NO_OFFSET}
    await follower.ask((other, 2))
    assert follower.agreed == {0: 2, 1: 2, 2: NO_OFFSET}


async def test_digests_of_a_log_that_parts_from_the_leaders_are_not_compared() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    append(partition, b"first", b"second")
    beyond = position(partition, 9)._replace(last_fetched_epoch=4)
    request = follower.next_request([(partition, 2)])
    entry = request.entries[0]._replace(position=beyond)
    await follower.fetch(request._replace(entries=[entry]))
    assert follower.agreed == {0: NO_OFFSET}


async def test_digests_are_not_compared_in_an_epoch_that_the_follower_does_not_know() -> None:
    """What it has told in the epoch before says nothing of the leader's log now."""
    follower = Follower()
    (partition,) = await follower.replicas.take()
    append(partition, b"first", b"second")
    await follower.ask((partition, 2))
    await follower.replicas.take(state(epoch=6), revision=20)
    await follower.ask()
    assert follower.agreed == {0: NO_OFFSET}


# -- what is answered --------------------------------------------------------------------


async def test_a_partition_without_news_is_left_out_of_the_answer() -> None:
    follower = Follower()
    busy, quiet = await follower.replicas.take(numbers=(0, 1))
    append(busy)
    assert named(await follower.ask((busy, 0), (quiet, 0))) == [0, 1]
    append(busy)
    assert named(await follower.ask((busy, 1))) == [0]


async def test_an_idle_session_is_answered_with_nothing() -> None:
    follower = Follower()
    partitions = await follower.replicas.take(numbers=(0, 1, 2))
    await follower.ask(*((p, 0) for p in partitions))
    response = await follower.ask(wait_ms=500)
    assert (named(response), response.session_id) == ([], follower.session_id)
    assert follower.session_id != NO_SESSION


async def test_growth_of_a_partition_that_was_left_out_wakes_the_request() -> None:
    follower = Follower()
    one, other = await follower.replicas.take(numbers=(0, 1))
    await follower.ask((one, 0), (other, 0))
    asked = asyncio.create_task(follower.ask(wait_ms=500))
    await settled()
    append(other)
    assert named(await asked) == [1]
    assert follower.now_ms == 0


async def test_a_moved_high_watermark_is_told_of_a_partition_that_was_left_out() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take(state(isr=(1, 2, 3)))
    append(partition)
    await follower.ask((partition, 1))
    partition.replica_fetch(3, epoch_of(3), position(partition, 1), 1)
    (result,) = (await follower.ask()).results
    assert result.answer is not None
    assert result.answer.high_watermark == 1
    assert (await follower.ask()).results == []


async def test_batches_that_were_not_taken_are_sent_again() -> None:
    """A request that leaves a partition out says that it stands where it was."""
    follower = Follower()
    (partition,) = await follower.replicas.take()
    append(partition)
    await follower.ask((partition, 0))
    (result,) = (await follower.ask()).results
    assert result.answer is not None
    assert [batch.header.base_offset for batch in result.answer.batches] == [0]


async def test_a_high_watermark_is_told_again_to_a_follower_that_names_the_partition() -> None:
    """The one that it was told may have come when its disk was behind, or its epoch over."""
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    assert named(await follower.ask((partition, 0))) == [0]


async def test_a_forgotten_partition_is_not_answered() -> None:
    follower = Follower()
    kept, gone = await follower.replicas.take(numbers=(0, 1))
    await follower.ask((kept, 0), (gone, 0))
    await follower.ask(forgotten=[gone])
    append(kept)
    append(gone)
    assert named(await follower.ask()) == [0]


async def test_a_partition_that_was_left_out_is_answered_when_its_epoch_is_over() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    asked = asyncio.create_task(follower.ask(wait_ms=500))
    await settled()
    await follower.replicas.take(state(epoch=6), revision=11)
    (result,) = (await asked).results
    assert result.error is not None
    assert result.error.code is ErrorCode.FENCED_LEADER_EPOCH
    assert follower.now_ms == 500


async def test_a_request_of_a_session_is_hurried_and_the_next_waits_again() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    wanted = follower.next_request((), wait_ms=500)
    asked = asyncio.create_task(follower.fetch(wanted))
    await settled()
    follower.fetch.hurry(wanted.name)
    assert ((await asked).session_id, follower.now_ms) == (follower.session_id, 0)
    follower.fetch.hurry(wanted.name)
    await follower.ask(wait_ms=500)
    assert follower.now_ms == 500


async def test_it_is_answered_also_when_no_request_waited_just_then() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    await follower.replicas.take(state(leader=3, epoch=6), revision=11)
    (result,) = (await follower.ask(wait_ms=500)).results
    assert result.error is not None
    assert result.error.code is ErrorCode.NOT_LEADER
    assert follower.now_ms == 0


async def test_what_was_answered_with_an_error_leaves_the_session() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    await follower.replicas.take(state(epoch=6), revision=11)
    await follower.ask()
    assert named(await follower.ask()) == []
    assert named(await follower.ask((partition, 0))) == [0]


# -- what counts -------------------------------------------------------------------------


async def test_partitions_at_the_leaders_end_are_caught_up_as_long_as_the_session_asks() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    append(partition)
    await follower.ask((partition, 1))
    await idle(follower, 5 * LAG_TIME_MAX_MS)
    assert not follower.lags(partition)


async def test_they_lag_when_the_session_asks_no_more() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    await idle(follower, 5 * LAG_TIME_MAX_MS)
    await asyncio.sleep(LAG_TIME_MAX_MS / 1000 + 0.6)
    assert follower.lags(partition)


async def test_a_partition_that_was_left_out_behind_the_leaders_end_lags() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    append(partition)
    await follower.ask((partition, 0))
    await idle(follower, 2 * LAG_TIME_MAX_MS)
    for _ in range(6):
        await follower.ask()
        await asyncio.sleep(0.5)
    assert follower.lags(partition)


async def test_an_append_after_a_long_silence_does_not_make_a_follower_lag() -> None:
    """It was caught up until then, by every request that left the partition out."""
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    await idle(follower, 5 * LAG_TIME_MAX_MS)
    append(partition)
    assert not follower.lags(partition)


async def test_from_that_append_on_it_has_the_lag_time_and_no_more() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    await idle(follower, 5 * LAG_TIME_MAX_MS)
    append(partition)
    for _ in range(4):
        await follower.ask()
        await asyncio.sleep(0.5)
    assert follower.lags(partition)


@pytest.mark.rule("fetch-session-bound-to-incarnations")
async def test_a_partition_that_was_left_out_does_not_count_in_a_new_epoch() -> None:
    """Rule `fetch-session-bound-to-incarnations`: it was recorded at the leader's end, in the epoch
    before."""
    follower = Follower()
    one, other = await follower.replicas.take(numbers=(0, 1))
    append(one)
    await follower.ask((one, 1), (other, 0))
    await follower.replicas.take(state(epoch=6), revision=11, numbers=(0,))
    await follower.ask()
    await idle(follower, 2 * LAG_TIME_MAX_MS)
    assert follower.progress(one).log_end_offset == -1
    assert follower.lags(one)
    assert not follower.lags(other)


async def test_a_position_in_an_epoch_that_the_leader_does_not_know_ends_the_one_before() -> None:
    """It was at the leader's end; now it says something else, which does not count."""
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    (result,) = (await follower.ask((partition, 0), epoch=6)).results
    assert result.error is not None
    assert result.error.code is ErrorCode.UNKNOWN_LEADER_EPOCH
    await idle(follower, 2 * LAG_TIME_MAX_MS)
    assert follower.lags(partition)


async def test_such_a_position_says_nothing_of_the_moment_in_which_it_is_told() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    await follower.ask()
    left_out_last_ms = follower.now_ms
    await asyncio.sleep(0.3)
    await follower.ask((partition, 0), epoch=6)
    assert follower.progress(partition).last_caught_up_ms == left_out_last_ms


async def test_a_forgotten_partition_is_not_caught_up_by_its_former_session() -> None:
    follower = Follower()
    kept, gone = await follower.replicas.take(numbers=(0, 1))
    await follower.ask((kept, 0), (gone, 0))
    await follower.ask(forgotten=[gone])
    await idle(follower, 2 * LAG_TIME_MAX_MS)
    assert (follower.lags(kept), follower.lags(gone)) == (False, True)


async def test_another_durability_counts_what_was_told_anew() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    append(partition)
    await follower.ask((partition, 1))
    partition.set_synced(True)
    assert follower.progress(partition).log_end_offset == -1
    await follower.ask()
    assert follower.progress(partition).log_end_offset == 0  # of which nothing is on disk


async def test_another_durability_after_a_long_silence_does_not_make_a_follower_lag() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    await idle(follower, 5 * LAG_TIME_MAX_MS)
    partition.set_synced(True)
    assert not follower.lags(partition)


async def test_a_follower_outside_the_isr_is_judged_with_every_request() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take(state(isr=(1, 3)))
    await follower.ask((partition, 0))
    await idle(follower, 1000)
    to_judge = follower.replicas.listener.to_judge
    to_judge.clear()
    await follower.ask()
    assert to_judge == [partition]


# -- requests and answers that go astray -------------------------------------------------


async def test_a_request_that_comes_twice_counts_once_and_disturbs_nothing() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    again = follower.next_request(())
    first = await follower.fetch(again)
    assert (await follower.fetch(again)).session_id == NO_SESSION
    assert first.session_id == follower.session_id
    append(partition)
    assert named(await follower.ask()) == [0]


async def test_a_late_request_of_a_former_session_does_not_move_what_is_told() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    append(partition)
    late_opening = follower.next_request([(partition, 0)])
    await follower.ask((partition, 1))
    response = await follower.fetch(late_opening)
    assert (response.session_id, response.results) == (NO_SESSION, ())
    assert follower.progress(partition).log_end_offset == 1
    assert (await follower.ask()).session_id == follower.session_id


async def test_a_lost_request_ends_the_session() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    follower.next_request(())  # never arrives
    assert (await follower.ask()).session_id == NO_SESSION


async def test_a_request_that_is_given_up_ends_its_session() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    asked = asyncio.create_task(follower.fetch(follower.next_request((), wait_ms=500)))
    await settled()
    asked.cancel()
    await asyncio.wait([asked])
    assert len(follower.replicas.purgatory) == 0
    assert (await follower.ask()).session_id == NO_SESSION


async def test_a_newer_session_ends_the_wait_of_the_one_before() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    waiting = asyncio.create_task(follower.fetch(follower.next_request((), wait_ms=500)))
    await settled()
    follower.session_id = NO_SESSION
    await follower.ask((partition, 0))
    assert (await waiting).session_id == NO_SESSION
    assert follower.now_ms == 0


async def test_a_topic_that_was_created_again_under_its_name_wakes_the_session() -> None:
    """Also while the partition of the former topic has not left it yet."""
    follower = Follower()
    (former,) = await follower.replicas.take()
    await follower.ask((former, 0))
    again = replace(state(epoch=6), topic_id="created-again-00000001")
    (present,) = await follower.replicas.take(again, revision=12)
    await follower.ask((present, 0))
    asked = asyncio.create_task(follower.ask(wait_ms=500))
    await settled()
    append(present)
    (result,) = (await asked).results
    assert result.replica == key_of(present)
