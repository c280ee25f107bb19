"""Sends again, under a producer's name, what a holder of it wrote long ago.

So does a program that was restarted with an old state and does not query where to continue. The
records are in the log already, and must not be written again: the history would show their
values twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from simulation.transports import SimConnections
from tidelog import record_batch
from tidelog.errors import TidelogError
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.rpc.status import UnreachableError
from tidelog.rpc.wire import batch_from_wire, batch_to_wire
from tidelog.v1 import broker_pb2
from tidelog_runtime.metadata.schema import decode_leader_and_isr

if TYPE_CHECKING:
    from simulation.world import World

TIMEOUT_MS = 4_000


class _Written(NamedTuple):
    values: list[bytes | None]
    base_sequence: int
    base_timestamp_ms: int


class OldSequences:
    """The first batches of producers on hosts whose names begin with `holders`.

    Nothing is sent again to a partition that `has_lost` something: its sequences may be free
    again.
    """

    def __init__(
        self, world: World, holders: str, has_lost: Callable[[TopicPartition], bool]
    ) -> None:
        self._world = world
        self._holders = holders
        self._has_lost = has_lost
        self._first: dict[TopicPartition, _Written] = {}
        self._identity = (-1, -1)

    def answer_accepted(self, host: str, request: object, answer: object) -> None:
        """Notes an answer that a client has accepted."""
        if not host.startswith(self._holders) or not isinstance(answer, broker_pb2.ProduceResponse):
            return
        assert isinstance(request, broker_pb2.ProduceRequest)
        refused = {(p.topic, p.partition) for p in answer.partitions if p.HasField("error")}
        for sent in request.partitions:
            if (sent.topic, sent.partition) in refused:
                continue
            header = sent.batches[0].header
            self._identity = max(self._identity, (header.producer_id, header.producer_epoch))
            partition = TopicPartition(sent.topic, sent.partition)
            if partition not in self._first:
                columns = record_batch.decode(batch_from_wire(sent.batches[0]))
                self._first[partition] = _Written(
                    list(columns.values), header.base_sequence, columns.timestamps_ms[0]
                )

    async def send_again(self, rng: random.Random) -> None:
        """Sends the first acknowledged batch of some partition, as the present holder."""
        known = [partition for partition in self._first if not self._has_lost(partition)]
        if not known:
            return
        partition = rng.choice(known)
        item = self._world.store_data.get(self._world.keys.leader_and_isr(partition))
        if item is None:
            return
        state = decode_leader_and_isr(item.value)
        if state.leader == NO_LEADER:
            return
        written = self._first[partition]
        batch = record_batch.encode_records(
            written.values, timestamps_ms=written.base_timestamp_ms
        ).to_batch(*self._identity, written.base_sequence)
        request = broker_pb2.ProduceRequest(acks=broker_pb2.ACKS_ALL, timeout_ms=TIMEOUT_MS)
        request.partitions.add(
            topic=partition.topic,
            partition=partition.partition,
            topic_id=state.topic_id,
            batches=[batch_to_wire(batch)],
        )
        address = self._world.brokers[state.leader].address
        with suppress(UnreachableError, TidelogError):
            await SimConnections(self._world).broker(address).produce(request, TIMEOUT_MS)
