"""Faults of data directories.

Two processes have one broker id; or a directory is replaced, restored from an older copy, or
copied to a second machine. The faults do not use what production code or rules know about the
identity of directories, except for a restore in place.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from simulation.disk import SimDisk
from simulation.faults import Fault
from simulation.metadata_faults import End
from simulation.power import power_off
from simulation.processes import DATA_DIR, BrokerProcess
from tidelog_broker.log.checkpoint import HIGH_WATERMARKS, RECOVERY_POINTS
from tidelog_broker.log.file_id import FileId
from tidelog_broker.storage.data_directory import REVISION_FILE

if TYPE_CHECKING:
    from simulation.world import World


# The share of copies that lose power after a broker has started on them, and the share of these
# that lose it before the broker can have synced the copy.
POWER_FAILS_SHARE = 0.5
AT_ONCE_SHARE = 0.3
AT_ONCE_S = 0.02
POWER_FAILS_WITHIN_S = 3.0
POWER_AWAY_S = (0.3, 1.5)


def _nothing() -> None:
    pass


def is_unreadable(broker: BrokerProcess) -> bool:
    """Whether bits or sectors are damaged: rules could not read what a copy holds."""
    return broker.machine.disk.flipped + broker.machine.disk.spoiled > 0


def _checkpoint_ids(broker: BrokerProcess) -> list[FileId]:
    disk = broker.machine.disk
    paths = (DATA_DIR / HIGH_WATERMARKS, DATA_DIR / RECOVERY_POINTS)
    return [disk.file_id(path) for path in paths if path in disk.contents()]


class DirectoryFaults:
    def __init__(self, world: World) -> None:
        self._world = world
        self._is_over = False
        self.begin: dict[str, Callable[[Fault, random.Random], End]] = {
            "second_process": self._second_process,
            "copied_directory": self._copied_directory,
            "restored_directory": self._restored_directory,
            "swapped_directory": self._swapped_directory,
            "empty_disk": self._empty_disk,
        }

    def heal(self) -> None:
        self._is_over = True

    def _broker(self, fault: Fault) -> BrokerProcess:
        service = self._world.service(str(fault.args[0]))
        assert isinstance(service, BrokerProcess)
        return service

    def _run_twin(
        self, broker: BrokerProcess, disk: SimDisk, of_copy: random.Random | None = None
    ) -> End:
        """Starts the second process of a broker id on `disk`, and returns a function that ends it.

        - `of_copy`: decides what happens to a copy; None: the disk holds none
        """
        twin = self._world.twin(broker.broker_id)
        if twin.alive:
            return _nothing
        twin.machine.disk = disk
        if of_copy is not None and not broker.alive:
            # The copy holds all that the original does, and is equivalent if it registers first.
            self._world.data_losses.copied(broker.machine_id, twin.machine_id)
        else:
            self._world.data_losses.contents_replaced(twin.machine_id)
        twin.release_all()
        if of_copy is not None:
            self._power_may_fail(twin, of_copy)

        def end() -> None:
            twin.hold_down()
            twin.kill()

        return end

    def _power_may_fail(self, broker: BrokerProcess, rng: random.Random) -> None:
        """Lets the power fail soon after the start on a copy, which only the broker synced."""
        if rng.random() >= POWER_FAILS_SHARE:
            return
        loop, disk = self._world.loop, broker.machine.disk
        within_s = AT_ONCE_S if rng.random() < AT_ONCE_SHARE else POWER_FAILS_WITHIN_S

        def fail() -> None:
            if broker.alive and broker.machine.disk is disk and not self._is_over:
                up = power_off(self._world, broker, rng)
                loop.call_later(rng.uniform(*POWER_AWAY_S), up)

        loop.call_later(rng.random() * within_s, fail)

    def _second_process(self, fault: Fault, _: random.Random) -> End:
        """Starts a second process on an empty directory; no operator has released the first one."""
        return self._run_twin(self._broker(fault), SimDisk())

    def _copied_directory(self, fault: Fault, rng: random.Random) -> End:
        """Starts a second process on a copy, while the first one runs, is paused, or is dead."""
        broker = self._broker(fault)
        if is_unreadable(broker):
            return _nothing
        copy = SimDisk()
        copy.restore(broker.machine.disk.contents())
        return self._run_twin(broker, copy, rng)

    def _restored_directory(self, fault: Fault, rng: random.Random) -> End:
        """Restores the directory, at the end, from a backup that is taken at the beginning.

        The backup is restored into other files, in place, or is one of hard links. In place needs a
        checkpoint that the broker has written since; without one, no broker can detect the restore
        (docs/adr/0001).
        """
        broker = self._broker(fault)
        if is_unreadable(broker):
            return _nothing
        backup, was = broker.machine.disk.contents(), _checkpoint_ids(broker)
        links = broker.machine.disk.linked()
        how = rng.random()
        in_place, by_links = how < 0.4, how > 0.8
        losses, machine_id = self._world.data_losses, broker.machine_id
        directory = losses.directory_at(machine_id, losses.count)
        # A backup of a broker that does not run is the same directory until the broker registers
        # again.
        same_until = -1 if broker.alive else losses.registrations(machine_id)

        def restore() -> None:
            broker.hold_down()
            broker.kill()
            disk = broker.machine.disk
            is_same = disk.contents() == backup
            if in_place and _checkpoint_ids(broker) != was:
                # As if the store had not changed since: only the checkpoints show the restore.
                kept = DATA_DIR / REVISION_FILE
                now = {path: c for path, c in disk.contents().items() if path == kept}
                disk.restore_in_place({**backup, **now})
            elif by_links:
                disk.restore_links(links)
            else:
                disk.restore(backup)
            if is_same or losses.registrations(machine_id) == same_until:
                losses.directory_put_back(machine_id, directory)
            else:
                losses.contents_replaced(machine_id)
            broker.release()
            self._power_may_fail(broker, rng)

        return restore

    def _swapped_directory(self, fault: Fault, _: random.Random) -> End:
        """Replaces the directory by an empty one until the end; an operator allows both swaps."""
        broker = self._broker(fault)
        if is_unreadable(broker):
            return _nothing
        losses, machine_id = self._world.data_losses, broker.machine_id
        first, directory = broker.machine.disk, losses.directory_at(machine_id, losses.count)
        with self._putting_disk(broker, SimDisk()):
            losses.contents_replaced(machine_id)

        def swap_back() -> None:
            with self._putting_disk(broker, first):
                losses.directory_put_back(machine_id, directory)

        return swap_back

    @contextmanager
    def _putting_disk(self, broker: BrokerProcess, disk: SimDisk) -> Iterator[None]:
        broker.hold_down()
        broker.kill()
        broker.machine.disk = disk
        broker.may_replace_directory = True
        yield
        broker.release()

    def _empty_disk(self, fault: Fault, _: random.Random) -> End:
        """Gives the machine an empty disk."""
        broker = self._broker(fault)
        broker.hold_down()
        broker.kill()
        broker.machine.disk.wipe()
        broker.may_replace_directory = True
        self._world.data_losses.contents_replaced(broker.machine_id)
        return broker.release
