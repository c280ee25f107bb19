"""Faults of relayed traffic: delayed, held back in one direction, or cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from faults.cluster import Traffic
from faults.effects import Measures
from faults.relay import Counts, Manner, Way
from faults.scene import Scene

DELAY_MS = 100


class _Relayed:
    def __init__(self, target: str, traffic: Traffic) -> None:
        self.target = target
        self._traffic = traffic
        self._counts = Counts()
        self._healed = False

    async def measured(self) -> Measures:
        if not self._healed:
            self._counts = await self._traffic.counts()
        return asdict(self._counts)

    async def heal(self) -> None:
        await self.measured()
        self._healed = True
        await self._traffic.heal()


async def _relay(scene: Scene, brokers: Sequence[str], manner: Manner) -> _Relayed:
    traffic = await scene.cluster.relay_clients(brokers, manner)
    return _Relayed(f"clients of {', '.join(brokers)}", traffic)


async def delay_clients(scene: Scene) -> _Relayed:
    return await _relay(scene, scene.cluster.brokers, Manner(delay_ms=DELAY_MS))


async def cut_off_clients(scene: Scene) -> _Relayed:
    return await _relay(scene, [await scene.busiest_leader()], Manner(cut=True))


async def hang_answers(scene: Scene) -> _Relayed:
    return await _relay(scene, [await scene.busiest_leader()], Manner(held=[Way.OUT]))


async def delay_services(scene: Scene) -> _Relayed:
    leader = await scene.busiest_leader()
    traffic = await scene.cluster.relay_services(leader, Manner(delay_ms=DELAY_MS))
    return _Relayed(leader, traffic)
