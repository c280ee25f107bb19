"""Checks that a leader whose disk rejects its log, or hangs, gives up the leadership.

This holds if an in-sync replica can lead. The watch samples, because it checks that something
does not happen. If leader, in-sync replica, store and active controller cannot all reach one
another undisturbed, nothing is checked, and the leader has its whole time again afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from simulation.invariants import Invariants
from simulation.lag_watch import store_is_reachable
from simulation.network import FAIR
from simulation.partition_id import PartitionId
from simulation.violation import Violation
from simulation.watch import watch
from tidelog_broker.broker import Broker
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.damage.disk_reports import REPORT_INTERVAL_MS, REPORTED_AFTER_MS
from tidelog_broker.storage.log_syncer import HANG_CHECKS
from tidelog_controller.state.failing_disks import REPORT_EXPIRY_MS
from tidelog_controller.state.partition_cooldowns import MAX_COOLDOWN_MS
from tidelog_runtime.metadata.schema import RUNNING, LeaderAndIsr

if TYPE_CHECKING:
    from simulation.disk import SimDisk
    from simulation.processes import BrokerProcess, ControllerProcess, Service
    from simulation.world import World

INTERVAL_MS = 500
# How much later than planned a broker may send each report.
REPORT_SLACK_MS = 100
# Until the controller knows of the leader's disk, and what it knew of a candidate's disk has
# expired after that disk recovered. Then the controller writes its decision.
ALLOWED_MS = REPORTED_AFTER_MS + REPORT_INTERVAL_MS + REPORT_EXPIRY_MS + 1_000
# The same for a sync that hangs, which is noticed when it has been running at so many reports.
HANG_ALLOWED_MS = HANG_CHECKS * (REPORT_INTERVAL_MS + REPORT_SLACK_MS) + ALLOWED_MS
LEFT = "leadership left a failing disk"


class _Led(NamedTuple):
    """`hangs`: a sync of the log hangs; otherwise the leader reports that its disk rejects it."""

    partition: PartitionId
    leader: int
    leader_epoch: int
    controller: int
    hangs: bool

    @property
    def allowed_ms(self) -> int:
        return HANG_ALLOWED_MS if self.hangs else ALLOWED_MS


class DiskWatch:
    """Watches leaders with failing disks.

    - `seen`: counts leaderships that were given up while they were watched
    """

    def __init__(self, world: World, invariants: Invariants, seen: Counter[str]) -> None:
        self._world = world
        self._seen = seen
        self._invariants = invariants
        self._since: dict[_Led, int] = {}
        # Until when a partition is not checked after a transfer.
        self._rests: dict[PartitionId, int] = {}

    async def run(self) -> None:
        await watch(self._world, self.look, INTERVAL_MS)

    def look(self) -> None:
        """Checks the leaders with failing disks. Raises `Violation`."""
        now_ms = self._world.now_ms
        self._note_transfers(now_ms)
        present = {led: self._since.get(led, now_ms) for led in self._judged()}
        for led, since_ms in present.items():
            if now_ms - since_ms >= led.allowed_ms and self._rests.get(led.partition, 0) <= now_ms:
                raise Violation(
                    "leadership_stays_on_failing_disk",
                    f"the disk of broker {led.leader} has rejected or hung this partition for "
                    f"{now_ms - since_ms} ms, and it still leads it in epoch {led.leader_epoch}",
                    partition=str(self._invariants.name_of(led.partition)),
                )
        self._since = present

    def _note_transfers(self, now_ms: int) -> None:
        for led in self._since:
            written = self._invariants.store.partitions.get(led.partition)
            if written is None or written.state.leader == led.leader or led.hangs:
                continue
            self._seen[LEFT] += 1
            self._rests[led.partition] = now_ms + MAX_COOLDOWN_MS

    def _judged(self) -> Iterator[_Led]:
        controller = self._active_controller()
        if controller is None:
            return
        for broker_id, process in self._world.brokers.items():
            if process.broker is None or not self._takes_part(process, controller):
                continue
            for partition, hangs in self._failing(process.broker, process.machine.disk):
                name = PartitionId(partition.key.topic_id, partition.key.partition)
                written = self._invariants.store.partitions.get(name)
                if written is None or not self._may_move(written.state, partition, broker_id):
                    continue
                if not self._has_candidate(written.state, broker_id, controller):
                    continue
                epoch = partition.leader_epoch
                led = _Led(name, broker_id, epoch, controller.controller_id, hangs)
                # A sync that has begun hangs as long as the disk does.
                if not hangs or led in self._since or _is_unsynced(partition):
                    yield led

    def _failing(self, broker: Broker, disk: SimDisk) -> Iterator[tuple[Partition, bool]]:
        """Yields the led partitions that may have to move, with `_Led.hangs`."""
        manager = broker.manager
        for key, rejection in manager.disk.standing():
            partition = manager.find(key)
            if partition is None or partition.leading is None or rejection.taken_since:
                continue
            yield partition, False
        if disk.hanging:
            yield from ((partition, True) for partition in manager.led() if partition.synced)

    def _active_controller(self) -> ControllerProcess | None:
        for controller in self._world.controllers.values():
            service = controller.service
            term = service.term if service is not None else None
            if term is not None and term.is_loaded and store_is_reachable(self._world, controller):
                return controller
        return None

    def _takes_part(self, process: BrokerProcess, controller: ControllerProcess) -> bool:
        found = self._invariants.store.registered.get(process.broker_id)
        return (
            found is not None
            and found.registration.state == RUNNING
            and process.broker is not None
            and process.broker.manager.broker_epoch == found.broker_epoch
            and store_is_reachable(self._world, process)
            and self._is_fair(process, controller)
        )

    def _is_fair(self, one: Service, other: Service) -> bool:
        network = self._world.network
        there, back = network.link(one.host, other.host), network.link(other.host, one.host)
        return there.conditions is FAIR and back.conditions is FAIR

    def _may_move(self, state: LeaderAndIsr, partition: Partition, broker_id: int) -> bool:
        """Whether the store names this leader and epoch, and no reassignment is under way."""
        return (
            state.leader == broker_id
            and state.leader_epoch == partition.leader_epoch
            and state.moving is None
        )

    def _has_candidate(
        self, state: LeaderAndIsr, leader: int, controller: ControllerProcess
    ) -> bool:
        for member in state.isr:
            process = self._world.brokers.get(member.broker_id)
            if member.broker_id == leader or process is None or process.broker is None:
                continue
            manager = process.broker.manager
            if (
                manager.broker_epoch == member.broker_epoch
                and not manager.disk
                and not process.machine.disk.hanging
                and self._takes_part(process, controller)
            ):
                return True
        return False


def _is_unsynced(partition: Partition) -> bool:
    return partition.log.flushed_offset < partition.log.log_end_offset
