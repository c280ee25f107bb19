"""A backup of a running broker is copied over its files while the metadata store has had no
change: the checkpoints are not the files that the directory names (docs/adr/0001).
"""

from __future__ import annotations

from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.checked_file import write_checked
from tidelog_broker.log.checkpoint import HIGH_WATERMARKS, RECOVERY_POINTS
from tidelog_broker.storage.checkpoints import Checkpoints
from unit.broker.broker_parts import DATA
from unit.broker.fake_log import TOPIC_ID
from unit.broker.flaky_store import FlakyStore
from unit.broker.membership.test_directory_binding import (
    Machine,
    claimed,
    crash_after_registering,
)
from unit.metadata.virtual_time import virtual_clock

REPLICA = ReplicaKey(TOPIC_ID, 0)


def write_checkpoints(machine: Machine, offset: int) -> None:
    checkpoints = Checkpoints(machine.disk, DATA)
    checkpoints.read()
    write = checkpoints.begin({REPLICA: offset}, {REPLICA: offset})
    write.run()
    checkpoints.finish(write)


async def test_a_copy_restored_in_place_is_recognized_while_the_store_has_no_change() -> None:
    machine = Machine(FlakyStore(virtual_clock()))
    broker = machine.start()
    epoch = await crash_after_registering(broker)
    broker.directory.note_revision(epoch)
    write_checkpoints(machine, 10)
    backup = machine.disk.contents()
    write_checkpoints(machine, 300)
    machine.disk.restore_in_place(backup)
    _, whole, synced = await claimed(machine.start())
    assert whole > epoch
    assert synced > epoch


async def test_a_crash_after_checkpoints_leaves_the_directory_intact() -> None:
    machine = Machine(FlakyStore(virtual_clock()))
    epoch = await crash_after_registering(machine.start())
    write_checkpoints(machine, 10)
    write_checkpoints(machine, 300)
    assert (await claimed(machine.start()))[1:] == (epoch, epoch)


async def test_checkpoints_of_an_older_release_name_no_file_and_are_trusted() -> None:
    machine = Machine(FlakyStore(virtual_clock()))
    epoch = await crash_after_registering(machine.start())
    for name in (HIGH_WATERMARKS, RECOVERY_POINTS):
        topics = {TOPIC_ID: {"0": 3}}
        write_checked(machine.disk, DATA / name, "offset-checkpoint", topics, sync=True)
    checkpoints = Checkpoints(machine.disk, DATA)
    checkpoints.read()
    assert checkpoints.high_watermark(REPLICA) == 3
    assert (await claimed(machine.start()))[1:] == (epoch, epoch)
