"""One broker and its topics in memory. It belongs to one event loop.

Requests are served by the broker's own code (`tidelog_broker.requests`, `core.partition`), so that
records, offsets, sequences, limits and errors are those of a cluster. What is missing is around it:
disks, replicas, elections, leases, retention.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from tidelog import record_batch
from tidelog.errors import ErrorCode, TidelogError, unknown_topic
from tidelog.model import TopicPartition
from tidelog.record_limits import RECORD_LIMITS
from tidelog.testing.memory.log import MemoryLog, MemoryRoom
from tidelog.testing.memory.metadata import MemoryMetadata
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.edge.broker_service import BrokerService
from tidelog_broker.log.disk import OsDisk
from tidelog_broker.membership.metadata_cache import LiveTopic, MetadataCache
from tidelog_broker.replicas.replica_lookup import ReplicaLookup
from tidelog_broker.requests.batch_checks import BatchChecks
from tidelog_broker.requests.consumer_fetch import ConsumerFetch
from tidelog_broker.requests.describe_producers import DescribeProducers
from tidelog_broker.requests.list_offsets import ListOffsets
from tidelog_broker.requests.produce import Produce
from tidelog_broker.requests.producer_ids import ProducerIds
from tidelog_broker.requests.purgatory import Purgatory
from tidelog_broker.storage.cold_reads import ColdReads
from tidelog_controller.requests.request_checks import other_id
from tidelog_runtime.clock import SystemClock
from tidelog_runtime.identifiers import new_id
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.schema import (
    RUNNING,
    BrokerRegistration,
    ClusterEntry,
    ControllerEntry,
    ControllerProcess,
    LeaderAndIsr,
    Member,
    TopicEntry,
    encode,
    encode_leader_and_isr,
)
from tidelog_runtime.metadata.store import Delete, MetadataStore, Put

if TYPE_CHECKING:
    from tidelog_broker.replicas.replica_manager import ReplicaManager

BROKER_ID = 1
CONTROLLER_ID = 1
CONTROLLER_EPOCH = 1
# Of all topics together. Each is some kilobytes, and a test of more needs a cluster.
MAX_PARTITIONS = 1_000


class MemoryReplicas(ReplicaLookup):
    """The broker's partitions. It leads all of them, and each has one replica.

    - `disk`: whatever rejects writes; there is none.
    """

    disk = None

    def __init__(self, cache: MetadataCache, purgatory: Purgatory, room: MemoryRoom) -> None:
        super().__init__(BROKER_ID, cache)
        self._purgatory = purgatory
        self._room = room

    def lead(self, name: TopicPartition, topic: LiveTopic, state: LeaderAndIsr) -> None:
        entry = topic.entry
        self._configs.take(name, entry.topic_id, entry.config, topic.revision)
        led = Partition(
            name,
            entry.topic_id,
            BROKER_ID,
            MemoryLog(self._room),
            high_watermark=0,
            listener=_Listener(self._purgatory),
        )
        self.register(led)
        led.take(state, topic.revision, broker_epoch=state.leader_broker_epoch, now_ms=0)

    def remove(self, led: Partition) -> None:
        led.stop_leading()
        self.unregister(led)
        self._configs.forget(led.name)
        log = led.log
        assert isinstance(log, MemoryLog)
        log.delete()

    def configured(self, topic: str) -> None:
        for name, config in self._configs.seen([topic], lambda _: True):
            self._by_name[name].set_synced(config.durability == "synced")


class _Listener:
    """Wakes the requests that wait for a partition."""

    def __init__(self, purgatory: Purgatory) -> None:
        self.log_grew = purgatory.log_grew
        self.high_watermark_moved = purgatory.high_watermark_moved
        self.log_start_moved = purgatory.log_start_moved
        self.leadership_ended = purgatory.leadership_ended
        self.followers_forgotten = purgatory.followers_forgotten

    def sync_needed(self, partition: Partition) -> None:
        """A memory log counts as synced."""

    def isr_needs_evaluation(self, partition: Partition) -> None:
        """There are no followers."""


class MemoryCluster:
    """The state behind a server at `address`."""

    def __init__(self, address: str, max_bytes: int) -> None:
        self._rng = random.Random()
        self._keys = Keys("memory")
        self.cache = MetadataCache(self._keys)
        self.metadata = MemoryMetadata(self.cache)
        self._purgatory = Purgatory()
        self.replicas = MemoryReplicas(self.cache, self._purgatory, MemoryRoom(max_bytes))
        self._register(address)

    def _register(self, address: str) -> None:
        clock = SystemClock()
        keys = self._keys
        broker = BrokerRegistration(address, "", "", RUNNING, 0, 0)
        process = ControllerProcess(address, clock.wall_ms())
        self.broker_epoch = self.metadata.write(
            [
                Put(keys.cluster, encode(ClusterEntry(new_id(self._rng)))),
                Put(keys.controller, encode(ControllerEntry(CONTROLLER_ID, address))),
                Put(keys.controller_epoch, b"%d" % CONTROLLER_EPOCH),
                Put(keys.controller_process(CONTROLLER_ID), encode(process)),
                Put(keys.broker(BROKER_ID), encode(broker)),
            ]
        )

    def service(self) -> BrokerService:
        """Returns the broker's own service over these partitions."""
        clock, purgatory = SystemClock(), self._purgatory
        # The handlers need what `ReplicaLookup` has. The rest of a manager handles disks' failures.
        manager = cast("ReplicaManager", self.replicas)
        check = partial(record_batch.check, max_decompressed_bytes=RECORD_LIMITS.max_decoded_bytes)
        checks = BatchChecks(check, record_batch.without_deltas, _in_thread)
        # Nothing is ever cold in memory, so nothing is read.
        cold_reads = ColdReads(OsDisk(), _in_thread)
        return BrokerService(
            Produce(manager, purgatory, clock, checks).handle,
            ConsumerFetch(manager, purgatory, clock, cold_reads).handle,
            ListOffsets(manager, record_batch.decode_timestamps, cold_reads, _in_thread).handle,
            ProducerIds(cast("MetadataStore", self.metadata), self._keys).handle,
            DescribeProducers(manager, purgatory, clock),
            self.cache,
        )

    def find(self, topic: str, topic_id: str = "") -> LiveTopic:
        """Raises UNKNOWN_TOPIC_OR_PARTITION, and UNKNOWN_TOPIC_ID if it has another id."""
        found = self.cache.topics.get(topic)
        if found is None:
            raise unknown_topic(topic)
        if topic_id not in ("", found.entry.topic_id):
            raise other_id(topic, found.entry.topic_id, topic_id)
        return found

    def create(
        self,
        topic: str,
        partitions: int,
        config: Mapping[str, str],
        *,
        replication_factor: int,
        operation_id: str,
    ) -> str:
        """Creates a topic whose request was checked; returns its id."""
        self._check_room(partitions)
        entry = TopicEntry(
            new_id(self._rng),
            partitions,
            replication_factor,
            dict(config),
            operation_id=operation_id,
        )
        self._write(topic, entry, range(partitions))
        return entry.topic_id

    def add_partitions(self, topic: str, partitions: int) -> int:
        """Returns how many are added."""
        before = self.find(topic).entry
        added = range(before.partitions, partitions)
        self._check_room(len(added))
        self._write(topic, replace(before, partitions=partitions), added)
        return len(added)

    def alter_config(self, topic: str, config: Mapping[str, str]) -> None:
        entry = replace(self.find(topic).entry, config=dict(config))
        self.metadata.write([Put(self._keys.topic(topic), encode(entry))])
        self.replicas.configured(topic)

    def delete(self, topic: str) -> None:
        names = list(self._names(topic, range(self.find(topic).entry.partitions)))
        self.metadata.write(
            [Delete(self._keys.topic(topic)), *(Delete(self._key(name)) for name in names)]
        )
        for name in names:
            led = self.replicas.find_named(name)
            assert led is not None, "each partition of a topic is led here"
            self.replicas.remove(led)

    def remove_before(self, name: TopicPartition, offset: int) -> None:
        """Raises UNKNOWN_TOPIC_OR_PARTITION, and INVALID_REQUEST for an offset out of the log."""
        led = self.replicas.partition(name)
        log = led.log
        assert isinstance(log, MemoryLog)
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise TidelogError(
                ErrorCode.INVALID_REQUEST,
                f"{name} has the offsets {log.log_start_offset} to {log.log_end_offset}; "
                f"{offset} is none of them",
            )
        log.remove_before(offset)
        led.log_start_moved()

    def _check_room(self, partitions: int) -> None:
        there = sum(topic.entry.partitions for topic in self.cache.topics.values())
        if there + partitions > MAX_PARTITIONS:
            raise TidelogError(
                ErrorCode.INVALID_PARTITION_COUNT,
                f"the memory broker has {there} partitions, and {partitions} more are requested; "
                f"it takes {MAX_PARTITIONS}: delete topics, or use the fixture tidelog_cluster",
            )

    def _write(self, topic: str, entry: TopicEntry, new: range) -> None:
        """Writes the topic's key, and begins to lead its new partitions."""
        state = LeaderAndIsr(
            topic_id=entry.topic_id,
            replicas=(BROKER_ID,),
            controller_epoch=CONTROLLER_EPOCH,
            leader=BROKER_ID,
            leader_epoch=0,
            isr=(Member(BROKER_ID, self.broker_epoch),),
            eligible=(),
            min_isr=1,
        )
        names = list(self._names(topic, new))
        value = encode_leader_and_isr(state)
        self.metadata.write(
            [
                Put(self._keys.topic(topic), encode(entry)),
                *(Put(self._key(name), value) for name in names),
            ]
        )
        for name in names:
            self.replicas.lead(name, self.find(topic), state)

    @staticmethod
    def _names(topic: str, numbers: Iterable[int]) -> Iterable[TopicPartition]:
        return (TopicPartition(topic, number) for number in numbers)

    def _key(self, name: TopicPartition) -> str:
        return self._keys.leader_and_isr(name)


async def _in_thread(work: Callable[[], None]) -> None:
    await asyncio.to_thread(work)
