"""Every step of the controller is short, however many partitions its event touches."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tidelog.model import TopicPartition
from tidelog_controller.core import dirty_partitions
from tidelog_controller.core.deferred_touches import MAX_TAKEN_PER_STEP
from tidelog_controller.core.dirty_partitions import (
    MAX_CREATED_OR_REMOVED_PER_BATCH,
    MAX_DECIDED_PER_BATCH,
    DirtyPartitions,
)
from tidelog_controller.core.reconcile import next_write
from tidelog_controller.policies.reassignment import min_isr_in_force
from tidelog_controller.requests import topic_config_admin
from tidelog_controller.state.admin_requests import SetMaintenance
from tidelog_controller.state.commands import Command, Transact
from tidelog_controller.state.events import CreateTopic, Event, StoreChanged, Tick, Transacted
from tidelog_runtime.metadata.store import MAX_TRANSACTION_CHANGES
from unit.controller.driver import KEYS, WALL_MS, Driver

BATCHES = 4
PARTITIONS = BATCHES * MAX_TRANSACTION_CHANGES


def _with_brokers() -> Driver:
    driver = Driver()
    for broker_id in (1, 2, 3):
        driver.start_broker(broker_id)
    driver.load()
    return driver


def test_a_step_begins_one_batch_and_the_next_are_due_at_once() -> None:
    driver = _with_brokers()
    wall_ms = WALL_MS + driver.now_ms
    handle = driver.controller.handle
    created = BATCHES * MAX_CREATED_OR_REMOVED_PER_BATCH
    request = CreateTopic(1, "t", created, 1, {}, False, 0)
    out = handle(request, driver.now_ms, wall_ms)
    (creation,) = (command for command in out if isinstance(command, Transact))
    event: Transacted | Tick = Transacted(creation.id, driver.store.transact(creation.transaction))
    sizes = []
    for _ in range(BATCHES):
        out = handle(event, driver.now_ms, wall_ms)
        sizes.append([len(c.transaction.changes) for c in out if isinstance(c, Transact)])
        if driver.controller.has_more_decisions:
            assert driver.controller.wake_at_ms() == driver.now_ms
        event = Tick()
    assert sizes == [[MAX_CREATED_OR_REMOVED_PER_BATCH]] * BATCHES
    assert not driver.controller.has_more_decisions


def test_a_step_evaluates_a_bounded_number_of_partitions_that_need_no_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = _with_brokers()
    driver.create_topic(partitions=PARTITIONS, replication_factor=1)
    judged: list[int] = []

    def counted(*parts: object) -> object:
        judged[-1] += 1
        return next_write(*parts)  # type: ignore[arg-type]

    handle = driver.controller.handle

    def handled(*parts: object) -> object:
        judged.append(0)
        return handle(*parts)  # type: ignore[arg-type]

    monkeypatch.setattr(dirty_partitions, "next_write", counted)
    monkeypatch.setattr(driver.controller, "handle", handled)
    # A new incarnation of the broker: each of its partitions is evaluated.
    driver.start_broker(1)
    driver.watch()
    assert sum(judged) > MAX_DECIDED_PER_BATCH
    assert max(judged) <= MAX_DECIDED_PER_BATCH


def _maintenance(driver: Driver) -> None:
    """Of a broker that leads a third of the partitions."""
    driver.create_topic("u", 2 * MANY, 2)
    driver.feed(SetMaintenance(90, (1,), True, False, 5_000))


MANY = 2 * PARTITIONS
CHANGES: dict[str, Callable[[Driver], object]] = {
    "min ISR": lambda driver: driver.alter_config({"min_insync_replicas": "1"}),
    "fewer": lambda driver: driver.remove_partitions(1),
    "more": lambda driver: driver.add_partitions(2 * MANY),
    "deletion": lambda driver: driver.delete_topic(),
    "maintenance": _maintenance,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_step_touches_a_bounded_number_of_partitions_of_a_request(
    change: Callable[[Driver], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = _with_brokers()
    driver.create_topic(partitions=MANY, replication_factor=2)
    touched: list[int] = []
    touch, handle = DirtyPartitions.touch, driver.controller.handle

    def counted(dirty: DirtyPartitions, partitions: Iterable[TopicPartition]) -> None:
        names = list(partitions)
        touched[-1] += len(names)
        touch(dirty, names)

    def handled(*parts: object) -> object:
        touched.append(0)
        return handle(*parts)  # type: ignore[arg-type]

    monkeypatch.setattr(DirtyPartitions, "touch", counted)
    monkeypatch.setattr(driver.controller, "handle", handled)
    change(driver)
    # In addition to its share: the changes of one transaction, and their acknowledgement.
    assert 0 < max(touched) <= MAX_TAKEN_PER_STEP + 3 * MAX_TRANSACTION_CHANGES


def test_a_step_checks_the_min_isr_in_force_of_a_bounded_number_of_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_config_admin, "MAX_CHECKED_PER_STEP", 10)
    driver = _with_brokers()
    driver.create_topic(partitions=50, replication_factor=2)
    checked: list[int] = []
    handle = driver.controller.handle

    def counted(*parts: object) -> object:
        checked[-1] += 1
        return min_isr_in_force(*parts)  # type: ignore[arg-type]

    def handled(*parts: object) -> object:
        checked.append(0)
        return handle(*parts)  # type: ignore[arg-type]

    monkeypatch.setattr(topic_config_admin, "min_isr_in_force", counted)
    monkeypatch.setattr(driver.controller, "handle", handled)
    request = driver.alter_config({"min_insync_replicas": "1"})
    assert driver.replies[request].error is None
    assert {state.min_isr for state in driver.states()} == {1}
    assert sum(checked) >= 50
    assert max(checked) <= 10


def test_an_election_does_not_wait_for_the_deletion_of_a_large_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = _with_brokers()
    driver.create_topic("u", 1, 2)
    driver.create_topic("t", 5 * MAX_TAKEN_PER_STEP, 1)
    handle = driver.controller.handle
    written: list[set[str]] = []

    def handled(event: Event, now_ms: int, wall_ms: int) -> list[Command]:
        out = handle(event, now_ms, wall_ms)
        batches = [command for command in out if isinstance(command, Transact)]
        written.extend({change.key for change in batch.transaction.changes} for batch in batches)
        if batches and len(written) == BATCHES:
            driver.kill_broker(driver.state(topic="u").leader)
            changes = tuple(driver.store.unseen)
            driver.store.unseen.clear()
            out += handled(StoreChanged(changes), now_ms, wall_ms)
        return out

    monkeypatch.setattr(driver.controller, "handle", handled)
    driver.delete_topic("t")
    key = KEYS.leader_and_isr(TopicPartition("u", 0))
    (elected, *_) = [number for number, keys in enumerate(written) if key in keys]
    assert elected <= BATCHES + 1
