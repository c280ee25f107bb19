"""The store keeps how brokers left. Each record is written with the changes that follow from the
departure, and no decision depends on it.
"""

from __future__ import annotations

from tidelog.state_changes.event import Cause
from tidelog_runtime.metadata.schema import Departure, decode_departure
from tidelog_runtime.metadata.store import MAX_TRANSACTION_CHANGES, Transaction
from unit.controller.driver import KEYS, WALL_MS, Driver, cluster


def with_topic(partitions: int) -> Driver:
    driver = cluster(1, 2, 3)
    driver.create_topic(partitions=partitions)
    driver.transactions.clear()
    return driver


def kept(driver: Driver, broker_id: int) -> Departure | None:
    item = driver.store.items.get(KEYS.departure(broker_id))
    return decode_departure(item.value) if item else None


def records(transaction: Transaction) -> bool:
    return any(change.key.startswith(KEYS.departures) for change in transaction.changes)


def test_a_crash_is_recorded_by_the_transaction_that_ends_the_registration() -> None:
    driver = with_topic(partitions=3)
    life = driver.brokers[2].broker_epoch
    at_ms = WALL_MS + driver.now_ms
    driver.refuse_connection(2)
    left = kept(driver, 2)
    assert left is not None
    assert left[:4] == (life, Cause.BROKER_CRASHED, at_ms, "10.0.0.2:7500")
    assert [records(transaction) for transaction in driver.transactions] == [True, False]


def test_an_expired_lease_is_recorded_with_the_elections_that_follow() -> None:
    driver = with_topic(partitions=3)
    life = driver.brokers[2].broker_epoch
    driver.kill_broker(2)
    driver.watch()
    (batch,) = driver.transactions
    assert len(batch.changes) == 3 + 1
    left = kept(driver, 2)
    assert left is not None
    assert left[:2] == (life, Cause.BROKER_LEASE_ENDED)


def test_a_full_batch_carries_no_departure_record() -> None:
    driver = with_topic(partitions=MAX_TRANSACTION_CHANGES)
    driver.kill_broker(2)
    driver.watch()
    assert [records(transaction) for transaction in driver.transactions] == [False, True]
    assert kept(driver, 2) is not None


def test_the_departure_of_a_broker_without_replicas_is_recorded_too() -> None:
    driver = cluster(1, 2, 3)
    driver.kill_broker(3)
    driver.watch()
    assert kept(driver, 3) is not None


def test_no_transaction_is_guarded_by_a_departure_record() -> None:
    driver = with_topic(partitions=3)
    driver.refuse_connection(2)
    driver.kill_broker(3)
    driver.watch()
    guarded = [guard.key for transaction in driver.transactions for guard in transaction.guards]
    assert not [key for key in guarded if key.startswith(KEYS.departures)]


def test_a_record_lost_with_an_unanswered_transaction_is_written_by_the_next() -> None:
    driver = with_topic(partitions=1)
    driver.unanswered_transactions, driver.apply_unanswered = 1, False
    driver.kill_broker(2)
    driver.watch()
    assert kept(driver, 2) is not None


def test_the_next_controller_explains_its_elections_with_recorded_departures() -> None:
    driver = with_topic(partitions=1)
    leader = driver.state().leader
    driver.hold_transactions = True
    driver.refuse_connection(leader)
    (fencing,) = driver.held
    driver.held.clear()
    driver.hold_transactions = False
    driver.store.transact(fencing.transaction)
    driver.take_over()
    assert driver.state().change.cause is Cause.BROKER_CRASHED
