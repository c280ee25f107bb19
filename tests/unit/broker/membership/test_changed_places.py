"""The data_dir holds another directory than the one that its broker registered last."""

from __future__ import annotations

import pytest

from unit.broker.broker_parts import DATA
from unit.broker.flaky_store import FlakyStore
from unit.broker.membership.test_directory_binding import (
    Machine,
    crash_after_registering,
    rejected,
)
from unit.metadata.virtual_time import virtual_clock


@pytest.fixture
async def machine() -> Machine:
    return Machine(FlakyStore(virtual_clock()))


async def test_an_empty_directory_in_the_old_place_may_be_an_unmounted_disk(
    machine: Machine,
) -> None:
    owner = machine.start()
    await crash_after_registering(owner)
    why = await rejected(Machine(machine.store, "a").start())
    assert f"/data is not the directory {owner.directory.identity.directory_id}" in why
    assert "its disk may not be mounted" in why


async def test_replicas_without_their_identity_are_reported(machine: Machine) -> None:
    await crash_after_registering(machine.start())
    machine.disk.make_directory(DATA / "replicas")
    machine.disk.write_atomically(DATA / "replicas" / "sea-0.x", b"", sync=True)
    machine.disk.remove(DATA / "broker.json")
    machine.disk.remove(DATA / "store-revision")
    assert "restore that file" in await rejected(machine.start())
