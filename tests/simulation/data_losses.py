"""What machines have lost: all that a disk held and did not keep, or a bit of one replica."""

from __future__ import annotations

import re
from pathlib import PurePath

from simulation.partition_id import PartitionId

_REPLICA_DIRECTORY = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)\.(?P<topic_id>.{22})")


def replica_in(directory: PurePath) -> tuple[str, PartitionId]:
    """The topic and the partition whose replica lies there."""
    match = _REPLICA_DIRECTORY.fullmatch(directory.name)
    assert match is not None, directory
    return match["topic"], PartitionId(match["topic_id"], int(match["partition"]))


class DataLosses:
    """Numbered in their order, over all machines, which have the ids of their brokers (see
    `twins`). `count`: how many there were."""

    def __init__(self) -> None:
        self.count = 0
        self._of_machines: dict[int, int] = {}
        self._of_replicas: dict[tuple[int, PartitionId], int] = {}
        # The directory that each machine has from a loss on: the number of the loss by which that
        # directory came to be; its first one is named by the negative of the machine's id.
        self._directories: dict[int, list[tuple[int, int]]] = {}
        self._registrations: dict[int, int] = {}

    def contents_replaced(self, machine_id: int) -> None:
        """Its directory is another one from now on, empty, older or a copy: what it holds need
        not be the begin of what it held."""
        self.machine_lost(machine_id)
        self._has(machine_id, self.count)

    def directory_put_back(self, machine_id: int, directory: int) -> None:
        """It has the very one that it had before, as `directory_at` numbers it."""
        self.machine_lost(machine_id)
        self._has(machine_id, directory)

    def copied(self, source_id: int, to_id: int) -> None:
        """Of a machine whose broker does not run: each is the same directory, until one of them is
        registered."""
        self.machine_lost(to_id)
        self._has(to_id, self.directory_at(source_id, self.count))

    def registered(self, machine_id: int) -> None:
        """A broker registers from there: copies of its directory are older than it from now on."""
        self._registrations[machine_id] = self.registrations(machine_id) + 1
        directory = self.directory_at(machine_id, self.count)
        for other_id in sorted({*self._directories, *self._registrations}):
            if other_id != machine_id and self.directory_at(other_id, self.count) == directory:
                self.count += 1
                self._has(other_id, self.count)

    def registrations(self, machine_id: int) -> int:
        return self._registrations.get(machine_id, 0)

    def last_replaced(self, machine_id: int) -> int:
        """The number of the last time; 0: never."""
        return self._directories[machine_id][-1][0] if machine_id in self._directories else 0

    def directory_at(self, machine_id: int, number: int) -> int:
        """Which one the machine had after so many losses; no two machines have the same one, but
        for copies."""
        had = [d for since, d in self._directories.get(machine_id, ()) if since <= number]
        return had[-1] if had else -machine_id

    def _has(self, machine_id: int, directory: int) -> None:
        self._directories.setdefault(machine_id, []).append((self.count, directory))

    def machine_lost(self, broker_id: int) -> None:
        """Perhaps of every replica."""
        self.count += 1
        self._of_machines[broker_id] = self.count

    def replica_damaged(self, broker_id: int, partition: PartitionId) -> None:
        """Of this one alone: bits were flipped, or that was noticed and the damage cut."""
        self.count += 1
        self._of_replicas[broker_id, partition] = self.count

    def was_damaged(self, broker_id: int, partition: PartitionId) -> bool:
        return (broker_id, partition) in self._of_replicas

    @property
    def damaged_machines(self) -> set[int]:
        return {broker_id for broker_id, _ in self._of_replicas}

    def last_of(self, broker_id: int, partition: PartitionId) -> int:
        """The number of the last that this replica may have suffered; 0: of none."""
        of_replica = self._of_replicas.get((broker_id, partition), 0)
        return max(of_replica, self._of_machines.get(broker_id, 0))
