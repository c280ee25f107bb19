"""Starts and ends a process of clients of one release (`client_load`)."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from faults.load import DELIVERY_TIMEOUT_MS, READY
from faults.observed import CATCH_UP_S, ReaderSeen
from upgrade.client_load import ClientSettings
from upgrade.releases import ROOT, Release

READY_TIMEOUT_S = 120.0
# Records in flight have an outcome after their delivery timeout; then readers catch up.
END_TIMEOUT_S = DELIVERY_TIMEOUT_MS / 1000 + CATCH_UP_S + 30.0


class ClientsFailedError(Exception):
    """The process did not begin, failed or ended by itself; the message has its output."""


class ClientProcess:
    def __init__(self, release: Release, settings: ClientSettings, directory: Path) -> None:
        self._release = release
        self._settings = settings
        self._log = directory / f"{settings.name}.log"
        self._file = directory / f"{settings.name}.json"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Returns once every writer has written. Raises `ClientsFailedError`."""
        self._settings.write(self._file)
        with self._log.open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "upgrade.client_load", str(self._file)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=self._release.environment(ROOT / "tests"),
            )
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                line = await self._process.stdout.readline()
        except TimeoutError:
            line = b""
        if line.decode().strip() != READY:
            raise self._failed("does not write")

    async def end(self) -> list[ReaderSeen]:
        """Ends writing; waits for records in flight and for readers. Raises `ClientsFailedError`.

        Returns what readers saw."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        if process.returncode is not None:
            raise self._failed("ended by itself")
        process.stdin.close()
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            raise self._failed(f"did not end within {END_TIMEOUT_S:g} s") from None
        if process.returncode:
            raise self._failed(f"ended with status {process.returncode}")
        text = await asyncio.to_thread(Path(self._settings.readers).read_text)
        return [ReaderSeen(*reader) for reader in json.loads(text)]

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def _failed(self, how: str) -> ClientsFailedError:
        output = self._log.read_text(errors="replace")[-2_000:] or "(no output)"
        name = f"{self._settings.name} of release {self._release.version}"
        return ClientsFailedError(f"the process of clients {name} {how}: {output}")
