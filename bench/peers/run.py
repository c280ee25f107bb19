"""Runs all clusters, and rounds of all pieces of work, in which the peers alternate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import confluent_kafka

from bench.kafka import maven
from bench.kafka.cluster import BROKERS, KafkaCluster
from bench.kafka.settings import COMMON, REPLICATION_FACTOR, jvm_options
from bench.peers import kafka_clients, nats_cluster
from bench.peers.measures import Peers, Work
from bench.peers.nats_cluster import NatsCluster
from bench.peers.results import Done
from bench.peers.settings import Settings
from bench.suite.bed import BROKER_CONFIG, bed
from bench.suite.matrix import BATCH_BYTES, USUAL
from bench.worker import Worker
from tidelog.model import Acks

PrintLine = Callable[[str], None]


class Found(NamedTuple):
    set_up: Mapping[str, str]
    done: Sequence[Done]
    ceilings: Sequence[float]


async def run(directory: Path, settings: Settings, print_line: PrintLine) -> Found:
    jars = maven.jars(BROKERS, directory)
    set_up = _set_up(settings, jars)
    print_line("\n".join(f"{name}: {value}" for name, value in set_up.items()))
    kafka = KafkaCluster(directory / "kafka", jars, settings.kafka_heap_mb)
    nats = NatsCluster(directory / "nats")
    async with AsyncExitStack() as stack:
        on = await stack.enter_async_context(bed(directory / "bed"))
        for cluster in (kafka, nats):
            stack.push_async_callback(cluster.stop)
            await cluster.start()
        worker = await stack.enter_async_context(Worker("client"))
        peers = Peers(on, kafka, nats, worker, settings)
        backlog = await stack.enter_async_context(on.topic(USUAL.partitions, keeps_all=True))
        await peers.fill(backlog)
        print_line("backlogs are written")
        done: list[Done] = []
        ceilings = []
        for number in range(1, settings.pairs + 1):
            ceilings.append(await peers.ceiling())
            for work in peers.works():
                done += await _in_turn(work, number, print_line)
        return Found(set_up, done, ceilings)


async def _in_turn(work: Work, number: int, print_line: PrintLine) -> list[Done]:
    """Runs one piece of work on each peer. Another peer begins in each round."""
    peers = list(work.by_peer)
    first = number % len(peers)
    done = []
    for peer in peers[first:] + peers[:first]:
        figures = await work.by_peer[peer]()
        done.append(Done(work.name, peer, number, figures))
        line = ", ".join(f"{name} {value:,.2f}" for name, value in figures.items())
        print_line(f"{number}: {work.name}, {peer}: {line}")
    return done


def _set_up(settings: Settings, jars: Sequence[Path]) -> dict[str, str]:
    def as_text(given: Mapping[str, str]) -> str:
        return " ".join(f"{name}={value}" for name, value in given.items())

    return {
        "Kafka's brokers and tools": maven.version("kafka_2.13", jars),
        "their JVM": " ".join(jvm_options(settings.kafka_heap_mb)),
        "their settings": as_text(COMMON),
        "Kafka's client": f"confluent-kafka {confluent_kafka.version()}, librdkafka "
        f"{confluent_kafka.libversion()[0]}",
        "its producer, as the tool's": as_text(
            kafka_clients.producer_settings(Acks.ALL, kafka_clients.LINGER_MS)
        ),
        "NATS": f"{nats_cluster.version()}, nats-py {metadata.version('nats-py')}; streams of "
        f"{REPLICATION_FACTOR} replicas on files, all else by default",
        "Tidelog's brokers": as_text({name: str(value) for name, value in BROKER_CONFIG.items()})
        + ", all else by default",
        "Tidelog's producer": f"batches of {BATCH_BYTES} bytes by send_many",
        "all": f"3 brokers, {USUAL.partitions} partitions (of NATS streams), factor "
        f"{REPLICATION_FACTOR}, records of {USUAL.record_bytes} bytes, no compression; all of them "
        "run while any of them works",
    }
