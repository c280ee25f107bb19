"""Publishes a service's state changes to the topic `__state_changes`.

They go through the ordinary client, in the background, without blocking the service. Events
beyond the bounded queue are dropped and counted; the log reports the begin and the end of that
once each. A failed publication is tried again after a pause. It reports no state change, so it
cannot cause more events.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import islice
from typing import Protocol

import structlog

from tidelog.client import Producer
from tidelog.client.delivery import Delivery
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import Codec
from tidelog.rpc.status import UnreachableError
from tidelog.state_changes.event import StateChange
from tidelog.state_changes.topic import STATE_CHANGES_TOPIC, is_published, key_of, value_of
from tidelog_runtime.config import RegisteredConfig
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import decode_broker
from tidelog_runtime.metadata.store import MetadataStore, StoreError
from tidelog_runtime.telemetry.state_change_log import StateChangeLog

MAX_EVENTS_IN_FLIGHT = 200
# The election of ten thousand leaders has precedence over its events: publishing takes at most
# about a tenth of a core, and events beyond the queue are only in the log.
MAX_EVENTS_PER_SECOND = 2_000
# Events in close succession are sent together as one group. A record alone would need a round of
# replication, which costs services and partitions far more than the record, in the midst of the
# incident that it reports. A group ends after QUIET_MS without a new event. It is cut after
# MAX_GATHERING_MS, or when it fills MAX_EVENTS_IN_FLIGHT or the queue.
QUIET_MS = 200
MAX_GATHERING_MS = 2_000
# Events sent between two yields to the event loop.
EVENTS_PER_SLICE = 20
FIRST_PAUSE_MS = 500
MAX_PAUSE_MS = 30_000
# The number of consecutive failures that is logged; the pauses before it add up to 7.5 s.
FIRST_LOGGED_FAILURE = 5
# At the end of the service, time for the events that are queued by then.
FLUSH_TIMEOUT_MS = 500
# Of the producer: how long the first record of a batch waits for others, and how long a batch is
# retried before it counts as failed.
LINGER_MS = 20
DELIVERY_TIMEOUT_MS = 30_000
BUFFER_BYTES = 4 << 20
# Events that no broker will ever accept; others may be accepted later.
_PERMANENT = frozenset({ErrorCode.BATCH_TOO_LARGE, ErrorCode.INVALID_BATCH})

_log = structlog.get_logger()


class EventProducer(Protocol):
    """The part of `tidelog.client.Producer` that the publisher uses."""

    async def send(
        self, topic: str, value: bytes | None, key: bytes | None = None
    ) -> asyncio.Future[Delivery]: ...

    async def close(self, *, flush: bool = True) -> None: ...


def new_event_producer(addresses: Sequence[str]) -> Producer:
    return Producer(
        addresses,
        codec=Codec.LZ4,
        linger_ms=LINGER_MS,
        buffer_bytes=BUFFER_BYTES,
        delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
    )


class NoBrokerError(Exception):
    """No broker is registered that could accept events."""


_EXPECTED = (TidelogError, UnreachableError, StoreError, NoBrokerError)

FindBrokers = Callable[[], Awaitable[Sequence[str]]]


async def registered_brokers(store: MetadataStore, keys: Keys) -> list[str]:
    """Returns addresses, for a service that is not a broker. Raises `StoreError`."""
    snapshot = await store.snapshot(keys.brokers)
    return [decode_broker(item.value).address for _, item in sorted(snapshot.items.items())]


@asynccontextmanager
async def publishing(
    state_changes: StateChangeLog, find_brokers: FindBrokers, config: RegisteredConfig
) -> AsyncIterator[Callable[[], None]]:
    """Publishes state changes while the body of the `async with` runs, if so configured.

    Yields a function to call when the service begins to end; see `flush_early`.
    """
    if not config.state_changes_topic:
        yield lambda: None
        return
    publisher = StateChangePublisher(
        state_changes, find_brokers, new_event_producer, config.state_changes_queue_events
    )
    running = asyncio.create_task(publisher.run())
    try:
        yield publisher.flush_early
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


class StateChangePublisher:
    """Publishes the state changes of a `StateChangeLog`.

    Changes that are reported before `run` starts are queued.

    - `find_brokers`: returns addresses of brokers, for each new producer; may raise
      `StoreError`.
    """

    def __init__(
        self,
        state_changes: StateChangeLog,
        find_brokers: FindBrokers,
        new_producer: Callable[[Sequence[str]], EventProducer],
        max_queued_events: int,
    ) -> None:
        self._state_changes = state_changes
        self._find_brokers = find_brokers
        self._new_producer = new_producer
        self._max_queued_events = max_queued_events
        self._batch_events = min(MAX_EVENTS_IN_FLIGHT, max_queued_events)
        self._queue: deque[StateChange] = deque()
        self._grew = asyncio.Event()
        self._batch_is_full = asyncio.Event()
        self._producer: EventProducer | None = None
        self._ends_at: float | None = None  # loop time; set once the service begins to end
        self._pause_ms = FIRST_PAUSE_MS
        self._failures = 0
        # Since the queue was last empty.
        self._dropped = 0
        state_changes.add_sink(self._take)

    async def run(self) -> None:
        """Publishes until it is cancelled.

        Queued events are then sent within FLUSH_TIMEOUT_MS, counted from the call of `flush_early`
        if there was one. They are dropped if the last publication failed.
        """
        try:
            while True:
                try:
                    await self._publish()
                except Exception as error:
                    # No error ends the service.
                    self._log_failure(error)
                await self._close_producer()
                await asyncio.sleep(self._pause_ms / 1000)
                self._pause_ms = min(2 * self._pause_ms, MAX_PAUSE_MS)
        finally:
            await self._end()

    def flush_early(self) -> None:
        """Makes all events be sent at once from now on.

        Most of them are then sent while the rest of the service ends, and it need not wait as
        long.
        """
        if self._ends_at is None:
            self._ends_at = asyncio.get_running_loop().time() + FLUSH_TIMEOUT_MS / 1000
        self._batch_is_full.set()

    def _take(self, change: StateChange) -> None:
        if not is_published(change):
            return
        if len(self._queue) >= self._max_queued_events:
            self._count_dropped("more are reported than the topic accepts in time")
            return
        self._queue.append(change)
        self._grew.set()
        if len(self._queue) >= self._batch_events:
            self._batch_is_full.set()

    async def _publish(self) -> None:
        """Publishes until an event is not accepted, and raises the reason."""
        while True:
            while not self._queue:
                self._log_dropped()
                self._grew.clear()
                await self._grew.wait()
            if self._producer is None:
                addresses = await self._find_brokers()
                if not addresses:
                    raise NoBrokerError("no broker is registered")
                self._producer = self._new_producer(addresses)
            await self._gather()
            sent = await self._send_some(self._producer)
            self._pause_ms = FIRST_PAUSE_MS
            self._log_recovery()
            if self._queue and self._ends_at is None:
                await asyncio.sleep(sent / MAX_EVENTS_PER_SECOND)

    async def _gather(self) -> None:
        """Waits until the queued events form a complete group."""
        latest = asyncio.get_running_loop().time() + MAX_GATHERING_MS / 1000
        gathered = 0
        while gathered < len(self._queue) < self._batch_events and self._ends_at is None:
            left = latest - asyncio.get_running_loop().time()
            if left <= 0:
                return
            gathered = len(self._queue)
            self._batch_is_full.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(QUIET_MS / 1000, left)):
                    await self._batch_is_full.wait()

    async def _send_some(self, producer: EventProducer) -> int:
        """Sends queued events and returns how many.

        Events stay queued in order until the topic has accepted them. Raises the reason if one
        was not accepted.
        """
        sending = list(islice(self._queue, MAX_EVENTS_IN_FLIGHT))
        deliveries: list[asyncio.Future[Delivery]] = []
        failure: Exception | None = None
        try:
            for number, change in enumerate(sending):
                if number % EVENTS_PER_SLICE == EVENTS_PER_SLICE - 1:
                    await asyncio.sleep(0)
                deliveries.append(
                    await producer.send(STATE_CHANGES_TOPIC, value_of(change), key_of(change))
                )
        except TidelogError as error:
            failure = error
            if error.code in _PERMANENT:
                self._drop(sending[len(deliveries)])
        outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
        # Without an await from here on: new events are queued behind all of these.
        for change, outcome in zip(sending, outcomes, strict=False):
            if isinstance(outcome, Delivery):
                self._queue.remove(change)
            elif isinstance(outcome, TidelogError) and outcome.code in _PERMANENT:
                self._drop(change)
            elif isinstance(outcome, Exception):
                failure = outcome
        if failure is not None and not _is_permanent(failure):
            raise failure
        return len(sending)

    def _drop(self, change: StateChange) -> None:
        self._queue.remove(change)
        self._count_dropped("no broker can accept it")

    def _count_dropped(self, why: str) -> None:
        self._state_changes.dropped += 1
        self._dropped += 1
        if self._dropped == 1:
            _log.warning(
                "state_changes_dropping",
                topic=STATE_CHANGES_TOPIC,
                queued=len(self._queue),
                why=why,
                remedy="read them in this log; their number is logged when they end",
            )

    def _log_dropped(self) -> None:
        dropped, self._dropped = self._dropped, 0
        if dropped:
            _log.warning("state_changes_dropped", topic=STATE_CHANGES_TOPIC, dropped=dropped)

    def _log_failure(self, error: Exception) -> None:
        """Logs a failure once, however long it lasts.

        A starting cluster, whose brokers and topic do not exist yet, is not reported.
        """
        self._failures += 1
        if self._failures != FIRST_LOGGED_FAILURE:
            return
        if isinstance(error, _EXPECTED):
            _log.info("state_changes_held", topic=STATE_CHANGES_TOPIC, problem=str(error))
        else:
            _log.warning("state_changes_fault", topic=STATE_CHANGES_TOPIC, exc_info=error)

    def _log_recovery(self) -> None:
        failures, self._failures = self._failures, 0
        if failures >= FIRST_LOGGED_FAILURE:
            dropped = self._state_changes.dropped
            _log.info("state_changes_published", topic=STATE_CHANGES_TOPIC, dropped=dropped)

    async def _close_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close(flush=False)

    async def _end(self) -> None:
        try:
            await self._publish_rest()
        finally:
            self._log_dropped()

    async def _publish_rest(self) -> None:
        if self._producer is None:
            return
        self.flush_early()
        # In a task that is being cancelled, `asyncio.timeout` does not work before Python 3.11.4.
        await asyncio.create_task(self._send_rest(self._producer))
        await self._close_producer()

    async def _send_rest(self, producer: EventProducer) -> None:
        try:
            async with asyncio.timeout_at(self._ends_at):
                while self._queue:
                    await self._send_some(producer)
        except (TimeoutError, TidelogError, UnreachableError):
            _log.info("state_changes_unpublished", events=len(self._queue))


def _is_permanent(error: Exception) -> bool:
    return isinstance(error, TidelogError) and error.code in _PERMANENT
