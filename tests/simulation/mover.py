"""Whoever moves partitions: what operations want of them, known to every controller as though
it had read it from the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import permutations
from typing import TYPE_CHECKING, Any

from simulation.observation import patched
from tidelog.model import TopicPartition
from tidelog_controller.core.controller import Controller
from tidelog_controller.policies.reassignment import WantedMove
from tidelog_runtime.metadata.keys import PartitionKey
from tidelog_runtime.metadata.schema import LeaderAndIsr, decode_leader_and_isr, decode_topic
from tidelog_runtime.metadata.store import Put, Transaction

if TYPE_CHECKING:
    from simulation.world import World


class Mover:
    """What is wanted outlives every controller. One move of a partition may be wanted while
    another goes on: it follows it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.wanted: dict[TopicPartition, WantedMove] = {}
        self.operations = 0
        # Of these some target was a single replica; these are never left with one.
        self._left_one: set[TopicPartition] = set()
        self._need_two: set[TopicPartition] = set()

    @contextmanager
    def heard(self) -> Iterator[None]:
        """While it lasts, controllers know what is wanted."""
        with patched(Controller, "handle", self._telling):
            yield

    def _telling(self, handle: Callable[..., Any]) -> Callable[..., Any]:
        def telling_handle(controller: Controller, *args: Any) -> Any:
            controller.context.want_moves(self.wanted)
            return handle(controller, *args)

        return telling_handle

    def move(self, choice: int | str, order: int | str) -> TopicPartition | None:
        """One of the partitions that there are to other replicas, or to the same in another
        order; None: there is none yet. Numbers choose among what there is then; "sea/0" and
        "1-2" name a partition and its target."""
        states = self._states()
        if isinstance(choice, str):
            states = [each for each in states if str(each[0]) == choice]
        if not states:
            return None
        partition, state = states[choice % len(states) if isinstance(choice, int) else 0]
        if isinstance(order, int):
            targets = self._targets(partition, state)
            self.want(partition, targets[order % len(targets)])
        else:
            self.want(partition, tuple(map(int, order.split("-"))))
        return partition

    def want(self, partition: TopicPartition, target: tuple[int, ...]) -> None:
        self.operations += 1
        self._want(partition, WantedMove(f"op-{self.operations}", target))

    def replicas_of(self, partition: TopicPartition) -> tuple[int, ...]:
        """Those that it is settled with; empty: there is no such partition."""
        found = dict(self._states()).get(partition)
        return found.settled_replicas if found else ()

    def needs_two(self, partition: TopicPartition) -> bool:
        """From now on no target is a single replica; False: one was already."""
        if partition in self._left_one:
            return False
        self._need_two.add(partition)
        return True

    def cancel(self, partition: TopicPartition) -> None:
        wanted = self.wanted.get(partition)
        if wanted is not None:
            self._want(partition, wanted._replace(cancelled=True))

    def _want(self, partition: TopicPartition, wanted: WantedMove) -> None:
        self.wanted = {**self.wanted, partition: wanted}
        if len(wanted.target) == 1:
            self._left_one.add(partition)
        world = self._world
        world.trace("move_wanted", partition=str(partition), wanted=tuple(wanted))
        # A write that everybody's watch tells, as that of an operation would be.
        note = Put(f"{world.keys.root}moves_wanted", b"%d" % self.operations)
        world.store_data.transact(Transaction([], [note]))

    def _states(self) -> list[tuple[TopicPartition, LeaderAndIsr]]:
        world = self._world
        items = world.store_data.snapshot(world.keys.topics).items
        found = [
            (key.partition, decode_leader_and_isr(items[name].value))
            for name in sorted(items)
            if isinstance(key := world.keys.parse(name), PartitionKey)
        ]
        return [(p, s) for p, s in found if world.keys.topic(p.topic) in items]

    def _targets(self, partition: TopicPartition, state: LeaderAndIsr) -> list[tuple[int, ...]]:
        """Every order of as many brokers as the topic's configuration asks for, or more."""
        world = self._world
        entry = world.store_data.get(world.keys.topic(partition.topic))
        assert entry is not None
        least = int(decode_topic(entry.value).config.get("min_insync_replicas", 1))
        if partition in self._need_two:
            least = max(least, 2)
        return [
            target
            for size in range(least, len(world.brokers) + 1)
            for target in permutations(world.brokers, size)
            if target != state.settled_replicas
        ]
