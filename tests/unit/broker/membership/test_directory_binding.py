"""A broker id belongs to one data directory, and another directory is rejected (docs/adr/0001)."""

from __future__ import annotations

import asyncio
import random

import pytest
from structlog.testing import capture_logs

from tidelog_broker.membership.directory_binding import BrokerIdInUseError, DirectoryBinding
from tidelog_broker.storage.data_directory import DataDirectory
from tidelog_runtime.metadata.broker_directories import (
    BrokerDirectory,
    decode_broker_directory,
)
from tidelog_runtime.metadata.schema import encode
from tidelog_runtime.metadata.store import Transaction
from unit.broker.broker_parts import DATA, KEYS, at_work, registration
from unit.broker.flaky_store import FlakyStore
from unit.broker.log.memory_disk import MemoryDisk
from unit.broker.membership.test_broker_registration import KEY, TTL_SECONDS, Broker
from unit.metadata.virtual_time import virtual_clock

RECORD = KEYS.directory(1)


class Machine:
    """A machine with one data directory, in which processes start one after the other."""

    started = 0

    def __init__(self, store: FlakyStore, name: str = "a", disk: MemoryDisk | None = None) -> None:
        self.store = store
        self.disk = disk or MemoryDisk()
        self.boot_id = f"{name} boot 1"

    def open(self) -> DataDirectory:
        Machine.started += 1
        return DataDirectory.open(
            self.disk,
            DATA,
            broker_id=1,
            boot_id=self.boot_id,
            rng=random.Random(Machine.started),
        )

    def start(self, replaces: Broker | None = None) -> Broker:
        given_up = "" if replaces is None else replaces.directory.identity.directory_id
        return Broker(self.store, self.open(), given_up)

    def copied_to(self, name: str) -> Machine:
        disk = MemoryDisk()
        disk.restore(self.disk.contents())
        return Machine(self.store, name, disk)

    def reboot(self) -> None:
        self.boot_id += "+1"


@pytest.fixture
async def store() -> FlakyStore:
    return FlakyStore(virtual_clock())


@pytest.fixture
async def machine(store: FlakyStore) -> Machine:
    return Machine(store)


async def crash_after_registering(broker: Broker) -> int:
    """Crash after registering. The registration stays until its lease expires, which no process
    keeps alive any more.
    """
    async with at_work(broker.registration.run()):
        epoch = await broker.registered()
    lease = broker.registration._lease
    assert lease is not None
    broker.store.expire_lease(lease.id)
    return epoch


async def stop_cleanly(broker: Broker) -> int:
    async with at_work(broker.registration.run()):
        epoch = await broker.registered()
    await broker.registration.withdraw()
    broker.directory.stopped_cleanly(epoch)
    await binding(broker).stopped_cleanly(epoch)
    return epoch


async def claimed(broker: Broker) -> tuple[int, int, int]:
    """The epoch of its registration, and since when it claims to be intact, also for its synced
    data.
    """
    async with at_work(broker.registration.run()):
        epoch = await broker.registered()
        stored = broker.stored
    await broker.registration.withdraw()
    return epoch, stored.whole_since or epoch, stored.synced_whole_since or epoch


def binding(broker: Broker) -> DirectoryBinding:
    return DirectoryBinding(broker.store, KEYS, 1, broker.directory, "north")


def record(store: FlakyStore) -> BrokerDirectory:
    return decode_broker_directory(store.item(RECORD).value)


async def rejected(broker: Broker) -> str:
    with pytest.raises(BrokerIdInUseError) as raised:
        await broker.registration.run()
    return str(raised.value)


# -- one directory -----------------------------------------------------------------------


async def test_a_registration_binds_the_id_in_the_same_transaction(machine: Machine) -> None:
    broker = machine.start()
    epoch = await crash_after_registering(broker)
    item = machine.store.item(RECORD)
    assert item.mod_revision == epoch
    known = record(machine.store)
    assert known.directory_id == broker.directory.identity.directory_id
    assert (known.host, known.data_dir, known.boot_id) == ("north", "/data", "a boot 1")
    assert known.registration_token in machine.open().identity.registration_tokens


async def test_a_crash_of_the_process_leaves_it_intact(machine: Machine) -> None:
    first = await crash_after_registering(machine.start())
    assert (await claimed(machine.start()))[1:] == (first, first)


async def test_a_reboot_leaves_synced_data_intact(machine: Machine) -> None:
    first = await crash_after_registering(machine.start())
    machine.reboot()
    epoch, whole, synced = await claimed(machine.start())
    assert (whole, synced) == (epoch, first)


async def test_a_clean_stop_leaves_it_intact_also_on_another_machine(machine: Machine) -> None:
    first = await stop_cleanly(machine.start())
    moved = machine.copied_to("b")
    assert (await claimed(moved.start()))[1:] == (first, first)


async def test_the_same_process_stays_intact_over_all_of_its_registrations(
    machine: Machine,
) -> None:
    broker = machine.start()
    async with at_work(broker.registration.run()):
        first = await broker.registered()
        for times in (2, 3, 4):
            lease = broker.registration._lease
            assert lease is not None
            machine.store.expire_lease(lease.id)
            await broker.registered(times)
            assert broker.stored.whole_since == first


async def test_a_registration_without_an_answer_is_recognized_as_its_own(machine: Machine) -> None:
    """It was applied, and the process died before it received the answer."""
    first = await crash_after_registering(machine.start())
    machine.store.loses_answers = True
    broker = machine.start()
    task = asyncio.create_task(broker.registration.run())
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.wait([task])
    machine.store.loses_answers = False
    machine.store.delete(KEY)
    assert (await claimed(machine.start()))[1] == first


