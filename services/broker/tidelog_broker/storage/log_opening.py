"""Opens or creates a log in a thread. A file system that commits other writes may block the
creation of a file or directory for half a second."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.model import TopicPartition
from tidelog_broker.core.partition.replica_key import ReplicaKey
from tidelog_broker.log.errors import LogUnreadableError
from tidelog_broker.log.log import Log


class LogOpening:
    """The opening of one log, created by `LogDirectory.begin_opening`.

    Call `run` once, in a thread, then pass it to `LogDirectory.finish_opening`. `log` or `error` is
    set then. Until `finish_opening` the log has open files of its own."""

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
