"""Each class of anomaly is found by name with the operations that show it, and similar correct
histories show none."""

from __future__ import annotations

import pytest

from tidelog.history import (
    NO_BROKER,
    NO_PARTITION,
    UNREADABLE_VALUE,
    Anomaly,
    Outcome,
    PollInvoked,
)
from tidelog.model import NO_EPOCH, NO_OFFSET
from unit.history.recording import TOPIC, Recording


@pytest.fixture
def history() -> Recording:
    return Recording()


def lines_of(history: Recording, anomaly: Anomaly) -> list[int]:
    (finding,) = history.report().findings.of(anomaly)
    return [reference.line for reference in finding.references]


def test_a_correct_history_has_no_anomalies(history: Recording) -> None:
    for offset in range(4):
        history.sent(100 + offset, offset)
    history.polled([(0, 100), (1, 101)])
    history.polled([(2, 102), (3, 103)])
    history.drained([(0, 100), (1, 101), (2, 102), (3, 103)])
    report = history.report()
    assert (report.anomaly_count, report.excused_count, report.undrained) == (0, 0, [])
    assert (report.polled_records, report.sends[Outcome.OK], report.without_offset) == (8, 4, 0)


def test_acknowledgements_without_an_offset_are_counted(history: Recording) -> None:
    history.sent(1, NO_OFFSET)
    history.sent(2, 0)
    history.invoke(3)
    history.end(3, Outcome.INFO)
    assert history.report().without_offset == 1


def test_two_polled_values_at_one_offset_are_inconsistent(history: Recording) -> None:
    history.invoke(1)
    history.invoke(2)
    history.polled([(0, 1)], client="c1")
    history.polled([(0, 2)], client="c2")
    assert history.found() == {Anomaly.INCONSISTENT_OFFSETS: 1}
    assert lines_of(history, Anomaly.INCONSISTENT_OFFSETS) == [3, 4]
    (finding,) = history.report().findings.of(Anomaly.INCONSISTENT_OFFSETS)
    assert finding.summary == "offset 0 holds values 1, 2"


def test_a_value_polled_where_another_was_acknowledged_is_inconsistent_and_a_loss(
    history: Recording,
) -> None:
    history.sent(1, 0)
    history.invoke(2)
    history.polled([(0, 2)])
    assert history.found() == {Anomaly.INCONSISTENT_OFFSETS: 1, Anomaly.LOST_WRITE: 1}
    assert lines_of(history, Anomaly.INCONSISTENT_OFFSETS) == [2, 4]


def test_two_acknowledgements_of_one_offset_are_inconsistent(history: Recording) -> None:
    history.sent(1, 0)
    history.sent(2, 0, client="p2")
    assert history.found() == {Anomaly.INCONSISTENT_OFFSETS: 1}


def test_one_value_at_two_offsets_is_a_duplicate(history: Recording) -> None:
    history.sent(1, 0)
    history.polled([(0, 1), (1, 1)])
    assert history.found() == {Anomaly.DUPLICATE: 1}
    assert lines_of(history, Anomaly.DUPLICATE) == [2, 3, 3]


def test_each_position_of_a_duplicate_is_listed_once(history: Recording) -> None:
    history.invoke(1)
    history.polled([(0, 1), (1, 1)])
    history.polled([(1, 1)], client="c2")
    history.polled([(1, 1)], client="c3")
    assert lines_of(history, Anomaly.DUPLICATE) == [2, 2]


def test_a_value_polled_at_another_position_than_acknowledged_is_a_duplicate(
    history: Recording,
) -> None:
    history.sent(1, 0)
    history.polled([(3, 1)])
    assert history.found() == {Anomaly.DUPLICATE: 1}


def test_one_value_polled_twice_at_its_offset_is_not_a_duplicate(history: Recording) -> None:
    history.sent(1, 0)
    history.polled([(0, 1)])
    history.polled([(0, 1)], repositioned=True)
    history.polled([(0, 1)], client="c2")
    assert history.found() == {}


