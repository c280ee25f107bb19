"""Admits records to a producer once their topic is known and the buffer has room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from tidelog.client.accumulator import Accumulator
from tidelog.client.buffer_budget import BufferBudget
from tidelog.client.clock import Clock
from tidelog.client.cluster_metadata import ClusterMetadata
from tidelog.client.metadata_cache import KnownTopic
from tidelog.client.sender import Sender
from tidelog.client.topic_locks import TopicLocks
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition


@asynccontextmanager
async def unsent_after(clock: Clock, deadline_ms: int, missing: str) -> AsyncIterator[None]:
    """Raises REQUEST_TIMED_OUT, with a known outcome, if the block is not done by `deadline_ms`.
    `missing`: the condition that the block waits for, as a clause."""
    try:
        async with asyncio.timeout(max(deadline_ms - clock.monotonic_ms(), 0) / 1000):
            yield
    except TimeoutError:
        raise _not_sent(missing) from None


def _not_sent(reason: str) -> TidelogError:
    return TidelogError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"not sent within delivery_timeout_ms, and not written: {reason}",
        outcome_unknown=False,
    )


def partly_sent(error: TidelogError, batch_count: int) -> TidelogError:
    """Returns the error of a call that has sent this many batches before."""
    return TidelogError(
        error.code,
        f"{error.message}; what the call sent before may be written (batches: {batch_count})",
        outcome_unknown=True,
    )


class SendAdmission:
    """Admission of one producer. It starts the `sender` with the first record."""

    def __init__(
        self,
        accumulator: Accumulator,
        metadata: ClusterMetadata,
        budget: BufferBudget,
        sender: Sender,
        clock: Clock,
        *,
        max_request_bytes: int,
        delivery_timeout_ms: int,
    ) -> None:
        # Records of a topic are in the log in the order of the calls, however long each call waits
        # for metadata or room. A topic that cannot be found does not delay other topics.
        self.locks = TopicLocks()
        self.max_request_bytes = max_request_bytes
        self.delivery_timeout_ms = delivery_timeout_ms
        self._accumulator = accumulator
        self._metadata = metadata
        self._budget = budget
        self._sender = sender
        self._clock = clock
        self._started = False

    def at_once(self, topic: str, partition: int | None, size: int) -> KnownTopic | None:
        """Takes room for a record that does not have to wait for anything, nor for an earlier call.
        Returns None if it may have to wait, or cannot be sent."""
        known = self._metadata.cached_topic(topic)
        if (
            known is None
            or (partition is not None and not 0 <= partition < known.partitions)
            or not self._started
            or self._accumulator.fatal is not None
            or size > self.max_request_bytes
            or not self.locks.is_free(topic)
            or not self._budget.try_take(size)
        ):
            return None
        return known

    @asynccontextmanager
    async def hold_topic(self, topic: str, deadline_ms: int) -> AsyncIterator[None]:
        """Holds the lock of a topic. Raises REQUEST_TIMED_OUT if it is not free in time."""
        missing = f"no broker has described topic {topic!r}"
        if self._metadata.cached_topic(topic) is not None:
            missing = f"earlier calls for topic {topic!r} were still waiting"
        async with AsyncExitStack() as held:
            async with unsent_after(self._clock, deadline_ms, missing):
                await held.enter_async_context(self.locks.of(topic))
            yield

    async def wait(
        self, topic: str, partition: int | None, size: int, deadline_ms: int
    ) -> KnownTopic:
        """As `at_once`, for any record. Raises `TidelogError` if it cannot be sent in time."""
        known = await self.known_topic(topic, partition, deadline_ms)
        self.check_size(size)
        if self._budget.try_take(size):
            return known
        await self.take_room(size, deadline_ms)
        # The topic may have changed meanwhile.
        return self._metadata.cached_topic(topic) or known

    async def known_topic(self, topic: str, partition: int | None, deadline_ms: int) -> KnownTopic:
        self.check_not_ended()
        if not self._started:
            self._started = True
            self._sender.start()
        known = self._metadata.cached_topic(topic)
        if known is not None and (partition is None or 0 <= partition < known.partitions):
            return known
        missing = f"no broker has described topic {topic!r}"
        async with unsent_after(self._clock, deadline_ms, missing):
            if partition is not None:
                await self._metadata.check_partition(TopicPartition(topic, partition))
            return await self._metadata.topic(topic)

    async def take_room(self, size: int, deadline_ms: int) -> None:
        if self._budget.try_take(size):
            return
        missing = f"the buffer (buffer_bytes) had no room for {size} bytes"
        async with unsent_after(self._clock, deadline_ms, missing):
            await self._budget.take(size)

    def check_in_time(self, deadline_ms: int) -> None:
        """Raises REQUEST_TIMED_OUT, with a known outcome, after the deadline."""
        if self._clock.monotonic_ms() >= deadline_ms:
            raise _not_sent("the call's records took longer than that to prepare")

    def new_deadline_ms(self) -> int:
        return self._clock.monotonic_ms() + self.delivery_timeout_ms

    def check_size(self, size_bytes: int) -> None:
        if size_bytes > self.max_request_bytes:
            raise TidelogError(
                ErrorCode.BATCH_TOO_LARGE,
                f"a record of {size_bytes} bytes does not fit into max_request_bytes "
                f"({self.max_request_bytes}); send smaller records, or raise it together with "
                "the topic's max_batch_bytes",
            )

    def check_not_ended(self) -> None:
        if self._accumulator.fatal is not None:
            raise TidelogError(
                self._accumulator.fatal.code,
                self._accumulator.fatal.message,
                outcome_unknown=False,
            )
