"""Three servers of NATS on this machine, with JetStream."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import time
from pathlib import Path

from bench.peers import nats_clients
from bench.peers.nats_settings import Server, configuration
from tidelog_runtime.local.addresses import choose_port
from tidelog_runtime.local.members import describe_death
from tidelog_runtime.local.process import LocalProcess

_COUNT = 3
_READY_S = 60.0
_PAUSE_S = 0.5


class NatsError(Exception):
    """`str(error)` says what is missing, or has the end of the server's output."""


class NatsCluster:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        taken: set[int] = set()
        rng = random.Random()
        self._servers = [
            Server(
                f"nats-{number}",
                choose_port(None, taken=taken, rng=rng),
                choose_port(None, taken=taken, rng=rng),
            )
            for number in range(1, _COUNT + 1)
        ]
        self._processes = [
            LocalProcess(
                server.name,
                [_program(), "--config", str(self._file(server))],
                log_path=directory / f"{server.name}.log",
                environment=os.environ,
            )
            for server in self._servers
        ]

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self._servers]

    async def start(self) -> None:
        """Returns once streams can be created. Raises `NatsError`."""
        for server in self._servers:
            store = self._directory / f"data-{server.name}"
            store.mkdir(parents=True)
            self._file(server).write_text(configuration(server, self._servers, str(store)))
        for process in self._processes:
            process.start()
        deadline = time.monotonic() + _READY_S
        while (why := await nats_clients.why_not_ready(self.urls, _COUNT)) is not None:
            for process in self._processes:
                if process.died:
                    raise NatsError(describe_death(process))
            if time.monotonic() > deadline:
                raise NatsError(f"NATS is not ready after {_READY_S:.0f} s: {why}")
            await asyncio.sleep(_PAUSE_S)

    async def stop(self) -> None:
        await asyncio.gather(*(process.stop() for process in self._processes))

    def _file(self, server: Server) -> Path:
        return self._directory / f"{server.name}.conf"


def version() -> str:
    """Raises `NatsError`."""
    completed = subprocess.run(
        [_program(), "--version"], capture_output=True, text=True, timeout=10
    )
    return completed.stdout.strip().rpartition(" ")[2]


def _program() -> str:
    # Debian installs it in a directory that is only in root's PATH.
    program = shutil.which("nats-server", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        raise NatsError("NATS is not installed: on Debian, apt-get install nats-server")
    return program
