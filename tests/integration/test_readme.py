"""The README's tour and its Python do on a running cluster what they say."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

from integration.topics import create_topic
from tidelog_runtime.local.cluster import LocalCluster

README = (Path(__file__).parents[2] / "README.md").read_text()
TIMEOUT_SECONDS = 60
COMPOSE = "docker-compose "
# Of `make up`; the clusters of tests lie elsewhere.
DIRECTORY = ".tidelog/"
JOB = "tidelog_pipeline"


# Their commands are those of a data engineer, and have tests of their own.
ON_SPARK = ("Spark", "Jobs on Spark")


def sections() -> dict[str, str]:
    """By heading."""
    parts = re.split(r"^## (.*)\n", README, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[str]:
    """Without their comments; what would ask is told, because nobody can be asked here."""
    joined = [re.sub(r"\\\n\s*", "", block) for block in blocks("console", text)]
    lines = [line[2:] for block in joined for line in block.splitlines()]
    stripped = [re.sub(r"\s+#.*", "", line) for line in lines]
    return [c + " --yes" if "recover" in c else c for c in stripped]


def commands_of_the_tour() -> list[str]:
    texts = [text for title, text in sections().items() if title not in ON_SPARK]
    return [c for text in texts for c in commands(text) if JOB not in c]


def tour() -> list[str]:
    """What is done with a cluster of `make up` once that runs."""
    starts = ("make ", ". ", COMPOSE)
    return [c for c in commands_of_the_tour() if not c.startswith(starts)]


def tour_in_containers() -> list[str]:
    """With what the README says to do instead where a command names processes or files of this
    machine; what it says beyond that comes last."""
    instead = iter([c for c in commands_of_the_tour() if c.startswith(COMPOSE)])
    return [*(next(instead) if DIRECTORY in c else c for c in tour()), *instead]


async def run(cluster: LocalCluster, command: str) -> str:
    """Standard output of a command that ends with status 0."""
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
    told = [command for command in tour() if DIRECTORY not in command]
    assert len(told) == 12
    outputs = [await run(cluster, command) for command in told]
    assert sorted(outputs[3].split()) == ["north:calm", "north:swell", "south:storm"]
    assert '"still"' in outputs[7]
    assert "All is well" in outputs[8]
    assert "become_leader" in outputs[9]
    assert outputs[11] == "Every partition of topic sea has a leader.\n"


async def test_the_python_example_reads_what_it_wrote(cluster: LocalCluster) -> None:
    (example,) = blocks("python", sections()["From Python"])
    await create_topic(cluster, "example", 3)
    program = example.replace("127.0.0.1:7501", cluster.bootstrap).replace('"sea"', '"example"')
    program = program.replace("poll()", "poll(max_records=3)")
    output = await run(cluster, f"{sys.executable} - <<'PROGRAM'\n{program}PROGRAM")
    # One poll, which may bring one partition alone: the first's record or the other two.
    assert "b'calm'" in output or "b'flow'" in output
