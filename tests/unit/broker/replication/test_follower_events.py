"""Events of a follower, and how it describes its fetching."""

import asyncio

from tidelog.errors import ErrorCode
from tidelog.inspection.state_reports import NOT_KNOWN
from tidelog.model import EpochEnd
from tidelog.state_changes.event import Cause, Kind, StateChange
from unit.broker.broker_parts import emitted_events, stages, until_idle
from unit.broker.fake_log import NAME, FakeLog, epoch_of, state
from unit.broker.scripted_leader import LEADER, ME, Follower, following
from unit.metadata.virtual_time import virtual_clock


def emitted(follower: Follower, *kinds: Kind) -> list[StateChange]:
    return emitted_events(follower.state_changes, *kinds)


async def test_a_silent_leader_and_its_return_emit_one_event_each() -> None:
    follower = Follower()
    follower.follow()
    follower.unreachable = True
    await asyncio.sleep(1)
    async with following(follower):
        await asyncio.sleep(5)
        (lost,) = emitted(follower)
        follower.unreachable = False
        (await follower.next(len(follower.received))).answer(session_id=1)
        await until_idle()
    assert stages(emitted(follower)) == [
        "leader_unreachable completed",
        "leader_reached completed",
    ]
    assert (lost.broker, lost.broker_epoch) == (LEADER, epoch_of(LEADER))
    assert lost.cause is Cause.NO_ANSWER
    reached = emitted(follower)[-1]
    assert reached.change_id == lost.change_id != ""
    assert reached.duration_ms >= 4_000
    assert "connection refused" in str(lost.details["why"])


async def test_a_stalled_follower_does_not_report_its_leader_as_silent() -> None:
    follower = Follower()
    follower.follow()
    async with following(follower):
        first = await follower.next(0)
        virtual_clock().stand_still(23)
        first.break_off()
        again = await follower.next(1)
        assert emitted(follower) == []
        again.break_off()
        await follower.next(2)
    assert stages(emitted(follower)) == ["leader_unreachable completed"]


async def test_a_leader_that_answers_is_no_event() -> None:
    follower = Follower()
    follower.follow()
    async with following(follower):
        (await follower.next(0)).answer(session_id=1)
        await follower.next(1)
    assert emitted(follower) == []


async def test_a_cut_event_has_the_old_and_the_new_log_end() -> None:
    follower = Follower()
    follower.follow(log=FakeLog([1, 1, 2, 2]))
    async with following(follower):
        first = await follower.next(0)
        first.answer(first.parts_at(EpochEnd(1, 5)))
        await follower.next(1)
    (cut,) = emitted(follower, Kind.TRUNCATION)
    assert (cut.cause, cut.name, cut.broker, cut.leader_epoch) == (Cause.DIVERGED, NAME, ME, 5)
    assert (cut.broker_epoch, cut.controller_epoch) == (epoch_of(ME), state().controller_epoch)
    assert (cut.details["from"], cut.details["to"], cut.details["epoch"]) == (4, 2, 2)


async def test_a_follower_that_resets_reports_that_its_leader_has_deleted_its_range() -> None:
    follower = Follower()
    follower.follow(log=FakeLog([1]))
    async with following(follower):
        first = await follower.next(0)
        first.answer(first.failed(ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=40))
        await follower.next(1)
    (cut,) = emitted(follower, Kind.TRUNCATION)
    assert cut.cause is Cause.NO_LONGER_HELD
    assert (cut.details["from"], cut.details["to"]) == (1, 40)


# -- the description ---------------------------------------------------------------------


async def test_before_the_first_answer_its_age_is_not_known() -> None:
    follower = Follower()
    partition = follower.follow()
    async with following(follower):
        await follower.next(0)
        progress = follower.fetcher.progress_of(partition)
    assert (progress.leader, progress.last_answer_ms, progress.problem) == (LEADER, NOT_KNOWN, "")


async def test_the_last_answer_ages() -> None:
    follower = Follower()
    partition = follower.follow()
    async with following(follower):
        (await follower.next(0)).answer(session_id=1)
        await follower.next(1)
        await asyncio.sleep(0.25)
        progress = follower.fetcher.progress_of(partition)
    assert progress.last_answer_ms == 250


async def test_a_silent_leader_is_a_problem_since_its_first_missed_answer() -> None:
    follower = Follower()
    partition = follower.follow()
    follower.unreachable = True
    async with following(follower):
        await asyncio.sleep(3)
        progress = follower.fetcher.progress_of(partition)
    assert "connection refused" in progress.problem
    assert progress.problem_ms == 3000


async def test_a_single_rejected_partition_is_only_its_own_problem() -> None:
    follower = Follower()
    rejected, other = follower.follow(0), follower.follow(1)
    async with following(follower):
        first = await follower.next(0)
        first.answer(first.failed(ErrorCode.FENCED_LEADER_EPOCH), first.data(0, number=1))
        await follower.next(1)
        problems = [follower.fetcher.progress_of(p).problem for p in (rejected, other)]
    assert problems == ["as the test wants it", ""]
