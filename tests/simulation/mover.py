"""Moves partitions as operations do: controllers know the targets as if read from the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import permutations
from typing import TYPE_CHECKING, Any

from simulation.observation import patched
from tidelog.model import TopicPartition
from tidelog_controller.core.controller import Controller
from tidelog_controller.policies.reassignment import RequestedMove
from tidelog_runtime.metadata.keys import PartitionKey
from tidelog_runtime.metadata.schema import LeaderAndIsr, decode_leader_and_isr, decode_topic
from tidelog_runtime.metadata.store import Put, Transaction

if TYPE_CHECKING:
    from simulation.world import World


class Mover:
    """Target moves, which outlive every controller.

    A partition may get another target during a move: that move follows.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.wanted: dict[TopicPartition, RequestedMove] = {}
        self.operations = 0
        # Partitions with a single replica as a target, and those that never get such a target.
        self._left_one: set[TopicPartition] = set()
        self._need_two: set[TopicPartition] = set()

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Gives controllers the target moves while the context lasts."""
        with patched(Controller, "handle", self._requesting):
            yield

    def _requesting(self, handle: Callable[..., Any]) -> Callable[..., Any]:
        def handle_with_moves(controller: Controller, *args: Any) -> Any:
            controller.context.request_moves(self.wanted)
            return handle(controller, *args)

        return handle_with_moves

    def move(self, choice: int | str, order: int | str) -> TopicPartition | None:
        """Moves a partition to other replicas, or to the same in another order.

        Returns it, or None if there is none yet. Numbers choose among what exists then; "sea/0"
        and "1-2" name a partition and its target.
        """
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
        self._want(partition, RequestedMove(f"op-{self.operations}", target))

    def replicas_of(self, partition: TopicPartition) -> tuple[int, ...]:
        """Returns the replicas, the original ones during a move; empty: no such partition."""
        found = dict(self._states()).get(partition)
        return found.settled_replicas if found else ()

    def needs_two(self, partition: TopicPartition) -> bool:
        """Prevents targets of a single replica from now on; False: there was one already."""
        if partition in self._left_one:
            return False
        self._need_two.add(partition)
        return True

    def cancel(self, partition: TopicPartition) -> None:
        wanted = self.wanted.get(partition)
        if wanted is not None:
            self._want(partition, wanted._replace(cancelled=True))

    def _want(self, partition: TopicPartition, requested: RequestedMove) -> None:
        self.wanted = {**self.wanted, partition: requested}
        if len(requested.target) == 1:
            self._left_one.add(partition)
        world = self._world
        world.trace("move_wanted", partition=str(partition), wanted=tuple(requested))
        # A write that every watch reports, as it would that of an operation.
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
        """Returns every order of as many brokers as the topic's min ISR, or more."""
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
