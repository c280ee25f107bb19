"""A fetcher in a session with its leader: which partitions it names, and when it starts a new
session.
"""

import asyncio

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Batch
from tidelog_broker.core.fetch_messages import NO_SESSION, ReplicaFetchResult
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.replication import replica_fetcher
from unit.broker.broker_parts import address_of, until_idle
from unit.broker.fake_log import epoch_of, state
from unit.broker.scripted_leader import LEADER, ME, Follower, ReceivedFetch, following, log_of

SESSION = 7


async def opened(follower: Follower) -> ReceivedFetch:
    """The request after the one that opened the session; nothing has arrived yet."""
    first = await follower.next(0)
    first.answer(session_id=SESSION)
    return await follower.next(1)


def numbers_forgotten(received: ReceivedFetch) -> list[int]:
    return [replica.partition for replica in received.request.forgotten]


def damaged(result: ReplicaFetchResult) -> ReplicaFetchResult:
    assert result.answer is not None
    batches: list[Batch] = [batch._replace(records=b"x") for batch in result.answer.batches]
    return result._replace(answer=result.answer._replace(batches=batches))


async def test_after_the_first_request_unchanged_partitions_are_not_named() -> None:
    follower = Follower()
    follower.follow(0)
    follower.follow(1)
    async with following(follower):
        second = await opened(follower)
    assert (second.request.session_id, second.request.session_sequence) == (SESSION, 1)
    assert (second.numbers, numbers_forgotten(second)) == ([], [])


async def test_partitions_changed_by_the_last_answer_are_named() -> None:
    follower = Follower()
    follower.follow(0)
    follower.follow(1)
    async with following(follower):
        first = await follower.next(0)
        first.answer(first.data(0, number=1), session_id=SESSION)
        second = await follower.next(1)
    assert second.numbers == [1]
    assert second.entry(1).position.fetch_offset == 1


async def test_an_answer_about_a_partition_that_was_left_out_is_taken() -> None:
    follower = Follower()
    partition = follower.follow()
    async with following(follower):
        first = await follower.next(0)
        first.answer(session_id=SESSION)
        second = await follower.next(1)
        second.answer(first.data(0), session_id=SESSION)
        third = await follower.next(2)
    assert partition.log.log_end_offset == 1
    assert third.numbers == [0]


async def test_an_answer_after_an_epoch_change_of_a_left_out_partition_is_dropped() -> None:
    """Rule `answer-needs-current-request`."""
    follower = Follower()
    partition = follower.follow()
    async with following(follower):
        first = await follower.next(0)
        first.answer(session_id=SESSION)
        second = await follower.next(1)
        partition.take(state(leader=LEADER, epoch=6), 11, broker_epoch=epoch_of(ME), now_ms=1)
        second.answer(first.data(0), session_id=SESSION)
        third = await follower.next(2)
    assert partition.log.log_end_offset == 0
    assert third.entry().position.leader_epoch == 6


async def test_after_a_missing_answer_everything_is_named_again() -> None:
    follower = Follower()
    follower.follow(0)
    follower.follow(1)
    async with following(follower):
        second = await opened(follower)
        second.break_off()
        third = await follower.next(2)
    assert third.request.session_id == NO_SESSION
    assert third.request.session_sequence == 2
    assert third.numbers == [0, 1]


async def test_a_leader_that_does_not_know_the_session_gets_everything_at_once() -> None:
    follower = Follower()
    follower.follow()
    async with following(follower):
        second = await opened(follower)
        second.answer(session_id=NO_SESSION)
        third = await follower.next(2)
    assert (third.request.session_id, third.numbers, third.at) == (NO_SESSION, [0], second.at)


async def test_a_leader_that_opens_no_session_and_answers_nothing_is_asked_after_a_pause() -> None:
    follower = Follower()
    follower.follow()
    async with following(follower):
        first = await follower.next(0)
        first.answer(session_id=NO_SESSION)
        second = await follower.next(1)
    assert second.at > first.at


async def test_after_a_rejection_of_the_request_everything_is_named_again() -> None:
    follower = Follower()
    follower.follow()
    async with following(follower):
        second = await opened(follower)
        second.reject(TidelogError(ErrorCode.STALE_BROKER_EPOCH, "I live in 150"))
        third = await follower.next(2)
    assert (third.request.session_id, third.numbers) == (NO_SESSION, [0])


async def test_a_new_incarnation_of_either_broker_makes_it_name_everything_again() -> None:
    for own, leaders in ((epoch_of(ME), 150), (150, epoch_of(LEADER))):
        follower = Follower()
        follower.follow()
        async with following(follower):
            second = await opened(follower)
            follower.broker_epoch = own
            follower.leader = (address_of(LEADER), leaders)
            second.answer(session_id=SESSION)
            third = await follower.next(2)
        assert (third.request.session_id, third.numbers) == (NO_SESSION, [0])
        assert (third.request.broker_epoch, third.request.leader_broker_epoch) == (own, leaders)


