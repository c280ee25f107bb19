"""Commands from a controller to a broker, as plain values, and the interface that sends them.

`replica_control.proto` documents the fields; `replica_control_codec` is the wire form. Real
channels and those of the simulator implement `ReplicaControl`.
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
    """The target state of one replica.

    - `revision`: modification revision of the partition's key. Brokers order all that they
      learn of a replica by it.
    - `config_revision`: modification revision of the topic's key. Brokers order the versions of
      `config` by it.
    """

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
    """Target states of some or all replicas of one broker.

    - `change`: with `full_state`, the change that the broker reports for it. Each partition has
      its own change.
    - `unreadable_topics`: with `full_state`, names of topics whose replicas are not strays even
      if the command does not name them.
    """

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
    """The broker's answer for one partition of a command.

    - `revision`: the revision that the broker now has for this replica.
    - `error`: None if the command was carried out.
    """

    topic_id: str
    partition: int
    revision: int
    error: TidelogError | None


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The answer to a command. `error` rejects it entirely (stale controller or broker epoch)."""

    error: TidelogError | None = None
    partitions: Sequence[PartitionResult] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class DescribeReplicasCommand:
    """Requests the extents of replicas' logs. `partitions`: pairs of topic id and partition."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: Sequence[tuple[str, int]]


Command = LeaderAndIsrCommand | StopReplicaCommand | DescribeReplicasCommand


def newest_revision(command: Command) -> int:
    """Returns the newest store revision that the controller is known to have seen."""
    match command:
        case LeaderAndIsrCommand():
            revisions = [command.store_revision, *(p.revision for p in command.partitions)]
        case StopReplicaCommand():
            revisions = [p.revision for p in command.partitions]
        case DescribeReplicasCommand():
            revisions = []
    return max([command.broker_epoch, *revisions])


class LogExtent(NamedTuple):
    """The extent of a log at some time: its end, and its leader epochs with their start offsets."""

    log_end_offset: int
    epochs: tuple[tuple[int, int], ...]


class ReplicaSummary(NamedTuple):
    """The extent of a replica's log.

    If the partition's key names no leader, the summary is valid as long as the key is at
    `revision`. Decisions use only the fields above `before_cut`.

    - `epochs`: leader epochs and their start offsets, in ascending order.
    - `before_cut`: the extent before damage was found and truncated. It is set only if that
      happened in this process and since the partition last had a leader.
    - `high_watermark`, `size_bytes`: -1: not reported.
    - `lacks`: reported only by the leader: for each replica that a move adds, its broker id and
      the bytes of the log that it has yet to copy.
    """

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
    """The summaries. `error` rejects the entire request; missing replicas are left out."""

    error: TidelogError | None = None
    replicas: Sequence[ReplicaSummary] = field(default_factory=tuple)


class BrokerUnreachableError(Exception):
    """The broker did not answer; it may or may not have carried out the command."""


class ReplicaControl(Protocol):
    """A controller's connection to one broker. Calls raise `BrokerUnreachableError`."""

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
        """Returns when the connection to the broker has ended, for any reason.

        - `established`: called once the broker has answered.
        """

    async def close(self) -> None: ...
