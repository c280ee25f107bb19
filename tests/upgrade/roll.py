"""Carries out a roll as docs/operations/upgrades.md describes it: one part after another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from faults.gaps import Window
from faults.load import now_ms
from tidelog.cli.restart_wait import wait_for_restart
from tidelog.client import Admin
from tidelog_runtime.local.addresses import GATEWAY
from upgrade.mixed_cluster import MixedCluster, MixedClusterError
from upgrade.orders import Step
from upgrade.releases import Release

# Longer than a broker needs to be in sync again on a machine that has other work as well.
RESTART_WAIT_S = 300

# Reports progress to people.
Say = Callable[[str], None]
ReplaceClients = Callable[[Release], Awaitable[None]]
Stop = Callable[[Step], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Roll:
    """A roll that has taken place. `stops`: the times in which it stood still."""

    name: str
    window: Window
    stops: Sequence[Window]

    @property
    def working(self) -> list[Window]:
        """The times between the stops."""
        edges = [self.window.begin_ms]
        for stop in self.stops:
            edges += stop
        edges.append(self.window.end_ms)
        return [Window(*pair) for pair in zip(edges[::2], edges[1::2], strict=True)]


class Roller:
    """`commands`: the release whose command line asks whether a broker may be stopped; None: this
    process asks in the same way, which starts no process."""

    def __init__(
        self,
        cluster: MixedCluster,
        commands: Release | None,
        replace_clients: ReplaceClients,
        stop: Stop,
        say: Say,
    ) -> None:
        self._cluster = cluster
        self._commands = commands
        self._replace_clients = replace_clients
        self._stop = stop
        self._say = say

    async def roll(self, name: str, steps: Sequence[Step], target: Release) -> Roll:
        begin_ms = now_ms()
        stops = []
        for step in steps:
            if step.is_stop:
                stop_ms = now_ms()
                self._say(f"  {step}")
                await self._stop(step)
                stops.append(Window(stop_ms, now_ms()))
            else:
                step_ms = now_ms()
                await self._replace(step, target)
                self._say(f"  {step} to {target.version}: {(now_ms() - step_ms) / 1000:.1f} s")
        roll = Roll(name, Window(begin_ms, now_ms()), stops)
        self._say(f"  {name}: {(roll.window.end_ms - begin_ms) / 1000:.0f} s")
        return roll

    async def _replace(self, step: Step, target: Release) -> None:
        if step is Step.CLIENTS:
            await self._replace_clients(target)
        elif step is Step.GATEWAY:
            await self._cluster.replace(GATEWAY, target)
        elif step is Step.CONTROLLER:
            await self._cluster.replace(await self._next_controller(target), target)
        else:
            await self._replace_broker(step.value, target)

    async def _next_controller(self, target: Release) -> str:
        """The standby one, if it has the other release still."""
        active = await self._cluster.active_controller()
        left = [
            controller
            for controller in self._cluster.controllers
            if self._cluster.release_of(controller).version != target.version
        ]
        return min(left, key=lambda controller: controller == active)

    async def _replace_broker(self, broker: str, target: Release) -> None:
        number = int(broker.rpartition("-")[2])
        if self._commands is not None:
            await self._cluster.done(
                self._commands,
                *("brokers", "check-restart", str(number)),
                *("--wait", "--wait-timeout", str(RESTART_WAIT_S)),
            )
        else:
            async with Admin(self._cluster.bootstrap) as admin:
                check = await wait_for_restart(admin, number, RESTART_WAIT_S)
            if not check.safe:
                raise MixedClusterError(f"{broker} cannot be stopped: {check.findings}")
        await self._cluster.replace(broker, target)
