"""Election of the active controller among several candidates."""

from __future__ import annotations

import asyncio

import pytest

from doubles.memory_data import MemoryData
from doubles.memory_store import MemoryStore
from tidelog_controller.shell.controller_election import ControllerElection, Leadership
from tidelog_controller.shell.controller_roster import ControllerRoster
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import ControllerEntry
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

KEYS = Keys("test")
TURNS = 50


def candidates(count: int) -> list[asyncio.Task[Leadership]]:
    """All candidates have read that there is no controller before any of them writes."""
    data = MemoryData()
    return [
        asyncio.create_task(
            ControllerElection(
                MemoryStore(SystemClock(), data),
                KEYS,
                ControllerEntry(n, f"host:{n}"),
                3,
                ControllerRoster(KEYS, StateChangeLog(f"controller-{n}", SystemClock())),
            ).stand()
        )
        for n in range(count)
    ]


async def elected(standing: list[asyncio.Task[Leadership]]) -> list[Leadership]:
    for _ in range(TURNS):
        await asyncio.sleep(0)
    return [task.result() for task in standing if task.done()]


@pytest.mark.rule("key-creator-is-controller")
async def test_one_of_several_simultaneous_candidates_is_elected() -> None:
    standing = candidates(3)
    assert len(await elected(standing)) == 1
    for task in standing:
        task.cancel()


@pytest.mark.rule("key-creator-is-controller")
async def test_every_controller_term_has_an_epoch_and_a_key_of_its_own() -> None:
    standing = candidates(2)
    (first,) = await elected(standing)
    await first.lease.revoke()
    both = await elected(standing)
    assert sorted(held.identity.controller_epoch for held in both) == [1, 2]
    assert len({held.identity.key_revision for held in both}) == 2
