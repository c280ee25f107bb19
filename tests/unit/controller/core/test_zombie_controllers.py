"""A deposed controller that has not noticed it: the store rejects all its pending writes, and the
controller steps down at the first rejection.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidelog_controller.state.commands import Transact
from tidelog_runtime.metadata.schema import RecoveryConsent
from unit.controller.driver import KEYS, Driver, cluster
from unit.controller.lost_data import MANUAL, consent, down, reboot, write


def with_topic(partitions: int = 2) -> Driver:
    driver = cluster(1, 2, 3)
    driver.create_topic(partitions=partitions)
    return driver


def held_by(driver: Driver, act: Callable[[], object]) -> list[Transact]:
    """The transaction that the act makes the controller send to the store, held back before it
    arrives.
    """
    driver.hold_transactions = True
    act()
    driver.watch()
    assert driver.held
    return driver.held


def _first_partitions() -> tuple[Driver, list[Transact]]:
    driver = cluster(1, 2, 3)
    driver.hold_transactions = True
    driver.create_topic()
    (topic,) = driver.held
    driver.held.clear()
    driver.feed(driver._transact(topic))
    return driver, driver.held


def _election() -> tuple[Driver, list[Transact]]:
    driver = with_topic()
    return driver, held_by(driver, lambda: driver.kill_broker(1))


def _resignation() -> tuple[Driver, list[Transact]]:
    driver = with_topic(1)
    return driver, held_by(driver, lambda: write(driver, driver.state().resigned(2)))


def _creation() -> tuple[Driver, list[Transact]]:
    driver = cluster(1, 2, 3)
    return driver, held_by(driver, driver.create_topic)


def _deletion() -> tuple[Driver, list[Transact]]:
    driver = with_topic()
    return driver, held_by(driver, driver.delete_topic)


def _stop_for_deletion() -> tuple[Driver, list[Transact]]:
    driver = with_topic()
    driver.hold_transactions = True
    driver.delete_topic()
    (intent,) = driver.held
    driver.held.clear()
    driver.feed(driver._transact(intent))
    return driver, driver.held


def _removal_of_a_topic() -> tuple[Driver, list[Transact]]:
    driver = with_topic(1)
    for broker_id in (1, 2, 3):
        driver.brokers[broker_id].mute = True
    driver.delete_topic()
    driver.hold_transactions = True
    for broker_id in (1, 2, 3):
        driver.kill_broker(broker_id)
    driver.watch()
    (keys,) = driver.held
    driver.held.clear()
    driver.feed(driver._transact(keys))
    return driver, driver.held


def _removal_of_a_registration() -> tuple[Driver, list[Transact]]:
    driver = with_topic()
    return driver, held_by(driver, lambda: driver.refuse_connection(2))


def _consent() -> tuple[Driver, list[Transact]]:
    driver = down(config=MANUAL)
    return driver, held_by(driver, driver.recover)


def _removal_of_a_consent() -> tuple[Driver, list[Transact]]:
    driver = with_topic(1)
    spent = RecoveryConsent(driver.state().topic_id, from_live_replicas=True)
    return driver, held_by(driver, lambda: consent(driver, spent))


def _unclean_election() -> tuple[Driver, list[Transact]]:
    driver = down()
    return driver, held_by(driver, lambda: reboot(driver, 1, 2, 3))


@pytest.mark.rule("transactions-compare-controller-term")
@pytest.mark.parametrize(
    "on_the_way",
    [
        _election,
        _resignation,
        _creation,
        _first_partitions,
        _deletion,
        _stop_for_deletion,
        _removal_of_a_topic,
        _removal_of_a_registration,
        _consent,
        _removal_of_a_consent,
        _unclean_election,
    ],
)
def test_pending_writes_of_a_deposed_controller_change_nothing(
    on_the_way: Callable[[], tuple[Driver, list[Transact]]],
) -> None:
    driver, held = on_the_way()
    assert held
    driver._term(controller_id=2)
    before = dict(driver.store.items)
    sent = len(driver.sent)
    for command in list(held):
        driver.feed(driver._transact(command))
    assert driver.store.items == before
    assert driver.stepped_down == "the controller key has passed on"
    assert len(driver.sent) == sent


@pytest.mark.parametrize("applied", [True, False])
def test_the_next_controller_finds_the_outcome_of_the_last_act_of_its_predecessor(
    applied: bool,
) -> None:
    driver, held = _election()
    if applied:
        driver.store.transact(held[0].transaction)
    driver.take_over()
    assert all(1 not in state.isr_ids for state in driver.states())
    # Whichever of them did it, there was one election of the partitions that 1 had led.
    assert max(state.leader_epoch for state in driver.states()) <= 1


def test_a_new_controllers_first_read_includes_its_predecessors_last_writes() -> None:
    driver = with_topic()
    driver.take_over()
    epochs = [state.leader_epoch for state in driver.states()]
    driver.take_over()
    # Taking over alone causes no election.
    assert [state.leader_epoch for state in driver.states()] == epochs
    assert driver.store.items[KEYS.controller_epoch].value == b"3"
