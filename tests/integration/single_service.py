"""One broker or controller as its own process, for tests of its start."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from integration.logs import LogSince
from integration.waiting import TIMEOUT_SECONDS, until_true
from tidelog_runtime.local import cluster_file
from tidelog_runtime.local.cluster_file import Setting
from tidelog_runtime.local.process import LocalProcess


class SingleService:
    """`program`: tidelog_broker or tidelog_controller. Settings go into its configuration file."""

    def __init__(self, program: str, directory: Path, name: str, **settings: Setting) -> None:
        path = directory / f"{name}.toml"
        cluster_file.write(path, {"lease_ttl_seconds": 2, **settings})
        self.process = LocalProcess(
            name,
            [sys.executable, "-m", program, "--config", str(path)],
            log_path=directory / f"{name}.log",
            environment={k: v for k, v in os.environ.items() if not k.startswith("TIDELOG_")},
        )
        self._log = LogSince(self.process.log_path, from_start=True)

    async def ended(self) -> int:
        """Its exit status, once it has ended by itself."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await self.process.wait()
        assert self.process.exit_status is not None
        return self.process.exit_status

    def text(self) -> str:
        return self._log.text()

    def events(self, name: str) -> list[dict[str, Any]]:
        """The log lines of that name so far."""
        return self._log.events(name)

    def state_changes(self, kind: str, stage: str | None = None) -> list[dict[str, Any]]:
        """Like `LogSince.state_changes`."""
        return self._log.state_changes(kind, stage)

    async def until_reported(self, kind: str, stage: str = "completed") -> dict[str, Any]:
        """The first state change of that kind."""
        await until_true(
            lambda: bool(self.state_changes(kind, stage)) or not self.process.running,
            f"{self.process.name} reports {kind} {stage}",
        )
        lines_of_kind = self.state_changes(kind, stage)
        assert lines_of_kind, (
            f"{self.process.name} has ended without {kind} {stage}:\n{self.text()}"
        )
        return lines_of_kind[0]

    async def until_logged(self, name: str) -> dict[str, Any]:
        await until_true(
            lambda: bool(self.events(name)) or not self.process.running,
            f"{self.process.name} logs {name}",
        )
        lines = self.events(name)
        assert lines, f"{self.process.name} has ended without {name}:\n{self.text()}"
        return lines[0]
