"""Election of the active controller among several candidates."""

from __future__ import annotations

import asyncio

import pytest

from doubles.memory_data import MemoryData
from doubles.memory_store import MemoryStore
from tidelog_controller.shell.controller_election import ControllerElection, Leadership
from tidelog_controller.shell.controller_roster import ControllerRoster
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.metadata.cluster_id import UnsupportedLevelError
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import ClusterEntry, ControllerEntry, encode
from tidelog_runtime.metadata.store import Put, Transaction
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

KEYS = Keys("test")
TURNS = 50


def candidates(count: int, data: MemoryData | None = None) -> list[asyncio.Task[Leadership]]:
    """All candidates have read that there is no controller before any of them writes."""
    data = data or MemoryData()
    return [
        asyncio.create_task(
            ControllerElection(
                MemoryStore(SystemClock(), data),
                KEYS,
                ControllerEntry(n, f"host:{n}"),
                3,
                ControllerRoster(KEYS, StateChangeLog(f"controller-{n}", SystemClock())),
            ).campaign()
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


@pytest.mark.rule("registered-process-supports-level")
async def test_a_standby_is_not_elected_at_a_level_that_was_raised_meanwhile() -> None:
    """It has stood for election since the level was one that it supports."""
    data = MemoryData()
    store = MemoryStore(SystemClock(), data)
    await store.transact(Transaction([], [Put(KEYS.cluster, encode(ClusterEntry("c-1", 1)))]))
    active, standby = candidates(2, data)
    (first,) = await elected([active, standby])
    await store.transact(Transaction([], [Put(KEYS.cluster, encode(ClusterEntry("c-1", 2)))]))
    await first.lease.revoke()
    with pytest.raises(UnsupportedLevelError, match="feature level 2"):
        await (standby if active.done() else active)
