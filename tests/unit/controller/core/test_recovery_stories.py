"""Recovery by the whole core: descriptions of logs, and unclean elections."""

from __future__ import annotations

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.inspection.state_reports import NOT_KNOWN
from tidelog.model import NO_EPOCH, NO_LEADER
from tidelog.state_changes.event import Cause, Change, Kind, Stage
from tidelog_controller.state.events import ReplicasDescribed
from tidelog_runtime.metadata.schema import NOT_WHOLE, Member
from tidelog_runtime.metadata.store import ModRevision, Transaction
from tidelog_runtime.replica_control import DescribeReplicasResult
from unit.controller.driver import KEYS, cluster
from unit.controller.lost_data import (
    MANUAL,
    T0,
    UNCLEAN,
    down,
    is_unclean,
    leader,
    reboot,
    write,
)

# Without an administrator.


@pytest.mark.rule("unclean-elections-are-marked")
def test_when_all_have_lost_data_the_longest_log_is_elected_and_marked() -> None:
    driver = down()
    reboot(driver, 1, 2, 3)
    driver.brokers[3].logs = {0: (9, ((0, 0),))}
    driver.watch()
    state = driver.state()
    assert (state.leader, state.unclean_leader_epoch) == (3, state.leader_epoch)
    assert state.isr == (Member(3, driver.brokers[3].broker_epoch),)


def test_logs_are_requested_once_their_brokers_have_the_newest_state() -> None:
    driver = down(partitions=2)
    reboot(driver, 1, 2, 3)
    driver.watch()
    described = [line for line in driver.transcript if "full" in line or "describe" in line]
    assert described[:3] == [f"broker {b} full state t/0:-1 t/1:-1" for b in (1, 2, 3)]
    assert described[3:] == [f"broker {b} describe 0 1" for b in (1, 2, 3)]


def test_no_log_is_requested_while_a_last_known_member_is_away() -> None:
    driver = down()
    reboot(driver, 1, 2)
    driver.watch()
    assert (driver.questions, leader(driver)) == ([], NO_LEADER)


def test_an_intact_member_that_returns_in_the_meantime_is_elected_cleanly() -> None:
    driver = down()
    reboot(driver, 1, 2)
    driver.watch()
    driver.start_broker(3, whole_since=1)
    driver.watch()
    assert (leader(driver), driver.state().unclean_leader_epoch) == (3, NO_EPOCH)
    assert driver.questions == []


@pytest.mark.rule("best-last-known-log-leads")
def test_an_unclean_election_waits_for_registrations_that_the_watch_has_yet_to_deliver() -> None:
    """Members register just before their partition is written without a leader. The answer to that
    write arrives before the watch delivers their registrations.
    """
    driver = cluster(1, 2, 3)
    driver.create_topic(partitions=1, config={"min_insync_replicas": "1", **UNCLEAN})
    driver.kill_broker(3)
    driver.watch()
    driver.start_broker(3)
    driver.watch()
    assert {member.broker_id for member in driver.state().isr} == {1, 2}

    def come_back(_: Transaction) -> None:
        driver.before_transaction = None
        for broker_id in (1, 2):
            driver.start_broker(broker_id, whole_since=1)

    driver.before_transaction = come_back
    for broker_id in (1, 2):
        driver.kill_broker(broker_id)
    driver.watch()
    assert leader(driver) in (1, 2)
    assert driver.state().unclean_leader_epoch == NO_EPOCH


def test_logs_of_many_partitions_are_requested_once_per_broker() -> None:
    driver = down(partitions=300)
    reboot(driver, 1, 2, 3)
    driver.watch()
    assert [len(q.command.partitions) for q in driver.questions] == [300, 300, 300]
    assert all(is_unclean(driver, number) for number in range(300))


def test_a_lost_request_is_repeated_after_a_pause() -> None:
    driver = down()
    reboot(driver, 1, 2, 3)
    driver.brokers[2].lost_questions = 2
    driver.watch()
    driver.pass_time(50)
    assert leader(driver) == NO_LEADER
    driver.pass_time(1_000)
    assert leader(driver) != NO_LEADER
    assert len(driver.questions) == 5


def test_a_broker_that_does_not_answer_is_waited_for_without_a_timer() -> None:
    driver = down()
    reboot(driver, 1, 2, 3)
    driver.brokers[2].silent = True
    driver.watch()
    assert leader(driver) == NO_LEADER
    assert len(driver.questions) == 3
    driver.pass_time(60_000)
    assert len(driver.questions) == 3


