"""Creates, deletes and describes topics and the cluster.

    async with Admin("127.0.0.1:7500") as admin:
        await admin.create_topic("sea", partitions=6, replication_factor=3)
        print(await admin.describe_topic("sea"))

What changes something goes to the active controller, every question to any broker.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

from tidelog.client.ask_leaders import Answers, Asked, LeaderAsker
from tidelog.client.clock import Clock, SystemClock
from tidelog.client.cluster_metadata import ClusterMetadata
from tidelog.client.connections import AdminApi, BrokerApi, Connections, GrpcConnections
from tidelog.client.descriptions import (
    ClusterDescription,
    TopicDescription,
    cluster_from_wire,
    topic_from_wire,
)
from tidelog.client.producers_codec import (
    ProducerPosition,
    describe_producers,
    init_producer_id,
)
from tidelog.client.retry import Backoff
from tidelog.client.sequences import Identity
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog.rpc.status import UnreachableError
from tidelog.rpc.trace_context import of_request
from tidelog.rpc.wire import error_from_wire
from tidelog.state_changes.topic import is_internal
from tidelog.v1 import admin_pb2, broker_pb2

DEFAULT_TIMEOUT_MS = 30_000
# An answer may come this much after the time that the controller was given.
ANSWER_GRACE_MS = 1_000
# With pauses of 50 ms to 1 s; the timeout usually ends it first.
MAX_ATTEMPTS = 60
# A topic that is missing may just have been created; so often other brokers are asked.
DESCRIBE_ATTEMPTS = 4
DESCRIBE_PAUSE_MS = 50


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """`pending_brokers` have not started their replicas in time; they go on. `trace_id`:
    32 hexadecimal digits, carried by every event of the creation."""

    topic_id: str
    pending_brokers: tuple[int, ...]
    trace_id: str = ""


@dataclass(frozen=True, slots=True)
class RecoveredPartition:
    """`error` None: it has a leader. REQUEST_TIMED_OUT: not yet; the consent stands."""

    partition: int
    error: TidelogError | None


_Answer = TypeVar(
    "_Answer",
    admin_pb2.CreateTopicResponse,
    admin_pb2.DeleteTopicResponse,
    admin_pb2.RecoverPartitionsResponse,
)


class Admin:
    """Finds the active controller and follows it. Every error is a `TidelogError`."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        connections: Connections | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._connections = connections or GrpcConnections()
        self._metadata = ClusterMetadata(bootstrap, self._connections, self._clock)
        self._rng = rng or random.Random()
        self._backoff = Backoff(self._rng)

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
        """Requests made inside belong to one trace, and every event of what they bring about
        carries its id, which is given: that of the user's own span, where there is one."""
        return of_request(self._rng)

    async def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        *,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Returns when the replicas have started, or `timeout_ms` is over. A try whose
        answer was lost may have created the topic: then one of the same shape that exists
        counts as created."""
        request = admin_pb2.CreateTopicRequest(
            topic=topic,
            partitions=partitions,
            replication_factor=replication_factor,
            config=dict(config or {}),
            validate_only=validate_only,
            timeout_ms=timeout_ms,
        )
        answer, in_doubt, trace_id = await self._ask_controller(
            lambda api: api.create_topic(request, timeout_ms + ANSWER_GRACE_MS), timeout_ms
        )
        if answer.HasField("error"):
            error = error_from_wire(answer.error)
            if in_doubt and error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                found = await self.describe_topic(topic)
                if (len(found.partitions), found.replication_factor) == (
                    partitions,
                    replication_factor,
                ):
                    return CreatedTopic(found.topic_id, (), trace_id)
            raise error
        return CreatedTopic(answer.topic_id, tuple(answer.pending_brokers), trace_id)

    async def delete_topic(
        self, topic: str, timeout_ms: int = DEFAULT_TIMEOUT_MS, *, topic_id: str = ""
    ) -> tuple[int, ...]:
        """Returns the brokers that have not deleted their replicas within `timeout_ms`;
        they go on. With `topic_id`, refused unless the topic still has it."""
        request = admin_pb2.DeleteTopicRequest(
            topic=topic, topic_id=topic_id, timeout_ms=timeout_ms
        )
        answer, in_doubt, _ = await self._ask_controller(
            lambda api: api.delete_topic(request, timeout_ms + ANSWER_GRACE_MS), timeout_ms
        )
        if answer.HasField("error"):
            error = error_from_wire(answer.error)
            if in_doubt and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return ()
            raise error
        return tuple(answer.pending_brokers)

    async def recover_partitions(
        self,
        topic: str,
        partitions: Sequence[int] = (),
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
        *,
        from_live_replicas: bool = False,
    ) -> list[RecoveredPartition]:
        """Consents to the loss of records: where no replica that holds every committed
        record will come back, the best of what is left leads. Without `partitions`, all
        that have no leader. With `from_live_replicas`, the replicas last known to be in
        sync are not waited for."""
        request = admin_pb2.RecoverPartitionsRequest(
            topic=topic,
            partitions=partitions,
            from_live_replicas=from_live_replicas,
            timeout_ms=timeout_ms,
        )
        answer, _, _ = await self._ask_controller(
            lambda api: api.recover_partitions(request, timeout_ms + ANSWER_GRACE_MS), timeout_ms
        )
        if answer.HasField("error"):
            raise error_from_wire(answer.error)
        return [
            RecoveredPartition(
                result.partition,
                error_from_wire(result.error) if result.HasField("error") else None,
            )
            for result in answer.partitions
        ]

    async def describe_cluster(self) -> ClusterDescription:
        return cluster_from_wire(await self._describe(None))

    async def list_topics(self, *, internal: bool = False) -> list[TopicDescription]:
        """All topics, by name; with `internal`, also those that the cluster keeps for
        itself."""
        answer = await self._describe(())
        topics = [
            topic_from_wire(topic)
            for topic in answer.topics
            if not topic.HasField("error") and (internal or not is_internal(topic.name))
        ]
        return sorted(topics, key=lambda topic: topic.name)

    async def describe_topic(self, topic: str) -> TopicDescription:
        error: TidelogError | None = None
        for attempt in range(DESCRIBE_ATTEMPTS):
            if attempt:
                await asyncio.sleep(DESCRIBE_PAUSE_MS * attempt / 1000)
            for found in (await self._describe((topic,))).topics:
                if found.name == topic and not found.HasField("error"):
                    return topic_from_wire(found)
                if found.name == topic:
                    error = error_from_wire(found.error)
        raise error or TidelogError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic {topic!r} does not exist; list_topics tells which do",
        )

    async def init_producer_id(
        self, name: str = "", timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> Identity:
        """For whoever writes batches with sequences of its own: an id that nobody else has,
        or with a name that name's id in its next epoch. Leaders refuse former holders once
        the metadata store has told them of it; to be certain, fence these in each partition
        before writing there (`describe_producers`). A try without an answer may have made an
        epoch that nobody uses."""
        give_up_ms = self._clock.monotonic_ms() + timeout_ms
        attempt = 0
        while True:
            attempt += 1
            # One broker after another, never two at once: each call is a new epoch.
            for address in self._metadata.candidates():
                try:
                    return await init_producer_id(self._connections.broker(address), name)
                except UnreachableError as error:
                    problem = str(error)
                except TidelogError as error:
                    if not error.retriable:
                        raise
                    problem = error.message
            if self._clock.monotonic_ms() >= give_up_ms or attempt >= MAX_ATTEMPTS:
                raise TidelogError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"no broker gave a producer id within {timeout_ms} ms; the last problem: "
                    f"{problem}",
                )
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
        """How far producers have come, by partition (None: all of the topic) and producer
        id (none: all that the partition knows), as far as it is committed. With `fence`, no
        batch of an older epoch of that named producer is appended any more where this has
        returned, and what it tells of that producer is final; FENCED_PRODUCER_EPOCH where
        a newer epoch has been there."""
        if partitions is None:
            partitions = range(len((await self._metadata.topic(topic)).leaders))

        async def ask(broker: BrokerApi, asked: Asked) -> Answers[list[ProducerPosition]]:
            return await describe_producers(broker, asked, producer_ids, fence)

        asker = LeaderAsker(
            self._metadata, self._connections, self._clock, self._backoff, timeout_ms
        )
        wanted = [TopicPartition(topic, partition) for partition in partitions]
        found = await asker.ask_all(wanted, ask, "producers")
        return {partition.partition: found[partition] for partition in wanted}

    async def close(self) -> None:
        await self._metadata.close()
        await self._connections.close()

    async def _describe(self, topics: Sequence[str] | None) -> broker_pb2.MetadataResponse:
        try:
            return await self._metadata.describe(topics)
        except UnreachableError:
            await self._metadata.refresh_patiently()
        try:
            return await self._metadata.describe(topics)
        except UnreachableError as error:
            raise _no_answer(str(error)) from error

    async def _ask_controller(
        self, call: Callable[[AdminApi], Awaitable[_Answer]], timeout_ms: int
    ) -> tuple[_Answer, bool, str]:
        """The active controller's answer, whether an earlier try got none, and the id of
        the trace that all tries belong to."""
        with of_request(self._rng) as trace_id:
            answer, in_doubt = await self._try_controllers(call, timeout_ms)
        return answer, in_doubt, trace_id

    async def _try_controllers(
        self, call: Callable[[AdminApi], Awaitable[_Answer]], timeout_ms: int
    ) -> tuple[_Answer, bool]:
        """An answer that a retry cannot mend is the caller's to read."""
        give_up_ms = self._clock.monotonic_ms() + timeout_ms
        in_doubt = False
        problem = "no active controller is known"
        for attempt in range(1, MAX_ATTEMPTS + 1):
            await self._metadata.refresh_patiently()
            address = self._metadata.controller_address
            if address:
                try:
                    answer = await call(self._connections.controller(address))
                except UnreachableError as error:
                    in_doubt = True
                    problem = str(error)
                else:
                    retry = answer.HasField("error") and error_from_wire(answer.error).retriable
                    if not retry or _final(answer):
                        return answer, in_doubt
                    problem = f"{address}: {answer.error.message}"
            if self._clock.monotonic_ms() >= give_up_ms:
                break
            await asyncio.sleep(self._backoff.pause_ms(attempt) / 1000)
        raise _no_answer(problem)


def _final(
    answer: admin_pb2.CreateTopicResponse
    | admin_pb2.DeleteTopicResponse
    | admin_pb2.RecoverPartitionsResponse,
) -> bool:
    """Retriable in general, but from a controller it is the answer."""
    return error_from_wire(answer.error).code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    )


def _no_answer(problem: str) -> TidelogError:
    return TidelogError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"the request was not answered in time; the last problem: {problem}; check that the "
        "cluster runs, then look whether it was carried out after all",
    )
