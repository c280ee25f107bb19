import asyncio

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Acks
from tidelog_broker.requests.purgatory import PRODUCES_PER_TURN, Purgatory
from unit.broker.broker_parts import append, fetch_by
from unit.broker.fake_log import NAME, FakeLog, Notes, epoch_of, leader, state

GIVEN_UP = TidelogError(ErrorCode.REQUEST_TIMED_OUT, "waited for too long")


async def test_a_produce_below_the_high_watermark_is_done_at_once() -> None:
    purgatory = Purgatory()
    partition = leader(FakeLog([5]), state(isr=(1,), replicas=(1,), min_isr=1))
    assert purgatory.committed(partition, 1).result() is None


async def test_a_produce_is_done_when_the_high_watermark_reaches_it() -> None:
    purgatory = Purgatory()
    partition = leader(FakeLog())
    append(partition, b"a", b"b")
    waiting = purgatory.committed(partition, 2)
    partition.high_watermark = 1
    purgatory.high_watermark_moved(partition)
    assert not waiting.done()
    partition.high_watermark = 2
    purgatory.high_watermark_moved(partition)
    assert waiting.result() is None


async def test_each_produce_waits_for_its_own_offset_whatever_the_order() -> None:
    purgatory = Purgatory()
    partition = leader(FakeLog())
    later, earlier = purgatory.committed(partition, 2), purgatory.committed(partition, 1)
    partition.high_watermark = 1
    purgatory.high_watermark_moved(partition)
    assert (earlier.done(), later.done()) == (True, False)


@pytest.mark.rule("unanswered-writes-are-atomic")
async def test_the_end_of_a_leadership_leaves_the_outcome_unknown() -> None:
    purgatory = Purgatory()
    partition = leader(FakeLog())
    waiting = purgatory.committed(partition, 1)
    purgatory.leadership_ended(partition)
    error = waiting.result()
    assert error is not None
    assert (error.code, error.outcome_unknown) == (ErrorCode.LEADER_CHANGED, True)


@pytest.mark.rule("waiting-produce-ends-with-epoch")
async def test_an_advance_of_the_high_watermark_in_the_next_epoch_is_not_about_this_produce() -> (
    None
):
    """Rule `waiting-produce-ends-with-epoch`: the high watermark passes the offset over another
    record."""
    purgatory = Purgatory()
    partition = leader(FakeLog())
    waiting = purgatory.committed(partition, 1)
    purgatory.leadership_ended(partition)
    partition.take(state(epoch=6), 11, broker_epoch=epoch_of(1), now_ms=1)
    append(partition)
    fetch_by(partition, 2)
    fetch_by(partition, 3)
    purgatory.high_watermark_moved(partition)
    error = waiting.result()
    assert error is not None
    assert error.code is ErrorCode.LEADER_CHANGED


async def test_abandoned_produces_are_not_kept_while_the_high_watermark_is_stalled() -> None:
    purgatory = Purgatory()
    partition = leader(FakeLog())
    still_waits = purgatory.committed(partition, 1)
    for offset in range(1000):
        purgatory.give_up(NAME, Acks.ALL, purgatory.committed(partition, offset + 2), GIVEN_UP)
        assert len(purgatory) <= 3
    partition.high_watermark = 5000
    purgatory.high_watermark_moved(partition)
    assert still_waits.result() is None
    assert len(purgatory) == 0


async def test_a_produce_whose_waiter_was_cancelled_is_not_kept_either() -> None:
    purgatory = Purgatory()
    partition = leader(FakeLog())
    waiting = purgatory.committed(partition, 1)
    waiting.cancel()
    purgatory.give_up(NAME, Acks.ALL, waiting, GIVEN_UP)
    assert len(purgatory) == 0


async def test_giving_up_a_finished_wait_has_no_effect() -> None:
    purgatory = Purgatory()
    partition = leader(FakeLog())
    waiting = purgatory.committed(partition, 1)
    purgatory.leadership_ended(partition)
    purgatory.give_up(NAME, Acks.ALL, waiting, GIVEN_UP)
    assert waiting.result() is not GIVEN_UP


