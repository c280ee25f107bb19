"""Faults of processes: killed, stopped, paused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from faults.effects import Measures
from faults.scene import Scene


class _Ended:
    """Processes that were ended, until they are started again."""

    def __init__(
        self, scene: Scene, services: Sequence[str], incarnations: Sequence[str], clean_ends: int
    ) -> None:
        self._scene = scene
        self._clean_ends = clean_ends
        self._services = services
        self._incarnations = incarnations
        self.target = ", ".join(services)

    async def measured(self) -> Measures:
        now = [await self._scene.cluster.incarnation(service) for service in self._services]
        ended = sum(
            bool(before) and bool(after) and before != after
            for before, after in zip(self._incarnations, now, strict=True)
        )
        return {"processes_ended": ended, "clean_ends": self._clean_ends}

    async def heal(self) -> None:
        for service in self._services:
            if not await self._scene.cluster.incarnation(service):
                await self._scene.cluster.start_again(service)


class _EndedController(_Ended):
    """A controller that was ended; another one becomes active."""

    def __init__(self, scene: Scene, controller: str, incarnation: str, clean_ends: int) -> None:
        super().__init__(scene, [controller], [incarnation], clean_ends)
        self._controller = controller
        self._other_active = 0

    async def measured(self) -> Measures:
        described = await self._scene.describe()
        if described is not None and described[0].controller is not None:
            active = f"controller-{described[0].controller.controller_id}"
            self._other_active |= int(active != self._controller)
        return {**await super().measured(), "other_active": self._other_active}


class _Paused:
    def __init__(self, scene: Scene, service: str) -> None:
        self._scene = scene
        self.target = service
        self._seen = 0

    async def measured(self) -> Measures:
        self._seen |= int(await self._scene.cluster.is_stopped(self.target))
        return {"seen_stopped": self._seen}

    async def heal(self) -> None:
        await self._scene.cluster.resume(self.target)


async def _end(scene: Scene, services: Sequence[str], *, kill: bool) -> _Ended:
    incarnations = [await scene.cluster.incarnation(service) for service in services]
    clean = await asyncio.gather(*(_end_one(scene, service, kill=kill) for service in services))
    return _Ended(scene, services, incarnations, sum(clean))


async def _end_one(scene: Scene, service: str, *, kill: bool) -> bool:
    """Ends one process; returns whether it ended by SIGTERM, with exit status 0."""
    if kill:
        await scene.cluster.kill(service)
        return False
    return await scene.cluster.terminate(service)


async def kill_leader(scene: Scene) -> _Ended:
    return await _end(scene, [await scene.busiest_leader()], kill=True)


async def stop_leader(scene: Scene) -> _Ended:
    return await _end(scene, [await scene.busiest_leader()], kill=False)


async def restart_all_brokers(scene: Scene) -> _Ended:
    return await _end(scene, scene.cluster.brokers, kill=True)


async def _end_controller(scene: Scene, *, kill: bool) -> _EndedController:
    active = await scene.active_controller()
    incarnation = await scene.cluster.incarnation(active)
    clean = await _end_one(scene, active, kill=kill)
    return _EndedController(scene, active, incarnation, int(clean))


async def kill_controller(scene: Scene) -> _EndedController:
    return await _end_controller(scene, kill=True)


async def stop_controller(scene: Scene) -> _EndedController:
    return await _end_controller(scene, kill=False)


async def _pause(scene: Scene, service: str) -> _Paused:
    await scene.cluster.pause(service)
    return _Paused(scene, service)


async def pause_leader(scene: Scene) -> _Paused:
    return await _pause(scene, await scene.busiest_leader())


async def pause_follower(scene: Scene) -> _Paused:
    follower, _ = await scene.follower_and_leader()
    return await _pause(scene, follower)


async def pause_controller(scene: Scene) -> _Paused:
    return await _pause(scene, await scene.active_controller())
