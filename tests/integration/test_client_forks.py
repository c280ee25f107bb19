"""fork() in real processes: an inherited client raises, and a client of the child's own works."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from integration.forking_client import FORKS_IN_SUCCESSION
from tidelog.client import Admin
from tidelog.testing import MemoryBroker

FORKING_CLIENT = Path(__file__).with_name("forking_client.py")
TIMEOUT_S = 60


async def seen_by(scenario: str) -> dict[str, Any]:
    with MemoryBroker() as broker:
        async with Admin(broker.bootstrap) as admin:
            await admin.create_topic("sea")
        return await _run(broker.bootstrap, scenario)


async def _run(bootstrap: str, scenario: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(FORKING_CLIENT), bootstrap, scenario),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0
    seen: dict[str, Any] = json.loads(output)
    return seen


async def test_clients_without_async_that_other_threads_use() -> None:
    assert await seen_by("sync") == {
        "inherited producer": "CLIENT_FORKED",
        "inherited consumer": "CLIENT_FORKED",
        "inherited admin": "CLIENT_FORKED",
        "close of an inherited client": "None",
        "own clients": "read",
        "own clients of a grandchild": "read",
        "parent": "sea",
        "own clients of children in quick succession": {"sea": FORKS_IN_SUCCESSION},
        "parent's sending thread": "sea",
        "parent's administering thread": "sea",
        "parent's thread": "polled",
        "own clients after the parent closed its": "read",
    }


async def test_a_fork_within_a_coroutine() -> None:
    assert await seen_by("async") == {
        "inherited producer": "CLIENT_FORKED",
        "close of an inherited client": "None",
        "inherited delivery": "CLIENT_FORKED",
        "inherited batch delivery": "CLIENT_FORKED",
        "own client": "sent",
        "parent": "sea",
        # gRPC cannot be stopped there: the limit that docs/client-guarantees.md states.
        "own client, a request in progress": "CLIENT_FORKED",
        "parent's consumer": "read",
    }
