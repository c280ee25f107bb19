"""Fills both clusters, and reads them in turn; each reading has its own Spark driver."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyspark

from bench.kafka import maven
from bench.kafka.cluster import BROKERS, KafkaCluster
from bench.kafka.settings import COMMON, REPLICATION_FACTOR, jvm_options
from bench.spark_read import tidelog_topics
from bench.spark_read.driver import Answer, Order, Task
from bench.spark_read.records import Totals, ends
from bench.spark_read.results import KAFKA, TIDELOG, OneTask, Outcome, Reading, short_records
from bench.spark_read.settings import Settings
from tidelog_runtime.local.cluster import LocalCluster

ROOT = Path(__file__).parents[2]
# Spark's data source for Kafka.
SOURCE = Path(__file__).parent / "source.xml"
TOPIC = "sea"
ONE_PARTITION = "strait"
DRIVER_S = 3_600
READY_S = 120.0
# Kafka's producer waits, so that batches are full, and does not give up on a busy machine.
KAFKA_LINGER_MS = 100
KAFKA_PATIENCE_MS = 600_000
_TAIL_BYTES = 4_000

PrintLine = Callable[[str], None]


class DriverError(Exception):
    """A driver failed; `str(error)` has the end of its log."""


@dataclass(frozen=True)
class Jars:
    source: Sequence[Path]
    brokers: Sequence[Path]

    @classmethod
    def resolved(cls, directory: Path) -> Jars:
        """Raises `MavenError`."""
        return cls(maven.jars(SOURCE, directory), maven.jars(BROKERS, directory))


async def run(directory: Path, settings: Settings, print_line: PrintLine) -> Outcome:
    jars = Jars.resolved(directory)
    set_up = _set_up(settings, jars)
    print_line("\n".join(f"{name}: {value}" for name, value in set_up.items()))
    tidelog = LocalCluster(directory / "tidelog", usual_ports=False)
    kafka = KafkaCluster(directory / "kafka", jars.brokers, settings.kafka_heap_mb)
    try:
        await tidelog.start()
        await tidelog.ready(READY_S)
        await kafka.start()
        return await _Bench(directory, settings, jars, tidelog, kafka, print_line).run(set_up)
    finally:
        await asyncio.gather(tidelog.stop(), kafka.stop())


class _Bench:
    """The measurement. Both clusters run all the time: the idle one costs the other the same."""

    def __init__(
        self,
        directory: Path,
        settings: Settings,
        jars: Jars,
        tidelog: LocalCluster,
        kafka: KafkaCluster,
        print_line: PrintLine,
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._jars = jars
        self._tidelog = tidelog
        self._kafka = kafka
        self._print_line = print_line
        self._drivers = 0
        self._options = {
            TIDELOG: {"bootstrap.servers": tidelog.bootstrap, "subscribe": TOPIC},
            KAFKA: {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": TOPIC},
        }

    async def run(self, set_up: Mapping[str, object]) -> Outcome:
        await self._fill()
        # Otherwise the kernel would write the data to disk during a reading.
        await asyncio.to_thread(os.sync)
        settings = self._settings
        readings = [
            await self._reading(source, task, pair)
            for task, pairs in ((Task.BATCH, settings.pairs), (Task.STREAM, settings.stream_pairs))
            for pair in range(1, pairs + 1)
            # The first source alternates.
            for source in ((TIDELOG, KAFKA) if pair % 2 else (KAFKA, TIDELOG))
        ]
        short = await self._one_task(short_records(settings))
        long = await self._one_task(settings.task_records)
        return Outcome(settings, set_up, readings, short, long)

    async def _fill(self) -> None:
        settings = self._settings
        await self._kafka.create_topic(TOPIC, settings.partitions)
        options = {
            "kafka.bootstrap.servers": self._kafka.bootstrap,
            "topic": TOPIC,
            "kafka.batch.size": str(settings.batch_bytes),
            "kafka.linger.ms": str(KAFKA_LINGER_MS),
            "kafka.acks": "all",
            "kafka.max.block.ms": str(KAFKA_PATIENCE_MS),
            "kafka.delivery.timeout.ms": str(KAFKA_PATIENCE_MS),
        }
        filled = await self._drive(self._order(Task.FILL, KAFKA, options=options))
        await self._kafka.in_sync()
        self._print_line(f"Kafka is filled, by Spark, in {filled.seconds:.0f} s")
        common = {"value_bytes": settings.value_bytes, "batch_bytes": settings.batch_bytes}
        await tidelog_topics.fill(
            self._tidelog.bootstrap,
            TOPIC,
            records=settings.records,
            partitions=settings.partitions,
            replicas=REPLICATION_FACTOR,
            **common,
        )
        await tidelog_topics.fill(
            self._tidelog.bootstrap,
            ONE_PARTITION,
            records=settings.task_records,
            partitions=1,
            replicas=1,
            **common,
        )
        self._print_line("Tidelog is filled")

    async def _reading(self, source: str, task: Task, pair: int) -> Reading:
        answer = await self._drive(self._order(task, source, options=self._options[source]))
        reading = Reading(
            source,
            str(task),
            pair,
            answer.totals,
            answer.seconds,
            answer.worker_peak_mb,
            answer.processor_seconds,
        )
        self._print_line(
            f"{task} {pair}, {source}: {reading.rows_per_second:,.0f} rows/s; processor seconds "
            + ", ".join(f"{part} {of:.1f}" for part, of in answer.processor_seconds.items())
        )
        return reading

    async def _one_task(self, records: int) -> OneTask:
        options = {**self._options[TIDELOG], "subscribe": ONE_PARTITION}
        order = self._order(Task.BATCH, TIDELOG, options=options)
        order = Order(**{**asdict(order), "topic": ONE_PARTITION, "ends": [records], "warm": False})
        answer = await self._drive(order)
        self._print_line(f"one task, {records:,} records: {answer.worker_peak_mb:.0f} MB")
        return OneTask(answer.totals, answer.worker_peak_mb)

    def _order(self, task: Task, source: str, options: Mapping[str, str]) -> Order:
        self._drivers += 1
        directory = self._directory / f"driver-{self._drivers}"
        directory.mkdir()
        return Order(
            task=task,
            source=source,
            topic=TOPIC,
            options=options,
            ends=ends(self._settings.records, self._settings.partitions),
            value_bytes=self._settings.value_bytes,
            warm=task is not Task.FILL,
            cores=self._settings.cores,
            jars=list(map(str, self._jars.source)),
            watched=self._watched(),
            directory=str(directory),
            result=str(directory / "result.json"),
        )

    def _watched(self) -> dict[str, list[int]]:
        own = [process.pid for process in self._tidelog.processes()]
        return {
            TIDELOG: [pid for pid in own if pid is not None],
            KAFKA: self._kafka.pids,
        }

    async def _drive(self, order: Order) -> Answer:
        """Raises `DriverError`."""
        self._tidelog.check_alive()
        return await asyncio.to_thread(_driven, order)


def _driven(order: Order) -> Answer:
    directory = Path(order.directory)
    file, log = directory / "order.json", directory / "driver.log"
    file.write_text(json.dumps(asdict(order)))
    paths = [str(ROOT / part) for part in ("libs", "services/pipeline", ".")]
    with log.open("wb") as output:
        run = subprocess.run(
            [sys.executable, "-m", "bench.spark_read.driver", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            timeout=DRIVER_S,
        )
    if run.returncode != 0:
        tail = log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
        raise DriverError(f"the driver ended with status {run.returncode}:\n{tail}")
    document = json.loads(Path(order.result).read_text())
    return Answer(**{**document, "totals": Totals(*document["totals"])})


def _set_up(settings: Settings, jars: Jars) -> dict[str, object]:
    return {
        "Spark": f"{pyspark.__version__}, local[{settings.cores}]",
        "its source for Kafka": maven.version("spark-sql-kafka-0-10_2.13", jars.source)
        + ", with the client "
        + maven.version("kafka-clients", jars.source),
        "Kafka's brokers": maven.version("kafka_2.13", jars.brokers),
        "their JVM": " ".join(jvm_options(settings.kafka_heap_mb)),
        "their settings": " ".join(f"{key}={value}" for key, value in COMMON.items()),
        "Tidelog's settings": "defaults",
        "both": f"3 brokers, {settings.partitions} partitions, {REPLICATION_FACTOR} replicas, "
        f"acks=all, no compression, batches of {settings.batch_bytes} bytes; both run while "
        "either is read",
    }
