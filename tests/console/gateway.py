"""The gateway as a process of its own, as it is run."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.local.ports import HOST, choose_port
from tidelog_runtime.local.process import LocalProcess

_START_SECONDS = 60.0
_POLL_SECONDS = 0.1


@asynccontextmanager
async def running_gateway(cluster: LocalCluster) -> AsyncIterator[str]:
    """Its URL, once it is ready."""
    address = f"{HOST}:{choose_port(None, taken=set(), rng=random.Random())}"
    command = [sys.executable, "-m", "tidelog_admin_api"]
    command += ["--bootstrap", cluster.bootstrap, "--listen", address]
    process = LocalProcess(
        "admin-api",
        command,
        log_path=cluster.directory / "logs/admin-api.log",
        environment=os.environ,
    )
    process.start()
    try:
        await _ready(f"http://{address}", process)
        yield f"http://{address}"
        assert process.running, process.log_tail()
    finally:
        await process.stop()


async def _ready(url: str, process: LocalProcess) -> None:
    async with httpx.AsyncClient(base_url=url) as client, asyncio.timeout(_START_SECONDS):
        while True:
            assert process.running, process.log_tail()
            try:
                if (await client.get("/ready")).is_success:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(_POLL_SECONDS)
