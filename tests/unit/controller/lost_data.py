"""Clusters whose last replicas have lost data."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.model import NO_LEADER, TopicPartition
from tidelog_runtime.metadata.schema import (
    LeaderAndIsr,
    RecoveryConsent,
    encode,
    encode_leader_and_isr,
)
from unit.controller.driver import KEYS, Driver, cluster

MANUAL = {"recovery": "manual"}
UNCLEAN = {"unclean_leader_election": "true"}
T0 = TopicPartition("t", 0)


def down(
    *, partitions: int = 1, config: Mapping[str, str] | None = None, min_isr: int = 1
) -> Driver:
    """A topic on brokers 1 to 3. All of them are gone, and all were in the last ISR."""
    driver = cluster(1, 2, 3)
    settings = {"min_insync_replicas": str(min_isr), **(config or {})}
    driver.create_topic(partitions=partitions, config=settings)
    states = driver.states()
    for broker_id in (1, 2, 3):
        driver.kill_broker(broker_id)
    driver.watch()
    for number, state in enumerate(states):
        leaderless = driver.state(number)
        write(driver, leaderless_with(leaderless, state), number)
    driver.watch()
    driver.transcript.clear()
    return driver


def leaderless_with(now: LeaderAndIsr, before: LeaderAndIsr) -> LeaderAndIsr:
    """The brokers left at the same moment, not one by one."""
    return LeaderAndIsr(
        now.topic_id, now.replicas, 1, NO_LEADER, now.leader_epoch, before.isr, (), now.min_isr
    )


def write(driver: Driver, state: LeaderAndIsr, number: int = 0) -> None:
    driver.store.put(KEYS.leader_and_isr(TopicPartition("t", number)), encode_leader_and_isr(state))


def reboot(driver: Driver, *broker_ids: int, end: int = 5) -> None:
    """The brokers return without unsynced data; these are the ends of their logs."""
    for broker_id in broker_ids:
        broker = driver.start_broker(broker_id)
        broker.logs = dict.fromkeys(range(len(driver.states())), (end, ((0, 0),)))


def leader(driver: Driver, number: int = 0) -> int:
    return driver.state(number).leader


def is_unclean(driver: Driver, number: int = 0) -> bool:
    state = driver.state(number)
    return state.unclean_leader_epoch == state.leader_epoch


def consents(driver: Driver) -> list[str]:
    return [key for key in driver.store.items if key.startswith(KEYS.recoveries)]


def consent(driver: Driver, entry: RecoveryConsent, number: int = 0) -> None:
    driver.store.put(KEYS.recovery(TopicPartition("t", number)), encode(entry))
