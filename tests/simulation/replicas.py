"""What is known of each replica beside the production code, and of what was committed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from simulation.durable_ends import DurableEnd
from simulation.partition_id import PartitionId
from simulation.shadow_logs import Entry, ShadowLog
from tidelog.model import NO_EPOCH
from tidelog_runtime.metadata.schema import LeaderAndIsr


class ReplicaState(Protocol):
    """What a production `Partition` shows of itself."""

    @property
    def state(self) -> LeaderAndIsr | None: ...

    @property
    def revision(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def leading(self) -> object | None: ...


class Owner(Protocol):
    """The life of a broker that a replica is open in."""

    @property
    def name(self) -> str: ...

    @property
    def broker_epoch(self) -> int:
        """As far as it knows; 0: not yet."""


class DiskLog(Protocol):
    """What a production `Log` shows of itself."""

    @property
    def failed(self) -> object | None: ...


@dataclass(slots=True, eq=False)
class Replica:
    """One replica on one machine, over all its lives."""

    broker_id: int
    partition: PartitionId
    machine_id: int
    log: ShadowLog = field(default_factory=ShadowLog)
    owner: Owner | None = None
    # Known to agree with what was committed up to here.
    verified: int = 0
    # Since an unclean election, and until it agrees with what was committed by then and
    # since, what is below its high watermark may be what was given up.
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
    ends: dict[int, int] = field(default_factory=dict)  # that leaders have reached, by epoch
    # Whether an unclean election has ever brought back what one before it had given up.
    brought_back: bool = False
    # Fences that unclean elections gave up, with the epoch of that election: readers may
    # pass over them that hold what was committed before.
    lost_fences: list[tuple[Entry, int]] = field(default_factory=list)

    def end_before(self, leader_epoch: int) -> int:
        """What a leader of this epoch has to have. One that was paused may hear of its
        election after others have committed more in later epochs."""
        return max((end for epoch, end in self.ends.items() if epoch < leader_epoch), default=0)


class Loss(NamedTuple):
    """What an unclean election gave up: from `first_offset` on, of all epochs before."""

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