def test_a_failed_send_that_is_polled_is_an_aborted_read(history: Recording) -> None:
    history.invoke(1)
    history.end(1, Outcome.FAIL)
    history.polled([(0, 1)])
    assert history.found() == {Anomaly.ABORTED_READ: 1}
    assert lines_of(history, Anomaly.ABORTED_READ) == [2, 3]


@pytest.mark.parametrize("ended", [True, False])
def test_a_send_with_unknown_outcome_may_be_read_or_not(history: Recording, ended: bool) -> None:
    for value in (1, 2):
        history.invoke(value)
        if ended:
            history.end(value, Outcome.INFO)
    history.polled([(0, 1)])
    history.drained([(0, 1)])
    assert history.found() == {}


def test_a_value_that_no_client_sent_is_a_phantom_read(history: Recording) -> None:
    history.polled([(0, 9), (1, UNREADABLE_VALUE), (2, UNREADABLE_VALUE)])
    assert history.found() == {Anomaly.PHANTOM_READ: 3}


def test_a_value_sent_to_another_partition_is_a_phantom_read(history: Recording) -> None:
    history.sent(1, 0, partition=0)
    history.polled([(0, 1)], partition=0)
    history.polled([(0, 1)], partition=1)
    assert history.found() == {Anomaly.PHANTOM_READ: 1}


def test_a_send_without_a_partition_belongs_where_it_was_read(history: Recording) -> None:
    history.invoke(1, partition=NO_PARTITION)
    history.invoke(2, partition=NO_PARTITION)
    history.invoke(3, partition=NO_PARTITION)
    history.end(3, Outcome.FAIL, partition=NO_PARTITION)
    history.polled([(0, 1)], partition=5)
    report = history.report()
    assert (report.anomaly_count, report.unplaced_sends) == (0, 2)
    history.polled([(0, 3)], partition=4)
    assert history.found() == {Anomaly.ABORTED_READ: 1}
    history.polled([(1, 1)], partition=6)
    assert history.found() == {Anomaly.ABORTED_READ: 1, Anomaly.PHANTOM_READ: 1}


def test_an_acknowledged_record_that_clients_read_past_is_lost(history: Recording) -> None:
    history.sent(1, 0)
    history.sent(2, 1)
    history.sent(3, 2)
    history.polled([(0, 1)], client="c1")
    history.polled([(2, 3)], client="c1")
    assert history.found() == {Anomaly.LOST_WRITE: 1, Anomaly.POLL_SKIP: 1}
    assert lines_of(history, Anomaly.LOST_WRITE) == [4]


def test_a_record_below_the_first_record_of_a_client_is_lost_without_any_drain(
    history: Recording,
) -> None:
    history.sent(1, 5)
    history.sent(2, 6)
    history.polled([(6, 2)])
    assert history.found() == {Anomaly.LOST_WRITE: 1}
    assert lines_of(history, Anomaly.LOST_WRITE) == [2]


def test_a_loss_before_the_start_position_of_a_client_shows_only_in_the_drain(
    history: Recording,
) -> None:
    history.sent(1, 0)
    history.sent(2, 1)
    history.polled([(1, 2)], repositioned=True)
    assert history.found() == {}
    history.drained([(1, 2)])
    assert history.found() == {Anomaly.LOST_WRITE: 1}


def test_a_positioned_client_has_not_read_past_earlier_records(
    history: Recording,
) -> None:
    history.sent(1, 0)
    history.sent(2, 1)
    history.polled([], repositioned=True)
    history.polled([(1, 2)])
    assert history.found() == {}


def test_a_seeking_client_has_not_read_past_the_records_between(history: Recording) -> None:
    for offset in range(4):
        history.sent(offset + 1, offset)
    history.polled([(0, 1)])
    history.polled([(3, 4)], repositioned=True)
    assert history.found() == {}


