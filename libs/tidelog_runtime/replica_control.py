"""What a controller tells a broker, as plain values, and the boundary it goes through.

`replica_control.proto` documents the fields; `replica_control_codec` is the wire form.
Real channels, and the simulator's, implement `ReplicaControl`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tidelog.errors import TidelogError
from tidelog.model import TopicPartition
from tidelog.state_changes.event import NO_CHANGE, Change
from tidelog_runtime.metadata.schema import LeaderAndIsr


class PartitionCommand(NamedTuple):
    """The state a replica is to take. `revision` is the modification revision of the
    partition's key: brokers order all they learn of a replica by it. `config_revision`: that of
    its topic's key, by which they order what they learn of `config`."""

    partition: TopicPartition
    state: LeaderAndIsr
    revision: int
    config: Mapping[str, str]
    config_revision: int = 0


class LeaderAddress(NamedTuple):
    address: str
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class LeaderAndIsrCommand:
    """`change`: of a full state, as which that is told; each partition has its own.
    `unreadable_topics`: of a full state, by name: replicas of these are no strays, whether or not
    it names them."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    full_state: bool
    partitions: Sequence[PartitionCommand]
    leaders: Mapping[int, LeaderAddress]
    store_revision: int
    change: Change = field(default=NO_CHANGE, compare=False)
    unreadable_topics: Collection[str] = ()


class StopPartition(NamedTuple):
    partition: TopicPartition
    topic_id: str
    leader_epoch: int
    revision: int
    delete: bool
    change: Change = NO_CHANGE


@dataclass(frozen=True, slots=True)
class StopReplicaCommand:
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: Sequence[StopPartition]


class PartitionResult(NamedTuple):
    """`revision`: what the broker has now taken for this replica; error None: done."""

    topic_id: str
    partition: int
    revision: int
    error: TidelogError | None


@dataclass(frozen=True, slots=True)
class CommandResult:
    """`error` refuses the command as a whole (a stale controller or broker epoch)."""

    error: TidelogError | None = None
    partitions: Sequence[PartitionResult] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class DescribeReplicasCommand:
    """Asks about the logs of replicas; `partitions` by topic id and number."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: Sequence[tuple[str, int]]


Command = LeaderAndIsrCommand | StopReplicaCommand | DescribeReplicasCommand


def newest_revision(command: Command) -> int:
    """Of the metadata store: what its controller has seen of it for certain."""
    match command:
        case LeaderAndIsrCommand():
            told = [command.store_revision, *(p.revision for p in command.partitions)]
        case StopReplicaCommand():
            told = [p.revision for p in command.partitions]
        case DescribeReplicasCommand():
            told = []
    return max([command.broker_epoch, *told])


class LogExtent(NamedTuple):
    """How far a log reached at some time."""

    log_end_offset: int
    epochs: tuple[tuple[int, int], ...]


class ReplicaSummary(NamedTuple):
    """How far a log reaches: its leader epochs and where each starts, in order. Where the
    partition's key names no leader it holds true as long as that is at `revision`.

    `before_cut`: how far it reached before it was found damaged and cut, if that was since its
    partition was last led and by this process. `lacks`: by its leader alone, for each replica
    that a move adds, the bytes of the log that it has yet to copy. -1: not told. From
    `before_cut` on nothing is ever decided by."""

    topic_id: str
    partition: int
    revision: int
    log_start_offset: int
    log_end_offset: int
    epochs: tuple[tuple[int, int], ...]
    before_cut: LogExtent | None = None
    high_watermark: int = -1
    size_bytes: int = -1
    lacks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class DescribeReplicasResult:
    """`error` refuses the request as a whole; replicas that are not there are left out."""

    error: TidelogError | None = None
    replicas: Sequence[ReplicaSummary] = field(default_factory=tuple)


class BrokerUnreachableError(Exception):
    """No answer from the broker; the command may or may not have been carried out."""


class ReplicaControl(Protocol):
    """One broker, as its controller reaches it. Raises `BrokerUnreachableError`."""

    async def leader_and_isr(self, command: LeaderAndIsrCommand) -> CommandResult: ...

    async def stop_replica(self, command: StopReplicaCommand) -> CommandResult: ...

    async def describe_replicas(
        self, command: DescribeReplicasCommand
    ) -> DescribeReplicasResult: ...

    async def watch(
        self,
        controller_id: int,
        controller_epoch: int,
        broker_epoch: int,
        established: Callable[[], None],
    ) -> None:
        """Returns when the connection to the broker has ended, however it ended. `established` is
        called once the broker has answered."""

    async def close(self) -> None: ...
