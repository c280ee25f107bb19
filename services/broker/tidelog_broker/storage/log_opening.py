"""Opens or creates a log in a thread: a file system that commits what others have written may hold
up whoever makes a directory or a file for half a second."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.model import TopicPartition
from tidelog_broker.log.errors import LogUnreadableError
from tidelog_broker.log.log import Log
from tidelog_broker.partition.replica_key import ReplicaKey


class LogOpening:
    """Made by `LogDirectory.begin_opening`; `run` it once, in a thread, then hand it to
    `LogDirectory.finish_opening`. `log` or `error` is set by then. The log has open files of its
    own until it is handed over."""

    def __init__(
        self, name: TopicPartition, key: ReplicaKey, opening: Callable[[bool], Log]
    ) -> None:
        """`opening`: is called with whether nothing may be taken for sound."""
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
    """Raises as `Log.open`."""
    try:
        return opening(False)
    except LogUnreadableError:
        # In what is taken for sound: the check finds which batches of it are not.
        return opening(True)
