"""State changes of all services of a cluster, queried concurrently.

    async with EventStreams("127.0.0.1:7501") as streams:
        gathered = await streams.recent(TraceScope("sea", 0))

Services that do not answer are named in the result, which has the events of all others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from tidelog.client.clock import Clock, SystemClock
from tidelog.client.cluster_metadata import ClusterMetadata
from tidelog.client.connections import Connections, GrpcConnections, InspectConnections
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.rpc.event_codec import event_from_wire
from tidelog.rpc.status import UnreachableError
from tidelog.state_changes.event import Kind, StateChange
from tidelog.state_changes.tracing import CLUSTER_KINDS, TOPIC_KINDS, TraceScope
from tidelog.v1 import inspect_pb2 as pb

RECENT_TIMEOUT_MS = 5_000
# For a service to name the other services.
FIND_TIMEOUT_MS = 1_000
# A standby controller names the active one, which names the brokers.
MAX_FIND_ROUNDS = 2
# For the check whether a topic exists; brokers have just answered other queries.
METADATA_TIMEOUT_MS = 1_000
# Brokers and controllers that one call queries.
MAX_SERVICES = 1_000
# Followed events that wait for the caller; when it is full, streams pause.
MAX_QUEUED_EVENTS = 10_000
# Time in which events that services emit at the same moment may arrive.
SETTLE_MS = 300
# Pause before a lost service is tried again.
RECONNECT_MS = 1_000
# Names of the local machine.
THIS_MACHINE = ("127.0.0.1", "localhost", "[::1]")


class Silent(NamedTuple):
    address: str
    problem: str


class Gathered(NamedTuple):
    """Events of all services that answered.

    - `events`: in no order.
    - `heard`: addresses that answered.
    - `memories`: by the name of a service with events, the wall clock time since which it keeps
      them.
    """

    events: list[StateChange]
    heard: tuple[str, ...]
    silent: tuple[Silent, ...]
    memories: dict[str, int]


class _Recent(NamedTuple):
    """Events of one service. `oldest_kept_ms`: wall clock time since which it keeps events; 0: not
    reported, as by older versions."""

    events: list[StateChange]
    oldest_kept_ms: int

    @property
    def remembers_since_ms(self) -> int:
        """Time since which the service keeps events. A returned event is kept, even if the
        service's clock was wrong."""
        event_ms = [event.time_ms for event in self.events]
        return min([self.oldest_kept_ms, *event_ms] if self.oldest_kept_ms else event_ms, default=0)


class _Connections(Connections, InspectConnections, Protocol):
    pass


