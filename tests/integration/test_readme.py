"""The commands and the Python program of the documentation work on a running cluster."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from documented import DIRECTORY, KAFKA_CLIENTS, PYTHON, README, blocks, read, tour
from integration.topics import create_topic
from tidelog.client.partitioner import partition_for_key
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


async def run_programs(cluster: LocalCluster, page: str, topic: str) -> str:
    """The output of all Python programs of a page, which write to this topic instead of `sea`."""
    program = "\n".join(blocks("python", read(page)))
    program = program.replace("127.0.0.1:7501", cluster.bootstrap).replace('"sea"', f'"{topic}"')
    return await run(cluster, f"{sys.executable} - <<'PROGRAM'\n{program}PROGRAM")


async def test_the_python_example_reads_what_it_wrote(cluster: LocalCluster) -> None:
    await create_topic(cluster, "example", 3)
    output = await run_programs(cluster, README, "example")
    assert output == f"{partition_for_key(b'north', 3)} 0 b'north' b'calm'\n"


async def test_the_python_page_reads_what_it_wrote(cluster: LocalCluster) -> None:
    await create_topic(cluster, "page", 1)
    output = await run_programs(cluster, PYTHON, "page")
    lines = ["0 b'north' b'calm'", "0 b'north' b'calm'", "1 b'south' b'storm'"]
    assert output.splitlines() == lines


async def test_the_programs_for_users_of_kafka_clients_print_what_the_page_shows(
    cluster: LocalCluster,
) -> None:
    output = await run_programs(cluster, KAFKA_CLIENTS, "unused")
    assert output == "".join(blocks("text", read(KAFKA_CLIENTS)))
