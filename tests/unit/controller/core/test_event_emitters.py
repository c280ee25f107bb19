"""Event emitters only observe: what they return or do influences no decision."""

from __future__ import annotations

import inspect
from typing import get_type_hints

import pytest

from tidelog.errors import ErrorCode, TidelogError
from tidelog.state_changes.event import Change
from tidelog_controller.control.command_events import CommandEvents
from tidelog_controller.core.controller import Controller
from tidelog_controller.core.transaction_events import TransactionEvents
from tidelog_controller.state.events import ConnectionEnded, DialOutcome
from tidelog_runtime.replica_control import LeaderAndIsrCommand
from unit.controller.driver import Driver, cluster

EMITTERS = (CommandEvents, TransactionEvents)


@pytest.mark.parametrize("emitter", EMITTERS)
def test_no_method_of_an_event_emitter_returns_a_value(emitter: type) -> None:
    methods = dict(inspect.getmembers(emitter, inspect.isfunction))
    public = {name: method for name, method in methods.items() if not name.startswith("_")}
    assert public
    for name, method in public.items():
        assert get_type_hints(method)["return"] is type(None), name


def _story() -> Driver:
    """Creations, failures, elections, repeated full states, an operation, and a deletion."""
    driver = cluster(1, 2, 3)
    driver.create_topic(partitions=4, replication_factor=2)
    driver.kill_broker(1)
    driver.watch()
    driver.start_broker(1)
    driver.watch()
    driver.feed(
        ConnectionEnded(2, driver.brokers[2].broker_epoch, DialOutcome.ACCEPTED, detection_ms=5)
    )
    driver.brokers[3].refuse = lambda _: TidelogError(ErrorCode.STORAGE_ERROR, "disk")
    driver.add_partitions(partitions=6)
    driver.pass_time(20_000)
    driver.brokers[3].lose = True
    driver.refuse_connection(3)
    driver.take_over()
    driver.kill_broker(2)
    driver.kill_broker(1)
    driver.watch()
    driver.start_broker(1)
    driver.start_broker(2)
    driver.pass_time(20_000)
    driver.remove_partitions(partitions=5)
    driver.delete_topic()
    driver.pass_time(20_000)
    return driver


def _full_state_changes(driver: Driver) -> list[Change]:
    return [c.change for _, c in driver.sent if isinstance(c, LeaderAndIsrCommand)]


def test_without_event_emitters_the_core_writes_and_sends_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    observed = _story()
    assert observed.published
    for emitter in EMITTERS:
        for name, _ in inspect.getmembers(emitter, inspect.isfunction):
            monkeypatch.setattr(emitter, name, lambda *_args, **_kwargs: None)
    monkeypatch.setattr(Controller, "_emit", lambda *_: None)
    unobserved = _story()
    assert not unobserved.published
    assert unobserved.transactions == observed.transactions
    assert unobserved.sent == observed.sent
    assert _full_state_changes(unobserved) == _full_state_changes(observed)
    assert unobserved.transcript == observed.transcript
