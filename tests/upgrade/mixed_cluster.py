"""A local cluster whose parts run the releases that were chosen for them."""

from __future__ import annotations

import asyncio
import random
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import httpx

from tidelog_runtime.local.addresses import GATEWAY
from tidelog_runtime.local.cluster import LocalCluster, Programs
from tidelog_runtime.local.cluster_file import Setting
from tidelog_runtime.local.process import LocalProcess
from tidelog_runtime.metadata.store import StoreUnavailableError
from upgrade.chosen_release import choose, program
from upgrade.releases import Release

BROKERS = 3
CONTROLLERS = 2
# For a machine that has other work as well.
READY_TIMEOUT_S = 180.0
# More than the longest `--wait-timeout` of a roll.
COMMAND_TIMEOUT_S = 360.0
ELECTION_TIMEOUT_S = 60.0
POLL_S = 0.25
# A process that waits for its processor keeps its lease: only parts that are stopped shall be away.
LEASES: Mapping[str, Setting] = {"lease_ttl_seconds": 10}
_BUILD = re.compile(r'^tidelog_build_info\{.*version="([^"]*)".*\} 1', re.MULTILINE)
# What no user may see, and no service may log.
TRACEBACK = "Traceback (most recent call last)"


class MixedClusterError(Exception):
    """A part did not do what the roll needs; the message has the part and the reason."""


class Ended(NamedTuple):
    """A command. `output`: both streams."""

    command: str
    status: int
    out: str
    output: str