async def test_a_token_that_cannot_be_written_is_not_registered(machine: Machine) -> None:
    broker = machine.start()
    machine.disk.fail_sync = True
    with capture_logs() as lines:
        async with at_work(broker.registration.run()):
            await asyncio.sleep(2)
            assert broker.epochs == []
            machine.disk.fail_sync = False
            await broker.registered()
    assert "identity_not_written" in [line["event"] for line in lines]


# -- another directory -------------------------------------------------------------------


async def test_another_directory_is_rejected_while_the_id_is_registered(machine: Machine) -> None:
    owner = machine.start()
    async with at_work(owner.registration.run()):
        await owner.registered()
        other = Broker(machine.store, Machine(machine.store, "b").open(), host="south")
        why = await rejected(other)
        assert owner.stored.node_uuid == owner.directory.identity.directory_id
    for named in (owner, other):
        assert named.directory.identity.directory_id in why
    assert "(/data on north, last registered as 10.0.0.1:7500)" in why
    assert f"--replace-directory {owner.directory.identity.directory_id}" in why


@pytest.mark.rule("broker-id-bound-to-directory")
async def test_another_directory_is_rejected_while_the_owner_is_paused(machine: Machine) -> None:
    """Its lease has expired, and no registration exists."""
    await crash_after_registering(machine.start())
    assert machine.store.data.get(KEY) is None
    await rejected(Machine(machine.store, "b").start())
    assert machine.store.data.get(KEY) is None


async def test_an_abandoned_directory_is_replaced_once(machine: Machine) -> None:
    owner = machine.start()
    await crash_after_registering(owner)
    new = Machine(machine.store, "b")
    epoch, whole, synced = await claimed(new.start(replaces=owner))
    assert (whole, synced) == (epoch, epoch)
    assert "it replaces data directory" in record(machine.store).not_intact_reason
    await rejected(machine.start())
    await rejected(Machine(machine.store, "c").start(replaces=owner))


async def test_previous_data_does_not_count_in_a_replacing_directory(
    machine: Machine,
) -> None:
    """The replacing directory may be the old one."""
    old = machine.start()
    await crash_after_registering(old)
    replacing = Machine(machine.store, "b").start(replaces=old)
    await crash_after_registering(replacing)
    epoch, whole, synced = await claimed(machine.start(replaces=replacing))
    assert (whole, synced) == (epoch, epoch)
    # This also holds after one more restart, because it is on the disk.
    assert (await claimed(machine.start()))[1:] == (epoch, epoch)


async def test_a_replacing_directory_waits_for_a_paused_owners_lease(machine: Machine) -> None:
    owner = machine.start()
    async with at_work(owner.registration.run()):
        await owner.registered()
        other = Machine(machine.store, "b").start(replaces=owner)
        async with at_work(other.registration.run()):
            await asyncio.sleep(TTL_SECONDS + 1)
            assert other.epochs == []
            assert len(owner.epochs) == 1


async def test_a_paused_owner_that_was_replaced_ends_when_it_comes_back(machine: Machine) -> None:
    owner = machine.start()
    running = asyncio.create_task(owner.registration.run())
    await owner.registered()
    lease = owner.registration._lease
    assert lease is not None
    machine.store.delete(KEY)
    await claimed(Machine(machine.store, "b").start(replaces=owner))
    machine.store.expire_lease(lease.id)
    await asyncio.wait([running])
    assert isinstance(running.exception(), BrokerIdInUseError)


# -- older releases, and what is left in the store -----------------------------------------


async def test_the_directory_that_an_older_release_registered_adopts_the_id(
    machine: Machine,
) -> None:
    directory = machine.open()
    directory._update(whole_since=3, synced_whole_since=3, registration_tokens=())
    machine.store.put(KEY, encode(registration(1, node_uuid=directory.identity.directory_id)))
    epoch, whole, synced = await claimed(machine.start())
    assert (whole, synced) == (3, 3)
    assert machine.store.item(RECORD).mod_revision == epoch


async def test_a_directory_whose_record_is_gone_does_not_count_as_intact(machine: Machine) -> None:
    await crash_after_registering(machine.start())
    machine.store.delete(RECORD)
    epoch, whole, _ = await claimed(machine.start())
    assert whole == epoch


async def test_a_registration_of_another_directory_by_an_older_release_counts_against_it(
    machine: Machine,
) -> None:
    """An older release does not know that the id is bound."""
    await crash_after_registering(machine.start())
    machine.store.put(KEY, encode(registration(1, node_uuid="another")))
    broker = machine.start()
    async with at_work(broker.registration.run()):
        await asyncio.sleep(2)
        assert broker.epochs == []
        machine.store.delete(KEY)
        epoch = await broker.registered()
        assert (broker.stored.whole_since or epoch) == epoch


async def test_a_concurrent_change_of_the_record_is_read_again(machine: Machine) -> None:
    """Two copies register at once, and one of them sees that the other did."""
    await crash_after_registering(machine.start())
    twin, original = machine.copied_to("b").start(), machine.start()
    held = await binding(original).read()
    await claimed(twin)
    guards, changes = binding(original).registration_parts(held, "10.0.0.1:7500", "")
    assert not (await machine.store.transact(Transaction(guards, changes))).succeeded
