"""An active controller that can open no more files steps down if a standby can take over."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from doubles.memory_store import MemoryStore
from tidelog.inspection.resource_pressures import HAND_OVER_AFTER_MS
from tidelog.state_changes.event import Cause, Kind
from tidelog_controller.shell import file_exhaustion
from tidelog_controller.shell.controller_roster import ControllerRoster
from tidelog_controller.shell.file_exhaustion import FileExhaustion
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.metadata.schema import ControllerProcess as Process
from tidelog_runtime.metadata.schema import encode
from tidelog_runtime.metadata.store import Changed, KeyValue
from tidelog_runtime.pressure.records import Pressure, encode_pressures
from tidelog_runtime.telemetry.state_change_log import StateChangeLog
from unit.controller.shell_fakes import KEYS, ControllerProcess, FakeNetwork, until

NONE_LEFT, ONE_LEFT = Pressure("open_files", 100, 100, 5), Pressure("open_files", 99, 100, 5)
NO_MEMORY = Pressure("memory", 100, 100, 5)


class ManualClock(SystemClock):
    now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.roster = ControllerRoster(KEYS, StateChangeLog("controller-1", self.clock))
        self.own: list[Pressure] = [NONE_LEFT]
        self.exhaustion = FileExhaustion(1, lambda: self.own, self.roster, self.clock)
        self.put(KEYS.controller_process(1), encode(Process("h:1", 5)))

    def put(self, key: str, value: bytes) -> None:
        self.roster.apply([Changed(key, KeyValue(key, value, 9, 9), 9)])

    def standby(self, controller_id: int, *pressures: Pressure) -> None:
        self.put(KEYS.controller_process(controller_id), encode(Process("h:2", 5)))
        self.put(KEYS.controller_pressure(controller_id), encode_pressures(pressures))

    def due_after(self, ms: int) -> bool:
        self.clock.now_ms += ms
        return self.exhaustion.check()


def test_it_is_due_once_no_file_could_be_opened_for_long() -> None:
    world = World()
    world.standby(2)
    assert not world.due_after(0)
    assert not world.due_after(HAND_OVER_AFTER_MS - 1)
    assert world.due_after(1)


def test_opening_a_file_meanwhile_restarts_the_delay() -> None:
    world = World()
    world.standby(2)
    assert not world.due_after(0)
    world.own = [ONE_LEFT, NO_MEMORY]
    assert not world.due_after(HAND_OVER_AFTER_MS)
    world.own = [NONE_LEFT]
    assert not world.due_after(1)
    assert world.due_after(HAND_OVER_AFTER_MS)


def test_without_a_standby_that_can_open_files_the_controller_stays_active() -> None:
    world = World()
    assert not world.due_after(0)
    assert not world.due_after(HAND_OVER_AFTER_MS)
    world.standby(2, NONE_LEFT)
    assert not world.due_after(HAND_OVER_AFTER_MS)
    world.standby(2, ONE_LEFT, NO_MEMORY)
    assert world.due_after(0)


@pytest.fixture
async def store(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MemoryStore]:
    monkeypatch.setattr(file_exhaustion, "HAND_OVER_AFTER_MS", 5)
    monkeypatch.setattr(file_exhaustion, "CHECK_INTERVAL_SECONDS", 0.001)
    memory = MemoryStore(SystemClock())
    yield memory
    await memory.close()


async def test_the_standby_becomes_active_and_the_previous_controller_stands_by(
    store: MemoryStore,
) -> None:
    network = FakeNetwork()
    first = ControllerProcess(1, store, network)
    await until(lambda: bool(first.published(Kind.CONTROLLER_LOADED)))
    first.service.own_pressures = lambda: (NONE_LEFT,)
    second = ControllerProcess(2, store, network)
    await until(lambda: second.service.term is not None)
    (down,) = first.published(Kind.CONTROLLER_STEPPED_DOWN)
    assert down.cause is Cause.NO_OPEN_FILES
    assert "controller 2 can take over" in str(down.details["reason"])
    assert first.service.term is None
    assert await store.get(KEYS.controller_process(1)) is not None
    await second.stop()
    await first.stop()
