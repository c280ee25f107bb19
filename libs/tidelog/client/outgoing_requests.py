"""The requests of a producer: which batches share one, and which have no answer yet. No I/O."""

from __future__ import annotations

from tidelog.client.partition_queue import PartitionQueue
from tidelog.client.retry import Leader
from tidelog.client.sealed_batch import Group, Request, SealedBatch
from tidelog.request_bounds import MAX_PRODUCE_BATCHES, MAX_PRODUCE_PARTITIONS


class OutgoingRequests:
    """Requests in flight, by broker. Bounds: `max_in_flight_per_broker` requests to a broker;
    `max_request_bytes`, unless a single batch is larger."""

    def __init__(self, *, max_request_bytes: int, max_in_flight_per_broker: int) -> None:
        self.max_request_bytes = max_request_bytes
        self._max_in_flight_per_broker = max_in_flight_per_broker
        # By broker: the send time of each request without an answer; the newest is last.
        self._in_flight: dict[int, dict[Request, int]] = {}

    def newest_ms(self, broker_id: int) -> int | None:
        """Returns when the newest request without an answer was sent; None: all have answers."""
        sent = self._in_flight.get(broker_id)
        return next(reversed(sent.values())) if sent else None

    def has_room(self, broker_id: int) -> bool:
        return len(self._in_flight.get(broker_id, ())) < self._max_in_flight_per_broker

    def begin(self, leader: Leader, now_ms: int) -> Request | None:
        """Returns a request that is in flight until `finish`; None: too many are."""
        if not self.has_room(leader.broker_id):
            return None
        request = Request(leader)
        self._in_flight.setdefault(leader.broker_id, {})[request] = now_ms
        return request

    def finish(self, request: Request) -> None:
        del self._in_flight[request.leader.broker_id][request]


class RequestRound:
    """Requests that are filled together, each with at most one group of a partition."""

    def __init__(self, requests: OutgoingRequests, now_ms: int) -> None:
        self._requests = requests
        self._now_ms = now_ms
        self._full: list[Request] = []
        self._filling: dict[int, Request] = {}

    @property
    def filled(self) -> list[Request]:
        return [*self._full, *self._filling.values()]

    def take(self, queue: PartitionQueue, leader: Leader) -> bool:
        """Moves batches of a partition into a request to `leader`. The first one can be sent.
        Returns whether there was room for a request."""
        request = self._request_for(leader, queue.waiting[0])
        if request is None:
            return False
        taken: list[SealedBatch] = []
        numbering = queue.numbering
        while queue.waiting:
            batch = queue.waiting[0]
            if taken and (
                batch.alone
                or taken[0].alone
                or not request.has_room(batch, self._requests.max_request_bytes)
                or request.batch_count + len(taken) >= MAX_PRODUCE_BATCHES
            ):
                break
            if batch.batch is None:
                if numbering is None:
                    batch.batch = batch.encoded.to_batch()
                elif numbering.may_number:
                    numbering.number(batch)
                else:
                    break
            taken.append(queue.waiting.popleft())
            request.count(batch)
        first_in_line = numbering is not None and numbering.is_first(taken[0])
        request.batch_count += len(taken)
        request.groups.append(Group(queue.partition, leader, taken, first_in_line))
        queue.in_flight += 1
        return True

    def _request_for(self, leader: Leader, first: SealedBatch) -> Request | None:
        request = self._filling.get(leader.broker_id)
        if request is not None:
            if (
                request.has_room(first, self._requests.max_request_bytes)
                and len(request.groups) < MAX_PRODUCE_PARTITIONS
                and request.batch_count < MAX_PRODUCE_BATCHES
            ):
                return request
            self._full.append(self._filling.pop(leader.broker_id))
        request = self._requests.begin(leader, self._now_ms)
        if request is not None:
            self._filling[leader.broker_id] = request
        return request
