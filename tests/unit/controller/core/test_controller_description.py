"""How an active controller describes its state."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.state_reports import ControllerState, PartitionMoveState, StateRequest
from tidelog.model import NO_LEADER
from tidelog.state_changes.event import Cause
from tidelog_controller.control.broker_control import MAX_PENDING_NAMED
from tidelog_controller.core import controller_description
from tidelog_controller.core.controller_description import not_found, partitions_in_slices
from tidelog_runtime.departed_brokers import REPORT_WITHOUT_REPLICAS_MS
from unit.controller import operated
from unit.controller.driver import COMMAND_TIMEOUT_MS, WALL_MS, Driver, cluster
from unit.controller.lost_data import down, reboot


def described(driver: Driver, request: StateRequest | None = None) -> ControllerState:
    """As the shell describes it, with partitions."""
    request = request or StateRequest()
    state = driver.controller.describe(request, driver.now_ms)
    slices = partitions_in_slices(driver.controller.context, request)
    return replace(state, partitions=tuple(chain.from_iterable(slices)))


def with_topic(partitions: int = 3) -> Driver:
    driver = cluster(1, 2, 3)
    driver.create_topic(partitions=partitions)
    return driver


def names(state: ControllerState) -> list[str]:
    return [f"{p.topic}/{p.partition}" for p in state.partitions]


def test_a_healthy_cluster_has_no_problems_to_list() -> None:
    state = described(with_topic())
    assert (state.active, state.partition_count) == (True, 3)
    assert [b.broker_id for b in state.registered] == [1, 2, 3]
    assert [(b.broker_id, b.pending, b.overdue) for b in state.backlogs] == [
        (1, 0, False),
        (2, 0, False),
        (3, 0, False),
    ]
    assert (state.departures, state.deletions, state.partitions) == ((), (), ())


def test_requested_partitions_are_described_whether_healthy_or_not() -> None:
    driver = with_topic()
    assert names(described(driver, StateRequest(topic="t"))) == ["t/0", "t/1", "t/2"]
    assert names(described(driver, StateRequest(topic="t", partition=1))) == ["t/1"]
    assert names(described(driver, StateRequest(topic="t", only_unwell=True))) == []
    assert names(described(driver, StateRequest(topic="other"))) == []


def test_a_moving_partition_names_source_target_and_the_replicas_it_waits_for() -> None:
    driver = with_topic(partitions=1)
    driver.start_broker(4)
    driver.request_move(1, 2, 4)
    (partition,) = described(driver).partitions
    original = driver.state().replicas[:3]
    assert partition.move == PartitionMoveState("op", original, (1, 2, 4), False, (4,))
    driver.leader_writes_isr(0, 1, 2, 3, 4)
    driver.watch()
    (settled,) = described(driver, StateRequest(topic="t")).partitions
    assert settled.move is None


def test_a_cancelled_move_names_the_replicas_it_waits_for() -> None:
    driver = with_topic(partitions=1)
    driver.start_broker(4)
    driver.start_broker(5)
    driver.request_move(4, 5)
    original, leader = driver.state().replicas[:3], driver.state().leader
    others = tuple(b for b in original if b != leader)
    driver.leader_writes_isr(0, leader, 4)
    driver.request_move(4, 5, cancelled=True)
    (partition,) = described(driver).partitions
    assert partition.move == PartitionMoveState("op", original, (4, 5), True, others)


def test_partitions_are_described_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_description, "DESCRIBED_PER_SLICE", 2)
    monkeypatch.setattr(controller_description, "SEEN_PER_SLICE", 3)
    context = with_topic(partitions=7).controller.context
    slices = partitions_in_slices(context, StateRequest(topic="t"))
    assert [[p.partition for p in some] for some in slices] == [[0, 1], [2], [3, 4], [5], [6]]
    # Partitions that are read but not returned count towards a slice too.
    assert list(partitions_in_slices(context, StateRequest())) == [[], [], []]


def not_found_in(driver: Driver, topic: str, partition: int | None = None) -> str:
    error = not_found(driver.controller.context, StateRequest(topic, partition))
    assert error is None or error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return error.message if error else ""


def test_unknown_names_are_reported_as_not_found() -> None:
    driver = with_topic()
    assert "topic 'other' does not exist; create it first" in not_found_in(driver, "other")
    assert "'t' does not exist; its partitions are 0 to 2" in not_found_in(driver, "t", 3)
    assert [not_found_in(driver, *known) for known in (("",), ("t",), ("t", 2))] == [""] * 3


def test_a_topic_that_is_being_deleted_is_still_known() -> None:
    driver = with_topic()
    driver.brokers[3].mute = True
    driver.delete_topic()
    assert not_found_in(driver, "t") == ""


def test_partitions_are_selected_by_the_members_of_their_isrs_healthy_or_not() -> None:
    driver = cluster(1, 2, 3)
    driver.create_topic(partitions=3, replication_factor=2)
    replicas = [driver.state(p).replicas for p in range(3)]
    for broker_id in (1, 2, 3):
        held = [f"t/{p}" for p in range(3) if broker_id in replicas[p]]
        asked = StateRequest(only_unwell=True, in_isr=(broker_id,))
        assert 0 < len(held) < 3
        assert names(described(driver, asked)) == held


def test_a_query_by_isr_member_returns_no_other_partition() -> None:
    driver = with_topic(partitions=1)
    driver.refuse_connection(driver.state().leader)
    assert len(names(described(driver))) == 1
    assert names(described(driver, StateRequest(only_unwell=True, in_isr=(9,)))) == []


def test_a_partition_names_the_change_that_caused_its_state() -> None:
    driver = with_topic(partitions=1)
    driver.refuse_connection(driver.state().leader)
    (partition,) = described(driver).partitions
    change = driver.state().change
    assert (partition.change_id, partition.change_cause) == (change.id, "broker_crashed")
    assert partition.changed_at_ms == change.requested_at_ms
    assert [member.broker_id for member in partition.isr] == [1, 3]


def test_a_partition_not_led_by_its_preferred_replica_is_listed() -> None:
    driver = with_topic(partitions=1)
    preferred = driver.state().leader
    driver.refuse_connection(preferred)
    driver.start_broker(preferred)
    driver.watch()
    driver.leader_writes_isr(0, 1, 2, 3)
    driver.watch()
    (partition,) = described(driver).partitions
    assert len(partition.isr) == 3
    assert (partition.leader != preferred, partition.replicas[0]) == (True, preferred)


def test_a_partition_that_lost_records_reports_how_many() -> None:
    driver = down()
    for broker_id, end in ((1, 7), (2, 12), (3, 9)):
        driver.start_broker(broker_id).logs[0] = (end, ((0, 0),))
    driver.brokers[1].logs[0] = (7, ((0, 0), (1, 6)))
    driver.watch()
    (partition,) = described(driver).partitions
    assert (partition.leader, partition.lost_records) == (1, 6)
    driver.take_over()
    (partition,) = described(driver).partitions
    assert (partition.leader, partition.lost_records) == (1, 6)


def test_a_partition_without_a_leader_lists_its_last_isr() -> None:
    driver = down()
    (partition,) = described(driver).partitions
    assert partition.leader == NO_LEADER
    assert [member.broker_id for member in partition.isr] == [1, 2, 3]


def test_departed_brokers_are_listed_newest_first_until_they_return() -> None:
    driver = with_topic()
    driver.refuse_connection(2)
    driver.pass_time(5_000)
    driver.kill_broker(3)
    driver.watch()
    newest, older = described(driver).departures
    assert (newest.broker_id, newest.cause) == (3, Cause.BROKER_LEASE_ENDED.value)
    assert (older.broker_id, older.cause) == (2, Cause.BROKER_CRASHED.value)
    assert newest.at_ms == WALL_MS + driver.now_ms == older.at_ms + 5_000
    assert older.address == "10.0.0.2:7500"
    reboot(driver, 3)
    driver.watch()
    assert [d.broker_id for d in described(driver).departures] == [2]


def test_the_next_controller_lists_the_same_departures() -> None:
    driver = with_topic()
    driver.refuse_connection(2)
    driver.pass_time(5_000)
    driver.kill_broker(3)
    driver.watch()
    before = described(driver).departures
    driver.take_over()
    assert described(driver).departures == before
    assert [d.broker_id for d in before] == [3, 2]


def test_a_departed_broker_without_replicas_is_listed_for_a_day() -> None:
    driver = cluster(1, 2, 3)
    driver.kill_broker(3)
    driver.watch()
    driver.pass_time(REPORT_WITHOUT_REPLICAS_MS)
    driver.take_over()
    assert [d.broker_id for d in described(driver).departures] == [3]
    driver.pass_time(1)
    driver.watch()
    assert described(driver).departures == ()


def test_a_departed_broker_with_replicas_is_listed_until_it_returns() -> None:
    driver = with_topic()
    driver.kill_broker(3)
    driver.watch()
    driver.pass_time(3 * REPORT_WITHOUT_REPLICAS_MS)
    driver.take_over()
    assert [d.broker_id for d in described(driver).departures] == [3]


def test_a_backlog_lists_what_the_broker_rejects_and_how_long_it_has_waited() -> None:
    driver = with_topic()
    driver.brokers[3].refuse = lambda _: TidelogError(ErrorCode.STORAGE_ERROR, "no room")
    driver.refuse_connection(2)
    driver.pass_time(COMMAND_TIMEOUT_MS)
    backlog = next(b for b in described(driver).backlogs if b.broker_id == 3)
    assert (backlog.overdue, backlog.oldest_ms) == (True, COMMAND_TIMEOUT_MS)
    assert backlog.pending == len(backlog.first)
    assert {pending.problem for pending in backlog.first} == {"no room"}


def test_a_long_backlog_lists_only_the_first_entries() -> None:
    driver = with_topic(partitions=50)
    driver.brokers[3].mute = True
    driver.refuse_connection(2)
    backlog = next(b for b in described(driver).backlogs if b.broker_id == 3)
    assert backlog.pending > MAX_PENDING_NAMED
    assert len(backlog.first) == MAX_PENDING_NAMED


def test_a_backlog_lists_requested_partitions_first() -> None:
    driver = with_topic(partitions=50)
    driver.brokers[3].mute = True
    driver.refuse_connection(2)
    last = max(
        p
        for p in range(50)
        for b in described(driver, StateRequest("t", p)).backlogs
        if b.broker_id == 3 and b.first[0].partition == p
    )
    assert last >= MAX_PENDING_NAMED
    without = next(b for b in described(driver).backlogs if b.broker_id == 3)
    assert last not in {pending.partition for pending in without.first}


def test_lost_commands_are_reported_as_a_problem_of_the_backlog() -> None:
    driver = with_topic()
    driver.brokers[3].lose = True
    driver.refuse_connection(2)
    backlog = next(b for b in described(driver).backlogs if b.broker_id == 3)
    assert backlog.problem == "gone"
    driver.brokers[3].lose = False
    driver.pass_time(5_000)
    backlog = next(b for b in described(driver).backlogs if b.broker_id == 3)
    assert (backlog.pending, backlog.problem) == (0, "")


def test_a_deletion_names_the_brokers_that_it_waits_for_and_no_partition() -> None:
    driver = with_topic()
    driver.brokers[3].mute = True
    driver.delete_topic()
    driver.pass_time(4_000)
    state = described(driver)
    (deletion,) = state.deletions
    assert (deletion.topic, deletion.brokers, deletion.waiting_ms) == ("t", (3,), 4_000)
    assert state.partitions == ()
    driver.answer(driver.unanswered.pop())
    assert described(driver).deletions == ()


def test_a_partition_that_waits_for_enough_brokers_is_listed() -> None:
    driver = cluster(1, 2, 3)
    driver.hold_transactions = True
    driver.create_topic(partitions=1)
    driver.kill_broker(3)
    driver.watch()
    driver.release()
    (partition,) = described(driver).partitions
    assert (partition.topic, partition.replicas, partition.leader) == ("t", (), NO_LEADER)
    assert partition.replication_factor == 3


def test_a_removal_of_partitions_names_the_brokers_that_it_waits_for() -> None:
    driver = with_topic()
    driver.brokers[3].mute = True
    driver.remove_partitions(1)
    driver.pass_time(4_000)
    (removal,) = described(driver).deletions
    assert (removal.topic, removal.first_partition, removal.waiting_ms) == ("t", 1, 4_000)
    assert removal.brokers == (3,)
    driver.brokers[3].mute = False
    driver.answer(driver.unanswered.pop())
    assert described(driver).deletions == ()


def test_unfinished_operations_report_what_their_moves_wait_for() -> None:
    driver = operated.with_topic(12)
    driver.start_broker(5)
    driver.watch()
    driver.hold_transactions = True
    to_4 = [(n, (4, driver.state(n).replicas[0])) for n in range(6)]
    to_5 = [(n, (5, driver.state(n).replicas[0])) for n in range(6, 12)]
    driver.begin_operation(operated.by_hand(*to_4, *to_5), "op")
    driver.kill_broker(5)
    driver.watch()
    driver.release()
    (operation,) = described(driver).operations
    assert (operation.operation, operation.kind) == ("op", "reassignment")
    assert (operation.moves_waiting, operation.moves_active, operation.moves_done) == (7, 5, 0)
    assert (operation.not_ready, operation.busy) == ((5,), (4,))
    operated.catch_up(driver)
    driver.start_broker(5)
    driver.watch()
    operated.catch_up(driver)
    assert described(driver).operations == ()


def test_moves_of_partitions_without_a_leader_are_counted() -> None:
    driver = operated.with_topic(1, factor=1)
    driver.kill_broker(driver.state().leader)
    driver.watch()
    driver.begin_operation(operated.by_hand((0, (4,))), "op")
    (operation,) = described(driver).operations
    assert (operation.moves_active, operation.without_leader) == (1, 1)