def test_a_loss_counts_although_its_reader_moved_on(history: Recording) -> None:
    for offset in range(3):
        history.sent(offset + 1, offset)
    history.polled([(0, 1), (2, 3)])
    history.polled(repositioned=True)
    assert history.found() == {Anomaly.INTERNAL_SKIP: 1, Anomaly.LOST_WRITE: 1}


def test_a_record_read_by_any_client_is_not_lost(history: Recording) -> None:
    history.sent(1, 0)
    history.sent(2, 1)
    history.polled([(0, 1)], client="c2")
    history.drained([(1, 2)])
    assert history.found() == {}


def test_an_acknowledged_record_missing_from_the_drain_is_unseen(
    history: Recording,
) -> None:
    history.sent(1, 0)
    history.sent(2, 1)
    history.drained([(0, 1)])
    assert history.found() == {Anomaly.UNSEEN: 1}
    assert lines_of(history, Anomaly.UNSEEN) == [4]


def test_an_empty_drain_shows_unseen_records(history: Recording) -> None:
    history.sent(1, 0)
    history.drained([])
    assert history.found() == {Anomaly.UNSEEN: 1}


def test_a_record_acknowledged_without_an_offset_can_be_unseen(history: Recording) -> None:
    history.invoke(1)
    history.end(1, Outcome.OK)
    history.sent(2, 0)
    history.drained([(0, 2)])
    assert history.found() == {Anomaly.UNSEEN: 1}


def test_without_a_drain_no_record_is_unseen_and_the_report_says_so(history: Recording) -> None:
    history.sent(1, 0)
    report = history.report()
    assert report.anomaly_count == 0
    assert [str(partition) for partition in report.undrained] == ["sea/0"]


def test_a_record_acknowledged_after_the_drain_began_is_not_unseen(history: Recording) -> None:
    history.operations.append(PollInvoked(0, "drain", TOPIC, 0, final=True))
    history.sent(1, 0)
    history.polled([], client="drain", final=True)
    assert history.found() == {}


def test_a_jump_between_polls_is_a_poll_skip(history: Recording) -> None:
    for value in range(4):
        history.invoke(value)
    history.polled([(0, 0)])
    history.polled([])
    history.polled(outcome=Outcome.FAIL)
    history.polled([(2, 2)])
    history.polled([(3, 3)])
    history.polled([(0, 0), (1, 1)], client="c2")
    assert history.found() == {Anomaly.POLL_SKIP: 1}
    assert lines_of(history, Anomaly.POLL_SKIP) == [5, 8, 10]
    (finding,) = history.report().findings.of(Anomaly.POLL_SKIP)
    assert finding.summary == "c1 was given offset 2 after 0, and there is a record at 1"


def test_an_offset_without_a_known_record_may_be_passed_over(
    history: Recording,
) -> None:
    history.sent(1, 0)
    history.sent(2, 2)
    history.sent(3, 4)
    # It has an unknown outcome and no client received it, so it may never have been written.
    history.invoke(4)
    history.polled([(0, 1), (2, 2)])
    history.polled([(4, 3)])
    history.drained([(0, 1), (2, 2), (4, 3)])
    assert history.found() == {}


def test_a_record_that_was_acknowledged_at_an_offset_passed_over_is_skipped(
    history: Recording,
) -> None:
    history.sent(1, 0)
    history.polled([(0, 1)])
    history.polled([(3, 3)])
    history.sent(3, 3, client="p2")
    history.sent(2, 2)
    assert history.found() == {Anomaly.POLL_SKIP: 1, Anomaly.LOST_WRITE: 1}


def test_records_at_both_ends_of_a_passed_range_are_not_skipped(history: Recording) -> None:
    for value, offset in ((1, 0), (2, 1), (3, 4), (4, 5)):
        history.sent(value, offset)
    history.polled([(0, 1), (1, 2)])
    history.polled([(4, 3), (5, 4)])
    assert history.found() == {}


