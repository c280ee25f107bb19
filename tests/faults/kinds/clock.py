"""Faults of wall clocks."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from faults.connections import routed
from faults.effects import Measures
from faults.scene import Scene
from faults.values import payload
from tidelog.client import Producer
from tidelog.errors import TidelogError
from tidelog.model import TopicPartition

AHEAD_S = 3_600
PROBE_TIMEOUT_S = 5.0
# A value that no client of the load writes; its topic is not the load's.
PROBE_VALUE = 0
PROBE_TOPIC_SUFFIX = "-probe"


class _Skewed:
    def __init__(self, scene: Scene, broker: str) -> None:
        self._scene = scene
        self.target = broker
        self._skew_s = 0.0

    async def measured(self) -> Measures:
        self._skew_s = max(self._skew_s, await self._stamped_ahead_s())
        return {"skew_s": self._skew_s}

    async def heal(self) -> None:
        await self.measured()
        await self._scene.cluster.set_clock(self.target, 0)

    async def _stamped_ahead_s(self) -> float:
        """The most by which leaders' append timestamps are ahead of this process's clock.

        A broker that leads no partition of the probe's topic appends nothing there, so it is made
        the leader of one for the next measurement."""
        topic = self._scene.topic + PROBE_TOPIC_SUFFIX
        ahead = 0.0

        async def probe(producer: Producer, partition: int) -> None:
            nonlocal ahead
            with suppress(TidelogError, TimeoutError):
                async with asyncio.timeout(PROBE_TIMEOUT_S):
                    sent = await producer.send_many(
                        topic, [payload(PROBE_VALUE)], partition=partition
                    )
                    [report] = await sent
                    ahead = max(ahead, report.append_time_ms / 1000 - time.time())

        with suppress(TidelogError, TimeoutError):
            async with asyncio.timeout(2 * PROBE_TIMEOUT_S), self._producer() as producer:
                described = await self._scene.admin.describe_topic(topic)
                await asyncio.gather(*(probe(producer, p.partition) for p in described.partitions))
                broker_id = int(self.target.removeprefix("broker-"))
                if broker_id not in [p.leader for p in described.partitions]:
                    await self._scene.admin.move_leaders({TopicPartition(topic, 0): broker_id})
        return ahead

    def _producer(self) -> Producer:
        cluster = self._scene.cluster
        return Producer(cluster.bootstrap, linger_ms=0, connections=routed(cluster.own_routes))


async def skew_clock(scene: Scene) -> _Skewed:
    leader = await scene.busiest_leader()
    await scene.cluster.set_clock(leader, AHEAD_S)
    return _Skewed(scene, leader)
