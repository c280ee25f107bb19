"""Writes samples to their topic while others are taken."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from tidelog.client.admin import Admin
from tidelog.client.producer import Producer
from tidelog.errors import FINAL_ANSWERS, TidelogError
from tidelog_pipeline.lag.samples import LagSample, to_value

# About 10 MB, for which the producer's buffer has room.
MAX_WAITING_SAMPLES = 50_000
# Time for waiting samples when sampling is stopped.
STOP_TIMEOUT_MS = 5_000


class SampleWriter:
    """Writes samples without waiting for their delivery.

    Lag matters most while partitions have no leader or too few in-sync replicas, and the topic
    of the samples may be one of them. Samples wait in the producer until its delivery timeout.
    Samples that are not written are logged.

    - `unwritten`: number of samples that were not written so far.
    """

    def __init__(self, producer: Producer, admin: Admin, topic: str) -> None:
        self._producer = producer
        self._admin = admin
        self._topic = topic
        # Samples of each round that waits.
        self._waiting: dict[asyncio.Task[None], int] = {}
        self._ended_by: BaseException | None = None
        self.unwritten = 0

    def write(self, at_ms: int, samples: Sequence[LagSample]) -> None:
        """Starts to write samples.

        - `at_ms`: wall clock of all samples.

        Raises an earlier `TidelogError` that does not go away by waiting, such as a deleted
        topic.
        """
        self._check()
        waiting = sum(self._waiting.values())
        if waiting and waiting + len(samples) > MAX_WAITING_SAMPLES:
            self._count_unwritten(at_ms, len(samples), f"{waiting} earlier ones wait to be written")
            return
        sending = asyncio.create_task(self._send(at_ms, samples))
        self._waiting[sending] = len(samples)
        sending.add_done_callback(self._done)

    async def wait_written(self) -> None:
        """Returns once each sample is written or lost. Raises as `write` does."""
        if self._waiting:
            await asyncio.wait(set(self._waiting))
        self._check()

    async def stop(self) -> None:
        if not self._waiting:
            return
        timeout_ms = STOP_TIMEOUT_MS if self._ended_by is None else 0
        _, late = await asyncio.wait(set(self._waiting), timeout=timeout_ms / 1000)
        for sending in late:
            sending.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _send(self, at_ms: int, samples: Sequence[LagSample]) -> None:
        written = 0
        try:
            delivery = await self._producer.send_many(
                self._topic, [to_value(sample) for sample in samples], timestamps_ms=at_ms
            )
            for outcome in await asyncio.gather(*delivery.batches, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    raise outcome
                written += outcome.record_count
        except TidelogError as error:
            self._count_unwritten(at_ms, len(samples) - written, error.message)
            self._ended_by = self._ended_by or await self._permanent_error(error)
        except asyncio.CancelledError:
            self._count_unwritten(at_ms, len(samples) - written, "stopped before")
            raise

    def _done(self, sending: asyncio.Task[None]) -> None:
        del self._waiting[sending]
        if not sending.cancelled() and sending.exception() is not None:
            self._ended_by = self._ended_by or sending.exception()

    async def _permanent_error(self, error: TidelogError) -> TidelogError | None:
        """Returns an error that does not go away by waiting.

        A producer retries with its cached metadata of a deleted topic until the delivery
        timeout.
        """
        if not error.retriable or error.code in FINAL_ANSWERS:
            return error
        try:
            await self._admin.describe_topic(self._topic)
        except TidelogError as gone:
            return gone if gone.code in FINAL_ANSWERS else None
        return None

    def _count_unwritten(self, at_ms: int, count: int, problem: str) -> None:
        self.unwritten += count
        structlog.get_logger().warning(
            "samples_not_written", at_ms=at_ms, samples=count, problem=problem
        )

    def _check(self) -> None:
        if self._ended_by is not None:
            raise self._ended_by
