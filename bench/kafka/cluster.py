"""Three Kafka brokers on this machine, each a controller as well, without ZooKeeper."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

from bench.kafka.settings import (
    REPLICATION_FACTOR,
    Node,
    jvm_options,
    server_properties,
)
from tidelog_runtime.local.addresses import choose_port
from tidelog_runtime.local.members import describe_death
from tidelog_runtime.local.process import LocalProcess

# The artifacts of the brokers.
BROKERS = Path(__file__).parent / "brokers.xml"
_COUNT = 3
READY_S = 120.0
_PAUSE_S = 1.0
# 16 bytes, in Kafka's encoding; any value would do.
_CLUSTER_ID = "VGlkZWxvZ0JlbmNoUmVhZA"
# Brokers log little themselves; by default only errors are logged.
_LOGGING = ("-Dlog4j2.level=WARN",)


class KafkaError(Exception):
    """Kafka failed; `str(error)` has the end of its output."""


class KafkaCluster:
    def __init__(self, directory: Path, jars: Sequence[Path], heap_mb: int) -> None:
        self._directory = directory
        self._classpath = ":".join(map(str, jars))
        taken: set[int] = set()
        rng = random.Random()
        self._nodes = [
            Node(
                node_id,
                choose_port(None, taken=taken, rng=rng),
                choose_port(None, taken=taken, rng=rng),
            )
            for node_id in range(1, _COUNT + 1)
        ]
        self._processes = [
            LocalProcess(
                f"kafka-{node.id}",
                [
                    "java",
                    *jvm_options(heap_mb),
                    *_LOGGING,
                    "-cp",
                    self._classpath,
                    "kafka.Kafka",
                    str(self._file(node)),
                ],
                log_path=directory / f"kafka-{node.id}.log",
                environment=os.environ,
            )
            for node in self._nodes
        ]

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self._nodes)

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes if process.pid is not None]

    async def start(self) -> None:
        """Returns once topics can be created. Raises `KafkaError`."""
        for node in self._nodes:
            data = self._directory / f"data-{node.id}"
            data.mkdir(parents=True)
            self._file(node).write_text(server_properties(node, self._nodes, str(data)))
            formatting = ("format", "-t", _CLUSTER_ID, "-c", str(self._file(node)))
            status, output = await self.tool("kafka.tools.StorageTool", *formatting)
            if status != 0:
                raise KafkaError(f"Kafka could not format {data}:\n{output}")
        for process in self._processes:
            process.start()
        await self._until("Kafka's brokers do not answer", "--list")

    async def create_topic(self, topic: str, partitions: int) -> None:
        await self._until(
            f"topic {topic} is not created",
            "--create",
            "--if-not-exists",
            "--topic",
            topic,
            "--partitions",
            str(partitions),
            "--replication-factor",
            str(REPLICATION_FACTOR),
        )

    async def in_sync(self) -> None:
        """Returns once every follower has all records."""
        await self._until(
            "followers are behind", "--describe", "--under-replicated-partitions", silent=True
        )

    async def stop(self) -> None:
        await asyncio.gather(*(process.stop() for process in self._processes))

    async def _until(self, problem: str, *arguments: str, silent: bool = False) -> None:
        """Waits until the topic tool prints its expected output, or with `silent` nothing."""
        arguments_of_tool = ("--bootstrap-server", self.bootstrap, *arguments)
        deadline = time.monotonic() + READY_S
        while True:
            for process in self._processes:
                if process.died:
                    raise KafkaError(describe_death(process))
            status, output = await self.tool(
                "org.apache.kafka.tools.TopicCommand", *arguments_of_tool
            )
            if status == 0 and not (silent and output.strip()):
                return
            if time.monotonic() > deadline:
                raise KafkaError(f"{problem} after {READY_S:.0f} s:\n{output}")
            await asyncio.sleep(_PAUSE_S)

    async def tool(self, name: str, *arguments: str) -> tuple[int, str]:
        """Runs a tool. Returns its exit status and output."""
        process = await asyncio.create_subprocess_exec(
            "java",
            "-Xmx512m",  # as its own scripts start tools
            "-cp",
            self._classpath,
            name,
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        return process.returncode or 0, output.decode(errors="replace")

    def _file(self, node: Node) -> Path:
        return self._directory / f"server-{node.id}.properties"