def test_the_next_incarnation_of_a_broker_is_asked_again() -> None:
    driver = down()
    reboot(driver, 1, 2, 3)
    driver.brokers[2].silent = True
    driver.watch()
    reboot(driver, 2, end=9)
    driver.watch()
    assert leader(driver) == 2


def test_a_log_description_from_a_previous_incarnation_is_ignored() -> None:
    driver = down()
    reboot(driver, 1, 2, 3)
    driver.brokers[1].logs = {0: (9, ((0, 0),))}
    driver.brokers[3].silent = True
    driver.watch()
    asked = driver.questions[-1]
    reboot(driver, 1, end=2)
    driver.brokers[1].silent = True
    driver.watch()
    answer = driver.brokers[3].describe(asked.command)
    driver.feed(ReplicasDescribed(3, driver.brokers[3].broker_epoch, asked.id, answer))
    assert leader(driver) == NO_LEADER


def test_an_answer_to_a_request_from_before_a_change_is_ignored() -> None:
    driver = down()
    reboot(driver, 1, 2, 3)
    driver.brokers[1].logs = {0: (7, ((0, 0),))}
    driver.brokers[3].silent = True
    driver.watch()
    late = driver.questions[-1]
    # A member resigns, which changes the key.
    write(driver, driver.state().resigned(1))
    driver.watch()
    driver.brokers[3].silent = False
    (summary,) = driver.brokers[3].describe(late.command).replicas
    longer = DescribeReplicasResult(replicas=[summary._replace(log_end_offset=99)])
    driver.feed(ReplicasDescribed(3, driver.brokers[3].broker_epoch, late.id, longer))
    assert leader(driver) == 1


def test_a_log_described_at_an_older_revision_is_requested_again() -> None:
    driver = down()
    reboot(driver, 1, 2, 3)
    driver.brokers[3].silent = True
    driver.watch()
    question = driver.questions[-1]
    driver.brokers[3].silent = False
    (summary,) = driver.brokers[3].describe(question.command).replicas
    older = DescribeReplicasResult(replicas=[summary._replace(revision=summary.revision - 1)])
    driver.feed(ReplicasDescribed(3, driver.brokers[3].broker_epoch, question.id, older))
    assert (leader(driver), len(driver.questions)) == (NO_LEADER, 3)
    driver.pass_time(1_000)
    assert (is_unclean(driver), len(driver.questions)) == (True, 4)


def test_replicas_are_informed_of_every_change_while_there_is_no_leader() -> None:
    driver = down()
    reboot(driver, 1, 2)
    driver.watch()
    driver.transcript.clear()
    write(driver, driver.state().resigned(1))
    driver.watch()
    assert driver.transcript == ["broker 1 lead t/0:-1", "broker 2 lead t/0:-1"]


def test_a_broker_that_dies_during_the_requests_is_waited_for_again() -> None:
    driver = down()
    reboot(driver, 1, 2, 3)
    driver.brokers[3].silent = True
    driver.watch()
    driver.kill_broker(3)
    driver.watch()
    assert leader(driver) == NO_LEADER
    reboot(driver, 3)
    driver.watch()
    assert leader(driver) != NO_LEADER


def test_the_election_compares_the_revision_at_which_the_logs_were_described() -> None:
    driver = down()
    revision = driver.store.items[KEYS.leader_and_isr(T0)].mod_revision
    reboot(driver, 1, 2, 3)
    driver.watch()
    assert ModRevision(KEYS.leader_and_isr(T0), revision) in driver.transactions[-1].guards


def test_a_conflict_discards_all_descriptions() -> None:
    driver = down()
    reboot(driver, 1, 2, 3)

    def a_member_resigns(_: Transaction) -> None:
        driver.before_transaction = None
        write(driver, driver.state().resigned(2))

    driver.before_transaction = a_member_resigns
    driver.watch()
    assert is_unclean(driver)
    assert len(driver.questions) == 6


def test_a_replica_that_could_not_be_opened_is_described_once_it_is_open() -> None:
    driver = down()
    reboot(driver, 1, 2, 3)
    broken = TidelogError(ErrorCode.STORAGE_ERROR, "no space")
    driver.brokers[2].refuse = lambda _: broken
    driver.watch()
    assert leader(driver) == NO_LEADER
    driver.brokers[2].refuse = lambda _: None
    driver.pass_time(10_000)
    assert is_unclean(driver)


