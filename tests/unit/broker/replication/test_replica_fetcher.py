"""The follower side of replication: one fetcher, whose leader is scripted."""

import asyncio
import errno
from collections.abc import Sequence
from pathlib import PurePath

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.state_reports import NOT_KNOWN
from tidelog.model import Batch, EpochEnd
from tidelog_broker.log.log_errors import AppendOrderError, LogStorageError
from tidelog_runtime.cooperative import ITEMS_PER_SLICE
from unit.broker.broker_parts import address_of, until_idle
from unit.broker.fake_log import FakeLog, epoch_of, state
from unit.broker.scripted_leader import LEADER, ME, Follower, following, log_of
from unit.loop_turns import Turns
from unit.metadata.virtual_time import virtual_clock


async def test_a_fetcher_requests_the_next_offset_in_its_last_epoch() -> None:
    follower = Follower()
    follower.follow(log=FakeLog([4, 5]))
    async with following(follower):
        first = await follower.next(0)
    entry = first.entry()
    assert first.address == address_of(LEADER)
    assert (first.request.broker_id, first.request.broker_epoch) == (ME, epoch_of(ME))
    assert first.request.leader_broker_epoch == epoch_of(LEADER)
    assert entry.position[1:4] == (5, 2, 5)
    assert (first.request.max_wait_ms, first.request.max_bytes, entry.max_bytes) == (
        500,
        4096,
        1024,
    )


async def test_a_fetcher_appends_the_answer_and_continues() -> None:
    follower = Follower()
    partition = follower.follow()
    async with following(follower):
        first = await follower.next(0)
        first.answer(first.data(0, 1, high_watermark=1))
        second = await follower.next(1)
    assert second.entry().position.fetch_offset == 2
    assert (partition.log.log_end_offset, partition.high_watermark) == (2, 1)
    assert second.at == first.at


@pytest.mark.rule("one-fetch-for-all-partitions")
async def test_one_fetch_carries_all_partitions() -> None:
    follower = Follower()
    follower.follow(0)
    follower.follow(1)
    async with following(follower):
        first = await follower.next(0)
        assert first.numbers == [0, 1]


@pytest.mark.rule("one-fetch-for-all-partitions")
async def test_a_new_partition_hurries_the_waiting_fetch_and_is_in_the_next() -> None:
    follower = Follower()
    partition = follower.follow(0)
    async with following(follower):
        first = await follower.next(0)
        follower.follow(1)
        await until_idle()
        assert (first.completed_early, first.given_up, len(follower.received)) == (1, False, 1)
        first.answer(first.data(0))
        second = await follower.next(1)
    assert second.numbers == [0, 1]
    assert partition.log.log_end_offset == 1
    assert (second.completed_early, second.request.max_wait_ms) == (0, 500)


async def test_a_fetch_is_completed_early_once_for_several_new_partitions() -> None:
    follower = Follower()
    follower.follow(0)
    async with following(follower):
        first = await follower.next(0)
        for number in (1, 2, 3):
            follower.follow(number)
        first.answer()
        second = await follower.next(1)
        follower.follow(4)
    assert (first.completed_early, second.completed_early) == (1, 1)
    assert second.numbers == [0, 1, 2, 3]


async def test_a_forgotten_partition_is_left_out_of_the_next_fetch() -> None:
    follower = Follower()
    follower.follow(0)
    gone = follower.follow(1)
    async with following(follower):
        first = await follower.next(0)
        follower.fetcher.forget(gone)
        await until_idle()
        assert (first.completed_early, first.given_up) == (0, False)
        first.answer()
        second = await follower.next(1)
    assert second.numbers == [0]


async def test_a_partition_added_between_two_fetches_hurries_none() -> None:
    follower = Follower(synced=True)
    syncing = follower.follow(0)
    async with following(follower):
        first = await follower.next(0)
        follower.syncing.append(syncing)
        first.answer(first.data(0))
        await until_idle()
        follower.follow(1)
        follower.syncing.clear()
        follower.fetcher.resend_position(syncing)
        second = await follower.next(1)
    assert (first.completed_early, second.numbers) == (0, [0, 1])


