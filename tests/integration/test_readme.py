"""The commands and the Python program of the documentation work on a running cluster."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from documented import DIRECTORY, README, blocks, read, tour
from integration.topics import create_topic
from tidelog_runtime.local.cluster import LocalCluster

TIMEOUT_SECONDS = 60


async def run(cluster: LocalCluster, command: str) -> str:
    """The standard output of a command that ends with status 0."""
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    process = await asyncio.create_subprocess_shell(
        command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PATH": programs, "TIDELOG_BOOTSTRAP": cluster.bootstrap},
    )
    async with asyncio.timeout(TIMEOUT_SECONDS):
        output, errors = await process.communicate()
    assert process.returncode == 0, f"{command}: {errors.decode()}"
    return output.decode()


async def test_the_tour_writes_and_reads(cluster: LocalCluster) -> None:
    commands = [command for command in tour() if DIRECTORY not in command]
    assert len(commands) == 12
    outputs = [await run(cluster, command) for command in commands]
    assert sorted(outputs[3].split()) == ["north:calm", "north:swell", "south:storm"]
    assert '"still"' in outputs[7]
    assert "All is well" in outputs[8]
    assert "become_leader" in outputs[9]
    assert outputs[11] == "Every partition of topic sea has a leader.\n"


async def test_the_python_example_reads_what_it_wrote(cluster: LocalCluster) -> None:
    (example,) = blocks("python", read(README))
    await create_topic(cluster, "example", 3)
    program = example.replace("127.0.0.1:7501", cluster.bootstrap).replace('"sea"', '"example"')
    program = program.replace("poll()", "poll(max_records=3)")
    output = await run(cluster, f"{sys.executable} - <<'PROGRAM'\n{program}PROGRAM")
    # One poll, which may return one partition alone: the record of the first, or the other two.
    assert "b'calm'" in output or "b'flow'" in output
