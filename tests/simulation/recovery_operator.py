"""A simulated operator who recovers partitions by hand.

The operator consents to losses, also needlessly, late and twice, and sends requests that must
be rejected. A topic with manual `recovery` is recovered only by consent; `StoreRules` checks
that.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from simulation.violation import Violation
from tidelog.client import Admin
from tidelog.errors import ErrorCode, TidelogError
from tidelog.model import NO_LEADER
from tidelog_runtime.metadata.keys import PartitionKey, TopicKey
from tidelog_runtime.metadata.schema import decode_leader_and_isr, decode_topic

if TYPE_CHECKING:
    from simulation.world import World

MANUAL = "manual"
UNCLEAN = "unclean_leader_election"
TIMEOUT_MS = 4_000
NO_SUCH_TOPIC = "no-such-topic"
NO_SUCH_PARTITION = 99
# How long a person takes before the last consents, and between them.
LOOKS_FOR_S = 2.0


class Operator:
    """Sends requests to the controllers, as a client of its own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._client = world.client("operator")

    def manual_topics(self) -> list[str]:
        world = self._world
        items = world.store_data.snapshot(world.keys.topics).items
        found = [(world.keys.parse(key), item.value) for key, item in items.items()]
        return [
            key.topic
            for key, value in found
            if isinstance(key, TopicKey) and decode_topic(value).config.get("recovery") == MANUAL
        ]

    def consent(self, *, from_live_replicas: bool, topic: str = "") -> None:
        """Consents in the background, once: for this topic, or for each that is recovered by hand.

        It has no effect if a partition has a leader, or if no controller answers.
        """
        topics = [topic] if topic else self.manual_topics()
        self._client.spawn(self._consent(topics, from_live_replicas))

    def have_recovered_by_hand(self, topic: str) -> None:
        """Makes the topic's recovery manual, in the background."""
        self._client.spawn(self._alter(topic, {"recovery": MANUAL}))

    def permit_unclean_elections(self, topic: str) -> None:
        """Lets any live replica of the topic be elected, in the background."""
        self._client.spawn(self._alter(topic, {UNCLEAN: "true"}))

    def ask_the_impossible(self) -> None:
        """Sends requests that must be rejected, in the background.

        The world fails with a `Violation` if one of them is not.
        """
        self._client.spawn(self._ask_the_impossible(self.manual_topics()))

    async def recover_until(self, over: asyncio.Event) -> None:
        """Consents again and again for topics that are recovered by hand and lack a leader."""
        while not over.is_set():
            await asyncio.sleep(LOOKS_FOR_S)
            waiting = [topic for topic in self.manual_topics() if self._waits(topic)]
            if waiting and not over.is_set():
                await self._client.spawn(self._consent(waiting, from_live_replicas=False))

    async def _alter(self, topic: str, config: dict[str, str]) -> None:
        async with self._client.admin() as admin:
            with suppress(TidelogError):
                await admin.alter_topic_config(topic, config, timeout_ms=TIMEOUT_MS)

    def _waits(self, topic: str) -> bool:
        world = self._world
        items = world.store_data.snapshot(world.keys.topics).items
        own = [
            decode_leader_and_isr(item.value)
            for key, item in items.items()
            if isinstance(parsed := world.keys.parse(key), PartitionKey)
            and parsed.partition.topic == topic
        ]
        return any(state.leader == NO_LEADER for state in own)

    async def _consent(self, topics: list[str], from_live_replicas: bool) -> None:
        async with self._client.admin() as admin:
            for topic in topics:
                try:
                    results = await admin.recover_partitions(
                        topic, timeout_ms=TIMEOUT_MS, from_live_replicas=from_live_replicas
                    )
                except TidelogError:
                    continue
                told = tuple((r.partition, str(r.error)) for r in results)
                self._world.trace("consented", topic=topic, live=from_live_replicas, told=told)

    async def _ask_the_impossible(self, topics: list[str]) -> None:
        async with self._client.admin() as admin:
            await _require_rejection(admin, NO_SUCH_TOPIC, 0)
            for topic in topics:
                await _require_rejection(admin, topic, NO_SUCH_PARTITION)


async def _require_rejection(admin: Admin, topic: str, partition: int) -> None:
    try:
        results = await admin.recover_partitions(topic, [partition], TIMEOUT_MS)
    except TidelogError as error:
        if error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT):
            return
        raise Violation(
            "consent_refused_wrongly", str(error), topic=topic, partition=partition
        ) from error
    raise Violation("consent_to_nothing", f"it was taken: {results}", topic=topic)