async def test_a_fetch_at_a_previous_incarnation_of_the_leader_is_given_up_for_new_partitions() -> (
    None
):
    """It may never be answered, and the leader has been elected again meanwhile."""
    follower = Follower()
    follower.follow(0)
    async with following(follower):
        first = await follower.next(0)
        follower.leader = ("elsewhere:7500", 900)
        follower.follow(1)
        follower.follow(2)
        second = await follower.next(1)
    assert (first.given_up, first.completed_early) == (True, 0)
    assert second.address == "elsewhere:7500"
    assert (second.request.leader_broker_epoch, second.numbers) == (900, [0, 1, 2])


async def test_a_fetch_completed_early_before_its_leader_restarted_is_given_up_too() -> None:
    follower = Follower()
    follower.follow(0)
    async with following(follower):
        first = await follower.next(0)
        follower.follow(1)
        assert first.completed_early == 1
        follower.leader = ("elsewhere:7500", 900)
        follower.follow(2)
        second = await follower.next(1)
    assert (first.given_up, second.at - first.at) == (True, 0)
    assert second.numbers == [0, 1, 2]


async def test_an_answer_is_taken_except_for_partitions_removed_or_added_since() -> None:
    follower = Follower()
    other, again, gone = follower.follow(0), follower.follow(1), follower.follow(3)
    async with following(follower):
        first = await follower.next(0)
        follower.follow(2)
        follower.fetcher.follow([again])
        follower.fetcher.forget(gone)
        first.answer(*(first.data(0, number=number) for number in (0, 1, 3)))
        second = await follower.next(1)
    assert [p.log.log_end_offset for p in (other, again, gone)] == [1, 0, 0]
    assert second.numbers == [0, 1, 2]


async def test_a_partition_that_follows_another_leader_by_now_is_not_fetched() -> None:
    follower = Follower()
    partition = follower.follow(0)
    follower.follow(1)
    partition.take(state(leader=3, epoch=6), 11, broker_epoch=epoch_of(ME), now_ms=1)
    async with following(follower):
        first = await follower.next(0)
        assert first.numbers == [1]


async def test_an_answer_about_thousands_of_partitions_is_taken_with_yields() -> None:
    follower, many = Follower(), 10 * ITEMS_PER_SLICE
    partitions = [follower.follow(number) for number in range(many)]
    async with following(follower), Turns() as turns:
        first = await follower.next(0)
        first.answer(*(first.data(0, number=number) for number in range(many)))
        turns.taken()
        await follower.next(1)
    assert turns.taken() >= many // ITEMS_PER_SLICE - 1
    assert [partition.log.log_end_offset for partition in partitions] == [1] * many


async def test_the_rest_of_an_answer_is_taken_though_a_partition_is_added_half_way() -> None:
    follower, many = Follower(), 2 * ITEMS_PER_SLICE
    partitions = [follower.follow(number) for number in range(many)]
    async with following(follower):
        first = await follower.next(0)
        first.answer(*(first.data(0, number=number) for number in range(many)))
        while True:
            await asyncio.sleep(0)
            if partitions[0].log.log_end_offset:
                break
        follower.fetcher.forget(partitions[-1])
        follower.follow(many)
        second = await follower.next(1)
    assert (first.completed_early, first.given_up) == (0, False)
    ends = [partition.log.log_end_offset for partition in partitions]
    assert ends == [1] * (many - 1) + [0]
    assert second.numbers == [*range(many - 1), many]


@pytest.mark.rule("answer-needs-current-request")
async def test_an_answer_that_comes_after_the_epoch_has_changed_is_dropped() -> None:
    """Rule `answer-needs-current-request`."""
    follower = Follower()
    partition = follower.follow()
    async with following(follower):
        first = await follower.next(0)
        partition.take(state(leader=LEADER, epoch=6), 11, broker_epoch=epoch_of(ME), now_ms=1)
        first.answer(first.data(0))
        second = await follower.next(1)
    assert partition.log.log_end_offset == 0
    assert second.entry().position.leader_epoch == 6


async def test_without_partitions_nothing_is_fetched() -> None:
    follower = Follower()
    async with following(follower):
        await asyncio.sleep(10)
        assert follower.received == []
        follower.follow()
        await follower.next(0)


# -- a leader that does not answer -------------------------------------------------------


async def test_an_unreachable_leader_is_retried_with_a_bounded_backoff() -> None:
    follower = Follower()
    follower.follow()
    follower.unreachable = True
    async with following(follower):
        await asyncio.sleep(5)
    pauses = follower.pauses()
    assert 0.009 < pauses[0] <= 0.021
    assert all(0.249 < pause <= 0.501 for pause in pauses[-5:])


