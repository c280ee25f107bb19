"""What a copy and an older backup of a data directory may claim when they register, and what they
may end (docs/adr/0001).
"""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from tidelog_broker.log.checkpoint import RECOVERY_POINTS, OffsetCheckpoint
from tidelog_broker.log.file_id import FileId
from tidelog_broker.membership.registration import TAKEN_LOG_INTERVAL_S
from unit.broker.broker_parts import DATA, at_work
from unit.broker.flaky_store import FlakyStore
from unit.broker.log.memory_disk import MemoryDisk
from unit.broker.membership.test_broker_registration import KEY, TTL_SECONDS
from unit.broker.membership.test_directory_binding import (
    RECORD,
    Machine,
    binding,
    claimed,
    crash_after_registering,
    machine,
    record,
    stop_cleanly,
    store,
)

__all__ = ["machine", "store"]


@pytest.mark.rule("broker-id-bound-to-directory")
async def test_a_copy_of_a_crashed_directory_does_not_count_as_intact(machine: Machine) -> None:
    await crash_after_registering(machine.start())
    copy = machine.copied_to("b")
    copy.boot_id = machine.boot_id  # also where it is started on the same machine
    epoch, whole, synced = await claimed(copy.start())
    assert (whole, synced) == (epoch, epoch)
    assert "copied or restored" in record(machine.store).not_intact_reason


async def test_a_copy_is_recognized_at_its_second_start_too(machine: Machine) -> None:
    await crash_after_registering(machine.start())
    copy = machine.copied_to("b")
    copy.open()  # and died before it registered
    epoch, whole, _ = await claimed(copy.start())
    assert whole == epoch


@pytest.mark.rule("broker-id-bound-to-directory")
async def test_a_copy_never_ends_the_registration_of_the_original(machine: Machine) -> None:
    original = machine.start()
    async with at_work(original.registration.run()):
        epoch = await original.registered()
        twin = machine.copied_to("b").start()
        with capture_logs() as lines:
            async with at_work(twin.registration.run()):
                await asyncio.sleep(2.5 * TAKEN_LOG_INTERVAL_S)
        assert twin.epochs == []
        assert set(twin.others) == {epoch}
        assert twin.registration.is_waiting
        assert original.epochs == [epoch]
    taken = [line for line in lines if line["event"] == "broker_id_taken"]
    assert [line["by"] for line in taken] == ["10.0.0.1:7500"] * 3
    assert "with this data directory or a copy of it" in twin.waiting[0]


async def test_a_wait_within_the_lease_is_not_reported(machine: Machine) -> None:
    """The process whose registration is left may just have died."""
    original = machine.start()
    task = asyncio.create_task(original.registration.run())
    await original.registered()
    task.cancel()
    await asyncio.wait([task])
    twin = machine.copied_to("b").start()
    async with at_work(twin.registration.run()):
        await asyncio.sleep(TTL_SECONDS - 0.5)
        assert not twin.registration.is_waiting
    assert twin.waiting == []


async def test_a_registration_gives_the_reason_why_it_is_not_intact_and_waits_no_more(
    machine: Machine,
) -> None:
    original = machine.start()
    task = asyncio.create_task(original.registration.run())
    await original.registered()
    twin = machine.copied_to("b").start()
    async with at_work(twin.registration.run()):
        await asyncio.sleep(TTL_SECONDS + 1)
        assert twin.registration.not_intact_reason == ""
        task.cancel()
        await asyncio.wait([task])
        await original.registration.withdraw()
        await twin.registered()
        assert "copied or restored" in twin.registration.not_intact_reason
        assert not twin.registration.is_waiting
    assert original.registration.not_intact_reason == ""


async def test_after_a_reboot_the_lease_of_the_last_process_has_to_end(machine: Machine) -> None:
    """A clone of its disk may run elsewhere and look the same."""
    original = machine.start()
    async with at_work(original.registration.run()):
        epoch = await original.registered()
        machine.reboot()
        clone = machine.start()
        async with at_work(clone.registration.run()):
            await asyncio.sleep(TTL_SECONDS + 1)
        assert original.epochs == [epoch]


@pytest.mark.rule("broker-id-bound-to-directory")
async def test_once_a_copy_has_registered_the_original_does_not_count_as_intact(
    machine: Machine,
) -> None:
    await crash_after_registering(machine.start())
    await crash_after_registering(machine.copied_to("b").start())
    epoch, whole, synced = await claimed(machine.start())
    assert (whole, synced) == (epoch, epoch)
    assert "has registered since" in record(machine.store).not_intact_reason


async def test_the_same_process_does_not_count_as_intact_once_a_copy_has_registered(
    machine: Machine,
) -> None:
    """It was paused meanwhile."""
    original = machine.start()
    async with at_work(original.registration.run()):
        await original.registered()
        lease = original.registration._lease
        assert lease is not None
        machine.store.delete(KEY)
        await claimed(machine.copied_to("b").start())
        machine.store.expire_lease(lease.id)
        second = await original.registered(2)
        assert (original.stored.whole_since or second) == second


async def test_a_directory_restored_from_before_its_last_registration_is_not_intact(
    machine: Machine,
) -> None:
    await stop_cleanly(machine.start())
    backup = machine.disk.contents()
    await stop_cleanly(machine.start())
    machine.disk.restore(backup)
    epoch, whole, synced = await claimed(machine.start())
    assert (whole, synced) == (epoch, epoch)
    assert "has registered since" in record(machine.store).not_intact_reason


