"""Reads of the entire cluster, outside the event loop.

For some ten thousand partitions a read takes a tenth of a second. Each reads a snapshot, so that it
sees one state of the cluster, whatever changes meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from tidelog.errors import ErrorCode, TidelogError
from tidelog_controller.state.commands import AdminReply, Command, ReadSnapshot, Reply
from tidelog_controller.state.context import Context
from tidelog_controller.state.events import SnapshotRead
from tidelog_runtime.metadata.schema import Departure

# Up to this number of partitions and topics a read takes a few milliseconds and is done at once.
MAX_READ_AT_ONCE = 500
MAX_READS_WAITING = 1_000

_Found = TypeVar("_Found")


class ClusterView(NamedTuple):
    """What reads use. `departed`: by broker, how its last ended incarnation left."""

    context: Context
    departed: Mapping[int, Departure]


class _Waiting(NamedTuple):
    read: Callable[[ClusterView], Any]
    then: Callable[[Any], list[Command]]


class SnapshotReads:
    """Runs reads one at a time, in their order.

    A snapshot is taken when its read begins, so that there is at most one.
    """

    def __init__(self, context: Context, departed: Mapping[int, Departure]) -> None:
        self._now = ClusterView(context, departed)
        self._waiting: dict[int, _Waiting] = {}  # by request
        self._in_flight: int | None = None

    def submit(
        self,
        request_id: int,
        read: Callable[[ClusterView], _Found],
        then: Callable[[_Found], list[Command]],
    ) -> list[Command]:
        """Runs `read`, then passes its result to `then`.

        A `TidelogError` of `read` becomes the reply of the request.
        """
        context = self._now.context
        if max(context.partition_count, len(context.topics)) <= MAX_READ_AT_ONCE:
            try:
                return then(read(self._now))
            except TidelogError as error:
                return [Reply(request_id, AdminReply(error))]
        if len(self._waiting) >= MAX_READS_WAITING:
            return [Reply(request_id, AdminReply(_busy(len(self._waiting))))]
        self._waiting[request_id] = _Waiting(read, then)
        return []

    def due(self) -> list[ReadSnapshot]:
        """The read to begin now."""
        if self._in_flight is not None or not self._waiting:
            return []
        self._in_flight, waiting = next(iter(self._waiting.items()))
        view = ClusterView(self._now.context.snapshot(), dict(self._now.departed))
        return [ReadSnapshot(self._in_flight, partial(waiting.read, view))]

    def done(self, event: SnapshotRead) -> list[Command]:
        if event.id != self._in_flight:
            return []
        self._in_flight = None
        then = self._waiting.pop(event.id).then
        if event.error is not None:
            return [Reply(event.id, AdminReply(event.error))]
        return then(event.found)


def _busy(waiting: int) -> TidelogError:
    return TidelogError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"{waiting} requests to describe the cluster are waiting already; try again later",
        outcome_unknown=False,
    )
