"""iptables rules in the network namespace of a container; they need no program in the container."""

from __future__ import annotations

import json
import os
import sys
from asyncio import subprocess
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from faults import packet_rules
from faults.cluster import ClusterFailedError
from faults.commands import run_command
from faults.packet_rules import Packets
from faults.relay import Counts, Manner

RELAY_PORT = 17_500
TESTS = Path(__file__).resolve().parents[1]

# The process whose namespace it is. 0: the container is down, and its rules are gone with it.
Pid = Callable[[], Awaitable[int]]


def _inside(pid: int, *command: str) -> list[str]:
    return ["nsenter", "--target", str(pid), "--net", *command]


class Rules:
    """In force from `begin` to `heal`, unless the container ends earlier."""

    def __init__(self, name: str, pid: Pid, begin: str, end: str) -> None:
        self._name = name
        self._find_pid = pid
        self._begin = begin
        self._end = end
        self._pid = 0

    async def begin(self) -> None:
        self._pid = await self._find_pid()
        if not self._pid:
            raise ClusterFailedError("a container that is down has no network")
        await self._restore(self._begin)

    async def packets(self) -> Packets:
        if await self._find_pid() != self._pid:
            return Packets(0, 0)
        lost = passed = 0
        for chain in packet_rules.chains(self._name):
            listing = await run_command(
                _inside(self._pid, "iptables", "-v", "-x", "-n", "-L", chain)
            )
            counted = packet_rules.packets(listing)
            lost, passed = lost + counted.lost, passed + counted.passed
        return Packets(lost, passed)

    async def heal(self) -> None:
        if await self._find_pid() == self._pid:
            await self._restore(self._end)

    async def _restore(self, rules: str) -> None:
        command = _inside(self._pid, "iptables-restore", "--noflush", "--wait")
        await run_command(command, stdin=rules)


class ServiceRelay:
    """A relay in the network namespace of a broker; all external connections are redirected to
    it."""

    def __init__(self, name: str, pid: Pid, port: int, manner: Manner) -> None:
        self._rules = Rules(
            name,
            pid,
            packet_rules.redirect(name, port, RELAY_PORT),
            packet_rules.stop_redirect(name),
        )
        self._find_pid = pid
        self._port = port
        self._manner = manner
        self._relay: subprocess.Process | None = None
        self._counts = Counts()

    async def begin(self) -> None:
        pid = await self._find_pid()
        self._relay = await subprocess.create_subprocess_exec(
            *_inside(pid, sys.executable, "-m", "faults.relay"),
            *(f"0.0.0.0:{RELAY_PORT}", f"127.0.0.1:{self._port}"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )
        # The relay prints its counts when it listens, and after each `Manner`.
        await self._read_counts()
        await self._behave()
        await self._rules.begin()

    async def counts(self) -> Counts:
        if self._relay is not None:
            await self._behave()
        return self._counts

    async def heal(self) -> None:
        with suppress(ClusterFailedError):
            await self.counts()
        await self._rules.heal()
        if self._relay is not None:
            assert self._relay.stdin is not None
            self._relay.stdin.close()
            await self._relay.wait()
            self._relay = None

    async def _behave(self) -> None:
        assert self._relay is not None
        assert self._relay.stdin is not None
        self._relay.stdin.write(json.dumps(asdict(self._manner)).encode() + b"\n")
        await self._read_counts()

    async def _read_counts(self) -> None:
        assert self._relay is not None
        assert self._relay.stdout is not None
        line = await self._relay.stdout.readline()
        if not line:
            raise ClusterFailedError("the relay in front of a broker has ended")
        self._counts = Counts(**json.loads(line))