def test_a_record_without_a_value_can_be_skipped_like_any(history: Recording) -> None:
    history.sent(1, 0)
    history.sent(2, 2)
    history.polled([(0, 1), (2, 2)])
    history.polled([(1, UNREADABLE_VALUE)], client="c2", repositioned=True)
    assert history.found() == {Anomaly.INTERNAL_SKIP: 1, Anomaly.PHANTOM_READ: 1}


def test_going_back_between_polls_is_a_non_monotonic_poll(history: Recording) -> None:
    for value in range(3):
        history.invoke(value)
    history.polled([(0, 0), (1, 1)])
    history.polled([(1, 1)])
    history.polled([(2, 2)])
    assert history.found() == {Anomaly.NON_MONOTONIC_POLL: 1}
    assert lines_of(history, Anomaly.NON_MONOTONIC_POLL) == [4, 5]


@pytest.mark.parametrize("offset", [0, 1, 5])
def test_after_repositioning_any_offset_may_follow(history: Recording, offset: int) -> None:
    for value in range(6):
        history.invoke(value)
    history.polled([(0, 0), (1, 1)])
    # Records after the repositioning may come in a later poll.
    history.polled([], repositioned=True)
    history.polled([(offset, offset)])
    assert history.found() == {}


def test_after_a_poll_of_unknown_outcome_any_offset_may_follow(history: Recording) -> None:
    for value in range(6):
        history.invoke(value)
    history.polled([(0, 0)])
    history.polled(outcome=Outcome.INFO)
    history.polled([(5, 5)])
    assert history.found() == {}


def test_clients_and_partitions_have_separate_positions(history: Recording) -> None:
    for value in range(3):
        history.invoke(value, partition=NO_PARTITION)
    history.polled([(0, 0)], client="c1")
    history.polled([(7, 1)], client="c2")
    history.polled([(3, 2)], client="c1", partition=1)
    assert history.found() == {}


def test_jumps_inside_a_poll_have_separate_names(history: Recording) -> None:
    for value in range(8):
        history.invoke(value)
    history.polled([(0, 0), (2, 2), (3, 3)])
    history.polled([(1, 1)], client="c2")
    assert history.found() == {Anomaly.INTERNAL_SKIP: 1}
    history.polled([(4, 4), (5, 5), (5, 5), (6, 6)])
    assert history.found() == {Anomaly.INTERNAL_SKIP: 1, Anomaly.INTERNAL_NON_MONOTONIC: 1}
    assert lines_of(history, Anomaly.INTERNAL_NON_MONOTONIC) == [11]


def test_a_shuffled_poll_is_found_although_its_ends_fit(history: Recording) -> None:
    for value in range(4):
        history.invoke(value)
    history.polled([(0, 0), (2, 2), (1, 1), (3, 3)])
    assert history.found() == {Anomaly.INTERNAL_SKIP: 2, Anomaly.INTERNAL_NON_MONOTONIC: 1}


def test_acknowledged_offsets_that_go_back_are_a_non_monotonic_send(history: Recording) -> None:
    history.sent(1, 1)
    history.sent(2, 0)
    history.sent(3, 2)
    assert history.found() == {Anomaly.NON_MONOTONIC_SEND: 1}
    assert lines_of(history, Anomaly.NON_MONOTONIC_SEND) == [2, 4]


def test_sends_are_ordered_by_their_invocations(history: Recording) -> None:
    history.invoke(1)
    history.invoke(2)
    history.invoke(3)
    history.end(2, Outcome.OK, 1)
    history.end(3, Outcome.OK)
    history.end(1, Outcome.OK, 0)
    history.sent(4, 5, client="p2")
    history.sent(5, 4, client="p3")
    assert history.found() == {}


def test_a_client_that_sees_the_high_watermark_go_back(history: Recording) -> None:
    history.saw_high_watermark(5, epoch=1)
    history.saw_high_watermark(4, epoch=2)
    assert history.found() == {Anomaly.HW_REGRESSION: 1}
    assert lines_of(history, Anomaly.HW_REGRESSION) == [2, 4]


