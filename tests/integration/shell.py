"""Runs `tidelog` as a process, as an operator types it."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, NamedTuple

from tidelog.cli.exit_status import ExitStatus
from tidelog_runtime.local.cluster import LocalCluster


class Ended(NamedTuple):
    status: int
    out: str
    err: str

    def document(self) -> Any:
        assert self.status == ExitStatus.DONE, self.err
        return json.loads(self.out)


async def tidelog(cluster: LocalCluster, *arguments: str, input_: str = "") -> Ended:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tidelog.cli", *arguments, "--bootstrap", cluster.bootstrap,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate(input_.encode())
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


async def done(cluster: LocalCluster, *arguments: str) -> str:
    """The output of a successful command."""
    ended = await tidelog(cluster, *arguments)
    assert ended.status == ExitStatus.DONE, ended.err
    return ended.out
