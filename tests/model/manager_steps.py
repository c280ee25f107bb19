"""What one broker does with commands and fetches.

The production `ReplicaManager` is rebuilt from the model's state for one step and read back.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from pathlib import PurePath
from typing import Any, NamedTuple, cast

from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.log_errors import OutOfServiceError
from tidelog_broker.membership.metadata_cache import MetadataCache
from tidelog_broker.replicas.replica_commands import ReplicaCommands
from tidelog_broker.replicas.replica_manager import ReplicaManager
from tidelog_broker.storage.log_directory import LogDirectory
from tidelog_runtime.clock import Clock
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.replica_control import (
    LeaderAndIsrCommand,
    PartitionCommand,
    StopPartition,
    StopReplicaCommand,
)
from tidelog_runtime.telemetry.state_change_log import StateChangeLog
from tidelog_runtime.topic_config import TopicConfig

from .model_log import NOW_MS, ModelLog
from .replica_steps import NAME, SILENT, fetch_position_of, read_back, rebuild, unclaimed
from .values import (
    NO_TOPIC,
    NOT_SYNCED,
    TOPICS,
    Answer,
    Command,
    Form,
    Position,
    Replica,
    to_production,
    topic_id,
)

CACHE = MetadataCache(Keys("model"))
CONFIGS = {False: {}, True: {"durability": "synced"}}


class Taken(NamedTuple):
    """The result of a command.

    - `done`: whether the controller may count it as acknowledged
    """

    replica: Replica
    done: bool


class _Clock:
    def monotonic_ms(self) -> int:
        return NOW_MS

    def wall_ms(self) -> int:
        return NOW_MS


class _Untold(StateChangeLog):
    """Discards state changes: a step of the model is taken a million times."""

    def emit(self, *_args: object, **_fields: object) -> None: ...


_UNTOLD = _Untold("broker", _Clock(), capacity=0)


class _NoFetchers:
    """Fetches nothing: fetches are steps of their own."""

    def update(self, partitions: Iterable[Partition]) -> None: ...
    def forget(self, partition: Partition) -> None: ...


class ModelLogs:
    """The part of a `LogDirectory` that the manager uses. What is set aside is out of reach."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self.logs = {key_of(topic): ModelLog(entries) for topic, entries in replica.shelf}
        if replica.topic != NO_TOPIC:
            self.logs[key_of(replica.topic)] = ModelLog(replica.log, replica.flushed)

    def open_replica(self, name: object, key: ReplicaKey, config: TopicConfig) -> ModelLog:
        del name
        if self._replica.damaged:
            raise OutOfServiceError(PurePath(key.topic_id), "it is damaged")
        flushed = 0 if config.durability == "synced" else NOT_SYNCED
        return self.logs.setdefault(key, ModelLog((), flushed))

    def begin_opening(self, name: TopicPartition, key: ReplicaKey) -> None:
        """Does nothing: there is no disk, and logs are made when they are requested."""
        del name, key

    def is_new(self, key: ReplicaKey) -> bool:
        return key not in self.logs

    def high_watermark(self, key: ReplicaKey) -> int:
        del key
        return 0

    def keys(self) -> Iterable[ReplicaKey]:
        return self.logs.keys()

    def log_of(self, key: ReplicaKey) -> ModelLog | None:
        return self.logs.get(key)

    def name_of(self, key: ReplicaKey) -> TopicPartition | None:
        return NAME if key in self.logs else None

    @property
    def strays(self) -> ModelLogs:
        return self

    def now_ms(self) -> int:
        return NOW_MS

    def set_aside(self, key: ReplicaKey, since_ms: int | None = None) -> None:
        del since_ms
        self.logs.pop(key, None)

    def delete(self, key: ReplicaKey) -> None:
        self.logs.pop(key, None)


def key_of(topic: int) -> ReplicaKey:
    return ReplicaKey(topic_id(topic), NAME.partition)


async def _in_place(work: Callable[[], None]) -> None:
    work()


def _commands(replica: Replica) -> tuple[ReplicaManager, ReplicaCommands, ModelLogs]:
    logs = ModelLogs(replica)
    manager = ReplicaManager(
        replica.broker,
        cast(LogDirectory, logs),
        CACHE,
        cast(Clock, _Clock()),
        SILENT,
        lambda _: _NoFetchers(),
        _UNTOLD,
    )
    commands = ReplicaCommands(
        manager, cast(LogDirectory, logs), cast(Clock, _Clock()), _UNTOLD, _in_place
    )
    manager.broker_epoch = replica.incarnation
    manager.controller_epoch = replica.controller_epoch
    if replica.full:
        manager.has_full_state.set()
    for topic, revision in replica.stopped:
        manager.stopped.stopped(key_of(topic), revision)
    if replica.value is not None:
        key = key_of(replica.topic)
        partition = rebuild(replica, logs.logs[key])
        manager.register(partition)
        config = CONFIGS[replica.flushed != NOT_SYNCED]
        manager._configs.take(NAME, partition.topic_id, config, 0)
    return manager, commands, logs


