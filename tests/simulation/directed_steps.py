"""Steps of directed faults: what they do to links, processes and requests, and what they check."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, NamedTuple

from simulation.loop import SimProcess
from simulation.metadata_faults import End
from simulation.network import Call, Concerns, Conditions
from simulation.processes import BrokerProcess
from tidelog.model import NO_LEADER, TopicPartition
from tidelog_broker.core.partition.partition import Partition
from tidelog_runtime.metadata.keys import PartitionKey
from tidelog_runtime.metadata.schema import (
    RUNNING,
    LeaderAndIsr,
    decode_broker,
    decode_controller,
    decode_leader_and_isr,
    decode_topic,
)

if TYPE_CHECKING:
    from simulation.world import World

POLL_S = 0.02


class Place(NamedTuple):
    partition: TopicPartition
    state: LeaderAndIsr


class DirectedSteps:
    """A base of classes that begin directed faults.

    The function that ends a fault cancels its remaining steps. `heal` also undoes what they did.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._tasks: list[asyncio.Task[None]] = []
        self._undo: dict[object, Callable[[], None]] = {}

    def heal(self) -> None:
        for task in self._tasks:
            task.cancel()
        for undo in list(self._undo.values()):
            undo()
        self._undo.clear()

    def _spawn(self, work: Coroutine[None, None, None]) -> End:
        task = asyncio.create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._ended)

        def end() -> None:
            task.cancel()

        return end

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Lets an error of a step end the world, as an error of a service does."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._world.fail(error)

    # -- steps -------------------------------------------------------------------------------

    def _cut(self, concerns: Concerns) -> Callable[[], None]:
        """Cuts links, and returns a function that restores them, once."""
        number = self._world.network.disturb(concerns, Conditions(cut=True))
        token = object()

        def lift() -> None:
            if self._undo.pop(token, None) is not None:
                self._world.network.lift(number)

        self._undo[token] = lift
        return lift

    def _lose(self, is_lost: Callable[[Call], bool]) -> Callable[[], None]:
        """Loses the requests for which `is_lost` holds, until the returned function is called."""
        self._world.network.lose(is_lost)
        token = object()

        def end() -> None:
            if self._undo.pop(token, None) is not None:
                self._world.network.lose_no_more(is_lost)

        self._undo[token] = end
        return end

    def _lose_answers(self, is_lost: Callable[[Call, object], bool]) -> Callable[[], None]:
        """Loses the answers for which `is_lost` holds, until the returned function is called."""
        self._world.network.lose_answers(is_lost)
        token = object()

        def end() -> None:
            if self._undo.pop(token, None) is not None:
                self._world.network.lose_answers_no_more(is_lost)

        self._undo[token] = end
        return end

    def _down(self, broker: BrokerProcess) -> Callable[[], None]:
        broker.hold_down()
        broker.kill()
        token = object()

        def release() -> None:
            if self._undo.pop(token, None) is not None:
                broker.release()

        self._undo[token] = release
        return release

    def _delay_watches(self, process: SimProcess, beyond: int) -> Callable[[], None]:
        """Delays what the process's watches bring beyond a revision.

        This lasts until the returned function is called.
        """
        self._world.etcd.delay_watches(process, beyond)
        token = object()

        def end() -> None:
            if self._undo.pop(token, None) is not None:
                self._world.etcd.delay_no_more(process)

        self._undo[token] = end
        return end

    def _places(self) -> list[Place]:
        """Returns the partitions with a leader, in the order of their names."""
        world = self._world
        items = world.store_data.snapshot(world.keys.topics).items
        places = [
            Place(key.partition, decode_leader_and_isr(items[name].value))
            for name in sorted(items)
            if isinstance(key := world.keys.parse(name), PartitionKey)
        ]
        return [place for place in places if place.state.leader != NO_LEADER]

    def _config(self, place: Place) -> Mapping[str, str]:
        held = self._world.store_data.get(self._world.keys.topic(place.partition.topic))
        return decode_topic(held.value).config if held is not None else {}

    def _state(self, partition: TopicPartition) -> LeaderAndIsr | None:
        held = self._world.store_data.get(self._world.keys.leader_and_isr(partition))
        return decode_leader_and_isr(held.value) if held is not None else None

    def _led_by(self, broker_id: int, partition: TopicPartition) -> Partition | None:
        broker = self._world.brokers[broker_id]
        found = (p for p in self._world.partitions_of(broker) if p.name == partition)
        return next((p for p in found if p.leading is not None), None)

    async def _until(self, holds: Callable[[], bool], within_s: float) -> bool:
        deadline = self._world.loop.time() + within_s
        while not holds():
            if self._world.loop.time() >= deadline:
                return False
            await asyncio.sleep(POLL_S)
        return True

    # -- the present state ------------------------------------------------------------------

    def _isr(self, partition: TopicPartition) -> set[int]:
        state = self._state(partition)
        return set(state.isr_ids) if state is not None else set()

    def _is_leaderless(self, partition: TopicPartition) -> bool:
        state = self._state(partition)
        return state is not None and state.leader == NO_LEADER

    def _active_controller(self) -> SimProcess | None:
        held = self._world.store_data.get(self._world.keys.controller)
        if held is None:
            return None
        return self._world.controllers[decode_controller(held.value).controller_id].process

    def _broker_epoch(self, broker_id: int) -> int:
        """Returns the broker's epoch if its registration says that it runs, else 0."""
        held = self._world.store_data.get(self._world.keys.broker(broker_id))
        if held is None or decode_broker(held.value).state != RUNNING:
            return 0
        return held.create_revision

    def _reach(self, kind: str) -> None:
        self._world.directed_reached[kind] += 1
        self._world.trace("directed_fault_reached", kind=kind)


def is_between(source: str, target: str, host: str, others: tuple[str, ...]) -> bool:
    return (source == host and target.startswith(others)) or (
        target == host and source.startswith(others)
    )