def test_high_watermarks_that_come_with_polls_go_back(history: Recording) -> None:
    history.polled(high_watermark=5)
    history.polled(high_watermark=4)
    assert history.found() == {Anomaly.HW_REGRESSION: 1}


def test_another_client_sees_the_high_watermark_go_back_in_one_epoch(history: Recording) -> None:
    history.polled(high_watermark=5, client="c1")
    history.saw_high_watermark(4, client="c2")
    assert history.found() == {Anomaly.HW_REGRESSION: 1}


def test_an_overlapping_reading_may_be_older(history: Recording) -> None:
    history.requests_high_watermark("c2")
    history.saw_high_watermark(5, client="c1")
    history.sent_high_watermark(4, client="c2")
    assert history.found() == {}


def test_a_newer_epoch_shows_no_lower_high_watermark_than_an_older_one(history: Recording) -> None:
    history.polled(high_watermark=3, client="c1", epoch=2)
    history.polled(high_watermark=4, client="c2", epoch=1)
    assert history.found() == {Anomaly.HW_REGRESSION: 1}


def test_an_isolated_leader_may_show_its_old_high_watermark(history: Recording) -> None:
    history.saw_high_watermark(5, client="c1", epoch=2)
    history.saw_high_watermark(3, client="c2", epoch=1)
    assert history.found() == {}


def test_a_poll_may_return_records_fetched_before_a_reading(history: Recording) -> None:
    history.saw_high_watermark(5, client="c1")
    history.polled(high_watermark=4, client="c1")
    history.polled(high_watermark=3, client="c2")
    assert history.found() == {}


def test_without_epochs_only_high_watermarks_of_one_client_are_compared(
    history: Recording,
) -> None:
    history.saw_high_watermark(5, client="c1", epoch=NO_EPOCH)
    history.saw_high_watermark(4, client="c2", epoch=NO_EPOCH)
    history.saw_high_watermark(3, client="c3", epoch=1)
    assert history.found() == {}
    history.saw_high_watermark(4, client="c1", epoch=NO_EPOCH)
    assert history.found() == {Anomaly.HW_REGRESSION: 1}


def test_two_brokers_that_acknowledge_in_one_epoch(history: Recording) -> None:
    history.sent(1, 0, epoch=3, broker=1)
    history.sent(2, 1, epoch=4, broker=2)
    assert history.found() == {}
    history.sent(3, 2, epoch=4, broker=3)
    assert history.found() == {Anomaly.TWO_LEADERS: 1}
    assert lines_of(history, Anomaly.TWO_LEADERS) == [4, 6]


def test_only_acknowledging_brokers_with_known_ids_are_leaders(history: Recording) -> None:
    history.sent(1, 0, epoch=4, broker=1)
    history.sent(2, 1, epoch=4, broker=NO_BROKER)
    history.sent(3, 2, epoch=NO_EPOCH, broker=2)
    history.invoke(4)
    history.end(4, Outcome.INFO, offset=2, epoch=4, broker=2)
    assert history.found() == {}


def test_replicas_with_different_digests_of_one_range(history: Recording) -> None:
    history.digest(1, "aa")
    history.digest(2, "aa")
    history.digest(3, "cc", end_offset=8)
    assert history.found() == {}
    history.digest(3, "bb")
    assert history.found() == {Anomaly.REPLICA_DIVERGENCE: 1}
    assert lines_of(history, Anomaly.REPLICA_DIVERGENCE) == [1, 2, 4]


def test_all_anomalies_are_counted_and_few_are_kept(history: Recording) -> None:
    for value in range(50):
        history.sent(value, value)
    history.drained([])
    report = history.report()
    assert report.findings.counts[Anomaly.UNSEEN] == 50
    lines = [one.references[0].line for one in report.findings.of(Anomaly.UNSEEN)]
    assert lines == [2 * index for index in range(1, 11)]
