"""Faults of the metadata store: a member or the leader is killed, or all members."""

from __future__ import annotations

import asyncio
import time

from faults.cluster import ClusterFailedError, LogSince
from faults.effects import Measures
from faults.scene import FIND_PAUSE_S, Scene
from tidelog.state_changes.event import Kind

ELECTION_TIMEOUT_S = 10.0


class _Member:
    def __init__(self, scene: Scene, member: str, incarnation: str, *, leads: bool) -> None:
        self._scene = scene
        self.target = member
        self._incarnation = incarnation
        self._leads = leads
        self._other_leader = 0

    async def measured(self) -> Measures:
        now = await self._scene.cluster.incarnation(self.target)
        measures = {"members_ended": int(bool(self._incarnation) and now != self._incarnation)}
        if self._leads:
            try:
                leader = await self._scene.cluster.etcd_leader()
            except ClusterFailedError:  # none yet
                leader = self.target
            self._other_leader |= int(leader != self.target)
            measures["other_etcd_leader"] = self._other_leader
        return measures

    async def heal(self) -> None:
        await self._scene.cluster.start_again(self.target)


async def _kill(scene: Scene, member: str, *, leads: bool) -> _Member:
    incarnation = await scene.cluster.incarnation(member)
    await scene.cluster.kill(member)
    return _Member(scene, member, incarnation, leads=leads)


async def _leader(scene: Scene) -> str:
    """Raises `ClusterFailedError` if no leader is elected in time."""
    deadline = time.monotonic() + ELECTION_TIMEOUT_S
    while True:
        try:
            return await scene.cluster.etcd_leader()
        except ClusterFailedError:
            if time.monotonic() >= deadline:
                raise
            await asyncio.sleep(FIND_PAUSE_S)


async def kill_etcd_leader(scene: Scene) -> _Member:
    return await _kill(scene, await _leader(scene), leads=True)


async def kill_etcd_member(scene: Scene) -> _Member:
    leader = await _leader(scene)
    member = next(m for m in scene.cluster.etcd_members if m != leader)
    return await _kill(scene, member, leads=False)


class _AllAway:
    target = "all of etcd"

    def __init__(self, scene: Scene, ended: int, logs: list[LogSince]) -> None:
        self._scene = scene
        self._all_ended = int(ended == len(scene.cluster.etcd_members))
        self._logs = logs

    async def measured(self) -> Measures:
        losses = [len(await log.logged_ms(Kind.STORE_LOST.value)) for log in self._logs]
        return {"all_ended": self._all_ended, "store_losses_logged": sum(losses)}

    async def heal(self) -> None:
        await self._scene.cluster.start_all_etcd()


async def kill_all_etcd(scene: Scene) -> _AllAway:
    logs = [scene.cluster.log_since_now(broker) for broker in scene.cluster.brokers]
    return _AllAway(scene, await scene.cluster.kill_all_etcd(), logs)
