"""The cluster whose gateway is asked."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

from integration.clusters import running_cluster
from tidelog_runtime.local.ports import HOST, choose_port
from tidelog_runtime.local.process import LocalProcess

BROKERS = 4
READY_SECONDS = 60


class Fuzzed(NamedTuple):
    """`process`: of the gateway, at `url`."""

    bootstrap: str
    brokers: tuple[int, ...]
    url: str
    process: LocalProcess


@asynccontextmanager
async def fuzzed_cluster(directory: Path) -> AsyncIterator[Fuzzed]:
    async with running_cluster(directory, brokers=BROKERS, controllers=2) as cluster:
        address = f"{HOST}:{choose_port(None, set())}"
        process = LocalProcess(
            "admin-api",
            [
                *(sys.executable, "-m", "tidelog_admin_api"),
                *("--listen", address, "--bootstrap", cluster.bootstrap),
            ],
            log_path=directory / "logs" / "admin-api.log",
            environment=os.environ,
        )
        process.start()
        try:
            url = f"http://{address}"
            await _until_ready(url)
            yield Fuzzed(cluster.bootstrap, tuple(cluster.broker_ids), url, process)
        finally:
            await process.stop()


async def _until_ready(url: str) -> None:
    async with httpx.AsyncClient() as client, asyncio.timeout(READY_SECONDS):
        while True:
            try:
                if (await client.get(f"{url}/ready")).is_success:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.1)
