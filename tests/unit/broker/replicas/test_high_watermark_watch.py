"""Which high watermarks are stalled, and which replicas hold them."""

import asyncio

from tidelog.model import NO_OFFSET
from tidelog.state_changes.event import Cause, Kind
from tidelog_broker.partition.partition import Partition
from tidelog_broker.replicas.high_watermark_events import HighWatermarkEvents
from tidelog_broker.replicas.high_watermark_watch import HighWatermarkWatch, Verdict, who_holds
from unit.broker.broker_parts import Replicas, append, commit, fetch_by
from unit.broker.fake_log import FakeLog, epoch_of, leader, state

AFTER_MS = 500


def seen(watch: HighWatermarkWatch, partition: Partition, *times_ms: int) -> list[Verdict | None]:
    return [watch.look(partition, at_ms) for at_ms in times_ms]


def waiting() -> Partition:
    """A record that no follower has fetched."""
    partition = leader(FakeLog())
    append(partition)
    return partition


def test_without_waiting_records_nothing_is_noted() -> None:
    watch = HighWatermarkWatch(AFTER_MS)
    assert seen(watch, leader(FakeLog()), 0, 1000) == [None, None]
    assert not watch._waiting


def test_records_that_wait_too_long_emit_one_event() -> None:
    watch = HighWatermarkWatch(AFTER_MS)
    assert seen(watch, waiting(), 0, 499, 500, 900) == [None, None, Verdict(True, 500), None]


def test_an_advancing_high_watermark_is_not_stalled_however_much_waits() -> None:
    watch, partition = HighWatermarkWatch(AFTER_MS), leader(FakeLog())
    for at_ms in range(0, 2000, 400):
        append(partition)
        append(partition)
        for follower in (2, 3):
            fetch_by(partition, follower, partition.log.log_end_offset - 1)
        assert watch.look(partition, at_ms) is None


def test_the_high_watermark_resumes_when_something_is_committed() -> None:
    watch, partition = HighWatermarkWatch(AFTER_MS), waiting()
    seen(watch, partition, 0, 500)
    commit(partition)
    assert watch.look(partition, 700) == Verdict(False, 700)
    assert watch.look(partition, 800) is None


def test_after_a_stall_of_the_broker_itself_all_have_their_full_time_again() -> None:
    watch, partition = HighWatermarkWatch(AFTER_MS), waiting()
    watch.look(partition, 0)
    watch.begin_anew(9_000)
    assert seen(watch, partition, 9_000, 9_499, 9_500) == [None, None, Verdict(True, 500)]


def test_a_stall_from_before_continues() -> None:
    watch, partition = HighWatermarkWatch(AFTER_MS), waiting()
    seen(watch, partition, 0, 500)
    watch.begin_anew(9_000)
    commit(partition)
    assert watch.look(partition, 9_100) == Verdict(False, 9_100)


def test_a_new_epoch_starts_from_scratch() -> None:
    watch, partition = HighWatermarkWatch(AFTER_MS), waiting()
    seen(watch, partition, 0, 500)
    partition.take(state(epoch=6), 20, broker_epoch=epoch_of(1), now_ms=1)
    assert seen(watch, partition, 600, 1000) == [Verdict(False, 600), None]


def test_nothing_is_kept_of_partitions_that_are_not_led_any_more() -> None:
    watch, partition = HighWatermarkWatch(AFTER_MS), waiting()
    watch.look(partition, 0)
    partition.stop_leading()
    watch.forget_led_no_more()
    assert not watch._waiting


def test_the_wait_of_records_is_known_between_checks() -> None:
    watch, partition = HighWatermarkWatch(AFTER_MS), waiting()
    assert watch.waiting_ms(partition, 0) == 0
    watch.look(partition, 100)
    assert watch.waiting_ms(partition, 350) == 250
    commit(partition)
    assert watch.waiting_ms(partition, 400) is None


# -- holders -----------------------------------------------------------------------------


def holders(
    ends: dict[int, int], *, isr: tuple[int, ...] = (1, 2, 3), committed: int = 3
) -> tuple[Cause, list[int]]:
    found = who_holds(
        5,
        ends,
        leader=1,
        maximal_isr=isr,
        committed_isr=isr[:committed],
        min_isr=2,
    )
    return found.cause, list(found.brokers)


def test_followers_that_are_not_further_hold_the_high_watermark() -> None:
    ends = {1: 9, 2: 5, 3: 7}
    assert holders(ends) == (Cause.NO_FOLLOWER_PROGRESS, [2])


def test_a_follower_without_a_report_in_this_epoch_holds_the_high_watermark() -> None:
    found = who_holds(
        5, {1: 9, 2: 9}, leader=1, maximal_isr=(1, 2, 3), committed_isr=(1, 2, 3), min_isr=2
    )
    assert (found.brokers, found.end_offsets) == ((3,), (NO_OFFSET,))


def test_below_min_isr_no_replica_outside_is_blamed() -> None:
    assert holders({1: 9, 2: 9}, isr=(1, 2), committed=1) == (Cause.BELOW_MIN_ISR, [1])


def test_a_leader_whose_own_disk_does_not_sync_holds_the_high_watermark_itself() -> None:
    assert holders({1: 5, 2: 9, 3: 9}) == (Cause.LEADER_NOT_SYNCED, [1])


async def test_the_event_names_the_follower_that_holds_it() -> None:
    replicas = Replicas()
    events = HighWatermarkEvents(AFTER_MS, 1, replicas.state_changes)
    partition = await replicas.lead()
    await asyncio.sleep(1)
    append(partition)
    fetch_by(partition, 3)
    fetch_by(partition, 2, 0)
    for at_ms in (0, 500):
        events.judge(partition, at_ms)
    (stalled,) = replicas.events(Kind.HW_STALLED)
    assert stalled.cause is Cause.NO_FOLLOWER_PROGRESS
    assert (stalled.details["brokers"], stalled.details["end_offsets"]) == ([2], [0])
    assert (stalled.details["high_watermark"], stalled.details["log_end_offset"]) == (0, 1)
    commit(partition)
    events.judge(partition, 900)
    (moved,) = replicas.events(Kind.HIGH_WATERMARK_RESUMED)
    assert moved.details["stalled_ms"] == 900
    assert moved.change_id == stalled.change_id != ""
    assert moved.duration_ms >= stalled.duration_ms == AFTER_MS
    for event in (stalled, moved):
        assert (event.broker_epoch, event.controller_epoch) == (
            epoch_of(1),
            state().controller_epoch,
        )
