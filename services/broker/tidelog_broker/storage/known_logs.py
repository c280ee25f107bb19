"""What a directory of logs knows of each."""

from __future__ import annotations

from pathlib import PurePath
from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog_broker.log.log import Log
from tidelog_broker.log.unsynced import Unsynced


class OpenLog(NamedTuple):
    """`log` is None where it could not be opened."""

    name: TopicPartition
    path: PurePath
    log: Log | None


class OutOfService(NamedTuple):
    reason: str
    check_all: bool


class Undecided(NamedTuple):
    """`mark`: as which damage it was marked before."""

    mark: str | None
    unsynced: Unsynced