def _read_back(replica: Replica, manager: ReplicaManager, logs: ModelLogs) -> Replica:
    revisions = manager.stopped._revisions
    after = replica._replace(
        incarnation=manager.broker_epoch,
        controller_epoch=manager.controller_epoch,
        full=manager.has_full_state.is_set(),
        stopped=tuple((t, revisions[key_of(t)]) for t in TOPICS if key_of(t) in revisions),
    )
    partition = manager.find_named(NAME)
    if partition is None:
        return unclaimed(after, {t: logs.logs[key_of(t)].entries for t in _topics(logs)})
    topic = TOPICS[[topic_id(t) for t in TOPICS].index(partition.topic_id)]
    shelf = tuple((t, logs.logs[key_of(t)].entries) for t in _topics(logs) if t != topic)
    return read_back(after._replace(topic=topic, shelf=shelf), partition)


def _topics(logs: ModelLogs) -> list[int]:
    return [topic for topic in TOPICS if key_of(topic) in logs.logs]


def take(replica: Replica, command: Command) -> Taken:
    """Returns the replica after a command, unchanged if it is down or rejects the whole command."""
    if not replica.up:
        return Taken(replica, False)
    manager, commands, logs = _commands(replica)
    if command.form is Form.STOP:
        result = _run(commands.stop_replica(_stop(command)))
    else:
        result = _run(commands.leader_and_isr(_leader_and_isr(command, replica.flushed)))
    if result.error is not None:
        return Taken(replica, False)
    done = all(partition.error is None for partition in result.partitions)
    return Taken(_read_back(replica, manager, logs), done)


def _leader_and_isr(command: Command, flushed: int) -> LeaderAndIsrCommand:
    state = to_production(command.value)
    config = CONFIGS[flushed != NOT_SYNCED]
    named = [PartitionCommand(NAME, state, command.revision, config)]
    return LeaderAndIsrCommand(
        controller_id=0,
        controller_epoch=command.controller_epoch,
        broker_epoch=command.incarnation,
        full_state=command.form is not Form.ONE,
        partitions=[] if command.form is Form.NOTHING else named,
        leaders={},
        store_revision=command.revision,
    )


def _stop(command: Command) -> StopReplicaCommand:
    stopped = StopPartition(
        NAME, topic_id(command.value.topic), command.value.epoch, command.revision, delete=True
    )
    return StopReplicaCommand(
        controller_id=0,
        controller_epoch=command.controller_epoch,
        broker_epoch=command.incarnation,
        partitions=[stopped],
    )


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine to its end; it waits for nothing but its turn."""
    while True:
        try:
            work.send(None)
        except StopIteration as end:
            return end.value


def serve(
    replica: Replica, follower: int, incarnation: int, position: Position
) -> tuple[Replica, Answer | None]:
    """Serves a fetch as `ReplicaFetch` does.

    It finds the replica by the topic's id, notes the position, and then reads.

    An answer of None is a rejection, after which a follower fetches again.
    """
    manager, _, _ = _commands(replica)
    try:
        partition = manager.replica(key_of(position.topic))
    except TidelogError:
        return replica, None
    fetch_position = fetch_position_of(position)
    try:
        diverging = partition.replica_fetch(follower, incarnation, fetch_position, NOW_MS)
        if diverging is not None:
            answer = Answer(
                partition.high_watermark,
                partition.leader_epoch,
                (),
                (diverging.leader_epoch, diverging.end_offset),
            )
        else:
            read = partition.read_for_follower(fetch_position, 1 << 20)
            assert isinstance(partition.log, ModelLog)
            entries = partition.log.entries[position.offset :] if read.batches else ()
            answer = Answer(read.high_watermark, read.leader_epoch, entries, None)
    except TidelogError as error:
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            return read_back(replica, partition), None
        answer = Answer(0, 0, (), None, out_of_range=True)
    return read_back(replica, partition), answer


def fences(replica: Replica, follower: int, incarnation: int, position: Position) -> bool:
    """Whether the fetch is rejected for its older epoch, and leaves no trace."""
    if not replica.up or replica.leading is None or replica.topic != position.topic:
        return False
    partition = rebuild(replica)
    try:
        partition.replica_fetch(follower, incarnation, fetch_position_of(position), NOW_MS)
    except TidelogError as error:
        fenced = error.code is ErrorCode.FENCED_LEADER_EPOCH
        return fenced and read_back(replica, partition) == replica
    return False