async def test_a_backup_of_a_running_broker_is_not_intact_after_its_clean_stop(
    machine: Machine,
) -> None:
    broker = machine.start()
    async with at_work(broker.registration.run()):
        epoch = await broker.registered()
        backup = machine.disk.contents()
    await broker.registration.withdraw()
    broker.directory.stopped_cleanly(epoch)
    await binding(broker).stopped_cleanly(epoch)
    machine.disk.restore(backup)
    epoch, whole, synced = await claimed(machine.start())
    assert (whole, synced) == (epoch, epoch)
    assert "before its broker's last clean stop" in record(machine.store).not_intact_reason


async def test_a_clean_stop_is_trusted_once(machine: Machine) -> None:
    await stop_cleanly(machine.start())
    backup = machine.disk.contents()
    await crash_after_registering(machine.start())
    machine.disk.restore(backup)
    epoch, whole, _ = await claimed(machine.start())
    assert whole == epoch


async def test_a_clean_stop_that_did_not_reach_the_store_covers_only_the_same_files(
    machine: Machine,
) -> None:
    broker = machine.start()
    first = await crash_after_registering(broker)
    broker.directory.stopped_cleanly(first)
    copy = machine.copied_to("b")
    machine.reboot()
    assert (await claimed(machine.start()))[1:] == (first, first)
    epoch, whole, _ = await claimed(copy.start())
    assert whole == epoch


async def test_a_clean_stop_does_not_overwrite_the_registration_of_another(
    machine: Machine,
) -> None:
    broker = machine.start()
    epoch = await crash_after_registering(broker)
    await crash_after_registering(machine.copied_to("b").start())
    before = machine.store.item(RECORD)
    broker.directory.stopped_cleanly(epoch)
    await binding(broker).stopped_cleanly(epoch)
    assert machine.store.item(RECORD) == before


async def test_files_restored_one_by_one_are_recognized_by_the_stored_revision(
    machine: Machine,
) -> None:
    """rsync leaves unchanged files alone, here `broker.json`."""
    broker = machine.start()
    broker.directory.note_revision(5)
    await crash_after_registering(broker)
    note = DATA / "store-revision"
    backup = machine.disk.read_file(note)
    machine.disk.write_atomically(note, backup, sync=True)
    epoch, whole, _ = await claimed(machine.start())
    assert whole == epoch


class DiskWithoutBirthTimes(MemoryDisk):
    """Its files get two inodes in turn, as files that are replaced by a rename often do."""

    def __init__(self, first_inode: int = 0) -> None:
        super().__init__()
        self._first_inode = first_inode

    def _new_id(self) -> FileId:
        return FileId(1, self._first_inode + super()._new_id().inode % 2, 0)


@pytest.fixture
def without_birth_times(store: FlakyStore) -> Machine:
    return Machine(store, disk=DiskWithoutBirthTimes())


async def test_a_crash_of_the_process_without_birth_times_leaves_the_directory_intact(
    without_birth_times: Machine,
) -> None:
    """So the logs are opened with all writes kept, and repeat those of a failed sync."""
    machine = without_birth_times
    first = await crash_after_registering(machine.start())
    with capture_logs() as lines:
        broker = machine.start()
    assert not broker.directory.identity.copied
    assert (await claimed(broker))[1:] == (first, first)
    assert [line["event"] for line in lines] == ["birth_times_missing"]


async def test_without_birth_times_a_copy_beside_the_original_is_not_intact(
    without_birth_times: Machine,
) -> None:
    machine = without_birth_times
    await crash_after_registering(machine.start())
    # The files of the original exist, so that those of the copy have other inodes.
    copy = Machine(machine.store, disk=DiskWithoutBirthTimes(first_inode=2))
    copy.disk.restore(machine.disk.contents())
    epoch, whole, synced = await claimed(copy.start())
    assert (whole, synced) == (epoch, epoch)


@pytest.mark.rule("broker-id-bound-to-directory")
async def test_after_a_reboot_without_birth_times_a_restore_in_place_is_not_intact(
    without_birth_times: Machine,
) -> None:
    """Each file is restored into the inode that it names."""
    machine = without_birth_times
    await crash_after_registering(machine.start())
    machine.disk.restore_in_place(machine.disk.contents())
    machine.reboot()
    epoch, whole, synced = await claimed(machine.start())
    assert (whole, synced) == (epoch, epoch)
    assert "no birth times" in record(machine.store).not_intact_reason


async def test_without_birth_times_a_clean_stop_keeps_a_directory_intact(
    without_birth_times: Machine,
) -> None:
    machine = without_birth_times
    first = await stop_cleanly(machine.start())
    await stop_cleanly(machine.start())
    machine.reboot()
    assert (await claimed(machine.start()))[1:] == (first, first)


async def test_without_birth_times_a_copy_that_was_not_synced_is_lost_at_a_reboot(
    without_birth_times: Machine,
) -> None:
    machine = without_birth_times
    await crash_after_registering(machine.start())
    machine.reboot()
    machine.open()
    points = DATA / RECOVERY_POINTS
    OffsetCheckpoint(machine.disk, points).write({}, sync=True)
    machine.reboot()
    machine.open()
    assert points not in machine.disk.contents()


async def test_a_file_system_with_birth_times_gets_no_warning(machine: Machine) -> None:
    with capture_logs() as lines:
        machine.open()
    assert lines == []


@pytest.mark.rule("broker-id-bound-to-directory")
async def test_a_registration_made_between_the_two_reads_is_not_deleted(machine: Machine) -> None:
    """The record that was read names the original, and the registration belongs to the copy."""
    await crash_after_registering(machine.start())
    original, copy = machine.start(), machine.copied_to("b").start()
    before = await binding(original).read()
    async with at_work(copy.registration.run()):
        epoch = await copy.registered()
        read_between = (await binding(original).read())._replace(record=before.record)
        assert not await binding(original).end_previous(read_between)
        assert machine.store.item(KEY).create_revision == epoch
