"""A second process with the id of a broker, on the same machine as the first."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tomllib
from pathlib import Path

from faults.second_directory import copy_directory
from tidelog_runtime.config import METRICS_OFF
from tidelog_runtime.local import cluster_file
from tidelog_runtime.local.process import LocalProcess


class LocalSecond:
    """A `SecondProcess`. `config`: that of the first process. `directory`: a new one."""

    def __init__(self, name: str, config: Path, directory: Path) -> None:
        self._directory = directory
        self.data_dir = directory / "data"
        settings = tomllib.loads(config.read_text())
        own = directory / "config.toml"
        cluster_file.write(
            own,
            {
                **settings,
                "data_dir": str(self.data_dir),
                "listen": "127.0.0.1:0",
                "metrics_listen": METRICS_OFF,
            },
        )
        self._process = LocalProcess(
            f"{name}-second",
            [sys.executable, "-m", "tidelog_broker", "--config", str(own)],
            log_path=directory / "log",
            environment=dict(os.environ),
        )

    @property
    def place(self) -> str:
        return str(self.data_dir)

    async def start(self, copied: Path | None) -> None:
        if copied is not None:
            await asyncio.to_thread(copy_directory, copied, self.data_dir)
        self._process.start()

    async def exit_status(self) -> int | None:
        return self._process.exit_status

    async def log_lines(self) -> list[bytes]:
        return self._process.log_path.read_bytes().splitlines(keepends=True)

    async def stop(self) -> None:
        if self._process.running:
            await self._process.stop()
        await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
