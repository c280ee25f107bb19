"""The steps of the demo.

It writes, kills the busiest leader half-way, starts it again, kills the controller, and checks
whether records are missing.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from tidelog.client import Admin, Consumer, Delivery, Producer
from tidelog.errors import TidelogError
from tidelog.model import TopicPartition
from tidelog_runtime.demo import replicas
from tidelog_runtime.demo.acknowledgements import Acknowledgements
from tidelog_runtime.demo.report import DemoResult, WriteGaps
from tidelog_runtime.demo.source import Source
from tidelog_runtime.local.cluster import LocalCluster

TOPIC = "python-stdlib"
PARTITIONS = 6
REPLICATION_FACTOR = 3
TOPIC_CONFIG = {"min_insync_replicas": "2", "max_batch_bytes": str(4 << 20)}
MAX_REQUEST_BYTES = 1 << 20

# The shares of acknowledged records at which the steps happen.
KILL_LEADER_AT = 0.5
RESTART_BROKER_AT = 0.65
KILL_CONTROLLER_AT = 0.8

DETECTION_POLL_S = 0.005
DETECTION_TIMEOUT_S = 10.0
ISR_TIMEOUT_S = 30.0
ISR_POLL_S = 0.05

# Called with descriptions of the steps, for people; and with the number of acknowledged records.
Say = Callable[[str], None]
Progress = Callable[[int], None]


class Scenario:
    def __init__(self, cluster: LocalCluster, source: Source, say: Say, progress: Progress) -> None:
        self._cluster = cluster
        self._source = source
        self._say = say
        self._progress = progress
        self._acknowledgements = Acknowledgements()
        self._failed_sends = 0
        self._killed_leader_at = 0.0
        self._killed_controller_at = 0.0
        self._partitions_of_killed: list[int] = []
        self._killed_broker = -1
        self._detection_seconds = 0.0

    async def run(self) -> DemoResult:
        started = time.monotonic()
        cluster, source = self._cluster, self._source
        async with Admin(cluster.bootstrap) as admin:
            created = await admin.create_topic(TOPIC, PARTITIONS, REPLICATION_FACTOR, TOPIC_CONFIG)
            self._say(
                f"topic {TOPIC}: {PARTITIONS} partitions, replication factor "
                f"{REPLICATION_FACTOR}, min ISR 2"
            )
            writing = time.monotonic()
            await self._produce(admin)
            written = time.monotonic() - writing
            self._say("all sends are answered; waiting for the full ISR")
            isr_full = await self._isr_full(admin)
            described = await admin.describe_topic(TOPIC)
        ends = await self._end_offsets()
        self._say("another process reads and compares all records")
        found = await self._verify()
        self._say("stopping the cluster, comparing the replicas on disk")
        await cluster.stop()
        problems = await asyncio.to_thread(
            replicas.differing,
            {b: cluster.broker_data_dir(b) for b in cluster.broker_ids},
            TOPIC,
            created.topic_id,
            {p.partition: p.replicas for p in described.partitions},
            ends,
        )
        for problem in problems:
            self._say(f"[red]{problem}[/]")
        acknowledged = self._acknowledgements
        gap, resumed = acknowledged.gap_around(self._killed_leader_at, self._partitions_of_killed)
        detected_at = self._killed_leader_at + self._detection_seconds
        return DemoResult(
            acknowledged=acknowledged.count,
            read=found["read"],
            lost=found["lost"],
            duplicates=found["duplicates"],
            wrong=found["wrong"],
            unexpected=found["unexpected"],
            failed_sends=self._failed_sends,
            bytes=acknowledged.bytes,
            replicas_identical=not problems,
            isr_full=isr_full,
            write_gap_seconds=WriteGaps(
                round(gap, 3),
                round(acknowledged.gap_around(self._killed_controller_at, range(PARTITIONS))[0], 3),
            ),
            detection_seconds=round(self._detection_seconds, 3),
            after_detection_seconds=round(max(0.0, resumed - detected_at), 3),
            mb_per_second=round(source.total_bytes / written / 1e6, 1),
            seconds=round(time.monotonic() - started, 1),
        )

    async def _produce(self, admin: Admin) -> None:
        steps: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (KILL_LEADER_AT, lambda: self._kill_busiest_leader(admin)),
            (RESTART_BROKER_AT, self._restart_broker),
            (KILL_CONTROLLER_AT, self._kill_controller),
        ]
        nemesis = asyncio.create_task(self._run_steps(steps))
        async with Producer(
            self._cluster.bootstrap,
            max_request_bytes=MAX_REQUEST_BYTES,
            on_delivery=lambda _: self._progress(self._acknowledgements.count),
        ) as producer:
            for record in self._source:
                delivery = await producer.send(TOPIC, record.value, record.key)
                delivery.add_done_callback(self._record_delivery(record.key, len(record.value)))
            await producer.flush()
        await nemesis

    def _record_delivery(self, key: bytes, size: int) -> Callable[[asyncio.Future[Delivery]], None]:
        def note(delivery: asyncio.Future[Delivery]) -> None:
            error = delivery.exception()
            if error is None:
                self._acknowledgements.note(
                    delivery.result().partition, key, size, time.monotonic()
                )
                return
            if self._failed_sends == 0:
                self._say(f"[red]a send failed: {error}[/]")
            self._failed_sends += 1

        return note

    async def _run_steps(self, steps: list[tuple[float, Callable[[], Awaitable[None]]]]) -> None:
        for share, step in steps:
            await self._acknowledgements.reached(int(share * self._source.records))
            await step()

    async def _kill_busiest_leader(self, admin: Admin) -> None:
        described = await admin.describe_topic(TOPIC)
        led = Counter(p.leader for p in described.partitions)
        self._killed_broker = led.most_common(1)[0][0]
        self._partitions_of_killed = [
            p.partition for p in described.partitions if p.leader == self._killed_broker
        ]
        survivors = [
            self._cluster.broker_address(b)
            for b in self._cluster.broker_ids
            if b != self._killed_broker
        ]
        watch = asyncio.create_task(self._watch_detection(survivors))
        self._killed_leader_at = time.monotonic()
        await self._cluster.kill(self._killed_broker)
        self._say(
            f"[bold red]SIGKILL[/] broker {self._killed_broker}, leader of partitions "
            f"{self._partitions_of_killed}"
        )
        await watch
        self._say(f"its failure was detected after {self._detection_seconds * 1000:.0f} ms")

    async def _watch_detection(self, survivors: list[str]) -> None:
        """Waits until the metadata of the other brokers no longer has the killed broker."""
        async with Admin(survivors) as admin:
            deadline = time.monotonic() + DETECTION_TIMEOUT_S
            while time.monotonic() < deadline:
                cluster = await admin.describe_cluster()
                present = any(b.broker_id == self._killed_broker for b in cluster.brokers)
                if self._killed_leader_at and not present:
                    break
                await asyncio.sleep(DETECTION_POLL_S)
            self._detection_seconds = time.monotonic() - self._killed_leader_at

    async def _restart_broker(self) -> None:
        self._cluster.start_broker(self._killed_broker)
        self._say(f"[bold green]started[/] broker {self._killed_broker} again")

    async def _kill_controller(self) -> None:
        active = await self._cluster.active_controller()
        if active is None:
            raise RuntimeError("there is no active controller to kill")
        self._killed_controller_at = time.monotonic()
        await self._cluster.kill_controller(active)
        self._say(f"[bold red]SIGKILL[/] controller {active}, the active one")

    async def _isr_full(self, admin: Admin) -> bool:
        deadline = time.monotonic() + ISR_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                described = await admin.describe_topic(TOPIC)
            except TidelogError as error:
                self._say(f"metadata: {error}")
            else:
                if all(len(p.isr) == REPLICATION_FACTOR for p in described.partitions):
                    return True
            await asyncio.sleep(ISR_POLL_S)
        return False

    async def _end_offsets(self) -> dict[int, int]:
        async with Consumer(self._cluster.bootstrap) as consumer:
            partitions = [TopicPartition(TOPIC, p) for p in range(PARTITIONS)]
            ends = await consumer.end_offsets(partitions)
        return {p.partition: end for p, end in ends.items()}

    async def _verify(self) -> dict[str, int]:
        acknowledged = self._cluster.directory / "acknowledged-keys"
        acknowledged.write_bytes(b"\n".join(self._acknowledgements.keys))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tidelog_runtime.demo.verify",
            *("--bootstrap", self._cluster.bootstrap),
            *("--topic", TOPIC),
            *("--acknowledged", str(acknowledged)),
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"the reading process ended with status {process.returncode}")
        found: dict[str, int] = json.loads(output)
        return found


def result_path() -> Path:
    return Path("out") / "demo.json"