def test_a_replica_under_repair_is_requested_until_it_is_available() -> None:
    driver = down()
    reboot(driver, 1, 2, 3)
    driver.brokers[2].under_repair = {0}
    driver.watch()
    driver.pass_time(60_000)
    assert leader(driver) == NO_LEADER
    assert len(driver.questions) < 50
    driver.brokers[2].under_repair = set()
    driver.pass_time(2_000)
    assert is_unclean(driver)


def test_a_log_request_reveals_a_deposition_too() -> None:
    driver = down()
    reboot(driver, 1, 2, 3)
    driver.brokers[1].silent = True
    driver.watch()
    question = driver.questions[0]
    newer = TidelogError(ErrorCode.STALE_CONTROLLER_EPOCH, "newer")
    epoch = driver.brokers[1].broker_epoch
    driver.feed(ReplicasDescribed(1, epoch, question.id, DescribeReplicasResult(newer)))
    assert driver.stepped_down == "broker 1 obeys a newer controller"


def test_a_new_controller_requests_again_and_completes_the_recovery() -> None:
    driver = down()
    reboot(driver, 1, 2, 3)
    driver.brokers[2].silent = True
    driver.watch()
    driver.brokers[2].silent = False
    driver.take_over()
    assert is_unclean(driver)


def test_unclean_elections_are_logged_by_partition() -> None:
    driver = down(partitions=2)
    reboot(driver, 1, 2, 3)
    driver.watch()
    published = driver.published_events(Kind.UNCLEAN_ELECTION, stage=Stage.COMPLETED)
    leaders = {str(t.name): t.details["leader"] for t in published}
    assert leaders == {"t/0": leader(driver, 0), "t/1": leader(driver, 1)}


def test_with_unclean_elections_allowed_the_best_live_replica_leads() -> None:
    driver = down(config=UNCLEAN)
    reboot(driver, 1)
    driver.watch()
    assert (leader(driver), is_unclean(driver)) == (1, True)


# Resigned replicas (rule `damaged-replica-resigns-first`).


def test_where_the_last_member_resigns_it_leads_again_only_by_recovery() -> None:
    driver = cluster(1)
    driver.create_topic(partitions=1, replication_factor=1)
    write(driver, driver.state().resigned(1))
    driver.watch()
    state = driver.state()
    assert (state.leader, state.leader_epoch, state.unclean_leader_epoch) == (1, 2, 2)
    assert state.leader_broker_epoch == driver.brokers[1].broker_epoch


def test_the_loss_of_the_last_member_is_not_reported_as_none() -> None:
    driver = cluster(1)
    driver.create_topic(partitions=1, replication_factor=1)
    write(driver, driver.state().resigned(1))
    driver.watch()
    assert driver.state().unclean_lost_records == NOT_KNOWN


def test_under_manual_recovery_a_resigned_replica_waits_for_consent() -> None:
    driver = cluster(1)
    driver.create_topic(partitions=1, replication_factor=1, config=MANUAL)
    write(driver, driver.state().resigned(1))
    driver.watch()
    assert (leader(driver), driver.state().isr) == (NO_LEADER, (Member(1, NOT_WHOLE),))


def test_a_leader_that_resigns_is_replaced_at_once() -> None:
    driver = cluster(1, 2, 3)
    driver.create_topic(partitions=1)
    previous = leader(driver)
    write(driver, driver.state().resigned(previous))
    driver.watch()
    state = driver.state()
    assert state.leader not in (previous, NO_LEADER)
    assert previous not in state.isr_ids
    assert not is_unclean(driver)


def test_the_time_of_an_unclean_election_survives_isr_changes() -> None:
    driver = cluster(1)
    driver.create_topic(partitions=1, replication_factor=1)
    write(driver, driver.state().resigned(1))
    driver.watch()
    elected = driver.state()
    assert elected.unclean_elected_at_ms == elected.change.requested_at_ms > 0
    later = elected.with_isr(elected.isr).with_change(Change("b1-7", Cause.CAUGHT_UP, 77))
    write(driver, later)
    driver.watch()
    assert driver.state().unclean_elected_at_ms == elected.unclean_elected_at_ms
