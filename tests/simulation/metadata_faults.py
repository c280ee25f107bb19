"""Faults of metadata: changes of topics, partitions and moves, and consents to losses."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from doubles.memory_data import MemoryData
from simulation.faults import Fault
from simulation.recovery_operator import Operator
from simulation.topic_lives import AGAIN, GONE, RESIZED
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import TopicPartition
from tidelog_runtime.metadata.schema import Throttle, encode_throttle
from tidelog_runtime.metadata.store import Delete, Put, Transaction

if TYPE_CHECKING:
    from simulation.world import World

RECREATED_TOPIC_TIMEOUT_MS = 6_000
SHORT_LIVED_PARTITIONS = 2
# Partitions of a topic that is resized: at first, and while the others are removed.
RESIZED_PARTITIONS = 3
KEPT_PARTITIONS = 1
# A request to add them again may fail while the cluster is in trouble.
RESIZE_TRIES = 3

# A function that ends a fault.
End: TypeAlias = "Callable[[], None]"


def no_end() -> None:
    pass


class MetadataFaults:
    def __init__(self, world: World) -> None:
        self._world = world
        self._on_topics: list[asyncio.Task[None]] = []
        self.begin: dict[str, Callable[[Fault, random.Random], End]] = {
            "topic_deleted": self._topic_deleted,
            "topic_recreated": self._topic_recreated,
            "partitions_removed": self._partitions_removed,
            "move": self._move,
            "move_and_back": self._move_and_back,
            "move_cancelled": self._move_cancelled,
            "throttled": self._throttled,
            "consent": self._consent,
        }

    async def over(self) -> None:
        """Returns when every request for a topic has been answered."""
        await asyncio.gather(*self._on_topics)

    # -- topics ------------------------------------------------------------------------------

    def _topic_deleted(self, fault: Fault, _: random.Random) -> End:
        """Creates a topic at the beginning, and deletes it at the end."""
        topic = f"{GONE}{fault.args[0]}"

        async def delete() -> None:
            await self._delete_topic(topic)
            for callback in self._world.on_topic_given_up:
                callback(topic)

        self._spawn(self._create_topic(topic))
        return lambda: self._spawn(delete())

    def _topic_recreated(self, fault: Fault, _: random.Random) -> End:
        """Creates a topic at the beginning.

        At the end it is deleted and created again under the same name.
        """
        topic = f"{AGAIN}{fault.args[0]}"

        async def recreate() -> None:
            await self._delete_topic(topic)
            await self._create_topic(topic)

        self._spawn(self._create_topic(topic))
        return lambda: self._spawn(recreate())

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        self._on_topics.append(self._world.client("chaos").spawn(work))

    async def _create_topic(self, topic: str, partitions: int = SHORT_LIVED_PARTITIONS) -> None:
        async with self._world.client("chaos").admin() as admin:
            try:
                await admin.create_topic(
                    topic,
                    partitions,
                    3,
                    timeout_ms=RECREATED_TOPIC_TIMEOUT_MS,
                )
            except TidelogError as error:
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    return
        for callback in self._world.on_topic_created:
            callback(topic)

    async def _delete_topic(self, topic: str) -> None:
        async with self._world.client("chaos").admin() as admin:
            with suppress(TidelogError):
                await admin.delete_topic(topic, timeout_ms=RECREATED_TOPIC_TIMEOUT_MS)

    def _partitions_removed(self, fault: Fault, _: random.Random) -> End:
        """Removes the last partitions of a topic half-way, and adds them again at the end.

        The topic is created at the beginning, if it does not exist yet.
        """
        topic = f"{RESIZED}{fault.args[0]}"
        self._spawn(self._create_topic(topic, RESIZED_PARTITIONS))
        loop = self._world.loop
        loop.call_later(fault.duration_ms / 2_000, lambda: self._spawn(self._remove(topic)))
        return lambda: self._spawn(self._add_again(topic))

    async def _remove(self, topic: str) -> None:
        async with self._world.client("chaos").admin() as admin:
            with suppress(TidelogError):
                await admin.remove_partitions(
                    topic,
                    KEPT_PARTITIONS,
                    timeout_ms=RECREATED_TOPIC_TIMEOUT_MS,
                    confirm_topic=topic,
                )

    async def _add_again(self, topic: str) -> None:
        async with self._world.client("chaos").admin() as admin:
            for _ in range(RESIZE_TRIES):
                with suppress(TidelogError):
                    await admin.add_partitions(
                        topic, RESIZED_PARTITIONS, timeout_ms=RECREATED_TOPIC_TIMEOUT_MS
                    )
                    return
                await asyncio.sleep(1)

    def _move(self, fault: Fault, _: random.Random) -> End:
        self._begin_move(fault)
        return no_end

    def _begin_move(self, fault: Fault) -> TopicPartition | None:
        choice, order = fault.args
        return self._world.mover.move(choice, order)

    def _move_and_back(self, fault: Fault, _: random.Random) -> End:
        """Moves a partition, and at the end back again.

        The way back begins when the first move is done, perhaps at once.
        """
        mover = self._world.mover
        moved = self._begin_move(fault)
        if moved is None:
            return no_end
        before = mover.replicas_of(moved)
        return lambda: mover.want(moved, before)

    def _move_cancelled(self, fault: Fault, _: random.Random) -> End:
        mover = self._world.mover
        moved = self._begin_move(fault)
        return no_end if moved is None else lambda: mover.cancel(moved)

    def _throttled(self, fault: Fault, _: random.Random) -> End:
        data, key = self._world.store_data, self._world.keys.throttle
        bound = encode_throttle(Throttle(int(fault.args[0])))
        data.transact(Transaction([], [Put(key, bound)]))
        return lambda: _forget_key(data, key)

    def _consent(self, fault: Fault, _: random.Random) -> End:
        """Consents at the beginning and again at the end; each may be too early or needless."""
        operator = Operator(self._world)
        from_live_replicas = fault.args[0] == "live_replicas"
        operator.ask_the_impossible()
        operator.consent(from_live_replicas=from_live_replicas)
        return lambda: operator.consent(from_live_replicas=from_live_replicas)


def _forget_key(data: MemoryData, key: str) -> None:
    data.transact(Transaction([], [Delete(key)]))