async def test_growth_notifies_watches_and_wakes_no_consumer() -> None:
    purgatory, notes = Purgatory(), Notes()
    partition = leader(FakeLog())
    purgatory.watch(partition, notes)
    with purgatory.commits([NAME]) as moved:
        purgatory.log_grew(partition)
        assert (notes.calls, moved.is_set()) == (["grew to 0"], False)


async def test_an_advanced_high_watermark_notifies_watches_and_wakes_consumers() -> None:
    purgatory, notes = Purgatory(), Notes()
    partition = leader(FakeLog())
    purgatory.watch(partition, notes)
    with purgatory.commits([NAME]) as moved:
        purgatory.high_watermark_moved(partition)
        assert (notes.calls, moved.is_set()) == (["committed 0"], True)


async def test_the_end_of_a_leadership_notifies_all() -> None:
    purgatory, notes = Purgatory(), Notes()
    partition = leader(FakeLog())
    purgatory.watch(partition, notes)
    with purgatory.commits([NAME]) as moved:
        purgatory.leadership_ended(partition)
        assert (notes.calls, moved.is_set()) == (["leadership ended"], True)


async def test_a_watch_of_another_topic_with_the_same_name_is_not_notified() -> None:
    purgatory, notes = Purgatory(), Notes()
    previous, present = leader(FakeLog()), leader(FakeLog())
    purgatory.watch(previous, notes)
    purgatory.log_grew(present)
    assert notes.calls == []


async def test_nothing_is_kept_of_a_finished_wait() -> None:
    purgatory, notes = Purgatory(), Notes()
    partition = leader(FakeLog())
    purgatory.watch(partition, notes)
    with purgatory.commits([NAME]):
        assert len(purgatory) == 2
    purgatory.unwatch(partition, notes)
    assert len(purgatory) == 0


async def test_a_produce_with_acks_1_to_a_synced_topic_is_done_when_it_is_synced() -> None:
    purgatory = Purgatory()
    log = FakeLog()
    partition = leader(log)
    partition.set_synced(True)
    append(partition, b"a", b"b")
    waiting = purgatory.synced(partition, 2)
    log.synced_to = 1
    purgatory.log_synced(partition)
    assert not waiting.done()
    log.synced_to = 2
    purgatory.log_synced(partition)
    assert waiting.result() is None
    assert len(purgatory) == 0


async def test_a_sync_does_not_complete_a_wait_for_the_replicas() -> None:
    purgatory = Purgatory()
    log = FakeLog()
    partition = leader(log)
    partition.set_synced(True)
    append(partition)
    waiting = purgatory.committed(partition, 1)
    log.synced_to = 1
    purgatory.log_synced(partition)
    assert not waiting.done()


async def test_the_end_of_a_leadership_ends_the_wait_for_the_disk_too() -> None:
    purgatory = Purgatory()
    partition = leader(FakeLog())
    partition.set_synced(True)
    append(partition)
    waiting = purgatory.synced(partition, 1)
    purgatory.leadership_ended(partition)
    error = waiting.result()
    assert error is not None
    assert error.code is ErrorCode.LEADER_CHANGED


async def test_produces_that_one_move_ends_are_answered_over_several_turns() -> None:
    purgatory = Purgatory()
    partition = leader(FakeLog())
    waits = [purgatory.committed(partition, 1) for _ in range(1000)]
    partition.high_watermark = 1
    purgatory.high_watermark_moved(partition)
    # Those that wait for their turn are committed, whatever happens meanwhile.
    purgatory.leadership_ended(partition)
    for turn in range(1, 1000 // PRODUCES_PER_TURN + 1):
        done = sum(wait.done() for wait in waits)
        assert (turn - 1) * PRODUCES_PER_TURN < done <= turn * PRODUCES_PER_TURN
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert {wait.result() for wait in waits} == {None}
    assert len(purgatory) == 0


async def test_the_end_of_a_leadership_ends_waits_over_several_turns() -> None:
    purgatory = Purgatory()
    partition = leader(FakeLog())
    waits = [purgatory.committed(partition, 1) for _ in range(1000)]
    purgatory.leadership_ended(partition)
    assert sum(wait.done() for wait in waits) <= PRODUCES_PER_TURN
    later = purgatory.committed(partition, 1)
    for _ in range(1000 // PRODUCES_PER_TURN + 1):
        await asyncio.sleep(0)
    assert all(wait.result() is not None for wait in waits)
    assert not later.done()
