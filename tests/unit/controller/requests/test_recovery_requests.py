"""Consent to recovery: requests, stored consents, and their effects."""

from __future__ import annotations

import pytest

from tidelog.errors import ErrorCode
from tidelog.model import NO_LEADER
from tidelog_runtime.metadata.schema import (
    LeaderAndIsr,
    Member,
    RecoveryConsent,
)
from tidelog_runtime.metadata.store import Transaction
from unit.controller.driver import KEYS, cluster
from unit.controller.lost_data import (
    MANUAL,
    T0,
    consent,
    consents,
    down,
    is_unclean,
    leader,
    reboot,
    write,
)


def test_manual_recovery_waits_for_consent_and_consent_ends_with_the_election() -> None:
    driver = down(config=MANUAL)
    reboot(driver, 1, 2, 3)
    driver.watch()
    assert (driver.questions, leader(driver)) == ([], NO_LEADER)
    request = driver.recover()
    assert is_unclean(driver)
    assert driver.replies[request].partitions == ((0, None),)
    assert consents(driver) == []


def test_consent_and_election_are_one_transaction() -> None:
    driver = down(config=MANUAL)
    reboot(driver, 1, 2, 3)
    driver.watch()
    driver.recover()
    keys = [change.key for change in driver.transactions[-1].changes]
    assert keys == [KEYS.leader_and_isr(T0), KEYS.recovery(T0)]


def test_consented_elections_of_many_partitions_fit_into_transactions() -> None:
    driver = down(partitions=150, config=MANUAL)
    reboot(driver, 1, 2, 3)
    driver.watch()
    driver.transactions.clear()
    driver.recover()
    assert all(is_unclean(driver, number) for number in range(150))
    assert max(len(t.changes) for t in driver.transactions) <= 120
    assert max(len(t.guards) for t in driver.transactions) <= 128
    assert consents(driver) == []


def test_all_standing_consents_fit_into_transactions_too() -> None:
    driver = down(partitions=150)
    topic_id = driver.state().topic_id
    # The first partition needs no consent; its single change is written before the pairs of
    # changes.
    for number in range(1, 150):
        consent(driver, RecoveryConsent(topic_id, from_live_replicas=False), number)
    driver.watch()
    driver.transactions.clear()
    reboot(driver, 1, 2, 3)
    driver.watch()
    assert [len(t.changes) for t in driver.transactions] == [119, 120, 60]
    assert consents(driver) == []


def test_a_standing_consent_is_carried_out_by_the_next_controller() -> None:
    driver = down(config=MANUAL)
    reboot(driver, 1, 2)
    driver.watch()
    driver.recover()
    assert (len(consents(driver)), leader(driver)) == (1, NO_LEADER)
    driver.take_over()
    reboot(driver, 3)
    driver.watch()
    assert (consents(driver), is_unclean(driver)) == ([], True)


def test_a_clean_election_consumes_a_consent_too() -> None:
    driver = down(config=MANUAL)
    driver.recover()
    driver.start_broker(2, whole_since=1)
    driver.watch()
    assert (leader(driver), is_unclean(driver), consents(driver)) == (2, False, [])


def test_consent_to_live_replicas_does_not_wait_for_absent_ones() -> None:
    driver = down(config=MANUAL)
    reboot(driver, 2)
    driver.watch()
    request = driver.recover(from_live_replicas=True)
    assert (leader(driver), is_unclean(driver)) == (2, True)
    assert driver.replies[request].partitions == ((0, None),)


def test_a_wider_consent_replaces_a_narrower_one_and_not_the_reverse() -> None:
    driver = down(config=MANUAL)
    driver.recover()
    driver.recover(from_live_replicas=True)
    driver.recover()
    reboot(driver, 2)
    driver.watch()
    assert leader(driver) == 2


def test_a_partition_with_a_leader_needs_no_consent() -> None:
    driver = cluster(1, 2, 3)
    driver.create_topic(partitions=2)
    request, named = driver.recover(), driver.recover(1, 0, 1)
    assert driver.replies[request].partitions == ()
    assert driver.replies[named].partitions == ((0, None), (1, None))
    assert consents(driver) == []