async def test_a_leader_that_comes_back_is_followed_without_further_pauses() -> None:
    follower = Follower()
    partition = follower.follow()
    follower.unreachable = True
    async with following(follower):
        await asyncio.sleep(3)
        follower.unreachable = False
        position = len(follower.received)
        again = await follower.next(position)
        again.answer(again.data(0))
        after = await follower.next(position + 1)
    assert after.at == again.at
    assert partition.log.log_end_offset == 1


async def test_an_unreachable_leader_gets_no_report_until_it_is_reachable() -> None:
    """Repeated reports about thousands of partitions would take resources that others need."""
    follower = Follower()
    follower.follow()
    async with following(follower):
        first = await follower.next(0)
        follower.gone = True
        first.break_off()
        await asyncio.sleep(3)
        assert len(follower.received) == 1
        assert follower.reached_in_vain > 5
        assert follower.fetcher.unanswered is not None
        follower.gone = False
        await follower.next(1)


async def test_a_broken_connection_leads_to_a_pause_and_a_retry() -> None:
    follower = Follower()
    follower.follow()
    async with following(follower):
        first = await follower.next(0)
        first.break_off()
        second = await follower.next(1)
    assert second.at > first.at


async def test_a_leader_that_rejects_the_fetch_is_retried_after_a_pause() -> None:
    follower = Follower()
    follower.follow()
    async with following(follower):
        first = await follower.next(0)
        first.reject(TidelogError(ErrorCode.STALE_BROKER_EPOCH, "I live in 150"))
        await until_idle()
        assert len(follower.received) == 1
        follower.leader = (address_of(LEADER), 150)
        second = await follower.next(1)
    assert second.request.leader_broker_epoch == 150


async def test_a_leader_that_rejects_the_fetch_was_reached() -> None:
    follower = Follower()
    partition = follower.follow()
    async with following(follower):
        first = await follower.next(0)
        first.reject(TidelogError(ErrorCode.STALE_BROKER_EPOCH, "I live in 150"))
        await until_idle()
        progress = follower.fetcher.progress_of(partition)
    assert (progress.problem, progress.answered) == ("I live in 150", True)


async def test_a_leader_that_rejects_one_partition_was_reached() -> None:
    follower = Follower()
    partition = follower.follow()
    async with following(follower):
        first = await follower.next(0)
        first.answer(first.failed(ErrorCode.NOT_LEADER))
        await until_idle()
        progress = follower.fetcher.progress_of(partition)
    assert (progress.problem, progress.answered) == ("as the test wants it", True)


async def test_a_leader_that_rejected_before_it_stopped_does_not_count_as_reached() -> None:
    follower = Follower()
    rejected = follower.follow(0)
    follower.follow(1)
    async with following(follower):
        first = await follower.next(0)
        first.answer(first.failed(ErrorCode.NOT_LEADER, number=0), first.data(0, number=1))
        await asyncio.sleep(0.005)
        second = await follower.next(1)
        second.break_off()
        await until_idle()
        progress = follower.fetcher.progress_of(rejected)
    assert progress.problem.endswith("connection refused")
    assert (progress.problem_ms, progress.answered) == (0, False)


async def test_a_fetch_that_ended_during_a_stall_proves_nothing_about_the_leader() -> None:
    follower = Follower()
    partition = follower.follow()
    async with following(follower):
        first = await follower.next(0)
        await asyncio.sleep(60)
        first.break_off()
        await until_idle()
        progress = follower.fetcher.progress_of(partition)
    assert (progress.problem, progress.problem_ms) == ("", NOT_KNOWN)


async def test_a_new_leader_does_not_wait_for_the_backoff_of_the_old_one() -> None:
    follower = Follower()
    follower.follow()
    follower.unreachable = True
    async with following(follower):
        await asyncio.sleep(3)
        follower.unreachable = False
        now, position = virtual_clock().time(), len(follower.received)
        follower.follow(1)
        assert (await follower.next(position)).at - now < 0.002


async def test_a_leader_without_an_address_is_looked_up_again() -> None:
    follower = Follower()
    follower.leader = None
    follower.follow()
    async with following(follower):
        await asyncio.sleep(3)
        assert follower.received == []
        follower.leader = (address_of(LEADER), epoch_of(LEADER))
        await follower.next(0)