async def test_a_session_continues_when_a_fetch_is_completed_early_for_a_new_partition() -> None:
    follower = Follower()
    follower.follow(0)
    async with following(follower):
        second = await opened(follower)
        follower.follow(1)
        second.answer(session_id=SESSION)
        third = await follower.next(2)
    assert (third.request.session_id, third.request.session_sequence) == (SESSION, 2)
    assert third.numbers == [1]


async def test_a_partition_forgotten_while_a_fetch_waits_leaves_with_the_next() -> None:
    follower = Follower()
    follower.follow(0)
    gone = follower.follow(1)
    async with following(follower):
        second = await opened(follower)
        follower.fetcher.forget(gone)
        second.answer(session_id=SESSION)
        third = await follower.next(2)
    assert (third.numbers, numbers_forgotten(third)) == ([], [1])


async def test_a_partition_removed_between_two_requests_is_forgotten() -> None:
    follower = Follower(synced=True)
    syncing, gone = follower.follow(0), follower.follow(1)
    async with following(follower):
        first = await follower.next(0)
        follower.syncing.append(syncing)
        first.answer(first.data(0), session_id=SESSION)
        await until_idle()
        follower.fetcher.forget(gone)
        follower.syncing.clear()
        follower.fetcher.resend_position(syncing)
        second = await follower.next(1)
    assert (second.numbers, numbers_forgotten(second)) == ([0], [1])


async def test_a_partition_that_comes_back_is_named_though_its_position_is_unchanged() -> None:
    """It may not know the high watermark that its predecessor received."""
    follower = Follower(synced=True)
    syncing, gone = follower.follow(0), follower.follow(1)
    async with following(follower):
        first = await follower.next(0)
        follower.syncing.append(syncing)
        first.answer(first.data(0), session_id=SESSION)
        await until_idle()
        follower.fetcher.forget(gone)
        follower.follow(1)
        follower.syncing.clear()
        follower.fetcher.resend_position(syncing)
        second = await follower.next(1)
    assert (second.request.session_id, second.numbers) == (SESSION, [0, 1])
    assert numbers_forgotten(second) == []


async def test_a_partition_that_fails_alone_is_forgotten_until_it_is_fetched_again() -> None:
    """A left-out partition would be sent again at once, and the long poll would become a busy
    loop.
    """
    follower = Follower()
    follower.follow(0)
    follower.follow(1)
    async with following(follower):
        first = await follower.next(0)
        first.answer(damaged(first.data(0)), session_id=SESSION)
        second = await follower.next(1)
        assert (second.numbers, numbers_forgotten(second)) == ([], [0])
        await asyncio.sleep(second.request.max_wait_ms / 1000)
        second.answer(session_id=SESSION)
        third = await follower.next(2)
    assert third.numbers == [0]


async def test_a_partition_that_the_leader_rejected_is_named_again_after_its_pause() -> None:
    follower = Follower()
    follower.follow(0)
    follower.follow(1)
    async with following(follower):
        first = await follower.next(0)
        first.answer(first.failed(ErrorCode.FENCED_LEADER_EPOCH), session_id=SESSION)
        second = await follower.next(1)
        assert (second.numbers, numbers_forgotten(second)) == ([], [])
        await asyncio.sleep(second.request.max_wait_ms / 1000)
        second.answer(session_id=SESSION)
        third = await follower.next(2)
    assert third.numbers == [0]


async def test_a_synced_end_is_reported_though_no_answer_has_moved_it() -> None:
    follower = Follower(synced=True)
    partition = follower.follow()
    async with following(follower):
        first = await follower.next(0)
        first.answer(first.data(0), session_id=SESSION)
        second = await follower.next(1)
        synced(follower, partition)
        second.answer(session_id=SESSION)
        third = await follower.next(2)
    assert second.entry().position.flushed_offset == 0
    assert third.entry().position.flushed_offset == 1


def synced(follower: Follower, partition: Partition) -> None:
    log_of(partition).synced_to = 1
    follower.fetcher.resend_position(partition)


async def test_very_many_partitions_are_named_by_several_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica_fetcher, "MAX_NAMED", 2)
    follower = Follower()
    for number in range(5):
        follower.follow(number)
    async with following(follower):
        for position, (numbers, max_wait_ms) in enumerate([([0, 1], 0), ([2, 3], 0), ([4], 500)]):
            received = await follower.next(position)
            assert (received.numbers, received.request.max_wait_ms) == (numbers, max_wait_ms)
            received.answer(session_id=SESSION)


async def test_partitions_in_backoff_do_not_keep_the_others_from_being_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica_fetcher, "MAX_NAMED", 2)
    follower = Follower()
    for number in range(4):
        follower.follow(number)
    async with following(follower):
        first = await follower.next(0)
        rejected = [first.failed(ErrorCode.UNKNOWN_TOPIC_ID, number=number) for number in (0, 1)]
        first.answer(*rejected, session_id=SESSION)
        assert (await follower.next(1)).numbers == [2, 3]
        # Everything is named again, except the first two, which are still in backoff.
        follower.received[1].break_off()
        assert (await follower.next(2)).numbers == [2, 3]
