"""All logs of a broker: where they are, how they are opened, set aside and deleted, and which are
out of service because they are damaged ("Intact or not" in docs/internals/protocol.md)."""

from __future__ import annotations

import errno as errnos
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import PurePath

import structlog

from tidelog.memory_shortage import is_memory_shortage
from tidelog.model import TopicPartition
from tidelog_broker.core.partition.range_digest import RANGE_OFFSETS
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.clean_shutdown import CleanLog, read_clean_logs, write_clean_logs
from tidelog_broker.log.disk import Disk
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_config import LogConfig
from tidelog_broker.log.log_errors import (
    LogCorruptError,
    LogError,
    LogInterruptedError,
    LogStorageError,
    OutOfServiceError,
    UndecidedDamageError,
)
from tidelog_broker.log.log_start import BeforeLoss
from tidelog_broker.log.reopening import Reopening, rewrite_segments
from tidelog_broker.log.segment_files import SegmentFiles
from tidelog_broker.log.unsynced_writes import UnsyncedWrites
from tidelog_broker.storage.checkpoints import Checkpoints, CheckpointWrite
from tidelog_broker.storage.closed_logs import close_logs
from tidelog_broker.storage.damage_marks import DamageMarks
from tidelog_broker.storage.damaged_batches import DamagedBatches
from tidelog_broker.storage.data_directory import REPLICAS
from tidelog_broker.storage.replica_directories import (
    DamagedReplica,
    LogOpening,
    OpenLog,
    OutOfService,
    Undecided,
    damage_of,
    directory_name,
    open_checked,
    parse_directory_name,
)
from tidelog_broker.storage.strays import Strays
from tidelog_runtime.clock import Clock
from tidelog_runtime.topic_config import TopicConfig

# Reason in the mark of a replica whose log is about to be cut.
FOUND_AT_START = "the check at a start found damage"

_log = structlog.get_logger()


