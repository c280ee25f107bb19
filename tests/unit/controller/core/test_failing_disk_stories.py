"""Transfers of leadership from leaders whose disks reject writes, through the controller."""

from __future__ import annotations

import pytest

from tidelog.state_changes.event import Cause, Kind, Stage
from tidelog_controller.state.failing_disks import REPORT_EXPIRY_MS
from tidelog_controller.state.partition_cooldowns import FIRST_COOLDOWN_MS
from unit.controller.core.test_deposition_stories import number_led_by
from unit.controller.driver import Driver, cluster


def written_cluster() -> tuple[Driver, int]:
    """Three brokers in sync, and the partition that broker 1 leads."""
    driver = cluster(1, 2, 3)
    driver.create_topic()
    return driver, number_led_by(driver, 1)


def test_a_leader_with_a_full_disk_transfers_leadership_to_an_in_sync_replica() -> None:
    driver, number = written_cluster()
    before = driver.state(number)
    driver.report_disk(1, number)
    after = driver.state(number)
    assert after.leader in (2, 3)
    assert after.leader_epoch == before.leader_epoch + 1
    assert after.isr_ids == {2, 3}


def test_the_transfer_is_reported_with_its_cause_and_both_leaders() -> None:
    driver, number = written_cluster()
    driver.report_disk(1, number)
    published = driver.published_events(Kind.ELECTION, stage=Stage.COMPLETED)[-1]
    assert (str(published.name), published.change.cause) == (f"t/{number}", Cause.DISK_FULL)
    leaders = (published.details["leader_before"], published.details["leader"])
    assert leaders == (1, driver.state(number).leader)


def test_partitions_that_are_not_reported_stay() -> None:
    driver, number = written_cluster()
    driver.report_disk(1)
    assert driver.state(number).leader == 1


def test_a_report_of_an_earlier_epoch_has_no_effect() -> None:
    driver, number = written_cluster()
    driver.report_disk(1, number)
    second = driver.state(number)
    driver.pass_time(2 * FIRST_COOLDOWN_MS)
    assert driver.state(number) == second


def test_a_broker_whose_own_disk_rejects_writes_gets_no_leadership() -> None:
    driver, number = written_cluster()
    driver.report_disk(2)
    driver.report_disk(1, number)
    assert driver.state(number).leader == 3


def test_where_every_disk_is_full_leadership_is_not_transferred() -> None:
    driver, number = written_cluster()
    for broker_id in (2, 3):
        driver.report_disk(broker_id)
    driver.report_disk(1, number)
    before = driver.state(number)
    driver.pass_time(4_000)
    assert driver.state(number) == before


def test_an_expired_report_keeps_no_broker_from_leading() -> None:
    driver, number = written_cluster()
    for broker_id in (2, 3):
        driver.report_disk(broker_id)
    driver.pass_time(REPORT_EXPIRY_MS)
    driver.report_disk(1, number)
    assert driver.state(number).leader in (2, 3)


def test_a_withdrawn_report_keeps_no_broker_from_leading() -> None:
    driver, number = written_cluster()
    driver.report_disk(2)
    driver.report_disk(3)
    driver.report_disk(2, is_rejecting=False)
    driver.report_disk(1, number)
    assert driver.state(number).leader == 2


@pytest.mark.rule("failing-disk-transfers-leadership")
def test_a_partition_waits_before_its_leadership_is_transferred_again() -> None:
    driver, number = written_cluster()
    driver.report_disk(1, number)
    second = driver.state(number).leader
    driver.report_disk(second, number)
    assert driver.state(number).leader == second
    driver.pass_time(FIRST_COOLDOWN_MS)
    driver.report_disk(1)
    driver.report_disk(second, number)
    assert driver.state(number).leader == ({2, 3} - {second}).pop()
