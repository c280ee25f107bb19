"""Checks that no ISR member lags for longer than it may while its leader could remove it.

The watch samples, because it checks that something does not happen. A leader that cannot write
to the store, does not run, or waits for the answer to an ISR change is not checked, and has its
whole time again afterwards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulation.invariants import Invariants
from simulation.network import FAIR
from simulation.partition_id import PartitionId
from simulation.violation import Violation
from simulation.watch import watch
from tidelog_broker.core.partition.partition import Partition
from tidelog_runtime.metadata.schema import RUNNING, Member

if TYPE_CHECKING:
    from simulation.processes import BrokerProcess, Service
    from simulation.world import World

INTERVAL_MS = 500
# Beyond the lag time: a leader checks it by a timer, the store takes its time, a blocking fsync may
# delay a write, and samples are INTERVAL_MS apart.
SLACK_MS = 3_000


def store_is_reachable(world: World, service: Service) -> bool:
    """Whether requests of this process reach the store and are answered, undisturbed."""
    process, etcd = service.process, world.etcd
    if process is None or process.paused or not (etcd.is_there and etcd.has_leader):
        return False
    there = world.network.link(service.host, etcd.process.host)
    back = world.network.link(etcd.process.host, service.host)
    return there.conditions is FAIR and back.conditions is FAIR and etcd.reached_by(process) is etcd


@dataclass(slots=True)
class _Led:
    """A partition while its leader leads it undisturbed.

    - `members`: since when each has been in the ISR
    - `ends`: how far the leader's log reached, and when
    """

    leading: object
    members: dict[Member, int] = field(default_factory=dict)
    ends: deque[tuple[int, int]] = field(default_factory=deque)


class LagWatch:
    def __init__(self, world: World, invariants: Invariants) -> None:
        self._world = world
        self._invariants = invariants
        lag_ms = world.settings.broker_options["replica_lag_time_max_ms"]
        self._allowed_ms = lag_ms + SLACK_MS
        self._led: dict[tuple[int, PartitionId], _Led] = {}

    async def run(self) -> None:
        await watch(self._world, self.look, INTERVAL_MS)

    def look(self) -> None:
        """Takes a sample and checks the partitions. Raises `Violation`."""
        present: dict[tuple[int, PartitionId], _Led] = {}
        for broker_id, partition in self._judged():
            identity = PartitionId(partition.topic_id, partition.name.partition)
            key = (broker_id, identity)
            led = self._led.get(key)
            if led is None or led.leading is not partition.leading:
                led = _Led(partition.leading)
            present[key] = led
            self._judge(key, led, partition)
        self._led = present

    def _judged(self) -> Iterator[tuple[int, Partition]]:
        for broker_id, process in self._world.brokers.items():
            if not self._can_write(process):
                continue
            for partition in self._world.partitions_of(process):
                leading = partition.leading
                if leading is not None and leading.proposed is None:
                    yield broker_id, partition

    def _can_write(self, process: BrokerProcess) -> bool:
        found = self._invariants.store.registered.get(process.broker_id)
        return (
            found is not None
            and found.registration.state == RUNNING
            and process.broker is not None
            and process.broker.manager.broker_epoch == found.broker_epoch
            and store_is_reachable(self._world, process)
        )

    def _judge(self, key: tuple[int, PartitionId], led: _Led, partition: Partition) -> None:
        broker_id, identity = key
        store, now_ms = self._invariants.store, self._world.now_ms
        written = store.partitions.get(identity)
        if written is None or written.state.leader_epoch != partition.leader_epoch:
            led.members.clear()
            led.ends.clear()
            return
        members = [m for m in written.state.isr if m.broker_id != broker_id]
        led.members = {m: led.members.get(m, now_ms) for m in members}
        led.ends.append((now_ms, partition.log.log_end_offset))
        needed = 0
        while led.ends and led.ends[0][0] <= now_ms - self._allowed_ms:
            needed = led.ends[0][1]
            if len(led.ends) > 1 and led.ends[1][0] <= now_ms - self._allowed_ms:
                led.ends.popleft()
            else:
                break
        for member, since_ms in led.members.items():
            if now_ms - since_ms < self._allowed_ms:
                continue
            if store.has_lost_data_since(member, identity):
                continue
            machine_id = store.machine_of(member)
            replica = self._invariants.replicas.replicas.get((machine_id, identity))
            end = replica.log.end if replica is not None else 0
            if end < needed:
                raise Violation(
                    "isr_member_lags",
                    f"broker {member.broker_id} is in the ISR and ends at {end}; the leader, "
                    f"broker {broker_id}, ended at {needed} {self._allowed_ms} ms ago, and could "
                    "write since",
                    partition=str(partition.name),
                )
