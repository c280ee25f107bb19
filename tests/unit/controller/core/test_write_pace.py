"""Steps of copying moves are spaced out per broker, and so are leadership transfers. No other write
waits for them.
"""

from __future__ import annotations

import pytest

from tidelog.model import TopicPartition
from tidelog_controller.core.write_pace import INTERVALS, BrokerWriteLimiter
from tidelog_controller.state.admin_requests import SetMaintenance
from unit.controller.driver import Driver

FIRST, SECOND, THIRD = (TopicPartition("t", number) for number in range(3))


def test_a_step_waits_for_earlier_steps_of_the_same_brokers() -> None:
    turns = BrokerWriteLimiter(25)
    assert turns.try_acquire(FIRST, (1, 2), 100)
    assert not turns.try_acquire(SECOND, (2, 3), 100)
    assert not turns.try_acquire(THIRD, (3, 4), 110)
    assert [turns.try_acquire(SECOND, (2, 3), now_ms) for now_ms in (124, 125)] == [False, True]
    assert [turns.try_acquire(THIRD, (3, 4), now_ms) for now_ms in (149, 150)] == [False, True]


def test_a_step_of_other_brokers_waits_for_no_other() -> None:
    turns = BrokerWriteLimiter(25)
    assert turns.try_acquire(FIRST, (1, 2), 100)
    assert turns.try_acquire(SECOND, (3, 4), 100)


def test_a_turn_comes_once_and_lasts_until_its_step_has_ended() -> None:
    turns = BrokerWriteLimiter(25)
    turns.try_acquire(FIRST, (1, 2), 100)
    turns.release(FIRST)
    turns.try_acquire(SECOND, (1, 2), 100)
    assert (turns.due(124), turns.wake_at_ms(100)) == ([], 125)
    assert (turns.due(125), turns.wake_at_ms(125)) == ([SECOND], None)
    turns.release(SECOND)
    assert turns.due(1_000) == []
    assert turns.try_acquire(SECOND, (1, 2), 1_000)


def test_abandoned_turns_delay_no_other() -> None:
    turns = BrokerWriteLimiter(25)
    assert turns.try_acquire(FIRST, (1, 2), 100)
    assert not turns.try_acquire(SECOND, (1, 2), 100)
    assert not turns.try_acquire(THIRD, (1, 2), 100)
    turns.release(SECOND)
    assert turns.due(125) == [FIRST, THIRD]


def test_a_write_that_the_store_rejected_keeps_its_turn() -> None:
    turns = BrokerWriteLimiter(25)
    assert turns.try_acquire(FIRST, (1, 2), 100)
    turns.release(FIRST)
    turns.keep_turn(FIRST)
    assert turns.try_acquire(FIRST, (1, 2), 101)


def _paced(partitions: int) -> Driver:
    driver = Driver()
    driver.intervals = INTERVALS
    driver.take_over()
    for broker_id in (1, 2, 3):
        driver.start_broker(broker_id)
    driver.watch()
    driver.create_topic(partitions=partitions, replication_factor=3)
    driver.start_broker(4)
    driver.watch()
    return driver


def _moving(driver: Driver) -> list[int]:
    return [number for number, state in enumerate(driver.states()) if state.moving is not None]


def _all_want_moves(driver: Driver, *target: int) -> None:
    for number in range(len(driver.states())):
        driver.request_move(*target, partition=number)


@pytest.mark.rule("moves-leave-time-for-writes")
def test_moves_begin_one_after_another_where_they_share_brokers() -> None:
    driver = _paced(3)
    _all_want_moves(driver, 1, 2, 4)
    begun = [len(_moving(driver))]
    for _ in range(2):
        driver.pass_time(INTERVALS.move_step_ms - 1)
        begun.append(len(_moving(driver)))
        driver.pass_time(1)
        begun.append(len(_moving(driver)))
    assert begun == [1, 1, 2, 2, 3]


def test_switches_wait_for_their_turn_too() -> None:
    driver = _paced(2)
    _all_want_moves(driver, 1, 2, 4)
    driver.pass_time(10 * INTERVALS.move_step_ms)
    for number in (0, 1):
        driver.leader_writes_isr(number, 1, 2, 3, 4)
    driver.watch()
    assert len(_moving(driver)) == 1
    driver.pass_time(INTERVALS.move_step_ms)
    assert _moving(driver) == []


def test_a_move_that_copies_nothing_does_not_wait() -> None:
    driver = _paced(3)
    _all_want_moves(driver, 3, 2, 1)
    assert [state.replicas for state in driver.states()] == [(3, 2, 1)] * 3


@pytest.mark.rule("moves-leave-time-for-writes")
def test_leadership_transfers_are_made_one_after_another() -> None:
    driver = _paced(9)
    own = [n for n, state in enumerate(driver.states()) if state.leader == 1]
    driver.feed(SetMaintenance(1_000, (1,), True, False, 5_000))
    left = [sum(state.leader == 1 for state in driver.states())]
    for _ in own[1:]:
        driver.pass_time(INTERVALS.handover_ms - 1)
        left.append(sum(state.leader == 1 for state in driver.states()))
        driver.pass_time(1)
        left.append(sum(state.leader == 1 for state in driver.states()))
    assert (len(own), left) == (3, [2, 2, 1, 1, 0])


@pytest.mark.rule("moves-leave-time-for-writes")
def test_an_election_does_not_wait() -> None:
    driver = _paced(3)
    _all_want_moves(driver, 1, 2, 4)
    (begun,) = _moving(driver)
    dead = driver.state(begun).leader
    driver.kill_broker(dead)
    driver.watch()
    assert all(state.leader not in (dead, -1) for state in driver.states())


def test_a_deletion_does_not_wait() -> None:
    driver = _paced(3)
    _all_want_moves(driver, 1, 2, 4)
    driver.delete_topic()
    assert driver.states() == []
    driver.pass_time(10 * INTERVALS.move_step_ms)
    assert driver.controller.wake_at_ms() is None


def test_a_move_withdrawn_before_its_turn_is_not_begun() -> None:
    driver = _paced(3)
    _all_want_moves(driver, 1, 2, 4)
    (begun,) = _moving(driver)
    for number in {0, 1, 2} - {begun}:
        driver.request_move(partition=number)
    driver.pass_time(10 * INTERVALS.move_step_ms)
    assert _moving(driver) == [begun]
