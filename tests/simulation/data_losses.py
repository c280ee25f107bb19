"""Losses of data: all that the disk of a machine did not keep, or bits of one replica."""

from __future__ import annotations

import re
from pathlib import PurePath

from simulation.partition_id import PartitionId

_REPLICA_DIRECTORY = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)\.(?P<topic_id>.{22})")


def replica_in(directory: PurePath) -> tuple[str, PartitionId]:
    """Returns the topic and the partition whose replica is in `directory`."""
    match = _REPLICA_DIRECTORY.fullmatch(directory.name)
    assert match is not None, directory
    return match["topic"], PartitionId(match["topic_id"], int(match["partition"]))


class DataLosses:
    """The losses of all machines, numbered in their order. `count` is the number so far.

    Machines have the ids of their brokers (see `twins`).
    """

    def __init__(self) -> None:
        self.count = 0
        self._of_machines: dict[int, int] = {}
        self._of_replicas: dict[tuple[int, PartitionId], int] = {}
        # By machine: the directory that it has from a loss on. A directory has the number of the
        # loss that brought it about; the first one of a machine has the negative of the machine's
        # id.
        self._directories: dict[int, list[tuple[int, int]]] = {}
        self._registrations: dict[int, int] = {}

    def contents_replaced(self, machine_id: int) -> None:
        """Notes that the machine has another directory from now on: empty, older or a copy.

        Its contents need not be the beginning of what the previous one held.
        """
        self.machine_lost(machine_id)
        self._has(machine_id, self.count)

    def directory_put_back(self, machine_id: int, directory: int) -> None:
        """Notes that the machine has a previous directory again, numbered as by `directory_at`."""
        self.machine_lost(machine_id)
        self._has(machine_id, directory)

    def copied(self, source_id: int, to_id: int) -> None:
        """Notes a copy from a machine whose broker does not run.

        Both have the same directory, until one of them registers.
        """
        self.machine_lost(to_id)
        self._has(to_id, self.directory_at(source_id, self.count))

    def registered(self, machine_id: int) -> None:
        """Notes that a broker registers: from now on copies of its directory are older ones."""
        self._registrations[machine_id] = self.registrations(machine_id) + 1
        directory = self.directory_at(machine_id, self.count)
        for other_id in sorted({*self._directories, *self._registrations}):
            if other_id != machine_id and self.directory_at(other_id, self.count) == directory:
                self.count += 1
                self._has(other_id, self.count)

    def registrations(self, machine_id: int) -> int:
        return self._registrations.get(machine_id, 0)

    def last_replaced(self, machine_id: int) -> int:
        """Returns the number of the loss that last replaced the directory; 0: none did."""
        return self._directories[machine_id][-1][0] if machine_id in self._directories else 0

    def directory_at(self, machine_id: int, number: int) -> int:
        """Returns the directory that the machine had after loss `number`.

        Only copies have the same one on several machines.
        """
        had = [d for since, d in self._directories.get(machine_id, ()) if since <= number]
        return had[-1] if had else -machine_id

    def _has(self, machine_id: int, directory: int) -> None:
        self._directories.setdefault(machine_id, []).append((self.count, directory))

    def machine_lost(self, broker_id: int) -> None:
        """Notes a possible loss of every replica on the machine."""
        self.count += 1
        self._of_machines[broker_id] = self.count

    def replica_damaged(self, broker_id: int, partition: PartitionId) -> None:
        """Notes a loss of this replica alone: bits were flipped, or damage was cut off."""
        self.count += 1
        self._of_replicas[broker_id, partition] = self.count

    def was_damaged(self, broker_id: int, partition: PartitionId) -> bool:
        return (broker_id, partition) in self._of_replicas

    @property
    def damaged_machines(self) -> set[int]:
        return {broker_id for broker_id, _ in self._of_replicas}

    def last_of(self, broker_id: int, partition: PartitionId) -> int:
        """Returns the number of the last loss that the replica may have suffered, or 0 for none."""
        of_replica = self._of_replicas.get((broker_id, partition), 0)
        return max(of_replica, self._of_machines.get(broker_id, 0))
