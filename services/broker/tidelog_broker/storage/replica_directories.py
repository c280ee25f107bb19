"""The replica directories of a broker: their names, the logs in them, and the opening of a log."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import PurePath
from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_errors import LogUnreadableError
from tidelog_broker.log.unsynced_writes import UnsyncedWrites

REPLICA_NAME = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)\.(?P<topic_id>[A-Za-z0-9_-]{22})")


def directory_name(name: TopicPartition, topic_id: str) -> str:
    return f"{name.topic}-{name.partition}.{topic_id}"


def parse_directory_name(directory: str) -> tuple[TopicPartition, ReplicaKey] | None:
    """Returns None for any name that `directory_name` does not return.

    >>> parse_directory_name("orders-03.AAAAAAAAAAAAAAAAAAAAAA")
    """
    match = REPLICA_NAME.fullmatch(directory)
    if match is None:
        return None
    name = TopicPartition(match["topic"], int(match["partition"]))
    if directory_name(name, match["topic_id"]) != directory:
        return None
    return name, ReplicaKey(match["topic_id"], name.partition)


class OpenLog(NamedTuple):
    """`log` is None if it could not be opened."""

    name: TopicPartition
    path: PurePath
    log: Log | None


class OutOfService(NamedTuple):
    """Why a replica is out of service.

    `check_all`: what was synced may be damaged, too."""

    reason: str
    check_all: bool


class Undecided(NamedTuple):
    """`mark` is the reason if the damage was marked before."""

    mark: str | None
    unsynced: UnsyncedWrites


class DamagedReplica(NamedTuple):
    """A replica that is known to have lost data.

    - `name`: None if only its id is known here.
    - `if_synced`: it has lost data only if its topic is `synced`; a crash of the machine may have
      shortened any other.
    - `if_others`: all records are there, but the producers below the log's start are unknown. It
      resigns if other replicas know them.
    - `unless_sole`: only single batches are unreadable, so that a replica without others continues.
    """

    key: ReplicaKey
    name: TopicPartition | None
    reason: str
    if_synced: bool = False
    if_others: bool = False
    unless_sole: bool = False


class LogOpening:
    """The opening of one log, created by `LogDirectory.begin_opening`.

    A file system that commits other writes may block the creation of a file or directory for half a
    second, so that a thread runs this. Call `run` once, then pass it to
    `LogDirectory.finish_opening`. `log` or `error` is set then. Until `finish_opening` the log has
    open files of its own."""

    def __init__(
        self, name: TopicPartition, key: ReplicaKey, opening: Callable[[bool], Log]
    ) -> None:
        """`opening` opens the log; its argument is whether to check all of it."""
        self.name = name
        self.key = key
        self.log: Log | None = None
        self.error: Exception | None = None
        self._opening = opening

    def run(self) -> None:
        try:
            self.log = open_checked(self._opening)
        except Exception as error:
            self.error = error


def open_checked(opening: Callable[[bool], Log]) -> Log:
    """Opens a log, and checks all of it if a trusted part is unreadable.

    Raises as `Log.open` does."""
    try:
        return opening(False)
    except LogUnreadableError:
        # A trusted part is unreadable. The check finds the damaged batches.
        return opening(True)


def damage_of(
    key: ReplicaKey, name: TopicPartition, log: Log, committed: int, unsynced: UnsyncedWrites
) -> DamagedReplica | None:
    """Returns what is wrong with a log that was just opened. `committed`: its high watermark, as
    the checkpoint has it."""
    if log.recovery is not None and log.recovery.lost_data:
        found = DamagedReplica(key, name, str(log.recovery.reason))
        has_all_else = not log.recovery.lost_by_cut and not log.producers.lost
        return found._replace(unless_sole=has_all_else and bool(log.recovery.damaged))
    if log.log_end_offset < committed:
        # Although every batch is valid.
        reason = f"it ends at offset {log.log_end_offset}, and was committed to {committed}"
        return DamagedReplica(key, name, reason, if_synced=not unsynced.is_kept)
    if log.producers.lost:
        reason = f"the producers that wrote below offset {log.log_start_offset} are unknown"
        return DamagedReplica(key, name, reason, if_others=True)
    return None
