"""Creates, changes, deletes and describes topics, and runs the cluster.

    async with Admin("127.0.0.1:7500") as admin:
        await admin.create_topic("sea", partitions=6, replication_factor=3)
        print(await admin.describe_topic("sea"))

Requests of AdminService go to the active controller. `describe_cluster`, `list_topics`,
`find_topics` and `describe_topic` query any broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from tidelog.client.admin_brokers import BrokerRequests
from tidelog.client.admin_operations import OperationRequests
from tidelog.client.admin_topics import DEFAULT_REPLICATION_FACTOR, TopicRequests
from tidelog.client.arguments import (
    checks_arguments,
    instance,
    integer,
    mapping,
    topic_name,
)
from tidelog.client.clock import Clock, SystemClock
from tidelog.client.cluster_metadata import ClusterMetadata
from tidelog.client.connections import BrokerApi, Connections, GrpcConnections
from tidelog.client.controller_calls import (
    DEFAULT_TIMEOUT_MS,
    MAX_ATTEMPTS,
    ControllerCalls,
    no_answer,
)
from tidelog.client.descriptions import (
    ClusterDescription,
    TopicDescription,
    cluster_from_wire,
    topic_from_wire,
    topics_from_wire,
)
from tidelog.client.leader_queries import LeaderAnswers, LeaderQueries, LedPartitions
from tidelog.client.lifecycle import Lifecycle, guarded, guards_itself
from tidelog.client.producers_codec import (
    COUNTS_FIELD,
    IDENTITY_TIMEOUT_MS,
    PARTITIONS_FIELD,
    ProducerPosition,
    TakenEpoch,
    describe_many_producers,
    take_epoch,
)
from tidelog.client.request_parts import in_parts, name_bytes
from tidelog.client.retry import Backoff
from tidelog.client.sequences import Identity
from tidelog.errors import ErrorCode, TidelogError, UnknownTopicError, unknown_topic
from tidelog.model import TopicPartition
from tidelog.rpc.status import UnknownMethodError, UnreachableError
from tidelog.rpc.trace_context import of_request
from tidelog.rpc.wire import error_from_wire
from tidelog.state_changes.topic import is_internal
from tidelog.v1 import broker_pb2

# A missing topic may just have been created, so `describe_topic` queries this many brokers.
DESCRIBE_ATTEMPTS = 4
DESCRIBE_PAUSE_MS = 50
# A broker gets at least this much time to answer, however little the caller has left.
MIN_TRY_MS = 10


@guarded
@checks_arguments(fence=instance(Identity), known=mapping(topic_name, integer))
class Admin(TopicRequests, OperationRequests, BrokerRequests):
    """Administration client, which finds the active controller and follows it.

    It belongs to one event loop. Every error is a `TidelogError`.

    - `requested_by`: the caller's name for events and operations; at most 200 printable ASCII
      characters, else INVALID_REQUEST.
    - `timeout_ms`: time limit of requests that have no time limit of their own."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        connections: Connections | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        requested_by: str = "",
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        self._clock = clock or SystemClock()
        self._lifecycle = Lifecycle("admin client", self._clock)
        self._connections = connections or GrpcConnections()
        self._metadata = ClusterMetadata(bootstrap, self._connections, self._clock)
        self._rng = rng or random.Random()
        self._backoff = Backoff(self._rng)
        self._controllers = ControllerCalls(
            self._metadata, self._connections, self._clock, self._rng, requested_by, timeout_ms
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def traced(self) -> AbstractContextManager[str]:
        """Returns a context manager that yields a trace id. Requests made inside belong to that
        trace, and all events that they cause carry its id. If the caller has a span, the trace is
        that of the span."""
        return of_request(self._rng)

    async def describe_cluster(self) -> ClusterDescription:
        """Returns the brokers and controllers, as one broker knows them."""
        return cluster_from_wire(await self._describe(None))

    async def list_topics(self, *, internal: bool = False) -> list[TopicDescription]:
        """Returns all topics, ordered by name; with `internal`, the cluster's internal topics,
        too."""
        answer = await self._describe(())
        topics = await topics_from_wire(
            topic
            for topic in answer.topics
            if not topic.HasField("error") and (internal or not is_internal(topic.name))
        )
        return sorted(topics, key=lambda topic: topic.name)

    async def find_topics(self, names: Sequence[str]) -> list[TopicDescription]:
        """Returns the topics among `names` that exist, as one broker knows them. It may be
        behind."""
        found = (await self._describe(names)).topics if names else ()
        return [topic_from_wire(topic) for topic in found if not topic.HasField("error")]

    async def describe_topic(self, topic: str) -> TopicDescription:
        """Returns a topic and its partitions, as one broker knows them. Raises
        UNKNOWN_TOPIC_OR_PARTITION if several brokers do not know it."""
        error: TidelogError | None = None
        for attempt in range(DESCRIBE_ATTEMPTS):
            if attempt:
                await asyncio.sleep(DESCRIBE_PAUSE_MS * attempt / 1000)
            for found in (await self._describe((topic,))).topics:
                if found.name == topic and not found.HasField("error"):
                    return topic_from_wire(found)
                if found.name == topic:
                    error = error_from_wire(found.error)
        raise error or unknown_topic(topic)

    async def default_replication_factor(
        self, topic: str, operation_id: str = "", timeout_ms: int | None = None
    ) -> int:
        """Returns the replication factor of a topic that is created without one.

        That is DEFAULT_REPLICATION_FACTOR, or the number of brokers if there are fewer. With an
        `operation_id`, it is the factor of an existing topic of this name, so that a repeated
        request is the same request even if the number of brokers has changed."""
        if operation_id:
            with contextlib.suppress(UnknownTopicError):
                (there,) = await self.topic_details([topic], with_partitions=False)
                return there.replication_factor
        brokers = len((await self._describe(None, timeout_ms)).brokers)
        return max(1, min(DEFAULT_REPLICATION_FACTOR, brokers))

    async def init_producer_id(
        self,
        name: str = "",
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        *,
        epoch: int | None = None,
    ) -> Identity:
        """Returns a producer id for a caller that writes batches with its own sequences.

        Without a name the id is new and unique. With a name it is the id of the name, in its next
        epoch or in `epoch`, which may be the name's current one. FENCED_PRODUCER_EPOCH if the name
        has a newer epoch.

        Leaders reject previous holders of the name as soon as the metadata store notifies them.
        To be certain, fence the previous holders in each partition before writing there
        (`describe_producers`). A try without an answer may have used up an epoch."""
        return (await self._take_epoch(name, epoch, {}, timeout_ms)).identity

    async def partition_counts(
        self,
        name: str,
        epoch: int,
        known: Mapping[str, int],
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[str, int]:
        """Returns the number of partitions, by topic, that all holders of this epoch of a name use
        to place records, so that a repeated try places its records alike.

        That is the number in `known`, unless a holder of the epoch reported another one before.
        Takes the epoch, and raises, as `init_producer_id` does."""
        give_up_ms = self._clock.monotonic_ms() + timeout_ms
        counts: dict[str, int] = {}
        # The first request takes the epoch; the others get the same one.
        for part in in_parts(known, COUNTS_FIELD, name_bytes):
            asked = {topic: known[topic] for topic in part}
            left_ms = give_up_ms - self._clock.monotonic_ms()
            taken = await self._take_epoch(name, epoch, asked, left_ms)
            counts.update(taken.partition_counts)
        return counts

    async def _take_epoch(
        self, name: str, epoch: int | None, counts: Mapping[str, int], timeout_ms: int
    ) -> TakenEpoch:
        give_up_ms = self._clock.monotonic_ms() + timeout_ms
        attempt = 0
        while True:
            attempt += 1
            # One broker after another, never two at once: each call may create a new epoch.
            addresses = self._metadata.candidates()
            unresolved = unknown = 0
            for asked, address in enumerate(addresses):
                # A silent broker uses up its share of the remaining time.
                left_ms = max(give_up_ms - self._clock.monotonic_ms(), 0)
                try_ms = max(left_ms // (len(addresses) - asked), MIN_TRY_MS)
                try:
                    broker = self._connections.broker(address)
                    try_ms = min(try_ms, IDENTITY_TIMEOUT_MS)
                    return await take_epoch(broker, name, epoch, counts, try_ms)
                except UnreachableError as error:
                    problem = str(error)
                    unresolved += error.unresolved
                except UnknownMethodError as error:
                    problem = error.message
                    unknown += 1
                    if unknown == len(addresses):
                        raise
                except TidelogError as error:
                    if not error.retriable:
                        raise
                    problem = error.message
                if self._clock.monotonic_ms() >= give_up_ms:
                    break
            if self._clock.monotonic_ms() >= give_up_ms or attempt >= MAX_ATTEMPTS:
                raise TidelogError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"no broker gave a producer id within {timeout_ms} ms; the last problem: "
                    f"{problem}",
                )
            if unresolved == len(addresses):
                left_ms = max(give_up_ms - self._clock.monotonic_ms(), 0)
                await self._metadata.refresh_patiently(patience_ms=left_ms)
            await asyncio.sleep(self._backoff.pause_ms(attempt) / 1000)

    async def describe_producers(
        self,
        topic: str,
        partitions: Sequence[int] | None = None,
        producer_ids: Sequence[int] = (),
        *,
        fence: Identity | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> dict[int, list[ProducerPosition]]:
        """Returns the committed positions of producers, by partition.

        - `partitions`: None: all of the topic.
        - `producer_ids`: empty: all that the partition knows.
        - `fence`: a named producer. Once this returns, no batch of an older epoch of it is
          appended, and its positions are final. FENCED_PRODUCER_EPOCH if a partition knows a newer
          epoch."""
        if partitions is None:
            begun_ms = self._clock.monotonic_ms()
            partitions = range((await self._metadata.topic(topic, timeout_ms)).partitions)
            timeout_ms = max(timeout_ms - (self._clock.monotonic_ms() - begun_ms), 0)

        async def ask(
            broker: BrokerApi, asked: LedPartitions
        ) -> LeaderAnswers[list[ProducerPosition]]:
            return await describe_many_producers(broker, asked, producer_ids, fence)

        queries = LeaderQueries(
            self._metadata, self._connections, self._clock, self._backoff, timeout_ms
        )
        wanted = [TopicPartition(topic, partition) for partition in partitions]
        found = await queries.query_all(wanted, ask, "producers", PARTITIONS_FIELD)
        return {partition.partition: found[partition] for partition in wanted}

    @guards_itself
    async def close(self) -> None:
        """Ends requests in progress with CLIENT_CLOSED; whether they are carried out is unknown.
        Can be cancelled and repeated."""
        await self._lifecycle.close(self._finish, self._connections.close)

    async def _finish(self) -> None:
        await self._metadata.close()
        await self._connections.close()

    async def _describe(
        self, topics: Sequence[str] | None, patience_ms: int | None = None
    ) -> broker_pb2.MetadataResponse:
        try:
            return await self._metadata.describe(topics, patience_ms)
        except UnreachableError:
            await self._metadata.refresh_patiently(patience_ms=patience_ms)
        try:
            return await self._metadata.describe(topics, patience_ms)
        except UnreachableError as error:
            raise no_answer(str(error), sent=False) from error