class LogDirectory:
    """The logs of a broker, in `replicas/`.

    A log that is out of service is not returned before it is back."""

    def __init__(
        self,
        disk: Disk,
        path: PurePath,
        clock: Clock,
        *,
        digest_range_offsets: int = RANGE_OFFSETS,
    ) -> None:
        """`digest_range_offsets`: offsets per digest of a log; 0: no digests are kept."""
        self._disk = disk
        self._digest_range_offsets = digest_range_offsets
        self._files = SegmentFiles(disk)
        self._replicas = path / REPLICAS
        self.strays = Strays(disk, path / "strays", clock)
        self._checkpoints = Checkpoints(disk, path)
        self.damage_marks = DamageMarks(disk, path / "damaged")
        self.damaged_batches = DamagedBatches(disk, path / "evidence", clock)
        self._logs: dict[ReplicaKey, OpenLog] = {}
        # Opened since the start, and not returned by `open_replica` yet.
        self._unrequested: set[ReplicaKey] = set()
        self._out_of_service: dict[ReplicaKey, OutOfService] = {}
        # Each with its mark, if it has one.
        self._undecided: dict[ReplicaKey, Undecided] = {}
        self._reopening: dict[ReplicaKey, Reopening] = {}
        self._config_made: tuple[TopicConfig, LogConfig] | None = None
        self._clean_logs_path = path / "clean-logs"
        # Set while logs are opened: what the last clean stop stored.
        self._clean_logs: Mapping[tuple[str, int], CleanLog] = {}

    def open_all(
        self, on_opened: Callable[[int, int], None] = lambda *_: None, *, intact: bool = True
    ) -> list[DamagedReplica]:
        """Opens every log, and recovers it if needed. Blocks: runs in a thread before anything is
        served.

        `on_opened` is called with the number of logs done and their total. `intact`: the machine
        has lost nothing that the previous process wrote. Returns the damaged replicas, except torn
        tails after a crash. All but those that count only `if_synced` or `if_others` are marked
        before they are cut, and out of service."""
        self._disk.make_directory(self._replicas)
        self.strays.prepare()
        self.damaged_batches.prepare()
        marked = self.damage_marks.read()  # syncs the names of the directories
        self._checkpoints.read()
        self._clean_logs = read_clean_logs(self._disk, self._clean_logs_path)
        damaged: dict[ReplicaKey, DamagedReplica] = {}
        directories = sorted(self._disk.list_names(self._replicas))
        for position, directory in enumerate(directories):
            on_opened(position, len(directories))
            named = parse_directory_name(directory)
            if named is None:
                _log.warning("unknown_directory", name=directory)
                continue
            name, key = named
            unsynced = UnsyncedWrites.KEPT if intact else UnsyncedWrites.LOST
            found = self._open_found(name, key, marked.get(key), unsynced)
            if found is not None:
                damaged[key] = found
        self._clean_logs = {}
        self.damaged_batches.forget_missing(self._logs.keys())
        for key in self._logs:
            self._note_opened(key)
        for key, reason in {**marked, **self._missing()}.items():
            if key not in self._logs:
                damaged[key] = DamagedReplica(key, None, reason)
        self._take_found_out_of_service(damaged.values())
        return list(damaged.values())

    def undecided(self) -> list[tuple[ReplicaKey, TopicPartition]]:
        """Returns replicas whose damage is repaired differently in an only copy. `open_all` left
        them unchanged and out of service; `open_undecided` opens them."""
        return [(key, self._logs[key].name) for key in self._undecided if key in self._logs]

    def open_undecided(self, only_copies: Collection[ReplicaKey]) -> list[DamagedReplica]:
        """Opens the undecided replicas; `only_copies` have no other replicas. Blocks. Returns what
        is damaged, as `open_all` does."""
        damaged = []
        for key, name in self.undecided():
            self.return_to_service(key)
            clean_state = self._undecided[key]
            unsynced = clean_state.unsynced.decided(is_only_copy=key in only_copies)
            found = self._open_found(name, key, clean_state.mark, unsynced)
            if found is None and key in self.damage_marks:
                # What the first attempt has made unreadable is no damage for the second one.
                found = DamagedReplica(key, name, FOUND_AT_START, unless_sole=True)
            self._note_opened(key)
            if found is not None:
                damaged.append(found)
        self._undecided.clear()
        self._take_found_out_of_service(damaged)
        return damaged

    def _note_opened(self, key: ReplicaKey) -> None:
        log = self.log_of(key)
        if log is not None:
            self._checkpoints.opened(key, log.log_end_offset)

    def _take_found_out_of_service(self, damaged: Iterable[DamagedReplica]) -> None:
        for replica in damaged:
            if not (replica.if_synced or replica.if_others):
                if replica.key not in self.damage_marks:
                    self.damage_marks.try_write(replica.key, replica.reason)
                self.take_out_of_service(replica.key, replica.reason)

    def _open_found(
        self, name: TopicPartition, key: ReplicaKey, mark: str | None, unsynced: UnsyncedWrites
    ) -> DamagedReplica | None:
        """Opens one log. If its damage is marked already, it is checked from its beginning, and its
        unsynced part is rewritten: the previous process may have ended between a failed fsync and
        the repair."""
        path = self._path_of(name, key)
        try:
            if mark is not None:
                rewrite_segments(self._disk, path, self._checkpoints.recovery_point(key))
            opening = self._opening(
                name,
                key,
                self._files,
                lambda: self.damage_marks.write(key, FOUND_AT_START),
                unsynced,
                check_all=mark is not None,
            )
            log = self._opened(name, key, open_checked(opening))
        except UndecidedDamageError as error:
            self._logs[key] = OpenLog(name, path, None)
            self._undecided[key] = Undecided(mark, unsynced)
            self.take_out_of_service(key, str(error))
            return None
        except (LogError, OSError) as error:
            self._logs[key] = OpenLog(name, path, None)
            return DamagedReplica(key, name, str(error))
        except Exception as error:
            if is_memory_shortage(error):
                raise
            # A fault of this program costs one replica and not the broker.
            _log.exception("log_not_opened", path=str(path))
            self._logs[key] = OpenLog(name, path, None)
            return DamagedReplica(key, name, str(LogInterruptedError(path, error, "open")))
        if log.recovery is not None:
            _log.info("log_recovered", partition=str(name), **log.recovery.as_event())
        if mark is not None:
            return DamagedReplica(key, name, mark)
        return damage_of(key, name, log, self.high_watermark(key), unsynced)

    def _missing(self) -> dict[ReplicaKey, str]:
        """Returns replicas that a checkpoint names and that are neither here nor set aside."""
        strays = self.strays.keys()
        known = {key: self._checkpoints.highest(key) for key in sorted(self._checkpoints.keys())}
        return {
            key: f"its directory is missing, and held records up to offset {offset}"
            for key, offset in known.items()
            if offset > 0 and key not in self._logs and key not in strays
        }

    def _opening(
        self,
        name: TopicPartition,
        key: ReplicaKey,
        files: SegmentFiles | None = None,
        before_loss: BeforeLoss = lambda: None,
        unsynced: UnsyncedWrites = UnsyncedWrites.REWRITTEN,
        *,
        check_all: bool = False,
    ) -> Callable[[bool], Log]:
        """Returns a function that opens the log. Its argument is whether to check all of it
        whatever `check_all` is."""
        opening = partial(
            Log.open,
            self._disk,
            self._path_of(name, key),
            LogConfig(),
            recovery_point=self._checkpoints.recovery_point(key),
            files=files,
            before_loss=before_loss,
            unsynced=unsynced,
            clean_state=self._clean_logs.get(key),
            evidence=self.damaged_batches.evidence_of(name, key),
            min_end_offset=self.high_watermark(key),
        )
        return lambda checks_all: opening(check_all=check_all or checks_all)

    def _opened(self, name: TopicPartition, key: ReplicaKey, log: Log) -> Log:
        log.before_cut = partial(self._before_cut, key)
        self.damaged_batches.load(key, log)
        log.digest_ranges(self._digest_range_offsets)
        self._logs[key] = OpenLog(name, log.directory, log)
        return log

    def _before_cut(self, key: ReplicaKey, offset: int) -> None:
        self._checkpoints.note_cut(key, offset)
        self.damaged_batches.cut(key, offset)

    def _path_of(self, name: TopicPartition, key: ReplicaKey) -> PurePath:
        return self._replicas / directory_name(name, key.topic_id)

    def begin_opening(self, name: TopicPartition, key: ReplicaKey) -> LogOpening | None:
        """Returns an opening to run in a thread before `open_replica`; None: the log is open, or
        out of service."""
        if key in self._out_of_service or self.log_of(key) is not None:
            return None
        return LogOpening(name, key, self._opening(name, key))

    def finish_opening(self, opening: LogOpening) -> None:
        """Registers the log after `opening.run()`. On failure `opening.error` has the reason."""
        name, key, log = opening.name, opening.key, opening.log
        if log is None:
            return
        log.share_files(self._files)
        try:
            self._note_end(key, self._opened(name, key, log))
            self._unrequested.add(key)
        except LogError as error:
            del self._logs[key]
            opening.error = error

    def open_replica(self, name: TopicPartition, key: ReplicaKey, config: TopicConfig) -> Log:
        """Returns the log of a replica, and creates it if it does not exist. Raises
        `OutOfServiceError`, and `LogError` if it cannot be opened."""
        if key in self._out_of_service:
            raise OutOfServiceError(self._path_of(name, key), self._out_of_service[key].reason)
        present = self._logs.get(key)
        if present is None or present.log is None:
            opening = LogOpening(name, key, self._opening(name, key))
            opening.run()
            self.finish_opening(opening)
            if opening.error is not None:
                raise opening.error
            present = self._logs[key]
        self._unrequested.discard(key)
        assert present.log is not None
        present.log.update_config(self._config_of(config))
        return present.log

    def is_new(self, key: ReplicaKey) -> bool:
        """Returns whether `open_replica` would open the log, or be the first to return it."""
        return self.log_of(key) is None or key in self._unrequested

    def _config_of(self, topic: TopicConfig) -> LogConfig:
        """Caches the configuration, which replicas of one topic share."""
        if self._config_made is None or self._config_made[0] is not topic:
            self._config_made = topic, LogConfig.of_topic(topic)
        return self._config_made[1]

    def configure(self, key: ReplicaKey, config: TopicConfig) -> None:
        log = self.log_of(key)
        if log is not None:
            log.update_config(self._config_of(config))

    def _note_end(self, key: ReplicaKey, log: Log) -> None:
        """Notes that checkpointed offsets beyond the log's end are those of an earlier log. Closes
        the log and raises `LogStorageError` if that fails."""
        try:
            self._checkpoints.note_cut(key, log.log_end_offset)
        except OSError as error:
            log.close()
            raise LogStorageError.of(error, log.directory, "note the end of the log in") from error

    def high_watermark(self, key: ReplicaKey) -> int:
        """Returns the last checkpointed high watermark; 0: never."""
        return self._checkpoints.high_watermark(key)

    def keys(self) -> Iterable[ReplicaKey]:
        return self._logs.keys()

    def logs(self) -> Iterator[Log]:
        """Yields the open logs; they may come and go between two steps."""
        for key in list(self._logs):
            log = self.log_of(key)
            if log is not None:
                yield log

    def log_of(self, key: ReplicaKey) -> Log | None:
        """Returns None if there is no such log, or if it cannot be opened."""
        open_log = self._logs.get(key)
        return open_log.log if open_log is not None else None

    def delete(self, key: ReplicaKey) -> None:
        """Moves a log to the strays, where the next sweep deletes it. Does nothing if there is
        none."""
        self._move_away(key, since_ms=0)

    def set_aside(self, key: ReplicaKey, since_ms: int | None = None) -> None:
        """Moves a replica to the strays. It is kept for a while, because the assignment may be
        wrong. `since_ms` is a wall-clock time; None: now."""
        self._move_away(key, self.strays.now_ms() if since_ms is None else since_ms)

    def _move_away(self, key: ReplicaKey, since_ms: int) -> None:
        open_log = self._logs.get(key)
        if open_log is None:
            self._forget_out(key)
            return
        if key in self._reopening:
            raise LogStorageError(open_log.path, errnos.EBUSY, "move away, while it is repaired,")
        try:
            self.strays.add(open_log.path, since_ms)
        except OSError as error:
            # It is still open and known here, so that a repeated command tries again.
            raise LogStorageError.of(error, open_log.path, "move away") from error
        del self._logs[key]
        self._unrequested.discard(key)
        self.damaged_batches.forget(key)
        if open_log.log is not None:
            open_log.log.close()
        self._forget_out(key)

    def _forget_out(self, key: ReplicaKey) -> None:
        """A replica that is not assigned here is in no ISR, and need not resign."""
        if self._out_of_service.pop(key, None) is not None:
            self.damage_marks.remove(key)

    def begin_checkpoint(
        self, high_watermarks: Mapping[ReplicaKey, int], *, sync: bool = False
    ) -> CheckpointWrite:
        """Returns a write of high watermarks and recovery points. A log that is not in
        `high_watermarks` keeps its checkpointed high watermark."""
        known: dict[ReplicaKey, int] = {}
        points: dict[ReplicaKey, int] = {}
        for key, (_, _, log) in self._logs.items():
            known[key] = high_watermarks.get(key, self.high_watermark(key))
            if log is None:
                points[key] = self._checkpoints.recovery_point(key)
            else:
                known[key] = min(known[key], log.log_end_offset)
                points[key] = log.flushed_offset
        return self._checkpoints.begin(known, points, sync=sync)

    def finish_checkpoint(self, write: CheckpointWrite) -> bool:
        """Completes `write.run()`. Returns False if a later write replaces it. Raises its
        OSError."""
        return self._checkpoints.finish(write)

    # Out of service.

    def take_out_of_service(self, key: ReplicaKey, reason: str, *, check_all: bool = True) -> None:
        """Takes a replica out of service until `return_to_service`.

        Callers that already use the log have to stop by themselves. `check_all`: what was synced
        may be damaged, too. A later call adds to what the repair checks; the first reason stays."""
        known = self._out_of_service.get(key, OutOfService(reason, check_all))
        self._out_of_service[key] = known._replace(check_all=known.check_all or check_all)

    def is_out_of_service(self, key: ReplicaKey) -> bool:
        return key in self._out_of_service

    def return_to_service(self, key: ReplicaKey) -> None:
        self._out_of_service.pop(key, None)

    def name_of(self, key: ReplicaKey) -> TopicPartition | None:
        open_log = self._logs.get(key)
        return open_log.name if open_log is not None else None

    def begin_repair(self, key: ReplicaKey, *, is_only_copy: bool = False) -> Reopening | None:
        """Closes a log that is out of service. The caller runs the result in a thread, and then
        calls `end_repair`. Returns None if there is no such replica out of service."""
        present = self._logs.get(key)
        if present is None or key not in self._out_of_service:
            return None
        config, check_from = LogConfig(), 0
        # If the start could not open it, its rewrite has not happened.
        rewrite_from: int | None = self._checkpoints.recovery_point(key)
        log, min_end_offset = present.log, self.high_watermark(key)
        if log is not None:
            config, min_end_offset = log.config, log.log_end_offset
            rewrite_from = log.flushed_offset if log.failed is not None else None
            if not self._out_of_service[key].check_all:
                check_from = log.flushed_offset
            if not log.closed:
                log.close()
        reopening = Reopening(
            self._disk,
            present.path,
            config,
            check_from=check_from,
            rewrite_from=rewrite_from,
            evidence=self.damaged_batches.evidence_of(present.name, key),
            min_end_offset=min_end_offset,
            is_only_copy=is_only_copy,
        )
        self._reopening[key] = reopening
        return reopening

    def end_repair(self, key: ReplicaKey) -> Log:
        """Raises `LogError` if the log could not be opened or cut: it stays out of service."""
        reopening = self._reopening.pop(key)
        name, path, former = self._logs[key]
        if reopening.error is not None:
            if isinstance(reopening.error, LogCorruptError):
                # A trusted part is damaged.
                self._out_of_service[key] = self._out_of_service[key]._replace(check_all=True)
            raise reopening.error
        log = reopening.log
        assert log is not None
        out_of_service = self._out_of_service[key]
        if out_of_service.check_all and reopening.check_from > 0:
            # Damage was found meanwhile. The next repair checks everything.
            log.close()
            raise OutOfServiceError(path, out_of_service.reason)
        log.share_files(self._files)
        log.before_cut = partial(self._before_cut, key)
        if former is not None and log.log_end_offset > former.log_end_offset:
            # A part of a failed append.
            try:
                log.truncate_to(former.log_end_offset)
            except LogError:
                log.close()
                raise
        self._note_end(key, log)
        self.damaged_batches.load(key, log)
        log.digest_ranges(self._digest_range_offsets)
        self._logs[key] = OpenLog(name, path, log)
        return log

    def close(self) -> list[str]:
        """Closes all logs cleanly. Blocks: runs in a thread, after everything else has stopped.
        Returns the names of those that failed, whose data on disk cannot be relied on."""
        closed = close_logs(self._logs, self._out_of_service, self.damage_marks)
        self._logs.clear()
        try:
            write_clean_logs(self._disk, self._clean_logs_path, closed.clean)
        except OSError as error:
            closed.unclean.append(f"{self._clean_logs_path.name}: {error}")
        return closed.unclean
