"""Faults about data directories: two processes with one broker id, a directory that is replaced,
restored from an older copy, or copied to a second machine.

Neither production code nor rules are asked how they tell directories apart.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from simulation.disk import SimDisk
from simulation.faults import Fault
from simulation.processes import BrokerProcess

if TYPE_CHECKING:
    from simulation.world import World

End: TypeAlias = "Callable[[], None]"


def _nothing() -> None:
    pass


def is_unreadable(broker: BrokerProcess) -> bool:
    """Bits of it were flipped: rules could not read what a copy of it holds."""
    return broker.machine.disk.flipped > 0


class DirectoryFaults:
    def __init__(self, world: World) -> None:
        self._world = world

    def kinds(self) -> dict[str, Callable[[Fault, random.Random], End]]:
        return {
            "second_process": self._second_process,
            "copied_directory": self._copied_directory,
            "restored_directory": self._restored_directory,
            "swapped_directory": self._swapped_directory,
            "empty_disk": self._empty_disk,
        }

    def _broker(self, fault: Fault) -> BrokerProcess:
        service = self._world.service(str(fault.args[0]))
        assert isinstance(service, BrokerProcess)
        return service

    def _run_twin(self, broker: BrokerProcess, disk: SimDisk) -> End:
        twin = self._world.twin(broker.broker_id)
        if twin.alive:
            return _nothing
        twin.machine.disk = disk
        self._world.data_losses.contents_replaced(twin.machine_id)
        twin.release_all()

        def end() -> None:
            twin.hold_down()
            twin.kill()

        return end

    def _second_process(self, fault: Fault, _: random.Random) -> End:
        """It has an empty directory, and no command has given up the first one."""
        return self._run_twin(self._broker(fault), SimDisk())

    def _copied_directory(self, fault: Fault, _: random.Random) -> End:
        """While the first process runs, or is paused, or is dead."""
        broker = self._broker(fault)
        if is_unreadable(broker):
            return _nothing
        copy = SimDisk()
        copy.restore(broker.machine.disk.contents())
        return self._run_twin(broker, copy)

    def _restored_directory(self, fault: Fault, _: random.Random) -> End:
        """At the end, from a backup that was taken at the begin."""
        broker = self._broker(fault)
        if is_unreadable(broker):
            return _nothing
        backup = broker.machine.disk.contents()

        def restore() -> None:
            broker.hold_down()
            broker.kill()
            if broker.machine.disk.contents() != backup:
                broker.machine.disk.restore(backup)
                self._world.data_losses.contents_replaced(broker.machine_id)
            broker.release()

        return restore

    def _swapped_directory(self, fault: Fault, _: random.Random) -> End:
        """An empty one replaces it, and at the end it comes back: each time an operator says so."""
        broker = self._broker(fault)
        if is_unreadable(broker):
            return _nothing
        first = broker.machine.disk
        self._put_disk(broker, SimDisk())

        def swap_back() -> None:
            self._put_disk(broker, first)

        return swap_back

    def _put_disk(self, broker: BrokerProcess, disk: SimDisk) -> None:
        broker.hold_down()
        broker.kill()
        broker.machine.disk = disk
        broker.may_replace_directory = True
        self._world.data_losses.contents_replaced(broker.machine_id)
        broker.release()

    def _empty_disk(self, fault: Fault, _: random.Random) -> End:
        """The machine gets a new one."""
        broker = self._broker(fault)
        broker.hold_down()
        broker.kill()
        broker.machine.disk.wipe()
        broker.may_replace_directory = True
        self._world.data_losses.contents_replaced(broker.machine_id)
        return broker.release
