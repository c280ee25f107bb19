import asyncio
import random
from contextlib import AbstractAsyncContextManager

from structlog.testing import capture_logs

from tidelog.model import TopicPartition
from tidelog_broker.membership.cluster_watch import ClusterWatch
from tidelog_broker.membership.directory_binding import DirectoryBinding
from tidelog_broker.membership.registration import Registration
from tidelog_runtime.cooperative import ITEMS_PER_SLICE
from tidelog_runtime.metadata.schema import ClusterEntry, encode, encode_leader_and_isr
from unit.broker.broker_parts import (
    KEYS,
    Replicas,
    at_work,
    data_directory,
    registration,
    until,
    until_idle,
)
from unit.broker.fake_log import NAME, epoch_of, state
from unit.broker.flaky_store import FlakyStore
from unit.metadata.virtual_time import virtual_clock

OWN_KEY = KEYS.broker(1)


class Broker:
    """Broker 1 with its registration and its watch."""

    def __init__(self) -> None:
        self.store = FlakyStore(virtual_clock())
        self.store.advance_to_broker_epochs(KEYS)
        self.replicas = Replicas()
        self.epochs: list[int] = []
        self.levels: list[int] = []
        directory = data_directory(1)
        self.registration = Registration(
            self.store,
            KEYS,
            1,
            registration(1),
            directory,
            DirectoryBinding(self.store, KEYS, 1, directory, "north"),
            3,
            random.Random(1),
            self.epochs.append,
            self.replicas.state_changes,
        )
        self.watch = ClusterWatch(
            self.store,
            KEYS,
            self.replicas.cache,
            self.replicas.manager,
            self.registration,
            random.Random(1),
            self.levels.append,
        )

    def register(self, broker_id: int) -> int:
        return self.store.put(KEYS.broker(broker_id), encode(registration(broker_id)))

    def write_partition(self, leader: int, epoch: int) -> int:
        value = encode_leader_and_isr(state(leader=leader, epoch=epoch))
        return self.store.put(KEYS.leader_and_isr(NAME), value)


def watching(broker: Broker) -> AbstractAsyncContextManager[None]:
    return at_work(broker.watch.run())


async def test_the_watch_is_ready_when_everything_was_read() -> None:
    broker = Broker()
    broker.register(1)
    async with watching(broker):
        await broker.watch.ready.wait()
    assert set(broker.replicas.cache.brokers) == {1}


async def test_the_feature_level_is_reported_at_first_and_when_it_rises() -> None:
    broker = Broker()
    async with watching(broker):
        await broker.watch.ready.wait()
        for level in (2, 2, 3):
            broker.store.put(KEYS.cluster, encode(ClusterEntry("id", level)))
            await until_idle()
    assert broker.levels == [1, 2, 3]


async def test_while_a_snapshot_is_read_the_previous_state_stays() -> None:
    broker, many = Broker(), 10 * ITEMS_PER_SLICE
    for number in range(many):
        key = KEYS.leader_and_isr(TopicPartition("bay", number))
        broker.store.put(key, encode_leader_and_isr(state()))
    known, turns = set(), 0
    async with watching(broker):
        while not broker.watch.ready.is_set():
            known.add(len(broker.replicas.cache.partitions))
            turns += 1
            await asyncio.sleep(0)
    assert known == {0}
    assert turns >= many // ITEMS_PER_SLICE
    assert len(broker.replicas.cache.partitions["bay"]) == many


async def test_thousands_of_changes_are_applied_with_yields() -> None:
    broker, many = Broker(), 10 * ITEMS_PER_SLICE
    async with watching(broker):
        await broker.watch.ready.wait()
        for number in range(many):
            key = KEYS.leader_and_isr(TopicPartition("bay", number))
            broker.store.put(key, encode_leader_and_isr(state()))
        turns = 0
        while len(broker.replicas.cache.partitions.get("bay", {})) < many:
            turns += 1
            await asyncio.sleep(0)
    assert turns >= many // ITEMS_PER_SLICE


async def test_changes_reach_the_cache() -> None:
    broker = Broker()
    async with watching(broker):
        await broker.watch.ready.wait()
        broker.register(1)
        await until_idle()
        assert broker.replicas.cache.running_brokers() == {1: epoch_of(1)}
        broker.store.delete(OWN_KEY)
        await until_idle()
    assert broker.replicas.cache.brokers == {}


async def test_a_superseded_leader_is_informed() -> None:
    broker = Broker()
    partition = await broker.replicas.lead()
    async with watching(broker):
        await broker.watch.ready.wait()
        broker.write_partition(leader=2, epoch=6)
        await until_idle()
    assert partition.leading is None


async def test_a_broker_whose_key_is_deleted_registers_again() -> None:
    broker = Broker()
    registering = asyncio.create_task(broker.registration.run())
    async with watching(broker):
        await until(lambda: len(broker.epochs) == 1)
        broker.store.delete(OWN_KEY)
        await until(lambda: len(broker.epochs) == 2)
    registering.cancel()
    await asyncio.wait([registering])
    assert broker.store.item(OWN_KEY).create_revision == broker.epochs[1]


async def test_the_end_of_its_previous_incarnation_is_not_its_own() -> None:
    """The expiry of its lease or its successor deleted the key, and the watch delivers that
    late.
    """
    broker = Broker()
    broker.register(1)
    async with watching(broker):
        await broker.watch.ready.wait()
        registering = asyncio.create_task(broker.registration.run())
        await until(lambda: len(broker.epochs) == 1)
        await asyncio.sleep(5)
        registering.cancel()
        await asyncio.wait([registering])
    assert len(broker.epochs) == 1


async def test_a_key_deleted_while_the_watch_was_behind_is_noticed() -> None:
    broker = Broker()
    registering = asyncio.create_task(broker.registration.run())
    async with watching(broker):
        await until(lambda: len(broker.epochs) == 1)
        broker.store.disconnect()
        broker.store.delete(OWN_KEY)
        broker.store.compact()
        broker.store.reconnect()
        await until(lambda: len(broker.epochs) == 2)
    registering.cancel()
    await asyncio.wait([registering])


async def test_a_store_that_is_away_at_the_start_is_read_when_it_comes_back() -> None:
    broker = Broker()
    broker.register(1)
    broker.store.disconnect()
    async with watching(broker):
        await asyncio.sleep(5)
        assert not broker.watch.ready.is_set()
        broker.store.reconnect()
        async with asyncio.timeout(5):
            await broker.watch.ready.wait()
    assert set(broker.replicas.cache.brokers) == {1}


async def test_while_the_store_is_away_everything_stays_as_it_was() -> None:
    broker = Broker()
    partition = await broker.replicas.lead()
    broker.register(1)
    async with watching(broker):
        await broker.watch.ready.wait()
        broker.store.disconnect()
        await asyncio.sleep(30)
    assert partition.leading
    assert set(broker.replicas.cache.brokers) == {1}


async def test_a_store_that_fell_back_is_logged_and_not_followed() -> None:
    """Rule `other-or-older-store-rejected`."""
    broker = Broker()
    partition = await broker.replicas.lead()
    broker.register(1)
    with capture_logs() as lines:
        watching = asyncio.create_task(broker.watch.run())
        await broker.watch.ready.wait()
        broker.store.data.wipe()
        await watching
    assert partition.leading
    (line,) = [line for line in lines if line["event"] == "metadata_rolled_back"]
    assert line["log_level"] == "critical"
    assert "backup" in line["fix"]
