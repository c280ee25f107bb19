"""All logs of a broker: where they lie, how they are opened, set aside and deleted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import NamedTuple

import structlog

from tidelog.model import TopicPartition
from tidelog_broker.log.checkpoint import OffsetCheckpoint
from tidelog_broker.log.config import LogConfig
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.errors import LogError, LogStorageError
from tidelog_broker.log.log import Log
from tidelog_broker.log.recovery import BeforeLoss
from tidelog_broker.log.segment_files import SegmentFiles
from tidelog_broker.transport import ReplicaKey
from tidelog_runtime.clock import Clock
from tidelog_runtime.topic_config import TopicConfig

_REPLICA_NAME = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)\.(?P<topic_id>[A-Za-z0-9_-]{22})")
_SET_ASIDE_NAME = re.compile(r".+@(?P<since_ms>\d+)")

_log = structlog.get_logger()


def directory_name(name: TopicPartition, topic_id: str) -> str:
    return f"{name.topic}-{name.partition}.{topic_id}"


def _read(file: OffsetCheckpoint) -> Mapping[tuple[str, int], int]:
    content = file.read()
    if content.damage is not None:
        _log.warning("checkpoint_damaged", why=content.damage)
    return content.offsets


class OpenLog(NamedTuple):
    name: TopicPartition
    path: PurePath
    log: Log


class LogDirectory:
    """`replicas/` holds the logs, `strays/` what is to be deleted later: for a name there
    `@` and the time in milliseconds since 1970 from which it waits."""

    def __init__(self, disk: Disk, path: PurePath, clock: Clock) -> None:
        self._disk = disk
        self._files = SegmentFiles(disk)
        self._replicas = path / "replicas"
        self._strays = path / "strays"
        self._clock = clock
        self._high_watermark_file = OffsetCheckpoint(disk, path / "high-watermarks")
        self._recovery_point_file = OffsetCheckpoint(disk, path / "recovery-points")
        self._high_watermarks: Mapping[tuple[str, int], int] = {}
        self._recovery_points: Mapping[tuple[str, int], int] = {}
        self._logs: dict[ReplicaKey, OpenLog] = {}

    def open_all(self, before_loss: BeforeLoss) -> list[str]:
        """Opens, and where need be recovers, every log. Blocks: to be run in a thread,
        before anything is served. Returns what was found damaged, beyond the torn tail
        that a crash may leave; `before_loss` is called before any of it is cut."""
        self._disk.make_directory(self._replicas)
        self._disk.make_directory(self._strays)
        # What is synced in there is lost all the same with the name of its directory.
        self._disk.sync_directory(self._replicas.parent)
        self._high_watermarks = _read(self._high_watermark_file)
        self._recovery_points = _read(self._recovery_point_file)
        damage = []
        for directory in sorted(self._disk.list_names(self._replicas)):
            match = _REPLICA_NAME.fullmatch(directory)
            if match is None:
                _log.warning("unknown_directory", name=directory)
                continue
            name = TopicPartition(match["topic"], int(match["partition"]))
            key = ReplicaKey(match["topic_id"], name.partition)
            log = self._open(name, key, LogConfig(), before_loss)
            damage += self._damage_of(name, key, log)
        return damage + self._missing()

    def _damage_of(self, name: TopicPartition, key: ReplicaKey, log: Log) -> list[str]:
        """A log that ends below what was committed is damaged, however sound it looks."""
        damage = []
        if log.recovery is not None:
            _log.info("log_recovered", partition=str(name), **log.recovery.as_event())
            if log.recovery.lost_data:
                damage.append(f"{name}: {log.recovery.reason}")
        committed = self.high_watermark(key)
        if log.log_end_offset < committed:
            damage.append(
                f"{name}: ends at offset {log.log_end_offset}, and was committed to {committed}"
            )
        return damage

    def _missing(self) -> list[str]:
        """Replicas that a checkpoint names and that are neither here nor set aside."""
        moved = map(_REPLICA_NAME.match, self._disk.list_names(self._strays))
        strays = {(m["topic_id"], int(m["partition"])) for m in moved if m is not None}
        known = {
            key: max(self._recovery_points.get(key, 0), self._high_watermarks.get(key, 0))
            for key in self._recovery_points.keys() | self._high_watermarks.keys()
        }
        return [
            f"partition {partition} of the topic with id {topic_id}: its directory is missing, "
            f"and held records up to offset {offset}"
            for (topic_id, partition), offset in sorted(known.items())
            if offset > 0
            and ReplicaKey(topic_id, partition) not in self._logs
            and (topic_id, partition) not in strays
        ]

    def _open(
        self,
        name: TopicPartition,
        key: ReplicaKey,
        config: LogConfig,
        before_loss: BeforeLoss = lambda: None,
    ) -> Log:
        path = self._replicas / directory_name(name, key.topic_id)
        log = Log.open(
            self._disk,
            path,
            config,
            clock=self._clock,
            recovery_point=self._recovery_points.get(key, 0),
            files=self._files,
            before_loss=before_loss,
        )
        self._logs[key] = OpenLog(name, path, log)
        return log

    def open_replica(self, name: TopicPartition, key: ReplicaKey, config: TopicConfig) -> Log:
        """The log of a replica, created where it is not there."""
        present = self._logs.get(key)
        if present is None:
            return self._open(name, key, LogConfig.of_topic(config))
        present.log.update_config(LogConfig.of_topic(config))
        return present.log

    def high_watermark(self, key: ReplicaKey) -> int:
        """As last checkpointed; 0: never."""
        return self._high_watermarks.get(key, 0)

    def keys(self) -> Iterable[ReplicaKey]:
        return self._logs.keys()

    def logs(self) -> Iterator[Log]:
        """Logs may come and go between two steps: each is open at the moment when it comes
        up."""
        for key in list(self._logs):
            log = self.log_of(key)
            if log is not None:
                yield log

    def log_of(self, key: ReplicaKey) -> Log | None:
        open_log = self._logs.get(key)
        return open_log.log if open_log is not None else None

    def delete(self, key: ReplicaKey) -> None:
        """Does nothing where there is no such log. The files go with the next sweep."""
        self._move_away(key, since_ms=0)

    def set_aside(self, key: ReplicaKey) -> None:
        """Out of the way, and kept for a while: whoever assigned it away may be wrong."""
        self._move_away(key, since_ms=self._clock.wall_ms())

    def _move_away(self, key: ReplicaKey, since_ms: int) -> None:
        open_log = self._logs.pop(key, None)
        if open_log is None:
            return
        open_log.log.close(clean=False)
        target = self._strays / f"{open_log.path.name}@{since_ms}"
        try:
            self._disk.remove_tree(target)
            self._disk.rename(open_log.path, target)
        except OSError as error:
            raise LogStorageError.of(error, open_log.path, "move away") from error

    def sweep(self, kept_ms: int) -> None:
        """Deletes what has been set aside for `kept_ms`. Blocks: to be run in a thread."""
        now_ms = self._clock.wall_ms()
        for directory in self._disk.list_names(self._strays):
            match = _SET_ASIDE_NAME.fullmatch(directory)
            if match is not None and int(match["since_ms"]) + kept_ms <= now_ms:
                self._disk.remove_tree(self._strays / directory)
                _log.info("stray_deleted", name=directory)

    def checkpoint(self, high_watermarks: Mapping[ReplicaKey, int]) -> None:
        """Writes high watermarks and recovery points; a log that nobody has claimed yet
        keeps the high watermark that it had. Raises OSError."""
        known = {key: high_watermarks.get(key, self.high_watermark(key)) for key in self._logs}
        self._high_watermark_file.write(known, sync=False)
        points = {key: open_log.log.flushed_offset for key, open_log in self._logs.items()}
        self._recovery_point_file.write(dict(points), sync=False)

    def close(self) -> list[str]:
        """Closes all cleanly. Blocks: to be run in a thread, after everything else has
        stopped. Returns what could not be: the data on disk cannot be relied on then."""
        unclean = []
        for name, _, log in self._logs.values():
            try:
                log.close(clean=True)
            except LogError as error:
                unclean.append(f"{name}: {error}")
            else:
                if log.failed is not None:
                    unclean.append(f"{name}: {log.failed}")
        self._logs.clear()
        return unclean
