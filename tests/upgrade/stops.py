"""What happens while a roll is paused: controllers or brokers of two releases serve together."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence

from tidelog.client import Admin
from tidelog.errors import TidelogError
from upgrade.commands import check_admin_commands, check_record_commands
from upgrade.interfaces import check_methods, check_rest
from upgrade.mixed_cluster import MixedCluster, MixedClusterError
from upgrade.releases import Release
from upgrade.roll import Say

IN_SYNC_TIMEOUT_S = 180.0
POLL_S = 0.25
# Slow enough that an operation outlasts the first change of the active controller.
SLOW_BYTES_PER_SECOND = "8KiB"


class Stops:
    """`topic`: under load. `moved`: with data, on two brokers, for operations.

    `problems`: what was wrong; empty: nothing."""

    def __init__(
        self,
        cluster: MixedCluster,
        releases: tuple[Release, Release],
        topic: str,
        moved: str,
        say: Say,
    ) -> None:
        self._cluster = cluster
        self._old, self._new = releases
        self._topic = topic
        self._moved = moved
        self._say = say
        self._operations = 0
        self.problems: list[str] = []
        # What was done, by kind.
        self.counts = {
            "failovers": 0,
            "killed_brokers": 0,
            "moved_leaders": 0,
            "operations": 0,
        }

    # -- controllers -----------------------------------------------------------------------

    async def with_mixed_controllers(self) -> None:
        """Each of the two is active once, and carries out commands of the other release. An
        operation begins before the first change."""
        operation = await self._begin_slow_operation()
        states = ["running"]
        for _ in self._cluster.controllers:
            active = await self._cluster.active_controller()
            for release in (self._old, self._new):
                if release.version != self._cluster.release_of(active).version:
                    self._say(f"    commands of {release.version} to {active}")
                    self.problems += await check_admin_commands(self._cluster, release)
            await self._check_operation(operation, states)
            await self._fail_over(active)
            states = ["running", "done"]
        await self._finish(operation)
        await self._check_interfaces()

    async def _fail_over(self, active: str) -> None:
        """Kills the active controller, and starts it again once the other one is active."""
        release = self._cluster.release_of(active).version
        self._say(f"    kill -9 {active} ({release})")
        await self._cluster.kill(active)
        successor = await self._cluster.active_controller()
        if self._cluster.release_of(successor).version == release:
            raise MixedClusterError(f"{successor} of release {release} succeeded {active}")
        await self._cluster.start_again(active)
        self.counts["failovers"] += 1

    async def _begin_slow_operation(self) -> str:
        """Moves a replica of the topic with data to the broker that has none."""
        await self._cluster.done(self._new, "throttle", "set", SLOW_BYTES_PER_SECOND)
        return await self._begin_move()

    async def _begin_move(self) -> str:
        self._operations += 1
        name = f"move-{self._operations}"
        replicas = await self._replicas()
        brokers = {int(part.rpartition("-")[2]) for part in self._cluster.brokers}
        (other,) = brokers - set(replicas)
        target = f"{self._moved}/0={other},{replicas[0]}"
        arguments = ("reassign", target, "--operation-id", name, "--yes")
        await self._cluster.done(self._old, *arguments)
        return name

    async def _replicas(self) -> list[int]:
        async with Admin(self._cluster.bootstrap) as admin:
            described = await admin.describe_topic(self._moved)
        return list(described.partitions[0].replicas)

    async def _check_operation(self, operation: str, states: Sequence[str]) -> None:
        """Both releases describe it in one of these states."""
        for release in (self._old, self._new):
            out = await self._cluster.done(release, "operations", "describe", operation, "--json")
            state = json.loads(out)["state"]
            if state not in states:
                self.problems.append(
                    f"{release.version} shows operation {operation} as {state}, not as {states}"
                )

    async def _finish(self, operation: str) -> None:
        await self._cluster.done(self._old, "throttle", "set", "none")
        await self._cluster.done(self._new, "operations", "watch", operation)
        self.counts["operations"] += 1

    # -- brokers ---------------------------------------------------------------------------

    async def with_mixed_brokers(self) -> None:
        """Leaders move between the releases, a replica moves, and a broker of each is killed."""
        brokers = self._cluster.brokers
        new = next(b for b in brokers if self._is_new(b))
        old = next(b for b in brokers if not self._is_new(b))
        for broker, commands in ((new, self._old), (old, self._new)):
            await self._move_leaders(broker, commands)
        await self._cluster.done(self._new, "leaders", "elect-preferred")
        operation = await self._begin_move()
        await self._finish(operation)
        for broker in (new, old):
            self._say(f"    kill -9 {broker} ({self._cluster.release_of(broker).version})")
            await self._cluster.kill(broker)
            await self._cluster.start_again(broker)
            await self._until_in_sync()
            self.counts["killed_brokers"] += 1
        self._say("    commands of both releases")
        releases = (self._old, self._new)
        wrong = await asyncio.gather(*(check_record_commands(self._cluster, r) for r in releases))
        self.problems += [problem for of_release in wrong for problem in of_release]
        await self._check_interfaces()

    def _is_new(self, broker: str) -> bool:
        return self._cluster.release_of(broker).version == self._new.version

    async def _move_leaders(self, broker: str, commands: Release) -> None:
        """All partitions of the topic get this broker as their leader."""
        await self._until_in_sync()
        number = int(broker.rpartition("-")[2])
        async with Admin(self._cluster.bootstrap) as admin:
            described = await admin.describe_topic(self._topic)
        moves = [
            f"{self._topic}/{p.partition}={number}"
            for p in described.partitions
            if p.leader != number
        ]
        if moves:
            await self._cluster.done(commands, "leaders", "move", *moves)
        self.counts["moved_leaders"] += len(moves)

    async def _until_in_sync(self) -> None:
        """Raises `MixedClusterError` if a topic has an incomplete ISR for too long."""
        deadline = time.monotonic() + IN_SYNC_TIMEOUT_S
        missing = "nothing has been checked"
        async with Admin(self._cluster.bootstrap) as admin:
            while time.monotonic() < deadline:
                try:
                    topics = await admin.list_topics(internal=True)
                except TidelogError as error:
                    missing = str(error)
                else:
                    behind = [
                        f"{topic.name}/{p.partition} has ISR {list(p.isr)} of {list(p.replicas)}"
                        for topic in topics
                        for p in topic.partitions
                        if len(p.isr) < len(p.replicas) or p.leader < 0
                    ]
                    if not behind:
                        return
                    missing = "; ".join(behind)
                await asyncio.sleep(POLL_S)
        raise MixedClusterError(f"not in sync within {IN_SYNC_TIMEOUT_S:g} s: {missing}")

    # -- both ------------------------------------------------------------------------------

    async def _check_interfaces(self) -> None:
        self._say("    every method and every GET")
        self.problems += await check_methods(self._cluster, (self._old, self._new))
        self.problems += await check_rest(self._cluster, self._topic)
