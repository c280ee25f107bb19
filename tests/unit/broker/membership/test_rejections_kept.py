"""Which reports of rejected starts end when a broker of the id registers."""

from __future__ import annotations

import pytest

from tidelog_runtime.metadata.broker_directories import (
    RejectedStart,
    RejectionCause,
    encode_rejected_start,
)
from unit.broker.broker_parts import KEYS, registration
from unit.broker.flaky_store import FlakyStore
from unit.broker.membership.test_directory_binding import Machine, crash_after_registering
from unit.metadata.virtual_time import virtual_clock


@pytest.fixture
async def machine() -> Machine:
    return Machine(FlakyStore(virtual_clock()))


async def test_registering_removes_the_reason_of_a_rejected_start(machine: Machine) -> None:
    rejected = RejectedStart(RejectionCause.DISK, "no room", 1)
    machine.store.put(KEYS.rejected_start(1), encode_rejected_start(rejected))
    await crash_after_registering(machine.start())
    assert machine.store.data.get(KEYS.rejected_start(1)) is None


@pytest.mark.parametrize(
    ("cause", "is_own_directory", "is_own_address", "stays"),
    [
        (RejectionCause.BROKER_ID_IN_USE, False, False, True),
        (RejectionCause.BROKER_ID_IN_USE, True, False, False),
        (RejectionCause.WAITS_FOR_LEASE, True, False, True),
        (RejectionCause.WAITS_FOR_LEASE, False, True, True),
        (RejectionCause.WAITS_FOR_LEASE, True, True, False),
        (RejectionCause.DATA_DIRECTORY, False, False, False),
    ],
)
async def test_the_rejection_of_a_second_process_stays_when_the_first_one_registers(
    machine: Machine,
    cause: RejectionCause,
    is_own_directory: bool,
    is_own_address: bool,
    stays: bool,
) -> None:
    broker = machine.start()
    own = broker.directory.identity.directory_id
    rejected = RejectedStart(
        cause,
        "taken",
        1,
        registration(1).address if is_own_address else "elsewhere:1",
        directory_id=own if is_own_directory else "other",
    )
    machine.store.put(KEYS.rejected_start(1), encode_rejected_start(rejected))
    await crash_after_registering(broker)
    assert (machine.store.data.get(KEYS.rejected_start(1)) is not None) == stays


async def test_an_unreadable_rejected_start_ends_with_the_registration(
    machine: Machine,
) -> None:
    machine.store.put(KEYS.rejected_start(1), b"{")
    await crash_after_registering(machine.start())
    assert machine.store.data.get(KEYS.rejected_start(1)) is None