async def test_a_fetch_is_unanswered_from_its_sending_until_its_answer() -> None:
    follower = Follower()
    follower.follow()
    async with following(follower):
        first = await follower.next(0)
        assert follower.fetcher.unanswered == (epoch_of(LEADER), first.at)
        await asyncio.sleep(1)
        first.answer()
        second = await follower.next(1)
        assert follower.fetcher.unanswered == (epoch_of(LEADER), second.at)


async def test_consecutive_failed_fetches_are_unanswered_from_the_first_on() -> None:
    follower = Follower()
    follower.follow()
    follower.unreachable = True
    async with following(follower):
        await asyncio.sleep(5)
        assert follower.fetcher.unanswered == (epoch_of(LEADER), follower.received[0].at)


async def test_a_completed_early_fetch_is_unanswered_since_it_was_sent() -> None:
    follower = Follower()
    follower.follow()
    async with following(follower):
        first = await follower.next(0)
        await asyncio.sleep(1)
        follower.follow(1)
        await until_idle()
        assert follower.fetcher.unanswered == (epoch_of(LEADER), first.at)


async def test_a_rejection_counts_as_an_answer() -> None:
    follower = Follower()
    follower.follow()
    async with following(follower):
        (await follower.next(0)).reject(TidelogError(ErrorCode.STALE_BROKER_EPOCH, "no longer"))
        await until_idle()
        assert follower.fetcher.unanswered is None


async def test_another_incarnation_of_a_leader_has_no_unanswered_fetch_yet() -> None:
    follower = Follower()
    follower.follow()
    follower.unreachable = True
    async with following(follower):
        await asyncio.sleep(5)
        follower.leader = (address_of(LEADER), 900)
        position = len(follower.received)
        again = await follower.next(position)
        assert follower.fetcher.unanswered == (900, again.at)


async def test_a_fetcher_without_partitions_waits_for_no_answer() -> None:
    follower = Follower()
    partition = follower.follow()
    async with following(follower):
        await follower.next(0)
        follower.fetcher.forget(partition)
        await until_idle()
        assert follower.fetcher.unanswered is None


# -- partitions that fail on their own ---------------------------------------------------


async def test_a_failing_partition_backs_off_and_does_not_hold_up_the_others() -> None:
    follower = Follower()
    follower.follow(0)
    healthy = follower.follow(1)
    async with following(follower):
        first = await follower.next(0)
        first.answer(
            first.failed(ErrorCode.UNKNOWN_LEADER_EPOCH, number=0), first.data(0, number=1)
        )
        second = await follower.next(1)
        assert (second.numbers, second.at) == ([1], first.at)
        # The long poll ends when the backoff of the partition does.
        assert second.request.max_wait_ms <= 21
        await asyncio.sleep(second.request.max_wait_ms / 1000)
        second.answer(second.data(1, number=1))
        third = await follower.next(2)
    assert third.numbers == [0, 1]
    assert healthy.log.log_end_offset == 2


async def test_a_partition_that_keeps_failing_is_fetched_less_and_less_often() -> None:
    follower = Follower()
    follower.follow()
    async with following(follower):
        for position in range(9):
            received = await follower.next(position)
            received.answer(received.failed(ErrorCode.NOT_LEADER))
        await follower.next(9)
    pauses = follower.pauses()
    assert pauses == sorted(pauses)
    assert pauses[0] < 0.03
    assert 0.49 < pauses[-1] < 0.51


async def test_a_new_epoch_ends_the_backoff_of_a_partition() -> None:
    follower = Follower()
    partition = follower.follow()
    async with following(follower):
        first = await follower.next(0)
        first.answer(first.failed(ErrorCode.FENCED_LEADER_EPOCH))
        await until_idle()
        assert len(follower.received) == 1
        partition.take(state(leader=LEADER, epoch=6), 11, broker_epoch=epoch_of(ME), now_ms=1)
        follower.fetcher.follow([partition])
        second = await follower.next(1)
    assert second.at - first.at < 0.002
    assert second.entry().position.leader_epoch == 6


