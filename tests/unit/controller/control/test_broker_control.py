from __future__ import annotations

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.state_changes.event import Cause
from tidelog_controller.control.broker_control import (
    FIRST_RETRY_MS,
    MAX_PARTITIONS_PER_COMMAND,
    MAX_RETRY_MS,
    BrokerControl,
)
from tidelog_runtime.replica_control import CommandResult, PartitionResult

ID = "id"


def at(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


def control(*required: tuple[int, int]) -> BrokerControl:
    """A broker that has received its full state; each (partition, revision) is required from 0 ms
    on.
    """
    made = BrokerControl(1, 10)
    made.sent(0, {}, stops=False, full_state=True)
    made.answered(0, CommandResult(), 0)
    for partition, revision in required:
        made.require(at(partition), revision, 0)
    return made


def send(
    made: BrokerControl, command_id: int = 1, now_ms: int = 0, *, stops: bool = False
) -> list[TopicPartition]:
    _, partitions = made.due(lambda _: stops, now_ms)
    made.sent(command_id, {(ID, p.partition): p for p in partitions}, stops=stops)
    return partitions


def ok(partition: int, revision: int) -> PartitionResult:
    return PartitionResult(ID, partition, revision, None)


def rejected(partition: int, code: ErrorCode = ErrorCode.STORAGE_ERROR) -> PartitionResult:
    return PartitionResult(ID, partition, 0, TidelogError(code, "no"))


def test_a_new_broker_is_owed_its_full_state_first() -> None:
    assert BrokerControl(1, 10).full_state_due


def test_a_backlog_reports_the_age_of_the_incarnation_and_the_size_of_its_full_state() -> None:
    made = BrokerControl(1, 10)
    assert made.backlog(1_000, 500).known_for_ms == -1
    for partition in range(3):
        made.require(at(partition), 5, 1_000 + partition)
    made.sent(1, {(ID, n): at(n) for n in range(3)}, stops=False, full_state=True)
    made.answered(1, CommandResult(partitions=[ok(n, 5) for n in range(3)]), 1_500)
    summary = made.backlog(3_000, 500)
    assert (summary.pending, summary.known_for_ms, summary.full_state_size) == (0, 2_000, 3)


def test_a_lost_full_state_is_due_again() -> None:
    made = BrokerControl(1, 10)
    made.sent(1, {}, stops=False, full_state=True)
    made.lost(1, 0, "gone")
    assert made.full_state_due


def test_one_command_is_in_flight_at_a_time() -> None:
    made = control((0, 5))
    send(made)
    assert not made.is_ready(1_000_000)


def test_only_the_newest_revision_of_a_partition_is_required() -> None:
    made = control((0, 5), (0, 8), (0, 7))
    send(made)
    made.answered(1, CommandResult(None, [ok(0, 7)]), 0)
    assert made.waits_for(at(0))


def test_acknowledging_the_required_revision_ends_the_wait() -> None:
    made = control((0, 5))
    send(made)
    assert made.answered(1, CommandResult(None, [ok(0, 5)]), 0) == [at(0)]
    assert len(made) == 0


def test_a_broker_with_a_newer_revision_than_required_has_acknowledged() -> None:
    made = control((0, 5))
    send(made)
    assert made.answered(1, CommandResult(None, [ok(0, 9)]), 0) == [at(0)]


def test_an_answer_to_an_earlier_command_is_ignored() -> None:
    made = control((0, 5))
    send(made, command_id=1)
    made.lost(1, 0, "gone")
    assert made.answered(1, CommandResult(None, [ok(0, 5)]), 0) == []
    assert made.waits_for(at(0))


def test_partitions_required_while_a_command_is_in_flight_are_sent_next_without_a_pause() -> None:
    made = control((0, 5))
    send(made)
    made.require(at(0), 6, 0)
    made.answered(1, CommandResult(None, [ok(0, 5)]), 0)
    assert made.is_ready(0)
    assert send(made, 2) == [at(0)]


def test_a_rejected_partition_delays_no_other() -> None:
    made = control((0, 5), (1, 5))
    send(made)
    made.require(at(2), 6, 0)
    made.answered(1, CommandResult(None, [rejected(0), ok(1, 5)]), 0)
    assert send(made, 2, 0) == [at(2)]


@pytest.mark.rule("incomplete-transfer-is-repeated")
def test_a_rejected_partition_is_sent_again_after_a_pause() -> None:
    made = control((0, 5))
    send(made)
    made.answered(1, CommandResult(None, [rejected(0)]), 0)
    assert made.wake_at_ms() == FIRST_RETRY_MS
    assert send(made, 2, FIRST_RETRY_MS) == [at(0)]


def test_a_held_partition_is_sent_when_its_hold_ends() -> None:
    made = control((0, 5), (1, 5))
    made.hold(at(0), 100)
    assert made.wake_at_ms() == 0
    assert send(made) == [at(1)]
    made.answered(1, CommandResult(None, [ok(1, 5)]), 0)
    assert made.wake_at_ms() == 100
    assert made.due(lambda _: False, 99) == (False, [])
    assert send(made, 2, 100) == [at(0)]


def test_a_released_partition_is_sent_at_once() -> None:
    made = control((0, 5))
    made.hold(at(0), 100)
    made.release(at(0))
    assert made.wake_at_ms() == 0
    assert send(made) == [at(0)]


def test_each_partition_is_held_until_its_own_time() -> None:
    made = control((0, 5), (1, 5), (2, 5))
    for partition, until_ms in ((0, 100), (1, 150), (0, 200)):
        made.hold(at(partition), until_ms)
    assert send(made) == [at(2)]
    made.answered(1, CommandResult(None, [ok(2, 5)]), 0)
    assert made.wake_at_ms() == 150
    assert send(made, 2, 150) == [at(1)]
    made.answered(2, CommandResult(None, [ok(1, 5)]), 150)
    assert made.wake_at_ms() == 200
    assert send(made, 3, 200) == [at(0)]


def test_a_partition_no_longer_required_is_not_sent() -> None:
    made = control((0, 5), (1, 5), (2, 5), (3, 5))
    made.hold(at(0), 100)
    assert send(made) == [at(1), at(2), at(3)]
    made.answered(1, CommandResult(None, [rejected(1), ok(2, 5), ok(3, 4)]), 0)
    for partition in range(4):
        made.forget(at(partition))
        made.release(at(partition))
    assert made.due(lambda _: False, MAX_RETRY_MS) == (False, [])
    assert made.wake_at_ms() is None


def test_rejected_partitions_are_sent_after_new_ones() -> None:
    made = control((0, 5), (1, 5))
    send(made)
    made.answered(1, CommandResult(None, [rejected(0), rejected(1)]), 0)
    made.require(at(2), 6, FIRST_RETRY_MS)
    made.require(at(1), 6, FIRST_RETRY_MS)
    assert send(made, 2, FIRST_RETRY_MS) == [at(2), at(1), at(0)]


def test_a_rejected_stop_is_not_delayed_by_newer_requirements() -> None:
    made = control((0, 5))
    send(made, stops=True)
    made.answered(1, CommandResult(None, [rejected(0)]), 0)
    for partition, now_ms in ((1, 10), (2, FIRST_RETRY_MS)):
        made.require(at(partition), 6, now_ms)
    assert made.due(lambda p: p == at(0), 10) == (False, [at(1), at(2)])
    assert made.due(lambda p: p == at(0), FIRST_RETRY_MS) == (True, [at(0)])


def test_a_full_state_ends_the_pause_of_a_rejected_partition_that_it_names() -> None:
    made = control((0, 5))
    made.hold(at(0), 1_000)
    made.require_full_state(Cause.CONNECTION_LOST)
    made.sent(1, {(ID, 0): at(0)}, stops=False, full_state=True)
    made.answered(1, CommandResult(None, [rejected(0)]), 0)
    assert made.wake_at_ms() == FIRST_RETRY_MS
    assert send(made, 2, FIRST_RETRY_MS) == [at(0)]


def test_a_partition_missing_from_the_answer_is_sent_again() -> None:
    made = control((0, 5))
    send(made)
    made.answered(1, CommandResult(None, []), 0)
    assert made.wake_at_ms() == FIRST_RETRY_MS


def test_a_broker_that_acknowledges_an_older_revision_is_retried_only_after_a_pause() -> None:
    made = control((0, 5))
    send(made)
    made.answered(1, CommandResult(None, [ok(0, 4)]), 0)
    assert made.wake_at_ms() == FIRST_RETRY_MS


def test_a_newer_state_does_not_wait_for_the_pause_of_a_rejected_older_one() -> None:
    made = control((0, 5))
    send(made)
    made.answered(1, CommandResult(None, [rejected(0)]), 0)
    made.require(at(0), 6, 0)
    assert send(made, 2, 0) == [at(0)]


def test_pauses_after_lost_commands_grow_up_to_a_limit() -> None:
    made = control((0, 5))
    now_ms, pauses = 0, []
    for command_id in range(1, 9):
        send(made, command_id, now_ms)
        made.lost(command_id, now_ms, "gone")
        wake = made.wake_at_ms()
        assert wake is not None
        pauses.append(wake - now_ms)
        now_ms = wake
    assert pauses[:3] == [FIRST_RETRY_MS, 2 * FIRST_RETRY_MS, 4 * FIRST_RETRY_MS]
    assert pauses[-1] == MAX_RETRY_MS


def test_an_answer_resets_the_pauses() -> None:
    made = control((0, 5))
    send(made, 1)
    made.lost(1, 0, "gone")
    send(made, 2, 100)
    made.answered(2, CommandResult(None, [ok(0, 5)]), 100)
    made.require(at(0), 6, 100)
    send(made, 3, 100)
    made.lost(3, 100, "gone")
    assert made.wake_at_ms() == 100 + FIRST_RETRY_MS


def test_a_command_names_a_bounded_number_of_partitions() -> None:
    made = control(*((p, 5) for p in range(MAX_PARTITIONS_PER_COMMAND + 1)))
    assert len(send(made)) == MAX_PARTITIONS_PER_COMMAND


@pytest.mark.rule("urgent-changes-do-not-queue")
def test_a_command_does_not_mix_stops_with_others() -> None:
    made = control((0, 5), (1, 5), (2, 5))
    stops, partitions = made.due(lambda p: p != at(1), 0)
    assert (stops, partitions) == (True, [at(0), at(2)])


def test_a_stop_of_an_unknown_replica_counts_as_acknowledged() -> None:
    made = control((0, 5))
    send(made, stops=True)
    gone = rejected(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert made.answered(1, CommandResult(None, [gone]), 0) == [at(0)]


def test_the_longest_wait_is_reported_once() -> None:
    made = control((0, 5))
    made.require(at(1), 6, 700)
    assert made.overdue_at_ms(10_000) == 10_000
    made.emit_overdue()
    assert made.overdue_at_ms(10_000) is None


def test_the_longest_wait_counts_only_partitions_that_still_wait() -> None:
    made = control((0, 5), (1, 5))
    made.require(at(2), 6, 700)
    assert (made.waiting_ms(1_000), made.overdue_at_ms(10_000)) == (1_000, 10_000)
    send(made, now_ms=800)
    made.answered(1, CommandResult(None, [ok(0, 5), ok(1, 5)]), 900)
    assert (made.waiting_ms(1_000), made.overdue_at_ms(10_000)) == (300, 10_700)
    made.require(at(0), 7, 950)
    made.forget(at(2))
    made.require(at(2), 8, 980)
    assert made.waiting_ms(1_000) == 50


def test_a_new_wait_after_all_are_acknowledged_is_reported_again() -> None:
    made = control((0, 5))
    made.emit_overdue()
    send(made)
    made.answered(1, CommandResult(None, [ok(0, 5)]), 0)
    made.require(at(0), 6, 500)
    assert made.overdue_at_ms(10_000) == 10_500


def test_waits_are_found_by_topic() -> None:
    made = control((0, 5), (1, 5))
    send(made)
    made.answered(1, CommandResult(None, [ok(0, 5)]), 0)
    assert made.waits_for_topic("t")
    made.forget(at(1))
    assert not made.waits_for_topic("t")


def test_a_broker_with_no_pending_partition_needs_no_wakeup() -> None:
    assert control().wake_at_ms() is None


def revisions(made: BrokerControl) -> tuple[int, int]:
    backlog = made.backlog(0, 1_000)
    return backlog.desired_revision, backlog.acknowledged_revision


def test_the_newest_desired_and_acknowledged_revisions_are_reported() -> None:
    made = control((0, 5), (1, 7))
    assert revisions(made) == (7, 0)
    send(made)
    made.require(at(0), 9, 0)
    made.answered(1, CommandResult(None, [ok(0, 5), rejected(1)]), 0)
    assert revisions(made) == (9, 5)
    send(made, 2, FIRST_RETRY_MS)
    made.answered(2, CommandResult(None, [ok(0, 9), ok(1, 7)]), FIRST_RETRY_MS)
    assert revisions(made) == (9, 9)


def test_a_pending_state_names_the_revision_that_the_broker_has_acknowledged() -> None:
    made = control((0, 5), (1, 6))
    send(made)
    made.answered(1, CommandResult(None, [ok(0, 5), rejected(1)]), 0)
    made.require(at(0), 8, 0)
    pending = {p.partition: p for p in made.backlog(0, 1_000).first}
    assert (pending[0].revision, pending[0].acknowledged_revision) == (8, 5)
    assert (pending[1].revision, pending[1].acknowledged_revision) == (6, 0)


def test_an_unknown_replica_has_acknowledged_its_stop() -> None:
    made = control((0, 5))
    send(made, stops=True)
    gone = rejected(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    made.answered(1, CommandResult(None, [gone]), 0)
    assert revisions(made) == (5, 5)


def test_a_forgotten_partition_without_acknowledgement_is_no_longer_desired() -> None:
    made = control((0, 5), (1, 9))
    send(made)
    made.forget(at(1))
    made.answered(1, CommandResult(None, [ok(0, 5)]), 0)
    assert revisions(made) == (5, 5)


def test_a_new_partition_of_the_same_name_does_not_inherit_the_acknowledged_revision() -> None:
    made = control((0, 5))
    send(made)
    made.answered(1, CommandResult(None, [ok(0, 5)]), 0)
    made.forget(at(0))
    made.require(at(0), 20, 0)
    (pending,) = made.backlog(0, 1_000).first
    assert pending.acknowledged_revision == 0


def test_a_resent_revision_is_no_backlog() -> None:
    made = control((0, 5), (1, 6))
    send(made)
    made.answered(1, CommandResult(None, [ok(0, 5), ok(1, 6)]), 0)
    made.require(at(0), 5, 100)
    made.require(at(1), 9, 200)
    backlog = made.backlog(1_300, 1_000)
    assert [(p.partition, p.revision) for p in backlog.first] == [(1, 9)]
    assert (backlog.pending, backlog.oldest_ms, backlog.overdue) == (1, 1_100, True)
    assert len(made) == 2


def progress(made: BrokerControl, now_ms: int) -> tuple[int, int, int]:
    backlog = made.backlog(now_ms, 1_000)
    return backlog.working_ms, backlog.acknowledged, backlog.last_acknowledged_ms


def test_a_backlog_counts_acknowledgements_since_it_began() -> None:
    made = control((0, 5), (1, 6), (2, 7))
    send(made)
    assert progress(made, 900) == (900, 0, 0)
    made.answered(1, CommandResult(None, [ok(0, 5), ok(1, 6), rejected(2)]), 1_000)
    assert progress(made, 1_200) == (1_200, 2, 200)


def test_an_answer_with_known_revisions_is_no_progress() -> None:
    made = control((0, 5), (1, 6))
    send(made)
    made.answered(1, CommandResult(None, [ok(0, 5), rejected(1)]), 100)
    made.require(at(0), 5, 200)
    send(made, 2, 300)
    made.answered(2, CommandResult(None, [ok(0, 5), rejected(1)]), 400)
    assert progress(made, 500) == (500, 1, 400)


def test_acknowledgements_from_before_the_backlog_began_do_not_count() -> None:
    made = control((0, 5))
    send(made)
    made.answered(1, CommandResult(None, [ok(0, 5)]), 100)
    assert progress(made, 200) == (0, 0, 0)
    made.require(at(0), 9, 3_000)
    assert progress(made, 3_500) == (500, 0, 0)
