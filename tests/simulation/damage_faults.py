"""Directed faults that flip bits in chosen batches of a leader and its followers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from simulation.directed_steps import DirectedSteps, Place
from simulation.faults import Fault
from simulation.metadata_faults import End, no_end
from simulation.partition_id import PartitionId
from simulation.recovery_operator import UNCLEAN, Operator
from tidelog.batch import is_damaged
from tidelog.log_format import walk_frames
from tidelog.model import NO_LEADER, TopicPartition
from tidelog_broker.core.partition.partition import Partition
from tidelog_broker.log.log import Log
from tidelog_broker.log.log_errors import LogError
from tidelog_runtime.metadata.schema import NOT_WHOLE, Member

if TYPE_CHECKING:
    from simulation.world import World

# Interval at which replicas are made to check their disks until all damage is found.
SCRUB_AGAIN_S = 0.5
# Batches that are written to a leader while its followers hold all, and while it is alone in the
# ISR.
COMMON_BATCHES, LONE_BATCHES = 3, 3
# Times within which all replicas are in sync, and hold what was written, a leader is alone in the
# ISR, its batches are synced, and another replica joins the ISR.
IN_SYNC_WITHIN_S = 4.0
HELD_WITHIN_S, ALONE_WITHIN_S, SYNCED_WITHIN_S, JOINS_WITHIN_S = 4.0, 6.0, 7.0, 4.0


class _Pair(NamedTuple):
    """A leader and a follower that are damaged at different batches.

    - `brokers`: the members of the ISR
    - `follower`: the member that is damaged at another batch than the rest
    - `shared`: base offsets of batches that all members hold
    """

    partition: TopicPartition
    topic_id: str
    brokers: list[int]
    follower: int
    shared: list[int]


class _Lone(NamedTuple):
    """A leader that is alone in its ISR.

    - `others`: the other replicas
    - `shared`: base offsets of batches that all replicas hold
    - `own`: those of batches of an epoch in which no other replica has any
    """

    leader: int
    others: list[int]
    shared: list[int]
    own: list[int]


class DamageFaults(DirectedSteps):
    """Begins the faults; `begin` has them by kind, as in `DirectedFaults`."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.begin: dict[str, Callable[[Fault, random.Random], End]] = {
            "two_damages": self._two_damages,
            "damaged_lone_leader": self._damaged_lone_leader,
        }

    # -- a leader and a follower that are damaged at different batches ---------------------------

    def _two_damages(self, fault: Fault, rng: random.Random) -> End:
        """Flips a bit in a committed batch of a leader, and in another one of an in-sync follower.

        All other members lose the leader's batch, so that only the follower has it. Then all
        check their disks.
        """
        pairs = [
            pair
            for place in self._places()
            for follower in sorted(place.state.isr_ids - {place.state.leader})
            if (pair := self._damageable(place, follower)) is not None
        ]
        if not pairs:
            return no_end
        choice = int(fault.args[0])
        pair = pairs[choice % len(pairs)]
        if not self._world.mover.needs_two(pair.partition):
            return no_end
        of_leader, of_follower = sorted(rng.sample(pair.shared, 2), reverse=choice % 2 == 1)
        for broker_id in pair.brokers:
            base_offset = of_follower if broker_id == pair.follower else of_leader
            self._flip_in(broker_id, pair.partition, base_offset, rng)
        return self._spawn(self._play_two_damages(pair, fault.duration_ms / 1_000))

    def _damageable(self, place: Place, follower: int) -> _Pair | None:
        """Returns the pair if all members hold two committed batches on their disks."""
        brokers = sorted(place.state.isr_ids)
        logs = [p.log for b in brokers if (p := self._replica(b, place.partition)) is not None]
        led = self._led_by(place.state.leader, place.partition)
        if len(logs) < len(brokers) or led is None:
            return None
        start = max(log.log_start_offset for log in logs)
        end = min(led.high_watermark, min(log.flushed_offset for log in logs))
        shared = self._shared(brokers, place.partition, start, end)
        if len(shared) < 2:
            return None
        return _Pair(place.partition, led.topic_id, brokers, follower, shared)

    async def _play_two_damages(self, pair: _Pair, whole_s: float) -> None:
        found = await self._checked(
            pair.brokers,
            lambda: all(
                self._evidence(b, pair.topic_id, pair.partition.partition) for b in pair.brokers
            ),
            whole_s,
        )
        if found:
            self._reach("two_damages")

    # -- a leader alone in its ISR whose batches are damaged -------------------------------------

    def _damaged_lone_leader(self, fault: Fault, rng: random.Random) -> End:
        """Flips bits in two batches of a leader that is alone in its ISR.

        The other replicas hold one of the batches. The other batch is of a newer epoch than all
        that they hold, and is lost if one of them is elected; from now on at the latest the topic
        permits that. When both batches are unreadable, a follower joins the ISR, and a consumer
        reads the partition from its start.
        """
        return self._spawn(self._play_damaged_lone_leader(fault, rng))

    async def _play_damaged_lone_leader(self, fault: Fault, rng: random.Random) -> None:
        began = self._world.loop.time()
        if not await self._until(lambda: bool(self._lonely_places()), IN_SYNC_WITHIN_S):
            return
        places = self._lonely_places()
        place = places[int(fault.args[0]) % len(places)]
        if self._world.mover.needs_two(place.partition):
            await self._play_lone_leader(place, rng, began + fault.duration_ms / 1_000)

    def _lonely_places(self) -> list[Place]:
        return [place for place in self._places() if self._may_be_alone(place)]

    def _may_be_alone(self, place: Place) -> bool:
        state = place.state
        return (
            self._config(place).get("min_insync_replicas") == "1"
            and state.moving is None
            and len(state.replicas) > 1
            and state.isr_ids == set(state.replicas)
        )

    async def _play_lone_leader(self, place: Place, rng: random.Random, end_s: float) -> None:
        partition = place.partition
        if self._config(place).get(UNCLEAN) != "true":
            Operator(self._world).permit_unclean_elections(partition.topic)
        if not await self._all_hold(place, COMMON_BATCHES):
            return
        hosts = {f"broker-{broker_id}" for broker_id in place.state.replicas}
        lift = self._cut(lambda a, b: a in hosts and b in hosts)
        release = self._down(self._world.brokers[place.state.leader])
        is_alone = await self._until(lambda: self._alone(place) is not None, ALONE_WITHIN_S)
        release()
        led = self._alone(place) if is_alone else None
        lone = await self._with_own_batches(place, led) if led is not None else None
        if led is not None and lone is not None:
            # The later one first: a damaged batch hides what is behind it.
            for batches in (lone.own, lone.shared[:-1]):
                self._flip_in(lone.leader, partition, rng.choice(batches), rng)
            with self._disk_hangs_once_resigned(lone.leader, partition):
                found = await self._checked(
                    [lone.leader],
                    lambda: self._evidence(lone.leader, led.topic_id, partition.partition) >= 2,
                    end_s - JOINS_WITHIN_S - self._world.loop.time(),
                )
            lift()
            joined = found and await self._until(
                lambda: any(led.is_in_sync(broker_id) for broker_id in lone.others), JOINS_WITHIN_S
            )
            if joined:
                self._reach("damaged_lone_leader")
                self._world.read_from_start(partition)
        lift()

    async def _all_hold(self, place: Place, batches: int) -> bool:
        """Writes so many batches, and waits until all replicas hold them and the topic permits
        unclean elections."""
        partition, brokers = place.partition, list(place.state.replicas)
        led = self._led_by(place.state.leader, partition)
        if led is None:
            return False
        start = led.log.log_end_offset
        self._world.write_to(partition, place.state.leader, batches)

        def is_held() -> bool:
            if any(self._replica(b, partition) is None for b in brokers):
                return False
            if self._config(place).get(UNCLEAN) != "true":
                return False
            return len(self._shared(brokers, partition, start, led.high_watermark)) >= batches

        return await self._until(is_held, HELD_WITHIN_S)

    def _alone(self, place: Place) -> Partition | None:
        """Returns the partition at its leader if that is another one and alone in the ISR."""
        state = self._state(place.partition)
        if state is None or state.leader in (NO_LEADER, place.state.leader):
            return None
        led = self._led_by(state.leader, place.partition)
        is_alone = led is not None and led.state == state and state.isr_ids == {state.leader}
        return led if is_alone else None

    async def _with_own_batches(self, place: Place, led: Partition) -> _Lone | None:
        """Writes batches that the other replicas do not get; returns None if they are not synced
        in time."""
        partition, log = place.partition, led.log
        leader = next(iter(led.state.isr_ids)) if led.state is not None else NO_LEADER
        others = [b for b in place.state.replicas if b != leader]
        epoch = led.leader_epoch
        self._world.write_to(partition, leader, LONE_BATCHES)

        def found() -> _Lone | None:
            logs = [p.log for b in others if (p := self._replica(b, partition)) is not None]
            epochs = [e for other in logs for e, _ in list(other.leader_epochs)[-1:]]
            registered = all(self._broker_epoch(b) for b in others)
            if len(logs) < len(others) or not registered or led.leader_epoch != epoch:
                return None
            if any(other >= epoch for other in epochs) or self._alone(place) is not led:
                return None
            # The log knows the epoch from its first batch on.
            start = dict(iter(log.leader_epochs)).get(epoch, log.log_end_offset)
            end = min(start, log.flushed_offset)
            shared = self._shared([leader, *others], partition, log.log_start_offset, end)
            synced = min(led.high_watermark, log.flushed_offset)
            own = sorted(self._bases(leader, partition, start, synced))
            is_enough = len(shared) >= COMMON_BATCHES and len(own) >= LONE_BATCHES
            return _Lone(leader, others, shared, own) if is_enough else None

        await self._until(lambda: found() is not None, SYNCED_WITHIN_S)
        return found()

    @contextmanager
    def _disk_hangs_once_resigned(
        self, broker_id: int, partition: TopicPartition
    ) -> Iterator[None]:
        """Prevents the repair of a damaged replica from the moment at which it has resigned."""
        data, disk = self._world.store_data, self._world.brokers[broker_id].machine.disk

        def check() -> None:
            state = self._state(partition)
            if state is not None and Member(broker_id, NOT_WHOLE) in (*state.isr, *state.eligible):
                disk.hanging = "all"

        data.listen(check)
        try:
            yield
        finally:
            data.stop_listening(check)
            disk.hanging = ""

    # -- steps -------------------------------------------------------------------------------

    def _replica(self, broker_id: int, partition: TopicPartition) -> Partition | None:
        found = self._world.partitions_of(self._world.brokers[broker_id])
        return next((p for p in found if p.name == partition and p.in_service), None)

    def _shared(
        self, brokers: list[int], partition: TopicPartition, start: int, end: int
    ) -> list[int]:
        """Returns the base offsets of the batches that all these brokers can read."""
        return sorted(set.intersection(*(self._bases(b, partition, start, end) for b in brokers)))

    def _bases(self, broker_id: int, partition: TopicPartition, start: int, end: int) -> set[int]:
        replica = self._replica(broker_id, partition)
        assert replica is not None
        end = min(end, replica.log.log_end_offset)
        bases: set[int] = set()
        with self._world.brokers[broker_id].machine.disk.looked_at():
            try:
                while start < end:
                    batches = replica.log.read(start, max_bytes=1 << 20, up_to=end)
                    if not batches:
                        break
                    bases |= {b.header.base_offset for b in batches if not is_damaged(b.header)}
                    start = batches[-1].header.next_offset
            except LogError:
                return set()
        return bases

    def _flip_in(
        self, broker_id: int, partition: TopicPartition, base_offset: int, rng: random.Random
    ) -> None:
        replica, disk = (
            self._replica(broker_id, partition),
            self._world.brokers[broker_id].machine.disk,
        )
        assert replica is not None
        assert isinstance(replica.log, Log)
        with disk.looked_at():
            target = replica.log.frames_from(base_offset)
            assert target is not None
            file = disk.open(target.path)
            position = target.place.position
            frames = walk_frames(file.read_at, target.end, start=position, verify=False)
            position += rng.randrange(next(iter(frames)).size)
        disk.flip_bit(target.path, position, rng.randrange(8))
        self._world.trace("bit_flipped", path=target.path, position=position)
        place = PartitionId(replica.topic_id, partition.partition)
        self._world.data_losses.replica_damaged(broker_id, place)

    async def _checked(
        self, brokers: list[int], is_found: Callable[[], bool], within_s: float
    ) -> bool:
        """Lets brokers check their disks again and again, until the damage is found."""
        deadline = self._world.loop.time() + within_s
        while not is_found():
            if self._world.loop.time() >= deadline:
                return False
            for broker_id in brokers:
                broker = self._world.brokers[broker_id].broker
                if broker is not None:
                    broker.scrubber.begin_pass(full_rate=True)
            await asyncio.sleep(SCRUB_AGAIN_S)
        return True

    def _evidence(self, broker_id: int, topic_id: str, partition: int) -> int:
        """Returns how many damaged ranges of its replica the broker has kept."""
        prefix = f"{topic_id}.{partition}@"
        paths = self._world.brokers[broker_id].machine.disk.paths()
        return sum(p.parent.name == "evidence" and p.name.startswith(prefix) for p in paths)
