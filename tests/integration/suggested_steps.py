"""Carries out the steps that findings suggest, and checks that they end the problem."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from integration.explaining import causes_of, explained, tidelog
from integration.waiting import until
from tidelog.cli.exit_status import ExitStatus
from tidelog.inspection.state_reports import Explanation, Finding
from tidelog_runtime.local.cluster import LocalCluster

# Inside the command that a finding suggests.
_END = (". ", ", which ", ", with ")


@asynccontextmanager
async def without_standby(cluster: LocalCluster) -> AsyncIterator[int]:
    """The second fault: the standby controller is killed."""
    active = await cluster.active_controller()
    standby = next(c for c in (1, 2) if c != active)
    await cluster.kill_controller(standby)
    yield standby
    if not cluster.controller_process(standby).running:
        cluster.start_controller(standby)
    await until_gone(cluster, "no_standby")


async def lead_as_preferred(cluster: LocalCluster) -> None:
    """Makes a restarted broker lead again at once, for tests that share a cluster."""
    await carried_out(cluster, ["leaders", "elect-preferred"])
    await until_gone(cluster, "not_preferred_leader")


def commands_of(finding: Finding) -> list[list[str]]:
    """The commands that a finding suggests, without `tidelog`."""
    found = []
    for part in finding.next_step.split("tidelog ")[1:]:
        command = part
        for end in _END:
            command = command.partition(end)[0]
        found.append(shlex.split(command.rstrip(".")))
    return found


async def until_gone(cluster: LocalCluster, cause: str) -> None:
    seen: list[Explanation] = []

    async def check() -> bool:
        seen[:] = [await explained(cluster)]
        return cause not in {name for name, _ in causes_of(seen[0])}

    try:
        await until(check, f"explain no longer reports {cause}")
    except AssertionError as error:
        raise AssertionError(f"{error}: {seen}") from None


async def carried_out(cluster: LocalCluster, command: list[str], *options: str) -> str:
    """The output of a suggested command, which must succeed."""
    status, output = await tidelog(cluster, *command, *options)
    assert status == ExitStatus.DONE, output
    return output