def test_a_request_that_times_out_names_the_replicas_it_waits_for() -> None:
    driver = down(config=MANUAL)
    reboot(driver, 2)
    driver.watch()
    request = driver.recover(timeout_ms=1_000)
    driver.pass_time(1_000)
    ((number, error),) = driver.replies[request].partitions
    assert error is not None
    assert (number, error.code) == (0, ErrorCode.REQUEST_TIMED_OUT)
    away = [b for b in driver.state().replicas if b != 2]
    assert f"waits for the replicas {away}" in error.message
    # The consent remains.
    assert len(consents(driver)) == 1


def test_a_request_reports_that_no_replica_is_running() -> None:
    driver = down(config=MANUAL)
    request = driver.recover(from_live_replicas=True, timeout_ms=1_000)
    driver.pass_time(1_000)
    ((_, error),) = driver.replies[request].partitions
    assert error is not None
    assert "any of its replicas" in error.message


@pytest.mark.parametrize(
    ("topic", "partition", "message"),
    [("u", 0, "'u' does not exist"), ("t", 7, "partition 7 of"), ("t", -1, "partition -1 of")],
)
def test_an_unknown_partition_is_rejected(topic: str, partition: int, message: str) -> None:
    driver = down()
    request = driver.recover(partition, topic=topic)
    error = driver.replies[request].error
    assert error is not None
    assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert message in error.message


def test_a_topic_that_is_being_deleted_is_not_recovered() -> None:
    driver = down(config=MANUAL)
    waiting = driver.recover()
    reboot(driver, 1)
    driver.watch()
    driver.brokers[1].mute = True
    driver.delete_topic()
    late = driver.recover()
    for request, has_begun in ((waiting, True), (late, False)):
        error = driver.replies[request].error
        assert error is not None
        assert error.code is ErrorCode.TOPIC_BEING_DELETED
        assert error.outcome_unknown is has_begun
    driver.brokers[1].mute = False
    driver.kill_broker(1)
    driver.watch()
    # Its consent is deleted with it.
    assert (consents(driver), KEYS.topic("t") in driver.store.items) == ([], False)


def test_a_consent_to_a_previous_topic_of_the_name_is_removed_without_effect() -> None:
    driver = down(config=MANUAL)
    reboot(driver, 1, 2, 3)
    driver.watch()
    consent(driver, RecoveryConsent("another", from_live_replicas=True))
    driver.watch()
    assert (leader(driver), consents(driver)) == (NO_LEADER, [])


def test_a_consent_stored_for_a_partition_with_a_leader_is_removed() -> None:
    driver = cluster(1)
    driver.create_topic(partitions=1, replication_factor=1)
    consent(driver, RecoveryConsent(driver.state().topic_id, from_live_replicas=True))
    driver.watch()
    assert (consents(driver), driver.state().leader_epoch) == ([], 0)


def test_a_malformed_consent_is_logged_and_left_alone() -> None:
    driver = down(config=MANUAL)
    reboot(driver, 1, 2, 3)
    driver.watch()
    driver.store.put(KEYS.recovery(T0), b"{not json")
    driver.watch()
    request = driver.recover(timeout_ms=1_000)
    driver.pass_time(1_000)
    ((_, error),) = driver.replies[request].partitions
    assert error is not None
    assert KEYS.recovery(T0) in error.message


def test_no_consent_is_written_for_a_partition_elected_meanwhile() -> None:
    driver = down(config=MANUAL)

    def the_first_comes_back(_: Transaction) -> None:
        driver.before_transaction = None
        led = driver.state()
        driver.start_broker(1, whole_since=1)
        member = Member(1, driver.brokers[1].broker_epoch)
        write(driver, LeaderAndIsr(led.topic_id, led.replicas, 1, 1, 9, (member,), (), 1))

    driver.before_transaction = the_first_comes_back
    request = driver.recover()
    assert driver.replies[request].partitions == ((0, None),)
    assert "transaction of 1 rejected" in driver.transcript
    assert consents(driver) == []
