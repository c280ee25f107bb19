"""The final reads: a fresh client reads each partition from its start to its committed end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from faults.connections import routed
from faults.load import now_ms
from faults.reader import polled
from tidelog.client import Consumer
from tidelog.errors import TidelogError
from tidelog.history import HistoryWriter, PollInvoked
from tidelog.model import TopicPartition

CLIENT = "drain"
DRAIN_TIMEOUT_S = 300.0
POLL_TIMEOUT_MS = 1_000


class Brokers(Protocol):
    """`own_routes`: where to connect instead of an advertised address."""

    @property
    def bootstrap(self) -> Sequence[str]: ...

    @property
    def own_routes(self) -> Mapping[str, str]: ...


class DrainError(Exception):
    """The final reads did not finish; the message has their positions."""


async def drain(cluster: Brokers, topic: str, history: HistoryWriter) -> dict[TopicPartition, int]:
    """Returns the committed ends up to which it has read. Raises `DrainError`."""
    reached: dict[TopicPartition, int] = {}
    ends: dict[TopicPartition, int] = {}
    try:
        async with asyncio.timeout(DRAIN_TIMEOUT_S), _consumer(cluster) as consumer:
            partitions = await consumer.partitions_of(topic)
            ends = await consumer.end_offsets(partitions)
            reached = dict.fromkeys(ends, 0)
            history.write_all(PollInvoked(now_ms(), CLIENT, *p, final=True) for p in partitions)
            consumer.assign(partitions)
            while any(reached[p] < end for p, end in ends.items()):
                batches = await consumer.poll_batches(POLL_TIMEOUT_MS)
                history.write_all(polled(CLIENT, batches, now_ms(), final=True))
                for batch in batches:
                    reached[batch.partition] = max(reached[batch.partition], batch.next_offset)
    except (TimeoutError, TidelogError) as error:
        behind = {str(p): (reached.get(p, 0), end) for p, end in ends.items()}
        raise DrainError(
            f"the final reads came to no end within {DRAIN_TIMEOUT_S:g} s ({error!r}); "
            f"reached, and committed: {behind}"
        ) from error
    return ends


def _consumer(cluster: Brokers) -> Consumer:
    return Consumer(cluster.bootstrap, connections=routed(cluster.own_routes))