async def test_a_damaged_batch_is_not_taken_and_fetched_again() -> None:
    follower = Follower()
    partition = follower.follow()
    async with following(follower):
        first = await follower.next(0)
        sound = first.data(0)
        assert sound.answer is not None
        damaged = [batch._replace(records=b"x") for batch in sound.answer.batches]
        first.answer(sound._replace(answer=sound.answer._replace(batches=damaged)))
        second = await follower.next(1)
    assert partition.log.log_end_offset == 0
    assert second.entry().position.fetch_offset == 0
    assert second.at > first.at


async def test_a_follower_reports_its_rejection_until_it_takes_the_batch() -> None:
    follower = Follower()
    partition = follower.follow(log=StrictLog())
    async with following(follower):
        first = await follower.next(0)
        assert follower.fetcher.rejection_of(partition) is None
        first.answer(first.data(7))
        second = await follower.next(1)
        rejection = follower.fetcher.rejection_of(partition)
        assert rejection is not None
        assert rejection[0] == "out of order"
        await asyncio.sleep(0.5)
        second.answer(second.data(7))
        third = await follower.next(2)
        rejection = follower.fetcher.rejection_of(partition)
        assert rejection is not None
        assert rejection[1] >= 500
        third.answer(third.data(0))
        await until_idle()
        assert follower.fetcher.rejection_of(partition) is None


async def test_an_error_of_its_leader_is_no_rejection_by_the_follower() -> None:
    follower = Follower()
    partition = follower.follow()
    async with following(follower):
        first = await follower.next(0)
        first.answer(first.failed(ErrorCode.NOT_LEADER))
        await follower.next(1)
        assert follower.fetcher.rejection_of(partition) is None
        assert follower.fetcher.progress_of(partition).problem


class FullLog(FakeLog):
    def append(self, batches: Sequence[Batch]) -> None:  # noqa: ARG002
        raise LogStorageError.of(OSError(errno.ENOSPC, ""), PurePath("orders-0"), "append to")


class StrictLog(FakeLog):
    """Reports non-contiguous batches like the real log."""

    def append(self, batches: Sequence[Batch]) -> None:
        if batches[0].header.base_offset != self.log_end_offset:
            raise AppendOrderError("out of order")
        super().append(batches)


async def test_a_rejection_of_the_log_is_reported_and_backed_off() -> None:
    follower = Follower()
    follower.follow(log=FullLog())
    async with following(follower):
        first = await follower.next(0)
        first.answer(first.data(0))
        second = await follower.next(1)
    assert second.at > first.at
    assert len(follower.failures) == 1
    assert "No space left" in follower.failures[0]


async def test_non_contiguous_batches_do_not_end_the_fetcher() -> None:
    follower = Follower()
    follower.follow(log=StrictLog())
    async with following(follower):
        first = await follower.next(0)
        first.answer(first.data(7))
        second = await follower.next(1)
    assert second.at > first.at


# -- reconciling -------------------------------------------------------------------------


async def test_a_fetcher_cuts_where_the_logs_diverge_and_requests_again_at_once() -> None:
    follower = Follower()
    partition = follower.follow(log=FakeLog([1, 1, 2, 2]))
    async with following(follower):
        first = await follower.next(0)
        first.answer(first.parts_at(EpochEnd(1, 5)))
        second = await follower.next(1)
    assert log_of(partition).epochs == [1, 1]
    assert second.entry().position[2:4] == (2, 1)
    assert second.at == first.at


async def test_an_out_of_range_fetcher_resets_to_the_leaders_log_start() -> None:
    follower = Follower()
    partition = follower.follow(log=FakeLog([1]))
    async with following(follower):
        first = await follower.next(0)
        first.answer(first.failed(ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=40))
        second = await follower.next(1)
    assert (partition.log.log_start_offset, partition.high_watermark) == (40, 40)
    assert second.entry().position.fetch_offset == 40


async def test_unrequested_results_are_ignored() -> None:
    follower = Follower()
    partition = follower.follow()
    async with following(follower):
        first = await follower.next(0)
        stranger = first.data(0)._replace(replica=first.entry().replica._replace(partition=9))
        first.answer(stranger)
        await follower.next(1)
    assert partition.log.log_end_offset == 0


# -- the end -----------------------------------------------------------------------------


async def test_nothing_continues_after_a_cancellation() -> None:
    follower = Follower()
    follower.follow()
    before = asyncio.all_tasks()
    async with following(follower):
        first = await follower.next(0)
    assert first.given_up
    assert asyncio.all_tasks() == before
