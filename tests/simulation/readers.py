"""Consumers that read for as long as a world lives, whatever errors they receive."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from simulation.history import Recorder
from simulation.topic_lives import is_short_lived
from simulation.violation import Violation
from tidelog.client import Consumer
from tidelog.client.fetch_state import OnOutOfRange
from tidelog.client.log_continuity import LogTruncatedError
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition

if TYPE_CHECKING:
    from simulation.processes import ClientProcess

POLL_TIMEOUT_MS = 2_000
RETRY_PAUSE_S = 0.5
# With a longer wait a world takes fewer steps.
FETCH_WAIT_MS = 1_000
# Time after healing in which readers reach the ends.
READ_ON_S = 20.0
CONSUMER_LASTS_S = (4.0, 12.0)
RESUMED = "partition resumed by another consumer"
LOOK_INTERVAL_S = 0.1

_UNKNOWN_TOPIC = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Reader:
    """Reads as `client` until `end`.

    With `rng` its consumer ends now and then, and another one resumes where it was, as Spark
    tasks do.
    """

    def __init__(
        self,
        client: ClientProcess,
        recorder: Recorder,
        partitions: Sequence[TopicPartition],
        rng: random.Random | None = None,
    ) -> None:
        self.name = client.name
        self.partitions = partitions
        self._client = client
        self._recorder = recorder
        self._consumer: Consumer | None = None
        self._ending = False
        self._rng = rng
        # Where each partition is resumed: the next offset, and the epoch of the record before it.
        self._reached: dict[TopicPartition, tuple[int, int]] = {}

    def end(self) -> None:
        """Lets `run` end soon."""
        self._ending = True

    async def run(self) -> None:
        while not self._ending:
            await self._read_on()

    async def _read_on(self) -> None:
        """Reads with one consumer until that ends."""
        consumer = self._consumer = self._client.consumer(
            max_wait_ms=FETCH_WAIT_MS,
            on_out_of_range=OnOutOfRange.ERROR,
            on_damage="skip",
            on_unclean_election=lambda election: self._recorder.election_reported(
                self.name, election
            ),
        )
        async with consumer:
            consumer.assign(self.partitions)
            if not await self._resume(consumer):
                return
            loop = asyncio.get_running_loop()
            lasts_s = self._rng.uniform(*CONSUMER_LASTS_S) if self._rng is not None else math.inf
            over_at = loop.time() + lasts_s
            repositioned: frozenset[TopicPartition] = frozenset()
            if self._rng is not None:
                # It begins at the start of the partitions that it does not resume.
                repositioned = frozenset(self.partitions) - self._reached.keys()
            while not self._ending and loop.time() < over_at:
                try:
                    records = await consumer.poll(POLL_TIMEOUT_MS)
                except TidelogError as error:
                    repositioned |= await self._handle_error(consumer, error)
                    continue
                self._recorder.polled(self.name, records, repositioned=repositioned)
                repositioned -= {TopicPartition(r.topic, r.partition) for r in records}
                for r in records:
                    partition = TopicPartition(r.topic, r.partition)
                    self._reached[partition] = r.offset + 1, r.leader_epoch

    async def _resume(self, consumer: Consumer) -> bool:
        """Returns whether all could be resumed, for which a broker may be needed for metadata."""
        for partition, (offset, read_epoch) in self._reached.items():
            topic_id = self._recorder.topic_id(partition.topic)
            if topic_id is None:
                continue
            try:
                await consumer.resume(partition, offset, topic_id=topic_id, read_epoch=read_epoch)
            except TidelogError:
                await asyncio.sleep(RETRY_PAUSE_S)
                return False
            self._recorder.losses.seen[RESUMED] += 1
        return True

    async def _handle_error(
        self, consumer: Consumer, error: TidelogError
    ) -> frozenset[TopicPartition]:
        """Reacts to an error, and returns the partitions in which the consumer was repositioned."""
        if isinstance(error, LogTruncatedError):
            resumes = self._rng is not None
            self._recorder.truncation_reported(self.name, error, resumes=resumes)
        moves = error.code is ErrorCode.OFFSET_OUT_OF_RANGE
        if error.code in _UNKNOWN_TOPIC and is_short_lived(self.partitions[0].topic):
            self._recorder.learned_of_another_topic(self.name)
            moves = True
        if not moves:
            await asyncio.sleep(RETRY_PAUSE_S)
            return frozenset()
        self._client.trace("consumer_repositioned", why=error.message)
        self._begin_again()
        try:
            await consumer.seek_to_beginning()
        except TidelogError:
            await asyncio.sleep(RETRY_PAUSE_S)
            return frozenset()
        finally:
            # While it waited for leaders it may have read on.
            self._begin_again()
        return frozenset(consumer.assignment)

    def _begin_again(self) -> None:
        """Forgets what was read: a consumer that resumes after this knows nothing of it."""
        self._reached.clear()
        if self._rng is not None:
            self._recorder.losses.begins_again(self.name)

    def missing(self, ends: Mapping[TopicPartition, int]) -> tuple[TopicPartition, int] | None:
        """Returns a partition that is not read to its end, and how far it is read."""
        for partition in self.partitions:
            position = self._consumer.position(partition) if self._consumer else None
            if (position or 0) < ends.get(partition, 0):
                return partition, position or 0
        return None


async def require_read(
    readers: Sequence[Reader], recorder: Recorder, ends: Mapping[TopicPartition, int]
) -> None:
    """Waits until the readers have reached the `ends` and know what they have lost.

    Raises `Violation`.
    """
    waited_s = 0.0
    while True:
        behind = [(r.name, found) for r in readers if (found := r.missing(ends))]
        untold = [
            (r.name, loss)
            for r in readers
            if (loss := recorder.losses.untold(r.name, only_where_later=False))
        ]
        if not behind and not untold:
            return
        if waited_s >= READ_ON_S:
            break
        await asyncio.sleep(LOOK_INTERVAL_S)
        waited_s += LOOK_INTERVAL_S
    if behind:
        name, (partition, position) = behind[0]
        raise Violation(
            "reader_stands_still",
            f"{name} has read up to {position} of {ends[partition]} within {READ_ON_S:.0f} s",
            partition=str(partition),
        )
    name, loss = untold[0]
    raise Violation("loss_not_told", f"{name} was not informed of it", loss=loss)
