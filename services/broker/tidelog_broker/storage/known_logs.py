"""The state of each log in a directory of logs."""

from __future__ import annotations

from pathlib import PurePath
from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog_broker.log.log import Log
from tidelog_broker.log.unsynced import Unsynced


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
    unsynced: Unsynced
