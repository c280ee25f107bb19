"""The state of each replica, and what was committed, kept apart from the production code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from simulation.durable_ends import DurableEnd
from simulation.partition_id import PartitionId
from simulation.shadow_logs import Entry, ShadowLog
from tidelog.model import NO_EPOCH
from tidelog_runtime.metadata.schema import LeaderAndIsr


class ReplicaState(Protocol):
    """The state that a production `Partition` exposes."""

    @property
    def state(self) -> LeaderAndIsr | None: ...

    @property
    def revision(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def leading(self) -> object | None: ...


class Owner(Protocol):
    """The incarnation of a broker in which a replica is open."""

    @property
    def name(self) -> str: ...

    @property
    def broker_epoch(self) -> int:
        """As far as the broker knows it; 0: not yet."""


class DiskLog(Protocol):
    """The state that a production `Log` exposes."""

    @property
    def failed(self) -> object | None: ...


@dataclass(slots=True, eq=False)
class Replica:
    """One replica on one machine, over all incarnations of its broker."""

    broker_id: int
    partition: PartitionId
    machine_id: int
    log: ShadowLog = field(default_factory=ShadowLog)
    owner: Owner | None = None
    # Up to here it is known to agree with what was committed.
    verified: int = 0
    # From an unclean election until it agrees with what was committed by then and since: what is
    # below its high watermark may be what was given up.
    suspect: bool = False
    leading: object | None = None  # in the epoch in which it was last seen leading
    high_watermark: int = -1
    disk_log: DiskLog | None = None  # as last opened
    durable: DurableEnd = field(default_factory=DurableEnd)
    # The newest epoch of each producer since the log was last opened or cut.
    producer_epochs: dict[int, int] = field(default_factory=dict)

    @property
    def synced_end(self) -> int:
        return min(self.log.end, self.durable.offset)


@dataclass(slots=True)
class Committed:
    log: ShadowLog = field(default_factory=ShadowLog)
    unclean_epoch: int = NO_EPOCH  # of the last unclean election that took effect
    ends: dict[int, int] = field(default_factory=dict)  # that leaders have committed, by epoch
    # Whether an unclean election has ever brought back what an earlier one had given up.
    brought_back: bool = False
    # Fences that unclean elections gave up, with the epoch of that election. Readers that hold what
    # was committed before may skip them.
    lost_fences: list[tuple[Entry, int]] = field(default_factory=list)

    def end_before(self, leader_epoch: int) -> int:
        """Returns the end that a leader of this epoch must have.

        A leader that was paused may learn of its election after others have committed more in
        later epochs.
        """
        return max((end for epoch, end in self.ends.items() if epoch < leader_epoch), default=0)


class Loss(NamedTuple):
    """What an unclean election gave up: all earlier epochs from `first_offset` on."""

    partition: PartitionId
    leader_epoch: int
    first_offset: int
    end_offset: int


def where(replica: Replica) -> dict[str, object]:
    return {
        "broker": replica.owner.name if replica.owner else replica.broker_id,
        "topic_id": replica.partition.topic_id,
        "partition": replica.partition.partition,
    }
