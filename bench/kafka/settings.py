"""The configuration of Kafka's brokers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

REPLICATION_FACTOR = 3
# From Kafka's own start script, beside the heap.
JVM_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# As in Kafka's own server.properties, with the factors that it recommends for production;
# compression, batches and all else are defaults.
COMMON: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
    "auto.create.topics.enable": "false",
    "log.segment.bytes": "1073741824",
}


@dataclass(frozen=True, slots=True)
class Node:
    """A broker and controller in one process, on this machine."""

    id: int
    port: int
    controller_port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


def server_properties(node: Node, nodes: Sequence[Node], data_dir: str) -> str:
    voters = ",".join(f"{one.id}@127.0.0.1:{one.controller_port}" for one in nodes)
    listeners = f"PLAINTEXT://{node.address},CONTROLLER://127.0.0.1:{node.controller_port}"
    own = {
        "node.id": str(node.id),
        "controller.quorum.voters": voters,
        "listeners": listeners,
        "advertised.listeners": f"PLAINTEXT://{node.address}",
        "log.dirs": data_dir,
    }
    return "".join(f"{key}={value}\n" for key, value in {**COMMON, **own}.items())


def jvm_options(heap_mb: int) -> list[str]:
    return [f"-Xms{heap_mb}m", f"-Xmx{heap_mb}m", *JVM_OPTIONS]
