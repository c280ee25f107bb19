"""Complete brokers that share a store in memory, a real directory and a network in memory."""

import random
from pathlib import Path

from doubles.memory_data import MemoryData
from doubles.memory_store import MemoryStore
from tidelog.model import Acks
from tidelog_broker.background import RunBlocking
from tidelog_broker.boundaries import Boundaries
from tidelog_broker.broker import Broker
from tidelog_broker.broker_config import BrokerConfig
from tidelog_broker.core.fetch_messages import ReplicaFetchRequest, ReplicaFetchResponse
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.log.disk import Disk, OsDisk
from tidelog_broker.replication.transport import PeerUnreachableError
from tidelog_broker.requests.produce import ProduceEntry, ProduceOutcome
from tidelog_broker.storage.data_directory import DataDirectory
from tidelog_runtime.metadata.schema import (
    BrokerRegistration,
    ControllerEntry,
    LeaderAndIsr,
    Member,
    decode_broker,
    decode_leader_and_isr,
    encode,
    encode_leader_and_isr,
)
from tidelog_runtime.metadata.store import Delete, Put, Transaction
from tidelog_runtime.replica_control import LeaderAddress, LeaderAndIsrCommand, PartitionCommand
from tidelog_runtime.telemetry.state_change_log import StateChangeLog
from unit.broker.broker_parts import KEYS, NoController, address_of, in_place, until
from unit.broker.fake_log import NAME, TOPIC_ID, sent
from unit.metadata.virtual_time import virtual_clock


class Process:
    """One incarnation of a broker."""

    def __init__(
        self,
        cluster: "Cluster",
        broker_id: int,
        boot_id: str = "boot 1",
        disk: Disk | None = None,
        run_blocking: RunBlocking = in_place,
    ) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        path = cluster.path / str(broker_id)
        cluster.processes += 1
        rng = random.Random(f"{broker_id}/{cluster.processes}")
        self.disk = disk or OsDisk()
        self.store = MemoryStore(virtual_clock(), cluster.data)
        self.data_directory = DataDirectory.open(
            self.disk, path, broker_id=broker_id, boot_id=boot_id, rng=rng
        )
        self.broker = Broker(
            BrokerConfig(
                cluster="test",
                broker_id=broker_id,
                data_dir=path,
                replica_lag_time_max_ms=1000,
                shutdown_timeout_ms=5000,
                producer_id_expiration_ms=cluster.producer_id_expiration_ms,
                producer_name_expiration_ms=cluster.producer_name_expiration_ms,
            ),
            Boundaries(
                store=self.store,
                disk=self.disk,
                data_directory=self.data_directory,
                peers=self,
                controllers=NoController(),
                clock=virtual_clock(),
                rng=rng,
                run_blocking=run_blocking,
                run_sync=run_blocking,
                check_batch=lambda _: 0,
                timestamps_of=lambda _: [],
                without_deltas=lambda batch: batch,
                state_changes=StateChangeLog(f"broker-{broker_id}", virtual_clock()),
            ),
        )

    # The interface of its peers.

    async def reach(self, address: str) -> None:
        pass

    async def replica_fetch(
        self, address: str, request: ReplicaFetchRequest
    ) -> ReplicaFetchResponse:
        process = self.cluster.listening.get(address)
        if process is None:
            raise PeerUnreachableError(f"{address}: connection refused")
        return await process.broker.replica_fetch.handle(request)

    def complete_early(self, address: str, request: ReplicaFetchRequest) -> None:
        process = self.cluster.listening.get(address)
        if process is not None:
            process.broker.replica_fetch.complete_early(request.name)

    async def close(self) -> None:
        pass

    # The interface of the tests.

    async def start(self) -> "Process":
        await self.broker.prepare()
        self.cluster.listening[address_of(self.broker_id)] = self
        await self.broker.join(address_of(self.broker_id))
        await until(lambda: self.cluster.data.get(KEYS.broker(self.broker_id)) is not None)
        await until(lambda: self.broker.manager.broker_epoch == self.epoch)
        return self

    async def stop(self) -> None:
        """Stop as on SIGTERM. Without a leadership transfer there is nothing to wait for."""
        self.cluster.listening.pop(address_of(self.broker_id), None)
        await self.broker.stop()

    @property
    def epoch(self) -> int:
        item = self.cluster.data.get(KEYS.broker(self.broker_id))
        assert item is not None
        return item.create_revision

    @property
    def registration(self) -> BrokerRegistration:
        item = self.cluster.data.get(KEYS.broker(self.broker_id))
        assert item is not None
        return decode_broker(item.value)

    @property
    def partition(self) -> Partition:
        return next(p for p in self.broker.manager.all() if p.name == NAME)

    def follows(self) -> bool:
        return self.broker._fetchers.progress_of(self.partition) is not None

    async def produce(self, timeout_ms: int = 1000) -> ProduceOutcome:
        entry = ProduceEntry(NAME, "", [sent()])
        (outcome,) = await self.broker.produce.handle([entry], Acks.ALL, timeout_ms)
        return outcome


class Cluster:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = MemoryData()
        self.topic_config: dict[str, str] = {}
        self.producer_id_expiration_ms = 60_000
        self.producer_name_expiration_ms = 7 * 24 * 3_600_000
        self.listening: dict[str, Process] = {}
        self.processes = 0  # every process that was ever created

    def put(self, key: str, value: bytes) -> int:
        return self.data.transact(Transaction([], [Put(key, value)])).revision

    def lease_ends(self, process: Process) -> None:
        self.data.transact(Transaction([], [Delete(KEYS.broker(process.broker_id))]))

    def elect(self, leader: Process, *isr: Process, epoch: int = 5) -> tuple[LeaderAndIsr, int]:
        members = tuple(sorted(Member(p.broker_id, p.epoch) for p in (leader, *isr)))
        wanted = LeaderAndIsr(TOPIC_ID, (1, 2), 1, leader.broker_id, epoch, members, (), 1)
        return wanted, self.put(KEYS.leader_and_isr(NAME), encode_leader_and_isr(wanted))

    async def command(self, process: Process, new_state: LeaderAndIsr, revision: int) -> None:
        leaders = {
            p.broker_id: LeaderAddress(address, p.epoch) for address, p in self.listening.items()
        }
        result = await process.broker.commands.leader_and_isr(
            LeaderAndIsrCommand(
                controller_id=1,
                controller_epoch=1,
                broker_epoch=process.epoch,
                full_state=True,
                partitions=[PartitionCommand(NAME, new_state, revision, self.topic_config)],
                leaders=leaders,
                store_revision=revision,
            )
        )
        assert result.error is None
        assert [r.error for r in result.partitions] == [None]

    def isr(self) -> set[int]:
        item = self.data.get(KEYS.leader_and_isr(NAME))
        assert item is not None
        return set(decode_leader_and_isr(item.value).isr_ids)

    def with_controller(self) -> None:
        self.put(KEYS.controller, encode(ControllerEntry(1, "10.0.0.9:7400")))


async def leading_alone(cluster: Cluster) -> Process:
    process = await Process(cluster, 1).start()
    await cluster.command(process, *cluster.elect(process))
    return process


async def pair(cluster: Cluster) -> tuple[Process, Process]:
    """Broker 1 leads, broker 2 follows."""
    leader, follower = await Process(cluster, 1).start(), await Process(cluster, 2).start()
    wanted, revision = cluster.elect(leader, follower)
    await cluster.command(leader, wanted, revision)
    await cluster.command(follower, wanted, revision)
    return leader, follower