class EventStreams:
    """Reads events of all brokers and controllers, active or standby.

    They are found through the metadata of any broker, or through any controller. The addresses in
    `bootstrap` are always queried."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        connections: _Connections | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._connections: _Connections = connections or GrpcConnections()
        self._metadata = ClusterMetadata(bootstrap, self._connections, clock or SystemClock())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._metadata.close()
        await self._connections.close()

    async def addresses(self) -> list[str]:
        """Returns the addresses of all services that can be found, at least those of
        `bootstrap`."""
        try:
            answer = await self._metadata.describe(None)
        except (UnreachableError, TidelogError):
            found = await self._named_by_controllers()
        else:
            found = [broker.address for broker in answer.brokers]
            if answer.HasField("controller"):
                found.append(answer.controller.address)
            found += [controller.address for controller in answer.controllers]
        return _each_once((*found, *self._metadata.bootstrap))[:MAX_SERVICES]

    async def _named_by_controllers(self) -> list[str]:
        """Returns the services that controllers name, for the case that no broker answers."""
        named = dict.fromkeys(self._metadata.bootstrap)
        queried: dict[str, None] = {}
        for _ in range(MAX_FIND_ROUNDS):
            remaining = [address for address in named if address not in queried][:MAX_SERVICES]
            queried |= dict.fromkeys(remaining)
            for found in await asyncio.gather(*(self._others_by(address) for address in remaining)):
                named |= dict.fromkeys(found)
        return list(named)

    async def _others_by(self, address: str) -> list[str]:
        """Returns the services that one service names; empty: it does not answer."""
        request = pb.DescribeServiceRequest(services_only=True)
        try:
            service = self._connections.inspected(address)
            answer = await service.describe_service(request, FIND_TIMEOUT_MS)
        except (UnreachableError, TidelogError):
            return []
        state = answer.broker if answer.HasField("broker") else answer.controller
        found = [broker.address for broker in state.registered]
        return [*found, *(controller.address for controller in state.controllers)]

    async def recent(self, scope: TraceScope, timeout_ms: int = RECENT_TIMEOUT_MS) -> Gathered:
        """Returns the events that services keep. Raises `UnreachableError` if no service
        answers."""
        return await self._gathered(_requests(scope), timeout_ms)

    async def newest(
        self,
        limit: int,
        *,
        kinds: Sequence[Kind] = (),
        since_ms: int = 0,
        timeout_ms: int = RECENT_TIMEOUT_MS,
    ) -> Gathered:
        """Returns the newest `limit` events of each service, which include the newest ones of the
        cluster. `kinds`: empty: all. Raises `UnreachableError` if no service answers."""
        request = pb.WatchEventsRequest(
            kinds=[kind.value for kind in kinds],
            since_ms=since_ms,
            limit=limit,
            skip_unknown_kinds=True,
        )
        return await self._gathered([request], timeout_ms)

    async def _gathered(
        self, requests: Sequence[pb.WatchEventsRequest], timeout_ms: int
    ) -> Gathered:
        addresses = await self.addresses()
        answers = await asyncio.gather(
            *(self._recent_of(address, requests, timeout_ms) for address in addresses)
        )
        silent = [answer for answer in answers if isinstance(answer, Silent)]
        recent = [answer for answer in answers if isinstance(answer, _Recent)]
        if not recent:
            raise UnreachableError("any service", "; ".join(s.problem for s in silent))
        memories: dict[str, int] = {}
        for answer in recent:
            since_ms = answer.remembers_since_ms
            for event in answer.events:
                memories.setdefault(event.service, since_ms)
        events = [event for answer in recent for event in answer.events]
        heard = [
            a for a, answer in zip(addresses, answers, strict=True) if isinstance(answer, _Recent)
        ]
        return Gathered(events, tuple(heard), tuple(silent), memories)

    async def require_known(self, scope: TraceScope, events: Sequence[StateChange]) -> None:
        """Raises `TidelogError` (UNKNOWN_TOPIC_OR_PARTITION) if the topic or partition does not
        exist, and none of `events` is about it. Does nothing if no broker answers."""
        of_topic = [event for event in events if event.topic == scope.topic]
        if not scope.topic or any(scope.partition in (None, e.partition) for e in of_topic):
            return
        try:
            async with asyncio.timeout(METADATA_TIMEOUT_MS / 1000):
                await self._metadata.check_partition(
                    TopicPartition(scope.topic, scope.partition or 0)
                )
        except TimeoutError:
            return
        except TidelogError as error:
            is_gone = of_topic and self._metadata.cached_topic(scope.topic) is None
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not is_gone:
                raise

    async def _recent_of(
        self, address: str, requests: Sequence[pb.WatchEventsRequest], timeout_ms: int
    ) -> _Recent | Silent:
        try:
            answers = await asyncio.gather(
                *(self._collect(address, request, timeout_ms) for request in requests)
            )
        except UnreachableError as error:
            return Silent(address, error.reason)
        except TidelogError as error:
            return Silent(address, error.message)
        events = [event for answer in answers for event in answer.events]
        # The service may have dropped some events between the two queries.
        return _Recent(events, max(answer.oldest_kept_ms for answer in answers))

    async def _collect(
        self, address: str, request: pb.WatchEventsRequest, timeout_ms: int
    ) -> _Recent:
        events: list[StateChange] = []
        oldest_kept_ms = 0
        async for message in self._connections.inspected(address).watch_events(request, timeout_ms):
            events += _known(message.events)
            oldest_kept_ms = oldest_kept_ms or message.oldest_kept_ms
        return _Recent(events, oldest_kept_ms)

    async def follow(self, scope: TraceScope) -> AsyncGenerator[list[StateChange | Silent]]:
        """Yields the events that services keep, then new ones, until closed; and a `Silent` each
        time a service is lost. Events that arrive within SETTLE_MS are ordered by time. A lost
        service is tried again, and services that join the cluster are found."""
        queue: asyncio.Queue[StateChange | Silent] = asyncio.Queue(MAX_QUEUED_EVENTS)
        tasks: dict[str, asyncio.Task[None]] = {}
        finding = asyncio.create_task(self._follow_all(scope, queue, tasks))
        try:
            while True:
                batch = [await queue.get()]
                await asyncio.sleep(SETTLE_MS / 1000)
                while not queue.empty():
                    batch.append(queue.get_nowait())
                yield sorted(batch, key=_time_ms)
        finally:
            ending = [finding, *tasks.values()]
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    async def _follow_all(
        self,
        scope: TraceScope,
        queue: asyncio.Queue[StateChange | Silent],
        tasks: dict[str, asyncio.Task[None]],
    ) -> None:
        while True:
            for address in await self.addresses():
                if address not in tasks and len(tasks) < MAX_SERVICES:
                    tasks[address] = asyncio.create_task(self._follow(address, scope, queue))
            await asyncio.sleep(RECONNECT_MS / 1000)

    async def _follow(
        self, address: str, scope: TraceScope, queue: asyncio.Queue[StateChange | Silent]
    ) -> None:
        taken = _Taken(scope.since_ms)
        lost = False
        while True:
            streams = [
                asyncio.create_task(self._pass_on(address, request, scope, taken, queue))
                for request in _requests(scope._replace(since_ms=taken.newest_ms))
            ]
            try:
                await asyncio.wait(streams, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for stream in streams:
                    stream.cancel()
                ends = await asyncio.gather(*streams, return_exceptions=True)
            problem = next((e for e in ends if isinstance(e, UnreachableError | TidelogError)), "")
            # Later events are requested again, so none is lost. A service that has sent nothing
            # since it was lost is not reported again.
            if not lost or taken.received_since_query:
                await queue.put(Silent(address, str(problem) or "it ended the stream"))
            lost, taken.received_since_query = True, False
            await asyncio.sleep(RECONNECT_MS / 1000)

    async def _pass_on(
        self,
        address: str,
        request: pb.WatchEventsRequest,
        scope: TraceScope,
        taken: _Taken,
        queue: asyncio.Queue[StateChange | Silent],
    ) -> None:
        request.follow = True
        async for message in self._connections.inspected(address).watch_events(request, None):
            if message.dropped:
                problem = f"{message.dropped} of its events came too fast and are not shown"
                await queue.put(Silent(address, problem))
            for event in _known(message.events):
                if scope.asks_for(event) and taken.is_new(event):
                    await queue.put(event)


class _Taken:
    """The newest events of one service. After a break the service is queried for the rest: it
    sends the events of the last millisecond again, and they are recognized."""

    def __init__(self, since_ms: int) -> None:
        self.newest_ms = since_ms
        self.received_since_query = False
        self._of_newest_ms: list[StateChange] = []

    def is_new(self, event: StateChange) -> bool:
        self.received_since_query = True
        if event in self._of_newest_ms:
            return False
        if event.time_ms > self.newest_ms:
            self.newest_ms = event.time_ms
            self._of_newest_ms = []
        if event.time_ms == self.newest_ms:
            self._of_newest_ms.append(event)
        return True


def _each_once(addresses: Sequence[str]) -> list[str]:
    """Returns each service once. A local service may have one name of the machine in metadata and
    another one on the command line; the first address is kept."""
    by_place: dict[tuple[str, str], str] = {}
    for address in addresses:
        host, _, port = address.rpartition(":")
        place = THIS_MACHINE[0] if host.lower() in THIS_MACHINE else host.lower()
        by_place.setdefault((place, port), address)
    return list(by_place.values())


def _time_ms(item: StateChange | Silent) -> int:
    return item.time_ms if isinstance(item, StateChange) else 0


def _requests(scope: TraceScope) -> list[pb.WatchEventsRequest]:
    """Returns the requests for a scope. Filters are combined by AND, so a partition's own events
    and the events of brokers, controllers and entire topics need one request each."""
    if not scope.topic:
        return [pb.WatchEventsRequest(since_ms=scope.since_ms)]
    own = pb.WatchEventsRequest(topic=scope.topic, since_ms=scope.since_ms)
    if scope.partition is not None:
        own.partition = scope.partition
    kinds = [kind.value for kind in (*CLUSTER_KINDS, *TOPIC_KINDS)]
    # Services of an older version do not know all kinds.
    of_all = pb.WatchEventsRequest(kinds=kinds, since_ms=scope.since_ms, skip_unknown_kinds=True)
    return [own, of_all]


def _known(events: Sequence[pb.StateChangeEvent]) -> list[StateChange]:
    """Converts events; omits those of a kind or stage of a newer version."""
    known: list[StateChange] = []
    for event in events:
        with contextlib.suppress(ValueError):
            known.append(event_from_wire(event))
    return known