class MixedCluster:
    # Advertised addresses are local.
    own_routes: Mapping[str, str] = {}

    def __init__(self, directory: Path, first: Release) -> None:
        self._choices = directory / "choices"
        self.local = LocalCluster(
            directory,
            brokers=BROKERS,
            controllers=CONTROLLERS,
            broker_config=LEASES,
            controller_config=LEASES,
            gateway=True,
            usual_ports=False,
            programs=Programs(
                controller=program(self._choices, "tidelog_controller"),
                broker=program(self._choices, "tidelog_broker"),
                gateway=program(self._choices, "tidelog_admin_api"),
            ),
            rng=random.Random(),
        )
        self._releases: dict[str, Release] = {}
        for i in range(1, CONTROLLERS + 1):
            self.choose(f"controller-{i}", first)
        for i in range(1, BROKERS + 1):
            self.choose(f"broker-{i}", first)
        self.choose(GATEWAY, first)

    @property
    def parts(self) -> list[str]:
        return list(self._releases)

    @property
    def brokers(self) -> list[str]:
        return [part for part in self.parts if part.startswith("broker-")]

    @property
    def controllers(self) -> list[str]:
        return [part for part in self.parts if part.startswith("controller-")]

    @property
    def bootstrap(self) -> Sequence[str]:
        return self.local.bootstrap.split(",")

    @property
    def gateway_address(self) -> str:
        return self.local.gateway_address

    def release_of(self, part: str) -> Release:
        return self._releases[part]

    def choose(self, part: str, release: Release) -> None:
        """Its next start is of this release."""
        choose(self._choices, part, release.python_path)
        self._releases[part] = release

    # -- processes -------------------------------------------------------------------------

    async def start(self) -> None:
        await self.local.start()
        await self.local.ready(READY_TIMEOUT_S)
        for part in self.parts:
            await self.check_release(part)

    async def stop(self) -> None:
        await self.local.stop()

    async def replace(self, part: str, release: Release) -> None:
        """Stops the part by SIGTERM and starts it from the release; returns once all parts serve.
        Raises `MixedClusterError` if it ended otherwise than asked."""
        process = self._process(part)
        if not await process.stop() or process.exit_status != 0:
            raise MixedClusterError(
                f"{part} of release {self.release_of(part).version} did not stop in order "
                f"(exit status {process.exit_status}): {process.log_tail()}"
            )
        self.choose(part, release)
        await self.start_again(part)

    async def kill(self, part: str) -> None:
        await self._process(part).kill()

    async def start_again(self, part: str) -> None:
        """Starts a part that has ended, from the release that is chosen for it."""
        self.local.restart(part)
        # This costs less than `ready`, which would delay the start on a machine with two cores.
        await self.check_release(part)
        await self.local.ready(READY_TIMEOUT_S)

    def address(self, part: str) -> str:
        kind, _, number = part.rpartition("-")
        address = self.local.broker_address if kind == "broker" else self.local.controller_address
        return address(int(number))

    async def active_controller(self) -> str:
        """Returns once one is active."""
        try:
            async with asyncio.timeout(ELECTION_TIMEOUT_S):
                while True:
                    active = None
                    # An etcd that answers late on a busy machine is asked again.
                    with suppress(StoreUnavailableError):
                        active = await self.local.active_controller()
                    if active is not None and self._process(f"controller-{active}").running:
                        return f"controller-{active}"
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise MixedClusterError(
                f"no controller is active within {ELECTION_TIMEOUT_S:g} s"
            ) from None

    async def check_release(self, part: str) -> None:
        """Raises `MixedClusterError` if the part reports another version than the chosen one."""
        expected = self.release_of(part).version
        version = await self._version(part)
        if version != expected:
            raise MixedClusterError(
                f"{part} was started from release {expected} and reports version {version!r}"
            )

    async def _version(self, part: str) -> str:
        """From its metrics, which a started service serves a moment later."""
        address = self._metrics_address(part)
        async with httpx.AsyncClient(trust_env=False, timeout=READY_TIMEOUT_S) as http:
            try:
                async with asyncio.timeout(READY_TIMEOUT_S):
                    while True:
                        try:
                            found = _BUILD.search(
                                (await http.get(f"http://{address}/metrics")).text
                            )
                        except httpx.TransportError:
                            found = None
                        if found:
                            return found[1]
                        self.local.check_alive()
                        await asyncio.sleep(POLL_S)
            except TimeoutError:
                return ""

    def _metrics_address(self, part: str) -> str:
        if part == GATEWAY:
            return self.local.gateway_address
        kind, _, number = part.rpartition("-")
        metrics = self.local.broker_metrics if kind == "broker" else self.local.controller_metrics
        return metrics(int(number))

    def _process(self, part: str) -> LocalProcess:
        return next(process for process in self.local.processes() if process.name == part)

    def tracebacks(self) -> list[str]:
        """The parts whose logs have a traceback, each with its first lines."""
        found = []
        for process in self.local.processes():
            before, mark, rest = process.log_path.read_text(errors="replace").partition(TRACEBACK)
            if mark:
                context = before.splitlines()[-3:] + rest.splitlines()[:40]
                found.append(f"{process.name} logged a traceback: " + "\n".join(context))
        return found

    # -- commands --------------------------------------------------------------------------

    async def tidelog(self, release: Release, *arguments: str, input_: str = "") -> Ended:
        """Runs the command line of the release."""
        command = f"tidelog {' '.join(arguments)} ({release.version})"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tidelog.cli", *arguments),
            *("--bootstrap", self.local.bootstrap),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=release.environment(),
        )
        try:
            async with asyncio.timeout(COMMAND_TIMEOUT_S):
                out, err = await process.communicate(input_.encode())
        except TimeoutError:
            process.kill()
            await process.wait()
            raise MixedClusterError(f"{command} did not end in {COMMAND_TIMEOUT_S:g} s") from None
        assert process.returncode is not None
        text = out.decode(errors="replace")
        return Ended(command, process.returncode, text, text + err.decode(errors="replace"))

    async def done(self, release: Release, *arguments: str, input_: str = "") -> str:
        """The output of a command. Raises `MixedClusterError` if it fails."""
        ended = await self.tidelog(release, *arguments, input_=input_)
        if ended.status:
            raise MixedClusterError(f"{ended.command}: status {ended.status}: {ended.output}")
        return ended.out
