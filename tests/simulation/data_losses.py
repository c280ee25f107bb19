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
        self._replaced: dict[int, list[int]] = {}

    def contents_replaced(self, machine_id: int) -> None:
        """Its directory is another one from now on, empty, older or a copy: what it holds need
        not be the begin of what it held."""
        self.machine_lost(machine_id)
        self._replaced.setdefault(machine_id, []).append(self.count)

    def last_replaced(self, machine_id: int) -> int:
        """The number of the last time; 0: never."""
        return self._replaced.get(machine_id, [0])[-1]

    def was_replaced_between(self, machine_id: int, after: int, up_to: int) -> bool:
        """Both are numbers of losses."""
        return any(after < number <= up_to for number in self._replaced.get(machine_id, ()))

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

    def last_of(self, broker_id: int, partition: PartitionId) -> int:
        """The number of the last that this replica may have suffered; 0: of none."""
        of_replica = self._of_replicas.get((broker_id, partition), 0)
        return max(of_replica, self._of_machines.get(broker_id, 0))
