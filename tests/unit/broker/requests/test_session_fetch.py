"""Fetch sessions at the leader: progress and answers of partitions that a request leaves out
(rule `fetch-session-bound-to-incarnations`).
"""

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
from unit.broker.broker_parts import Replicas, append, position, until_idle
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
        # The offset up to which each partition's log agrees, as given to the last comparison.
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
        *positions: tuple[Partition, int],
        epoch: int | None = None,
        forgotten: Sequence[Partition] = (),
        wait_ms: int = 0,
    ) -> ReplicaFetchResponse:
        """A request that names partitions and the follower's offsets there."""
        response = await self.fetch(self.next_request(positions, epoch, forgotten, wait_ms))
        assert response.error is None
        self.session_id = response.session_id
        return response

    def next_request(
        self,
        positions: Sequence[tuple[Partition, int]],
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
                for p, offset in positions
            ],
            session_id=self.session_id,
            session_sequence=self.sequence or self.sessions,
            forgotten=[key_of(p) for p in forgotten],
        )

    def progress(self, partition: Partition) -> FollowerProgress:
        """The progress that the ISR evaluation uses."""
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
    """Send requests that name nothing, twice a second."""
    for _ in range(milliseconds // 500):
        await follower.ask(wait_ms=500)


# -- comparisons -------------------------------------------------------------------------


async def test_digests_are_compared_up_to_where_the_logs_agree() -> None:
    follower = Follower()
    one, other, unnamed = await follower.replicas.take(numbers=(0, 1, 2))
    for partition in (one, other, unnamed):
        append(partition, b"first", b"second")
    await follower.ask((one, 2), (other, 1))
    assert follower.agreed == {0: 2, 1: 1, 2: NO_OFFSET}
    await follower.ask((other, 2))
    assert follower.agreed == {0: 2, 1: 2, 2: NO_OFFSET}


async def test_digests_of_a_diverged_log_are_not_compared() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    append(partition, b"first", b"second")
    beyond = position(partition, 9)._replace(last_fetched_epoch=4)
    request = follower.next_request([(partition, 2)])
    entry = request.entries[0]._replace(position=beyond)
    await follower.fetch(request._replace(entries=[entry]))
    assert follower.agreed == {0: NO_OFFSET}


async def test_digests_are_not_compared_in_an_epoch_that_the_follower_does_not_know() -> None:
    """Its reports of the previous epoch prove nothing about the leader's log now."""
    follower = Follower()
    (partition,) = await follower.replicas.take()
    append(partition, b"first", b"second")
    await follower.ask((partition, 2))
    await follower.replicas.take(state(epoch=6), revision=20)
    await follower.ask()
    assert follower.agreed == {0: NO_OFFSET}


# -- answers -----------------------------------------------------------------------------


async def test_a_partition_without_news_is_left_out_of_the_answer() -> None:
    follower = Follower()
    busy, quiet = await follower.replicas.take(numbers=(0, 1))
    append(busy)
    assert named(await follower.ask((busy, 0), (quiet, 0))) == [0, 1]
    append(busy)
    assert named(await follower.ask((busy, 1))) == [0]


async def test_an_idle_session_gets_an_empty_answer() -> None:
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
    await until_idle()
    append(other)
    assert named(await asked) == [1]
    assert follower.now_ms == 0


async def test_a_high_watermark_advance_of_a_left_out_partition_is_answered() -> None:
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
    """A request that leaves a partition out says that its position is unchanged."""
    follower = Follower()
    (partition,) = await follower.replicas.take()
    append(partition)
    await follower.ask((partition, 0))
    (result,) = (await follower.ask()).results
    assert result.answer is not None
    assert [batch.header.base_offset for batch in result.answer.batches] == [0]


async def test_a_high_watermark_is_sent_again_to_a_follower_that_names_the_partition() -> None:
    """The previous one may have arrived while its disk was behind or after its epoch."""
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
    await until_idle()
    await follower.replicas.take(state(epoch=6), revision=11)
    (result,) = (await asked).results
    assert result.error is not None
    assert result.error.code is ErrorCode.FENCED_LEADER_EPOCH
    assert follower.now_ms == 500


async def test_a_request_of_a_session_is_completed_early_and_the_next_waits_again() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    wanted = follower.next_request((), wait_ms=500)
    asked = asyncio.create_task(follower.fetch(wanted))
    await until_idle()
    follower.fetch.complete_early(wanted.name)
    assert ((await asked).session_id, follower.now_ms) == (follower.session_id, 0)
    follower.fetch.complete_early(wanted.name)
    await follower.ask(wait_ms=500)
    assert follower.now_ms == 500


async def test_a_hurry_is_answered_also_when_no_request_waits() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    await follower.replicas.take(state(leader=3, epoch=6), revision=11)
    (result,) = (await follower.ask(wait_ms=500)).results
    assert result.error is not None
    assert result.error.code is ErrorCode.NOT_LEADER
    assert follower.now_ms == 0


async def test_a_partition_answered_with_an_error_leaves_the_session() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    await follower.replicas.take(state(epoch=6), revision=11)
    await follower.ask()
    assert named(await follower.ask()) == []
    assert named(await follower.ask((partition, 0))) == [0]


# -- progress ----------------------------------------------------------------------------


async def test_partitions_at_the_leaders_end_are_caught_up_while_the_session_fetches() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    append(partition)
    await follower.ask((partition, 1))
    await idle(follower, 5 * LAG_TIME_MAX_MS)
    assert not follower.lags(partition)


async def test_partitions_lag_when_the_session_stops_fetching() -> None:
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
    """Until then it was caught up by every request that left the partition out."""
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    await idle(follower, 5 * LAG_TIME_MAX_MS)
    append(partition)
    assert not follower.lags(partition)


async def test_after_that_append_it_has_only_the_lag_time() -> None:
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
    """Rule `fetch-session-bound-to-incarnations`: its position was recorded at the leader's end,
    in the previous epoch."""
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


async def test_a_position_in_an_epoch_unknown_to_the_leader_ends_the_previous_one() -> None:
    """The partition was at the leader's end; the new position does not count."""
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    (result,) = (await follower.ask((partition, 0), epoch=6)).results
    assert result.error is not None
    assert result.error.code is ErrorCode.UNKNOWN_LEADER_EPOCH
    await idle(follower, 2 * LAG_TIME_MAX_MS)
    assert follower.lags(partition)


async def test_a_position_in_an_unknown_epoch_does_not_count_as_caught_up() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    await follower.ask()
    left_out_last_ms = follower.now_ms
    await asyncio.sleep(0.3)
    await follower.ask((partition, 0), epoch=6)
    assert follower.progress(partition).last_caught_up_ms == left_out_last_ms


async def test_a_forgotten_partition_is_not_caught_up_by_its_previous_session() -> None:
    follower = Follower()
    kept, gone = await follower.replicas.take(numbers=(0, 1))
    await follower.ask((kept, 0), (gone, 0))
    await follower.ask(forgotten=[gone])
    await idle(follower, 2 * LAG_TIME_MAX_MS)
    assert (follower.lags(kept), follower.lags(gone)) == (False, True)


async def test_a_changed_durability_reevaluates_the_reported_progress() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    append(partition)
    await follower.ask((partition, 1))
    partition.set_synced(True)
    assert follower.progress(partition).log_end_offset == -1
    await follower.ask()
    assert follower.progress(partition).log_end_offset == 0  # nothing of it is on disk


async def test_a_changed_durability_after_a_long_silence_does_not_make_a_follower_lag() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    await idle(follower, 5 * LAG_TIME_MAX_MS)
    partition.set_synced(True)
    assert not follower.lags(partition)


async def test_a_follower_outside_the_isr_is_evaluated_at_every_request() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take(state(isr=(1, 3)))
    await follower.ask((partition, 0))
    await idle(follower, 1000)
    to_judge = follower.replicas.listener.to_evaluate
    to_judge.clear()
    await follower.ask()
    assert to_judge == [partition]


# -- requests and answers that are lost, late or repeated --------------------------------


async def test_a_repeated_request_counts_once_and_has_no_other_effect() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    again = follower.next_request(())
    first = await follower.fetch(again)
    assert (await follower.fetch(again)).session_id == NO_SESSION
    assert first.session_id == follower.session_id
    append(partition)
    assert named(await follower.ask()) == [0]


async def test_a_late_request_of_a_previous_session_does_not_change_progress() -> None:
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


async def test_a_cancelled_request_ends_its_session() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    asked = asyncio.create_task(follower.fetch(follower.next_request((), wait_ms=500)))
    await until_idle()
    asked.cancel()
    await asyncio.wait([asked])
    assert len(follower.replicas.purgatory) == 0
    assert (await follower.ask()).session_id == NO_SESSION


async def test_a_newer_session_ends_the_wait_of_the_previous_one() -> None:
    follower = Follower()
    (partition,) = await follower.replicas.take()
    await follower.ask((partition, 0))
    waiting = asyncio.create_task(follower.fetch(follower.next_request((), wait_ms=500)))
    await until_idle()
    follower.session_id = NO_SESSION
    await follower.ask((partition, 0))
    assert (await waiting).session_id == NO_SESSION
    assert follower.now_ms == 0


async def test_a_recreated_topic_of_the_same_name_wakes_the_session() -> None:
    """Also while the partition of the previous topic has not left it yet."""
    follower = Follower()
    (previous,) = await follower.replicas.take()
    await follower.ask((previous, 0))
    again = replace(state(epoch=6), topic_id="created-again-00000001")
    (present,) = await follower.replicas.take(again, revision=12)
    await follower.ask((present, 0))
    asked = asyncio.create_task(follower.ask(wait_ms=500))
    await until_idle()
    append(present)
    (result,) = (await asked).results
    assert result.replica == key_of(present)
