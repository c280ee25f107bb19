"""Applies a plan of faults to a world, and heals it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, TypeAlias

from simulation.damage_faults import DamageFaults
from simulation.data_losses import replica_in
from simulation.directed_faults import DirectedFaults
from simulation.directory_faults import DirectoryFaults
from simulation.fault_effects import began
from simulation.faults import Fault
from simulation.loop import SimProcess
from simulation.metadata_faults import End, MetadataFaults, no_end
from simulation.network import Concerns, Conditions
from simulation.power import power_off
from simulation.processes import BrokerProcess, Service
from simulation.store import EtcdServer
from simulation.topic_plans import SYNCED_TOPIC
from simulation.upgrade_faults import UpgradeFaults
from tidelog.model import NO_LEADER, TopicPartition
from tidelog_runtime.metadata.keys import PartitionKey
from tidelog_runtime.metadata.schema import (
    decode_controller,
    decode_leader_and_isr,
)

if TYPE_CHECKING:
    from simulation.world import World

# How long a process may take to stop before it is killed.
STOP_TIMEOUT_S = 15.0
# How often to check whether a broker could distinguish the store from its backup.
LOOKS_APART_S = 0.5
BACKUP = "backup-"

OnFault: TypeAlias = "Callable[[Fault, str], None]"


class FaultInjector:
    def __init__(self, world: World) -> None:
        self._world = world
        self._network = world.network
        # How many faults of each kind had an effect.
        self.effects: Counter[str] = Counter()
        self._metadata = MetadataFaults(world)
        self._directed = DirectedFaults(world)
        self._damage = DamageFaults(world)
        self._directories = DirectoryFaults(world)
        self._upgrades = UpgradeFaults(world)
        self._begin: dict[str, Callable[[Fault, random.Random], End]] = {
            "loss": self._weather,
            "delay": self._weather,
            "repeat": self._weather,
            "reorder": self._weather,
            "cut_pair": self._cut_pair,
            "cut_one_way": self._cut_one_way,
            "cut_from_etcd": lambda f, _: self._cut_between(_is(f.args[0]), _is("etcd")),
            "cut_from_controllers": lambda f, _: self._cut_between(
                _is(f.args[0]), _begins("controller-")
            ),
            "cut_from_brokers": lambda f, _: self._cut_between(_is(f.args[0]), _begins("broker-")),
            "half_cut": self._half_cut,
            "cut_leader": self._cut_leader,
            "cut_off": lambda f, _: self._cut_between(_is(f.args[0]), _begins("")),
            "crash_broker": self._crash,
            "crash_controller": self._crash,
            "crash_active_controller": self._crash_active_controller,
            "pause_broker": self._pause,
            "pause_controller": self._pause,
            "shut_down": self._shut_down,
            "reboot": self._reboot,
            "reboot_all": self._reboot_all,
            "etcd_away": self._etcd_away,
            "etcd_leaderless": self._etcd_leaderless,
            "lost_answers": self._lost_answers,
            "watch_loss": self._watch_loss,
            "compaction": self._compaction,
            "store_restored": self._store_restored,
            "failed_fsync": self._failed_fsync,
            "disk_error": self._disk_error,
            "disk_full": self._disk_full,
            "disk_hang": self._disk_hang,
            "bit_flip": self._bit_flip,
            "bad_sector": self._bad_sector,
            "clock_jump": self._clock_jump,
            **self._metadata.begin,
            **self._directed.begin,
            **self._damage.begin,
            **self._directories.begin,
            **self._upgrades.begin,
        }

    @property
    def kinds(self) -> list[str]:
        return list(self._begin)

    async def run(self, plan: Sequence[Fault]) -> None:
        """Returns when the last fault has ended."""
        await asyncio.gather(*(self._apply(fault, number) for number, fault in enumerate(plan)))

    async def heal(self) -> None:
        """Starts every process, and restores all links, disks and the store."""
        world = self._world
        world.trace("heal")
        self._directed.heal()
        self._damage.heal()
        self._directories.heal()
        self._upgrades.heal()
        self._network.lift_all()
        world.etcd.come_back()
        world.etcd.elect_leader()
        for twin in world.twins.values():
            twin.hold_down()
            twin.kill()
        for service in world.services():
            service.resume()
            self._network.host(service.host).up = True
            service.machine.disk.repair()
            service.release_all()
        # Otherwise a topic could be created or deleted after the world was found to be healthy.
        await self._metadata.over()
        await self._upgrades.over()

    async def _apply(self, fault: Fault, number: int) -> None:
        world = self._world
        await asyncio.sleep(fault.at_ms / 1000 - world.loop.time())
        rng = world.rng(f"fault/{number}/{fault}")
        self._announce(fault, "begin")
        ends: list[End] = []
        had_effect = began(world, fault, lambda: ends.append(self._begin[fault.kind](fault, rng)))
        await asyncio.sleep(fault.duration_ms / 1000)
        self.effects[fault.kind] += had_effect()
        for end in ends:
            end()
        self._announce(fault, "end")

    def _announce(self, fault: Fault, phase: str) -> None:
        self._world.trace(f"fault_{phase}", fault=str(fault))
        for callback in self._world.fault_callbacks:
            callback(fault, phase)

    # -- the network -----------------------------------------------------------------------

    def _disturb(self, concerns: Concerns, conditions: Conditions) -> End:
        """Disturbs links, except those to backups of the store.

        A write to a backup whose answer is lost could bring the backup to the very revision
        that was seen of the store, and nothing could distinguish the two.
        """
        number = self._network.disturb(
            lambda a, b: not (_is_backup(a) or _is_backup(b)) and concerns(a, b), conditions
        )
        return lambda: self._network.lift(number)

    def _weather(self, fault: Fault, _: random.Random) -> End:
        amount, scope = int(fault.args[0]), str(fault.args[1])
        conditions = {
            "loss": Conditions(loss=amount / 100),
            "delay": Conditions(delay_us=amount * 1000),
            "repeat": Conditions(repeat=amount / 100),
            "reorder": Conditions(reorder=amount / 100),
        }[fault.kind]
        return self._disturb(lambda a, b: scope == "all" or scope in (a, b, f"{a}>{b}"), conditions)

    def _cut_between(self, one: Callable[[str], bool], other: Callable[[str], bool]) -> End:
        return self._disturb(
            lambda a, b: (one(a) and other(b)) or (one(b) and other(a)), Conditions(cut=True)
        )

    def _cut_pair(self, fault: Fault, _: random.Random) -> End:
        return self._cut_between(_is(fault.args[0]), _is(fault.args[1]))

    def _cut_one_way(self, fault: Fault, _: random.Random) -> End:
        return self._disturb(lambda a, b: (a, b) == fault.args, Conditions(cut=True))

    def _half_cut(self, fault: Fault, _: random.Random) -> End:
        host, far, direction = map(str, fault.args)
        there = _is("etcd") if far == "etcd" else _begins(far.removesuffix("s") + "-")
        return self._cut_direction(host, there, direction)

    def _cut_leader(self, fault: Fault, _: random.Random) -> End:
        """Cuts a leader off from its followers alone: etcd and the controllers reach it."""
        led = Counter(leader for _, leader in self._leaders() if leader != NO_LEADER)
        if not led:
            return no_end
        leader = min(led, key=lambda broker_id: (-led[broker_id], broker_id))
        return self._cut_direction(f"broker-{leader}", _begins("broker-"), str(fault.args[0]))

    def _leaders(self) -> Iterator[tuple[str, int]]:
        """Yields the topic and the leader of each partition, as the store has them."""
        world = self._world
        for item in world.store_data.snapshot(world.keys.topics).items.values():
            key = world.keys.parse(item.key)
            if isinstance(key, PartitionKey):
                yield key.partition.topic, decode_leader_and_isr(item.value).leader

    def _cut_direction(self, host: str, there: Callable[[str], bool], direction: str) -> End:
        """Cuts what comes "in" to a host, goes "out" of it, or "both"."""
        goes_out, comes_in = direction != "in", direction != "out"
        return self._disturb(
            lambda a, b: (
                (goes_out and a == host and there(b)) or (comes_in and b == host and there(a))
            ),
            Conditions(cut=True),
        )

    # -- processes ---------------------------------------------------------------------------

    def _service(self, fault: Fault) -> Service:
        return self._world.service(str(fault.args[0]))

    def _crash(self, fault: Fault, _: random.Random) -> End:
        return self._kill(self._service(fault))

    def _kill(self, service: Service) -> End:
        service.hold_down()
        service.kill()
        return service.release

    def _crash_active_controller(self, _: Fault, __: random.Random) -> End:
        held = self._world.store_data.get(self._world.keys.controller)
        if held is None:
            return no_end
        return self._kill(self._world.controllers[decode_controller(held.value).controller_id])

    def _pause(self, fault: Fault, _: random.Random) -> End:
        service = self._service(fault)
        process = service.process
        if process is None or process.paused:
            return no_end
        self._world.loop.pause(process)
        return lambda: self._world.loop.resume(process)

    def _shut_down(self, fault: Fault, _: random.Random) -> End:
        service = self._service(fault)
        service.hold_down()
        service.request_stop()
        loop, ending = self._world.loop, service.process

        def kill_if_still_there() -> None:
            if service.process is ending:
                service.kill()

        loop.call_later(STOP_TIMEOUT_S, kill_if_still_there)
        return service.release

    # -- machines ----------------------------------------------------------------------------

    def _reboot(self, fault: Fault, rng: random.Random) -> End:
        service = self._service(fault)
        assert isinstance(service, BrokerProcess)
        return power_off(self._world, service, rng)

    def _reboot_all(self, _: Fault, rng: random.Random) -> End:
        ends = [power_off(self._world, broker, rng) for broker in self._world.brokers.values()]

        def up() -> None:
            for end in ends:
                end()

        return up

    # -- the store ---------------------------------------------------------------------------

    def _etcd_away(self, _: Fault, __: random.Random) -> End:
        self._world.etcd.go_away()
        return self._world.etcd.come_back

    def _etcd_leaderless(self, _: Fault, __: random.Random) -> End:
        self._world.etcd.lose_leader()
        return self._world.etcd.elect_leader

    def _lost_answers(self, fault: Fault, _: random.Random) -> End:
        share = int(fault.args[0]) / 100
        return self._disturb(lambda a, _: a == "etcd", Conditions(answer_loss=share))

    def _watch_loss(self, fault: Fault, _: random.Random) -> End:
        host = str(fault.args[0])
        self._world.etcd.deny_watches(host)
        return lambda: self._world.etcd.serve_watches(host)

    def _compaction(self, _: Fault, __: random.Random) -> End:
        """Compacts the store while it serves no watch, so that all clients read it again."""
        etcd = self._world.etcd
        etcd.deny_watches("")

        def compact() -> None:
            etcd.data.compact(etcd.data.revision)
            etcd.serve_watches("")

        return compact

    def _store_restored(self, fault: Fault, _: random.Random) -> End:
        """Leads a broker to a backup of the store, from half of the time on.

        First the broker has to see a newer revision of the store, in any way: otherwise nothing
        could distinguish the two. At the end it is restarted and reaches the store.
        """
        world, service = self._world, self._service(fault)
        assert isinstance(service, BrokerProcess)
        backup = EtcdServer(
            world.loop, self._network, world.store_data.backup(), f"{BACKUP}{fault.at_ms}"
        )
        misled: list[SimProcess] = []
        end_s = world.loop.time() + fault.duration_ms / 1_000

        def look() -> None:
            process = service.process
            if process is None or self._shown_to(service) <= backup.data.revision:
                if world.loop.time() + LOOKS_APART_S < end_s:
                    world.loop.call_later(LOOKS_APART_S, look)
                return
            world.trace("misled", process=process.name, to_revision=backup.data.revision)
            world.etcd.mislead(process, backup)
            misled.append(process)

        world.loop.call_later(fault.duration_ms / 2_000, look)

        def restart() -> None:
            if service.process is not None and service.process in misled:
                service.kill()

        return restart

    def _shown_to(self, service: BrokerProcess) -> int:
        """Returns the newest revision of the store that the broker has seen.

        It is in the store's answers, on the disk, or in the state that a replica follows.
        """
        if service.broker is None:
            return 0
        taken = (partition.revision for partition in self._world.partitions_of(service))
        return max([service.broker.seen_revision, *taken])

    def _clock_jump(self, fault: Fault, _: random.Random) -> End:
        clock, jump_ms = self._service(fault).machine.clock, int(fault.args[1])
        clock.offset_ms += jump_ms

        def put_right() -> None:
            clock.offset_ms -= jump_ms

        return put_right

    # -- disks -------------------------------------------------------------------------------

    def _failed_fsync(self, fault: Fault, _: random.Random) -> End:
        """Fails the next syncs of files and directories, or of "segments" with unsynced data."""
        disk = self._service(fault).machine.disk
        if fault.args[2:] == ("segments",):
            disk.failing_segment_syncs = int(fault.args[1])
        else:
            disk.failing_syncs = int(fault.args[1])

        def repair() -> None:
            disk.failing_syncs = disk.failing_segment_syncs = 0

        return repair

    def _disk_error(self, fault: Fault, _: random.Random) -> End:
        """Fails the next reads or writes."""
        disk = self._service(fault).machine.disk
        what, times = fault.args[1:]
        if what == "read":
            disk.failing_reads = int(times)
        else:
            disk.failing_writes = int(times)

        def repair() -> None:
            disk.failing_reads = disk.failing_writes = 0

        return repair

    def _disk_full(self, fault: Fault, _: random.Random) -> End:
        disk = self._service(fault).machine.disk
        disk.space = int(fault.args[1])

        def make_room() -> None:
            disk.space = None

        return make_room

    def _disk_hang(self, fault: Fault, _: random.Random) -> End:
        host, what = map(str, fault.args)
        if host == "leader":
            leader = dict(self._leaders()).get(SYNCED_TOPIC, NO_LEADER)
            if leader == NO_LEADER:
                return no_end
            host = f"broker-{leader}"
        disk = self._world.service(host).machine.disk
        disk.hanging = what

        def answer_again() -> None:
            disk.hanging = ""

        return answer_again

    def _bit_flip(self, fault: Fault, rng: random.Random) -> End:
        disk = self._service(fault).machine.disk
        place = self._place_in_segment(fault, rng)
        if place is not None:
            path, position = place
            disk.flip_bit(path, position, rng.randrange(8))
            self._world.trace("bit_flipped", path=path, position=position)
        return no_end

    def _bad_sector(self, fault: Fault, rng: random.Random) -> End:
        """Makes a sector unreadable until another file takes the place of its file."""
        place = self._place_in_segment(fault, rng)
        if place is not None:
            path, position = place
            self._service(fault).machine.disk.spoil(path, position)
            self._world.trace("sector_spoiled", path=path, position=position)
        return no_end

    def _place_in_segment(self, fault: Fault, rng: random.Random) -> tuple[PurePath, int] | None:
        """Chooses a place in a segment that has another copy, and notes the damage."""
        service = self._service(fault)
        assert isinstance(service, BrokerProcess)
        if self._is_yet_to_be_read(service):
            return None
        disk = service.machine.disk
        segments = [
            path
            for path in disk.paths()
            if path.suffix == ".log" and "replicas" in path.parts and disk.file_size(path)
        ]
        if not segments:
            return None
        path = rng.choice(segments)
        position = rng.randrange(disk.file_size(path))
        topic, partition = replica_in(path.parent)
        if not self._world.mover.needs_two(TopicPartition(topic, partition.partition)):
            return None
        self._world.data_losses.replica_damaged(service.broker_id, partition)
        return path, position

    def _is_yet_to_be_read(self, service: BrokerProcess) -> bool:
        """Whether the disk may hold another directory that no process has opened yet.

        Rules will read what that holds, which a flipped bit would hide from them.
        """
        was_replaced = self._world.data_losses.last_replaced(service.machine_id) > 0
        return was_replaced and not any(True for _ in self._world.partitions_of(service))


def _is(name: object) -> Callable[[str], bool]:
    return lambda host: host == name


def _begins(prefix: str) -> Callable[[str], bool]:
    return lambda host: host.startswith(prefix)


_is_backup = _begins(BACKUP)
