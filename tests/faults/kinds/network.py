"""Faults of the network: links that are cut in both directions or one, and packet loss."""

from __future__ import annotations

from collections.abc import Sequence

from faults.cluster import Cut
from faults.effects import DROP_PERCENT, Measures
from faults.packet_rules import Packets
from faults.scene import Scene


class _Rules:
    def __init__(self, target: str, cut: Cut) -> None:
        self.target = target
        self._cut = cut
        self._packets = Packets(0, 0)
        self._healed = False

    async def measured(self) -> Measures:
        if not self._healed:
            # The container has ended, and counts no packets.
            self._packets = max(self._packets, await self._cut.packets())
        return {
            "packets_lost": self._packets.lost,
            "percent_lost": self._packets.percent_lost,
        }

    async def heal(self) -> None:
        # The counters are removed with the rules.
        await self.measured()
        self._healed = True
        await self._cut.heal()


async def _cut(
    scene: Scene, service: str, others: Sequence[str], *, only_in: bool = False
) -> _Rules:
    how = " does not hear " if only_in else " from "
    target = f"{service}{how}{', '.join(others) or 'all'}"
    return _Rules(target, await scene.cluster.cut(service, others, only_in=only_in))


async def cut_off_leader(scene: Scene) -> _Rules:
    return await _cut(scene, await scene.busiest_leader(), [])


async def cut_follower(scene: Scene) -> _Rules:
    follower, leader = await scene.follower_and_leader()
    # Another fault that ended the leader would leave no traffic on the link.
    scene.strike(leader)
    return await _cut(scene, follower, [leader])


async def cut_leader_from_followers(scene: Scene) -> _Rules:
    leader = await scene.busiest_leader()
    return await _cut(scene, leader, scene.others(leader))


async def cut_one_way(scene: Scene) -> _Rules:
    leader = await scene.busiest_leader()
    return await _cut(scene, leader, scene.others(leader), only_in=True)


async def cut_leader_from_etcd(scene: Scene) -> _Rules:
    return await _cut(scene, await scene.busiest_leader(), scene.cluster.etcd_members)


async def drop_packets(scene: Scene) -> _Rules:
    leader = await scene.busiest_leader()
    return _Rules(leader, await scene.cluster.drop(leader, DROP_PERCENT))
