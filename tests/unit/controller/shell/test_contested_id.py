"""Two controller processes with one id: the second one waits and reports it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import asdict

import pytest

from doubles.memory_store import MemoryStore
from tidelog.inspection.controller_reports import WaitingController
from tidelog.inspection.state_reports import ControllerState, StateRequest
from tidelog.state_changes.event import Kind
from tidelog_controller.shell import controller_registration
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.metadata.controller_records import WaitingControllers
from tidelog_runtime.metadata.schema import (
    ControllerProcess as Process,
)
from tidelog_runtime.metadata.schema import (
    decode_controller_process,
    encode,
)
from tidelog_runtime.metadata.store import Changed, KeyValue, Put, Transaction
from unit.controller.shell_fakes import KEYS, ControllerProcess, FakeNetwork, until

OTHER = "127.0.0.1:9999"


class FastClock(SystemClock):
    """Advances by half a second at each reading."""

    ahead_ms = 0

    def monotonic_ms(self) -> int:
        self.ahead_ms += 500
        return super().monotonic_ms() + self.ahead_ms


@pytest.fixture
async def store(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MemoryStore]:
    monkeypatch.setattr(controller_registration, "RETRY_SECONDS", 0.002)
    memory = MemoryStore(SystemClock())
    yield memory
    await memory.close()


async def registered_address(store: MemoryStore, controller_id: int) -> str | None:
    held = await store.get(KEYS.controller_process(controller_id))
    return None if held is None else decode_controller_process(held.value).address


async def described(process: ControllerProcess) -> ControllerState:
    state = (await process.service.describe(StateRequest())).controller
    assert state is not None
    return state


async def test_the_second_process_waits_and_a_healthy_standby_is_unaffected(
    store: MemoryStore,
) -> None:
    network = FakeNetwork()
    first = ControllerProcess(1, store, network)
    await until(lambda: bool(first.published(Kind.CONTROLLER_LOADED)))
    standby = ControllerProcess(2, store, network)
    second = ControllerProcess(1, store, network, OTHER, FastClock())
    await until(lambda: bool(second.logs.named("controller_id_taken")))
    line = second.logs.named("controller_id_taken")[0]
    assert (line["controller_id"], line["by"]) == (1, "127.0.0.1:7401")
    assert "controller_id of its own" in line["fix"]
    await until(lambda: bool(first.service.described_waiting()))
    (waiting,) = (await described(first)).waiting_controllers
    assert (waiting.controller_id, waiting.address) == (1, OTHER)
    assert waiting.registered_address == "127.0.0.1:7401"
    assert await registered_address(store, 1) == "127.0.0.1:7401"

    # The standby takes over: the waiting process does not take part in the election.
    await first.stop()
    await until(lambda: standby.service.term is not None or second.service.term is not None)
    assert standby.service.term is not None
    await until(lambda: second.service.may_write)
    await until(lambda: not standby.service.described_waiting())
    assert await registered_address(store, 1) == OTHER
    await second.stop()
    await standby.stop()


async def test_a_second_process_that_stops_is_no_longer_reported(store: MemoryStore) -> None:
    network = FakeNetwork()
    first = ControllerProcess(1, store, network)
    await until(lambda: bool(first.published(Kind.CONTROLLER_LOADED)))
    second = ControllerProcess(1, store, network, OTHER, FastClock())
    await until(lambda: bool(first.service.described_waiting()))
    await second.stop()
    await until(lambda: not first.service.described_waiting())
    assert await registered_address(store, 1) == "127.0.0.1:7401"
    assert first.service.term is not None
    await first.stop()


async def test_a_second_process_waits_silently_for_the_lease_of_one_that_has_ended(
    store: MemoryStore,
) -> None:
    lease = await store.grant_lease(10)
    put = Put(KEYS.controller_process(1), encode(Process("10.0.0.9:7400", 5)), lease.id)
    await store.transact(Transaction([], [put]))
    process = ControllerProcess(1, store, FakeNetwork())
    await lease.revoke()
    await until(lambda: process.service.term is not None)
    assert process.logs.named("controller_id_taken") == []
    await process.stop()


@pytest.mark.parametrize(
    ("held", "is_of_place"),
    [
        (Process("h:1", 5, host="one"), True),
        (Process("h:1", 5), True),
        (Process("h:1", 5, host="two"), False),
        (Process("h:2", 5, host="one"), False),
    ],
)
def test_a_place_is_an_address_on_a_host(held: Process, is_of_place: bool) -> None:
    assert Process("h:1", 9, host="one").is_of_place(held) is is_of_place


def test_malformed_values_are_ignored() -> None:
    waiting = WaitingControllers(KEYS.waiting_controllers)
    own, odd = KEYS.waiting_controller(1), KEYS.waiting_controllers + "x"
    for change in (Changed(own, KeyValue(own, b"[]", 1, 1), 1), Changed(odd, None, 2)):
        waiting.take(change.key, change.value)
    assert waiting.described() == ()
    one = WaitingController(1, "h:2", "b", 5, "h:1")
    later = json.dumps({**asdict(one), "of_a_later_release": 1}).encode()
    waiting.take(own, KeyValue(own, later, 3, 3))
    assert waiting.described() == (one,)
