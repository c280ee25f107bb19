"""The placement of the partitions of a large request.

For some ten thousand partitions it takes a tenth of a second. So it is computed outside the event
loop, before the request is checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from tidelog.errors import ErrorCode, TidelogError
from tidelog_controller.policies.placement import place_each, start_of
from tidelog_controller.policies.replica_limit import may_exceed
from tidelog_controller.policies.topic_limits import MAX_PARTITIONS_PER_TOPIC
from tidelog_controller.state.admin_requests import AddPartitions, Assignment
from tidelog_controller.state.commands import FindPlaces
from tidelog_controller.state.context import Context
from tidelog_controller.state.events import CreateTopic, PlacesFound

# Up to this number partitions are placed when the request is checked: a few milliseconds.
MAX_PLACED_AT_ONCE = 500
MAX_REQUESTS_WAITING = 100

Growth = CreateTopic | AddPartitions


@dataclass(frozen=True, slots=True)
class _Search:
    request: Growth
    find: partial[Assignment]


class PlacementQueue:
    """Computes placements, one request at a time and in their order."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._waiting: dict[int, _Search] = {}  # by request
        self._in_flight: int | None = None

    def take(self, request: Growth) -> bool:
        """Whether the request waits for its placement.

        A request does not wait if it names its replicas, or is rejected for another reason.
        """
        numbers, factor, topic_id = self._new_partitions(request)
        context = self._context
        brokers = tuple(context.racked(context.placement_brokers()))
        if request.assignment or not MAX_PLACED_AT_ONCE < len(numbers) <= MAX_PARTITIONS_PER_TOPIC:
            return False
        if not 1 <= factor <= len(brokers):
            return False
        most = max(context.replica_count(broker.broker_id) for broker in brokers)
        if not (request.dry_run or may_exceed(most, len(numbers))):
            return False
        if len(self._waiting) >= MAX_REQUESTS_WAITING:
            raise TidelogError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{len(self._waiting)} requests wait for their partitions to be placed; nothing "
                "was started; try again later",
                outcome_unknown=False,
            )
        find = partial(place_each, numbers, factor, brokers, start_of(topic_id))
        self._waiting[request.request_id] = _Search(request, find)
        return True

    def due(self) -> list[FindPlaces]:
        """The search to begin now."""
        if self._in_flight is not None or not self._waiting:
            return []
        self._in_flight, search = next(iter(self._waiting.items()))
        return [FindPlaces(self._in_flight, search.find)]

    def found(self, event: PlacesFound) -> Growth | None:
        """The request whose placement was computed."""
        if event.id != self._in_flight:
            return None
        self._in_flight = None
        return self._waiting.pop(event.id).request

    def _new_partitions(self, request: Growth) -> tuple[range, int, str]:
        """Returns the numbers and the replication factor of the new partitions.

        The third value is the id or name from which the placement starts.
        """
        if isinstance(request, CreateTopic):
            return range(request.partitions), request.replication_factor, request.topic
        topic = self._context.topics.get(request.topic)
        if topic is None:
            return range(0), 0, ""
        entry = topic.entry
        numbers = range(entry.partitions, max(entry.partitions, request.partitions))
        return numbers, entry.replication_factor, entry.topic_id
