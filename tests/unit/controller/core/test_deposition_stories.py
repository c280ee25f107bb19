"""Depositions of leaders that are cut off from their followers, through the controller."""

from __future__ import annotations

from tidelog.state_changes.event import Cause, Change, Kind, Stage
from tidelog_controller.state.partition_cooldowns import FIRST_COOLDOWN_MS
from tidelog_controller.state.unreachable_leaders import REPORT_EXPIRY_MS
from unit.controller.driver import Driver, cluster


def led_by_1(partitions: int = 1) -> Driver:
    """Three brokers, and partitions that broker 1 leads as the only member of the ISR."""
    driver = cluster(1, 2, 3)
    driver.create_topic(partitions=3 * partitions)
    for number, state in enumerate(driver.states()):
        if state.leader == 1:
            driver.leader_writes_isr(number, 1)
    driver.watch()
    driver.transcript.clear()
    driver.logs.clear()
    return driver


def number_led_by(driver: Driver, leader: int) -> int:
    return next(n for n, state in enumerate(driver.states()) if state.leader == leader)


def report_the_next_leader(driver: Driver, number: int) -> int:
    """The new leader is alone in the ISR too, and both other brokers report it; returns its id."""
    leader = driver.state(number).leader
    for reporter in sorted({1, 2, 3} - {leader}):
        driver.report(reporter, leader)
    return leader


def test_a_leader_below_min_isr_is_deposed_when_enough_followers_report_it() -> None:
    driver = led_by_1()
    number = number_led_by(driver, 1)
    before = driver.state(number)
    driver.report(2, 1)
    assert driver.state(number) == before
    driver.report(3, 1)
    after = driver.state(number)
    assert after.leader in (2, 3)
    assert after.leader_epoch == before.leader_epoch + 1
    assert [m.broker_id for m in after.isr] == [after.leader]


def test_the_deposed_leader_is_informed_like_the_other_replicas() -> None:
    driver = led_by_1()
    number = number_led_by(driver, 1)
    driver.report(2, 1)
    driver.report(3, 1)
    published = [line for line in driver.transcript if f"t/{number}:" in line]
    leader = driver.state(number).leader
    assert sorted(published) == [f"broker {b} lead t/{number}:{leader}" for b in (1, 2, 3)]


def test_a_report_is_published_as_its_reporter_sent_it() -> None:
    driver = led_by_1()
    driver.report(2, 1)
    driver.report(2, 1)
    (published,) = driver.published_events(Kind.LEADER_UNREACHABLE)
    assert (published.stage, published.broker) == (Stage.COMPLETED, 1)
    assert published.change == Change("r2-1", Cause.NO_ANSWER)


def test_a_deposition_is_published_with_both_leaders() -> None:
    driver = led_by_1()
    number = number_led_by(driver, 1)
    driver.report(2, 1)
    driver.report(3, 1)
    published = driver.published_events(Kind.ELECTION, stage=Stage.COMPLETED)[-1]
    assert (str(published.name), published.change.cause) == (
        f"t/{number}",
        Cause.LEADER_UNREACHABLE,
    )
    leaders = (published.details["leader_before"], published.details["leader"])
    assert leaders == (1, driver.state(number).leader)


def test_partitions_that_the_leader_still_serves_stay_with_it() -> None:
    driver = led_by_1(partitions=2)
    first = number_led_by(driver, 1)
    driver.leader_writes_isr(first, 1, 2)
    driver.watch()
    driver.report(2, 1)
    driver.report(3, 1)
    assert driver.state(first).leader == 1
    assert sum(state.leader == 1 for state in driver.states()) == 1


def test_a_leader_that_falls_below_min_isr_later_is_deposed_then() -> None:
    driver = cluster(1, 2, 3)
    driver.create_topic()
    number = number_led_by(driver, 1)
    driver.report(2, 1)
    driver.report(3, 1)
    assert driver.state(number).leader == 1
    driver.leader_writes_isr(number, 1)
    driver.watch()
    assert driver.state(number).leader != 1


def test_expired_reports_depose_no_leader() -> None:
    driver = led_by_1()
    number = number_led_by(driver, 1)
    driver.report(2, 1)
    driver.pass_time(REPORT_EXPIRY_MS)
    driver.report(3, 1)
    assert driver.state(number).leader == 1


def test_a_withdrawn_report_deposes_no_leader() -> None:
    driver = led_by_1()
    number = number_led_by(driver, 1)
    driver.report(2, 1)
    driver.report(2)
    driver.report(3, 1)
    assert driver.state(number).leader == 1


def test_a_partition_whose_next_leader_is_reported_too_waits_before_another_deposition() -> None:
    driver = led_by_1()
    number = number_led_by(driver, 1)
    driver.report(2, 1)
    driver.report(3, 1)
    second = report_the_next_leader(driver, number)
    assert driver.state(number).leader == second
    driver.pass_time(FIRST_COOLDOWN_MS - 1_000)
    report_the_next_leader(driver, number)
    assert driver.state(number).leader == second
    driver.pass_time(1_000)
    assert driver.state(number).leader != second


def test_an_election_whose_answer_was_lost_counts_as_a_deposition() -> None:
    driver = led_by_1()
    number = number_led_by(driver, 1)
    driver.unanswered_transactions, driver.apply_unanswered = 1, True
    driver.report(2, 1)
    driver.report(3, 1)
    second = report_the_next_leader(driver, number)
    assert second != 1
    assert driver.state(number).leader == second


def test_an_isr_change_written_first_by_the_leader_prevents_the_deposition() -> None:
    """The revision of the key guards it: a follower joined before the election was written."""
    driver = led_by_1()
    number = number_led_by(driver, 1)
    driver.hold_transactions = True
    driver.report(2, 1)
    driver.report(3, 1)
    driver.leader_writes_isr(number, 1, 2)
    driver.release()
    assert driver.state(number).leader == 1
    assert {m.broker_id for m in driver.state(number).isr} == {1, 2}
