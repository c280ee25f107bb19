"""A second process with the id of a running broker.

Its data directory is empty or a copy of the first process's. It runs beside the first process, or
while that one is paused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from faults.cluster import ClusterFailedError, SecondProcess
from faults.effects import Measures
from faults.injected import SECOND_AT
from faults.scene import Scene
from faults.service_logs import logged, state_changes
from tidelog.state_changes.event import Kind, Stage

EXIT_CANNOT_START = 1
REJECTED_EVENT = "cannot_start"
REJECTED_REASON = "belongs to data directory"
WAITS_EVENT = "broker_id_taken"
NOT_INTACT_EVENT = "data_directory_not_intact"
# How long both processes run after the paused one continues.
BOTH_RUN_S = 3.0
LEASE_END_TIMEOUT_S = 30.0
POLL_S = 0.1


def seen_of_second(lines: Sequence[bytes], exit_status: int | None) -> Measures:
    """The measured effect, from the log of the second process. `exit_status`: None while it runs.
    Pure."""
    rejected = [
        line for line in logged(lines, REJECTED_EVENT) if REJECTED_REASON in line.get("why", "")
    ]
    registered = [
        change
        for change in state_changes(lines, Kind.REGISTRATION.value)
        if change.get("stage") == Stage.COMPLETED.value
    ]
    return {
        "starts_rejected": int(exit_status == EXIT_CANNOT_START and bool(rejected)),
        "waits_reported": len(list(logged(lines, WAITS_EVENT))),
        "registrations": len(registered),
        "not_intact_reported": len(list(logged(lines, NOT_INTACT_EVENT))),
    }


class _Second:
    """`is_paused`: the first process is paused until this fault is healed."""

    def __init__(
        self, scene: Scene, broker: str, second: SecondProcess, what: str, *, is_paused: bool
    ) -> None:
        self._scene = scene
        self._broker = broker
        self._second = second
        self._is_paused = is_paused
        self._seen_stopped = 0
        self._is_over = False
        self._seen: Measures = {}
        self.target = f"{broker}: {what}{SECOND_AT}{second.place}"

    async def measured(self) -> Measures:
        if not self._is_over:
            self._seen_stopped |= int(await self._scene.cluster.is_stopped(self._broker))
            lines, status = await self._second.log_lines(), await self._second.exit_status()
            self._seen = seen_of_second(lines, status)
        return {**self._seen, "seen_stopped": self._seen_stopped}

    async def heal(self) -> None:
        """Resumes the first process while the second one still runs."""
        try:
            await self.measured()
            self._is_over = True
            if self._is_paused:
                await self._scene.cluster.resume(self._broker)
                await asyncio.sleep(BOTH_RUN_S)
        finally:
            await self._second.stop()


async def _start(scene: Scene, what: str, *, is_copy: bool, is_paused: bool) -> _Second:
    leader = await scene.busiest_leader()
    if not is_paused:
        second = await scene.cluster.start_second(leader, is_copy=is_copy)
        return _Second(scene, leader, second, what, is_paused=False)
    await scene.cluster.pause(leader)
    try:
        await _until_unregistered(scene, leader)
        second = await scene.cluster.start_second(leader, is_copy=is_copy)
    except BaseException:
        await scene.cluster.resume(leader)
        raise
    return _Second(scene, leader, second, what, is_paused=True)


async def _until_unregistered(scene: Scene, broker: str) -> None:
    """Waits until the lease of the first process has ended: from then on another process can take
    the id."""
    try:
        async with asyncio.timeout(LEASE_END_TIMEOUT_S):
            while True:
                seen = await scene.describe()
                if seen and broker not in {f"broker-{b.broker_id}" for b in seen[0].brokers}:
                    return
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise ClusterFailedError(
            f"{broker} is paused, and still registered after {LEASE_END_TIMEOUT_S:g} s"
        ) from None


async def start_second_process(scene: Scene) -> _Second:
    return await _start(scene, "a second process, empty", is_copy=False, is_paused=False)


async def start_copied_process(scene: Scene) -> _Second:
    return await _start(scene, "a second process, of a copy", is_copy=True, is_paused=False)


async def start_second_while_paused(scene: Scene) -> _Second:
    what = "paused, and a second process, empty"
    return await _start(scene, what, is_copy=False, is_paused=True)


async def take_over_by_copy(scene: Scene) -> _Second:
    what = "paused, and a second process, of a copy"
    return await _start(scene, what, is_copy=True, is_paused=True)
