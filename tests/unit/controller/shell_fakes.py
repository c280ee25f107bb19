"""The environment of the controller's shell: brokers without sockets, a scripted dialler, and
captured logs.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import structlog
from structlog.testing import LogCapture
from structlog.typing import FilteringBoundLogger

from tidelog.state_changes.event import Kind, Stage, StateChange
from tidelog_controller.shell.event_loop import Environment
from tidelog_controller.shell.service import ControllerService
from tidelog_controller.state.events import DialOutcome
from tidelog_runtime.clock import Clock, SystemClock
from tidelog_runtime.metadata.keys import Keys
from tidelog_runtime.metadata.measured_store import MeasuredStore
from tidelog_runtime.metadata.schema import (
    BrokerRegistration,
    ControllerEntry,
    encode,
)
from tidelog_runtime.metadata.store import MetadataStore, Put, Transaction
from tidelog_runtime.replica_control import (
    BrokerUnreachableError,
    CommandResult,
    DescribeReplicasCommand,
    DescribeReplicasResult,
    LeaderAndIsrCommand,
    PartitionResult,
    ReplicaSummary,
    StopReplicaCommand,
)
from tidelog_runtime.telemetry.state_change_log import Filter, StateChangeLog

KEYS = Keys("test")
PATIENCE_SECONDS = 10.0


async def until(condition: Callable[[], bool]) -> None:
    """Yields to the loop until the condition holds; fails when patience ends."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - conditions of any kind
            await asyncio.sleep(0.002)


class FakeReplicaControl:
    """One connection to a broker that acknowledges everything."""

    def __init__(self, network: FakeNetwork, address: str) -> None:
        self._network = network
        self._address = address
        self.ended = asyncio.Event()
        self.closed = False

    async def leader_and_isr(self, command: LeaderAndIsrCommand) -> CommandResult:
        self._reach()
        self._network.commands.append((self._address, command))
        named = [(p.state.topic_id, p.partition.partition, p.revision) for p in command.partitions]
        return CommandResult(None, [PartitionResult(*name, None) for name in named])

    async def stop_replica(self, command: StopReplicaCommand) -> CommandResult:
        self._reach()
        self._network.commands.append((self._address, command))
        named = [(s.topic_id, s.partition.partition, s.revision) for s in command.partitions]
        return CommandResult(None, [PartitionResult(*name, None) for name in named])

    async def describe_replicas(self, command: DescribeReplicasCommand) -> DescribeReplicasResult:
        """Every log is empty, and at the newest revision that the broker was sent."""
        self._reach()
        self._network.commands.append((self._address, command))
        told = {
            (p.state.topic_id, p.partition.partition): p.revision
            for address, sent in self._network.commands
            if address == self._address and isinstance(sent, LeaderAndIsrCommand)
            for p in sent.partitions
        }
        replicas = [
            ReplicaSummary(*key, told[key], 0, 0, ()) for key in command.partitions if key in told
        ]
        return DescribeReplicasResult(None, replicas)

    async def watch(
        self,
        controller_id: int,
        controller_epoch: int,
        broker_epoch: int,
        established: Callable[[], None],
    ) -> None:
        self._network.watches.append((controller_id, controller_epoch, broker_epoch))
        if self._address not in self._network.dead:
            established()
            await self.ended.wait()

    async def close(self) -> None:
        self.closed = True

    def _reach(self) -> None:
        if self._address in self._network.dead:
            raise BrokerUnreachableError(f"{self._address} is dead")


class FakeNetwork:
    def __init__(self) -> None:
        self.connections: list[tuple[str, FakeReplicaControl]] = []
        self.commands: list[
            tuple[str, LeaderAndIsrCommand | StopReplicaCommand | DescribeReplicasCommand]
        ] = []
        self.watches: list[tuple[int, int, int]] = []
        self.dead: set[str] = set()

    def connect(self, address: str) -> FakeReplicaControl:
        control = FakeReplicaControl(self, address)
        self.connections.append((address, control))
        return control

    async def dial(self, address: str) -> DialOutcome:
        return DialOutcome.REFUSED if address in self.dead else DialOutcome.ACCEPTED

    def kill(self, address: str) -> None:
        self.dead.add(address)
        self.break_connections(address)

    def break_connections(self, address: str) -> None:
        for where, control in self.connections:
            if where == address:
                control.ended.set()


class Logs:
    def __init__(self) -> None:
        self._capture = LogCapture()

    def logger(self) -> FilteringBoundLogger:
        logger: FilteringBoundLogger = structlog.wrap_logger(
            None,
            processors=[self._capture],
            wrapper_class=structlog.make_filtering_bound_logger(0),
        )
        return logger

    def named(self, event: str) -> list[dict[str, Any]]:
        return [dict(entry) for entry in self._capture.entries if entry["event"] == event]


def broker_address(broker_id: int) -> str:
    return f"10.0.0.{broker_id}:7500"


async def register(store: MetadataStore, *broker_ids: int) -> None:
    for broker_id in broker_ids:
        registration = BrokerRegistration(
            broker_address(broker_id), "", f"uuid-{broker_id}", "running", 0, 0
        )
        await store.transact(Transaction([], [Put(KEYS.broker(broker_id), encode(registration))]))


class ControllerProcess:
    """A controller service and its task."""

    def __init__(
        self,
        controller_id: int,
        store: MetadataStore,
        network: FakeNetwork,
        address: str = "",
        clock: Clock | None = None,
    ) -> None:
        self.logs = Logs()
        self.may_block = asyncio.Event()
        self.may_block.set()
        self.blocked = 0
        clock = clock or SystemClock()
        self.state_changes = StateChangeLog(f"controller-{controller_id}", clock)
        environment = Environment(
            store=MeasuredStore(store, KEYS.cluster, clock, self.state_changes),
            keys=KEYS,
            clock=clock,
            rng=random.Random(controller_id),
            connect=network.connect,
            dialer=network,
            log=self.logs.logger(),
            state_changes=self.state_changes,
            command_timeout_ms=10_000,
            run_blocking=self._run_blocking,
        )
        entry = ControllerEntry(controller_id, address or f"127.0.0.1:740{controller_id}")
        self.service = ControllerService(environment, entry, lease_ttl_seconds=3)
        self.task = asyncio.create_task(self.service.run())

    async def _run_blocking(self, work: Callable[[], None]) -> None:
        self.blocked += 1
        await self.may_block.wait()
        work()

    def published(self, kind: Kind, stage: Stage | None = None) -> list[StateChange]:
        found = self.state_changes.recent(Filter(kinds=frozenset({kind.value})))
        return [change for change in found if stage in (None, change.stage)]

    async def stop(self) -> None:
        """Stops as SIGTERM does."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
