"""No event makes a step of the controller long, however many partitions it touches."""

from __future__ import annotations

import pytest

from tidelog_controller.core import dirty_partitions
from tidelog_controller.core.dirty_partitions import MAX_JUDGED_PER_BATCH
from tidelog_controller.core.reconcile import next_write
from tidelog_controller.state.commands import Transact
from tidelog_controller.state.events import CreateTopic, Tick, Transacted
from tidelog_runtime.metadata.store import MAX_TRANSACTION_CHANGES
from unit.controller.driver import WALL_MS, Driver

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
    request = CreateTopic(1, "t", PARTITIONS, 1, {}, False, 0)
    out = handle(request, driver.now_ms, wall_ms)
    (creation,) = (command for command in out if isinstance(command, Transact))
    event: Transacted | Tick = Transacted(creation.id, driver.store.transact(creation.transaction))
    sizes = []
    for _ in range(BATCHES):
        out = handle(event, driver.now_ms, wall_ms)
        sizes.append([len(c.transaction.changes) for c in out if isinstance(c, Transact)])
        if driver.controller.judges_on:
            assert driver.controller.wake_at_ms() == driver.now_ms
        event = Tick()
    assert sizes == [[MAX_TRANSACTION_CHANGES]] * BATCHES
    assert not driver.controller.judges_on


def test_a_step_judges_only_so_many_partitions_that_need_nothing(
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
    # Another incarnation of the broker: each partition that it has is judged.
    driver.start_broker(1)
    driver.watch()
    assert sum(judged) > MAX_JUDGED_PER_BATCH
    assert max(judged) <= MAX_JUDGED_PER_BATCH
