"""Faults whose steps depend on the leader and the followers at their beginning.

Chance would seldom produce them, and a plan that is drawn beforehand cannot name these brokers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from simulation.directed_steps import DirectedSteps, Place, is_between
from simulation.faults import Fault
from simulation.loop import SimProcess
from simulation.metadata_faults import End, no_end
from simulation.network import Call
from simulation.recovery_operator import MANUAL, Operator
from simulation.recovery_operator import TIMEOUT_MS as CONSENT_TIMEOUT_MS
from simulation.topic_plans import TOPICS
from tidelog.model import NO_LEADER, Acks, TopicPartition
from tidelog.v1.broker_pb2 import ProduceResponse
from tidelog_runtime.metadata.schema import decode_leader_and_isr
from tidelog_runtime.metadata.store import Put

if TYPE_CHECKING:
    from simulation.world import World

# The clients that hold the workload's producer name in turn have this name and a number.
HOLDER, MAX_HOLDERS = "named-", 12
# Batches that are written to a leader that is cut off, and to its successor.
OLD_TAIL_BATCHES = 3
NEW_TAIL_BATCHES = 1
# Topics whose producers wait for all in-sync replicas, and how many batches a producer writes there
# although one has no answer: more than brokers remember. Batches this far apart are not sent
# together.
ANSWERED = frozenset(plan.name for plan in TOPICS if plan.acks is Acks.ALL)
FURTHER_BATCHES, APART_S = 10, 0.2
# Fractions of the fault's duration at which the steps are due.
CUT_SECOND, CRASH_LEADER = 0.38, 0.62
# Times within which a joiner leaves the ISR, joins it again, and registers again.
LEAVES_WITHIN_S, JOINS_WITHIN_S, REGISTERS_WITHIN_S = 5.0, 8.0, 2.2
# Times within which a partition whose members are all dead loses its leader, and a consent is
# stored.
LEADERLESS_WITHIN_S, CONSENT_WITHIN_S = 5.0, 4.0
# Times within which the registrations of dead members expire, and a replica that lacks records
# would be elected.
EXPIRES_WITHIN_S, ELECTED_WITHIN_S = 4.0, 1.0


class DirectedFaults(DirectedSteps):
    """Begins the directed faults; `begin` has them by kind, as in `FaultInjector`.

    Each returns a function that ends it. That function or `heal` cancels the remaining steps.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.begin: dict[str, Callable[[Fault, random.Random], End]] = {
            "older_tail": self._older_tail,
            "lost_join": self._lost_join,
            "needless_consent": self._needless_consent,
            "silent_successor": self._silent_successor,
            "unanswered_produce": self._unanswered_produce,
            "late_watch": self._late_watch,
        }

    # -- an unclean election between an older, longer log and a newer, shorter one -------------

    def _older_tail(self, fault: Fault, _: random.Random) -> End:
        """Brings about an unclean election between a longer old log and a shorter new one.

        A leader is cut off from all services and appends batches that no follower receives. Its
        successor appends fewer. The third replica has those and leaves the ISR; then the
        successor dies. Both others are live, and the election of one of them loses records.
        """
        places = [place for place in self._places() if self._may_lose(place)]
        if not places:
            return no_end
        place = places[int(fault.args[0]) % len(places)]
        return self._spawn(self._play_older_tail(place, fault.duration_ms / 1_000))

    def _may_lose(self, place: Place) -> bool:
        """Whether any live replica may be elected, by the topic's configuration or a consent."""
        config = self._config(place)
        may = config.get("unclean_leader_election") == "true" or config.get("recovery") == "manual"
        return may and len(place.state.replicas) == 3 and len(place.state.isr) == 3

    async def _play_older_tail(self, place: Place, whole_s: float) -> None:
        world, partition = self._world, place.partition
        old = f"broker-{place.state.leader}"
        began = world.loop.time()
        lift_old = self._cut(lambda a, b: is_between(a, b, old, ("broker-",)))
        lift_rest = self._cut(lambda a, b: is_between(a, b, old, ("controller-", "etcd")))
        world.write_to(partition, place.state.leader, OLD_TAIL_BATCHES)
        await self._until(lambda: self._leader_beside(place) is not None, CUT_SECOND * whole_s)
        successor = self._leader_beside(place)
        if successor is None:
            return
        await self._until(lambda: self._led_by(successor, partition) is not None, 1.0)
        world.write_to(partition, successor, NEW_TAIL_BATCHES)
        await asyncio.sleep(max(0.3, began + CUT_SECOND * whole_s - world.loop.time()))
        # The old leader registers again; it would truncate its log as soon as it could fetch.
        lift_rest()
        third = next(b for b in place.state.replicas if b not in (place.state.leader, successor))
        lift_third = self._cut(lambda a, b: is_between(a, b, f"broker-{third}", ("broker-",)))
        await asyncio.sleep(max(0.0, began + CRASH_LEADER * whole_s - world.loop.time()))
        state = self._state(partition)
        is_back = self._broker_epoch(place.state.leader) > 0
        if is_back and state is not None and state.isr_ids == {successor}:
            self._reach("older_tail")
        release = self._down(world.brokers[successor])
        lift_third()
        lift_old()
        await asyncio.sleep(max(0.0, began + whole_s - world.loop.time()))
        release()

    def _leader_beside(self, place: Place) -> int | None:
        state = self._state(place.partition)
        if state is None or state.leader in (NO_LEADER, place.state.leader):
            return None
        return state.leader

    # -- a joiner whose proposal is lost, and that registers again before the retry --------------

    def _lost_join(self, fault: Fault, _: random.Random) -> End:
        """Loses the proposal for a joiner, which registers again before the retry.

        A follower is cut off until it has left the ISR. When it catches up, its leader's
        proposal is lost on the way to the store, and the follower registers again before the
        leader retries.
        """
        places = [place for place in self._places() if len(place.state.isr) == 3]
        if not places:
            return no_end
        place = places[int(fault.args[0]) % len(places)]
        followers = [b for b in place.state.replicas if b != place.state.leader]
        return self._spawn(self._play_lost_join(place, followers[int(fault.args[0]) % 2]))

    async def _play_lost_join(self, place: Place, joiner: int) -> None:
        world, partition = self._world, place.partition
        leader, host = place.state.leader, f"broker-{joiner}"
        lift = self._cut(lambda a, b: is_between(a, b, host, ("broker-",)))
        left = await self._until(lambda: joiner not in self._isr(partition), LEAVES_WITHIN_S)
        if not left or self._led_by(leader, partition) is None:
            lift()
            return
        lift_store = self._lose_proposals(leader, partition, joiner)
        lift()
        await self._until(lambda: self._proposes(leader, partition, joiner), JOINS_WITHIN_S)
        before = self._broker_epoch(joiner)
        if self._proposes(leader, partition, joiner) and before:
            release = self._down(world.brokers[joiner])
            await asyncio.sleep(0.05)
            release()
            again = await self._until(
                lambda: self._broker_epoch(joiner) > before, REGISTERS_WITHIN_S
            )
            if again and self._proposes(leader, partition, joiner):
                self._reach("lost_join")
                # The leader's own watch reports the new registration.
                await asyncio.sleep(0.1)
        lift_store()

    def _lose_proposals(
        self, leader: int, partition: TopicPartition, joiner: int
    ) -> Callable[[], None]:
        """Loses the leader's writes to the store that add the joiner to the ISR.

        Returns a function that ends it.
        """
        host, key = f"broker-{leader}", self._world.keys.leader_and_isr(partition)

        def is_lost(call: Call) -> bool:
            return (
                call.kind == "transact"
                and call.source.host == host
                and any(
                    isinstance(change, Put)
                    and change.key == key
                    and joiner in decode_leader_and_isr(change.value).isr_ids
                    for change in call.request.changes
                )
            )

        return self._lose(is_lost)

    # -- a consent that waits for replicas, which turn out to be intact --------------------------

    def _needless_consent(self, fault: Fault, _: random.Random) -> End:
        """Makes a consent to a loss wait for replicas that return intact.

        The topic is recovered by hand, from now on at the latest. A follower leaves the ISR;
        then all members crash. The consent waits for them. They return when its caller has
        waited long enough, and nothing is lost.
        """
        places = [
            place
            for place in self._places()
            if self._config(place).get("unclean_leader_election") != "true"
            and place.state.isr_ids == set(place.state.replicas)
            and len(place.state.replicas) > 1
        ]
        if not places:
            return no_end
        choice = int(fault.args[0])
        place = places[choice % len(places)]
        followers = [b for b in place.state.replicas if b != place.state.leader]
        leaves = followers[choice % len(followers)]
        return self._spawn(self._play_needless_consent(place, leaves))

    async def _play_needless_consent(self, place: Place, leaves: int) -> None:
        world, partition = self._world, place.partition
        if self._config(place).get("recovery") != MANUAL:
            Operator(world).have_recovered_by_hand(partition.topic)
        lift = self._cut(lambda a, b: is_between(a, b, f"broker-{leaves}", ("broker-",)))
        left = await self._until(lambda: leaves not in self._isr(partition), LEAVES_WITHIN_S)
        members = sorted(self._isr(partition))
        releases = [self._down(world.brokers[member]) for member in members] if left else []
        lift()
        if left and await self._until(lambda: self._is_leaderless(partition), LEADERLESS_WITHIN_S):
            Operator(world).consent(from_live_replicas=False, topic=partition.topic)
            key = world.keys.recovery(partition)
            if await self._until(lambda: world.store_data.get(key) is not None, CONSENT_WITHIN_S):
                self._reach("needless_consent")
                await asyncio.sleep(CONSENT_TIMEOUT_MS / 1_000)
        for release in releases:
            release()

    # -- a holder of a name that has fenced the one before it, and writes nothing ----------------

    def _silent_successor(self, _: Fault, __: random.Random) -> End:
        """Loses what the next holders of the name write.

        The holders before them write on, with the very sequences that come next.
        """
        first = self._newest_holder()

        def is_lost(call: Call) -> bool:
            newest = self._newest_holder()
            lost = newest > first and call.kind == "produce" and call.source.host == _holder(newest)
            if lost:
                self._reach("silent_successor")
            return lost

        return self._lose(is_lost)

    def _newest_holder(self) -> int:
        """Returns the number of the newest holder, or 0 if there was none yet."""
        hosts = self._world.network.hosts
        return max((n for n in range(1, MAX_HOLDERS + 1) if _holder(n) in hosts), default=0)

    # -- a producer that continues while one batch is without an answer --------------------------

    def _unanswered_produce(self, fault: Fault, _: random.Random) -> End:
        """Loses the answer to one batch of a producer that continues to write.

        The batches behind it are answered. When the producer sends the first one again, its
        leader has to remember it.
        """
        places = [place for place in self._places() if place.partition.topic in ANSWERED]
        if not places:
            return no_end
        place = places[int(fault.args[0]) % len(places)]
        host = self._world.write_to(
            place.partition, place.state.leader, FURTHER_BATCHES, apart_s=APART_S
        )
        lost: list[Call] = []

        def is_lost(call: Call, answer: object) -> bool:
            if lost or call.source.host != host or not isinstance(answer, ProduceResponse):
                return False
            if any(partition.HasField("error") for partition in answer.partitions):
                return False
            lost.append(call)
            self._reach("unanswered_produce")
            return True

        return self._lose_answers(is_lost)

    # -- members that are back before the watch shows it -----------------------------------------

    def _late_watch(self, fault: Fault, _: random.Random) -> End:
        """Lets members register again just before their partition is written without a leader.

        Any live replica of the partition may lead it. A follower leaves the ISR, and all members
        crash. The active controller's watch is late: it reports the end of their registrations when
        they have registered again, and their return some time after the controller's write.
        """
        places = [
            place
            for place in self._places()
            if self._config(place).get("unclean_leader_election") == "true"
            and place.state.isr_ids == set(place.state.replicas)
            and len(place.state.replicas) > 1
            and place.state.moving is None
        ]
        if not places:
            return no_end
        choice = int(fault.args[0])
        place = places[choice % len(places)]
        followers = [b for b in place.state.replicas if b != place.state.leader]
        return self._spawn(self._play_late_watch(place, followers[choice % len(followers)]))

    async def _play_late_watch(self, place: Place, leaves: int) -> None:
        partition = place.partition
        lift = self._cut(lambda a, b: is_between(a, b, f"broker-{leaves}", ("broker-",)))
        left = await self._until(lambda: leaves not in self._isr(partition), LEAVES_WITHIN_S)
        controller, members = self._active_controller(), sorted(self._isr(partition))
        if left and controller is not None and members:
            await self._return_unseen(partition, members, controller)
        lift()

    async def _return_unseen(
        self, partition: TopicPartition, members: list[int], controller: SimProcess
    ) -> None:
        """Crashes the members, which return before the controller writes the partition's state."""
        world, data = self._world, self._world.store_data
        registrations = [world.keys.broker(member) for member in members]
        show = self._delay_watches(controller, data.revision)
        # Otherwise a controller would notice the crash, and delete the registration itself.
        hosts = [f"broker-{member}" for member in members]
        lift = self._cut(lambda a, b: any(is_between(a, b, h, ("controller-",)) for h in hosts))
        releases = [self._down(world.brokers[member]) for member in members]
        gone = await self._until(
            lambda: all(data.get(key) is None for key in registrations), EXPIRES_WITHIN_S
        )
        shown = data.revision
        for release in releases:
            release()
        lift()
        if gone and await self._until(
            lambda: any(self._broker_epoch(member) for member in members), REGISTERS_WITHIN_S
        ):
            back = data.revision
            world.etcd.delay_watches(controller, shown)
            lost_leader = await self._until(
                lambda: self._is_leaderless(partition), LEADERLESS_WITHIN_S
            )
            held = data.get(world.keys.leader_and_isr(partition))
            is_active = controller.alive and self._active_controller() is controller
            if lost_leader and held is not None and held.mod_revision > back and is_active:
                self._reach("late_watch")
                await asyncio.sleep(ELECTED_WITHIN_S)
        show()

    def _proposes(self, leader: int, partition: TopicPartition, joiner: int) -> bool:
        led = self._led_by(leader, partition)
        proposed = led.leading.proposed if led is not None and led.leading is not None else None
        return proposed is not None and joiner in proposed.isr_ids


def _holder(number: int) -> str:
    return f"client-{HOLDER}{number}"
