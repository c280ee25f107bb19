"""The load of a run, in its own process, so that fault injection does not delay clients:

    python -m faults.load SETTINGS

`SETTINGS` is a JSON file (`LoadSettings`). The load writes and reads until its standard input ends.
Then it waits for batches in flight, and until its consumers have read everything acknowledged; it
writes its series and the consumers' positions, and ends."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from faults.acknowledgers import Acknowledgers
from faults.connections import NotingConnections
from faults.observed import CATCH_UP_S, ReaderSeen
from faults.reader import Reader
from faults.series import Series
from faults.values import payload, values_of_client
from tidelog.client import Consumer, Producer
from tidelog.client.delivery import BatchDelivery
from tidelog.errors import TidelogError
from tidelog.history import (
    HistoryWriter,
    Operation,
    Outcome,
    SendInvoked,
    sends_ended,
)
from tidelog.model import NO_OFFSET, TopicPartition

# How often each producer writes to each partition.
TICK_S = 0.08
# The most unanswered sends of one partition; beyond it a producer waits.
MAX_UNANSWERED = 100
# A record without an answer by then has an unknown outcome; longer than any fault lasts.
DELIVERY_TIMEOUT_MS = 90_000
REQUEST_TIMEOUT_MS = 4_000
RETRY_PAUSE_S = 0.2
READY = "writing"


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """`routes`: where to connect instead of each advertised address.
    `rate`: records per second in all.
    `tick_s`: how often each producer writes to each partition.
    `name`, `first_client`: distinguish the clients and values of processes that write one history.
    Every producer writes to every partition: otherwise a repeated write after a failover would land
    at the offset of a record that was lost, and hide the loss."""

    history: str
    series: str
    readers: str
    bootstrap: Sequence[str]
    routes: dict[str, str]
    topic: str
    partitions: int
    rate: int
    producers: int = 2
    consumers: int = 2
    tick_s: float = TICK_S
    name: str = ""
    first_client: int = 0

    @property
    def records_per_send(self) -> int:
        return max(1, round(self.rate * self.tick_s / (self.partitions * self.producers)))

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))


def read_settings(path: Path) -> LoadSettings:
    return LoadSettings(**json.loads(path.read_text()))


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def wall_ahead_ms() -> int:
    """By how much the wall clock is ahead of the monotonic clock."""
    return time.time_ns() // 1_000_000 - now_ms()


class Load:
    def __init__(self, settings: LoadSettings, history: HistoryWriter) -> None:
        self._settings = settings
        self._history = history
        self._series = Series()
        self._ending = asyncio.Event()
        self._incarnations = settings.first_client
        # By partition, the acknowledged end.
        self._acknowledged: dict[TopicPartition, int] = {}
        # Set when every partition has accepted records.
        self.is_writing = asyncio.Event()

    async def run(self, until: asyncio.Event) -> tuple[Series, list[ReaderSeen]]:
        readers = [
            asyncio.create_task(self._read(f"{self._settings.name}consumer-{number}"))
            for number in range(1, self._settings.consumers + 1)
        ]
        writers = [
            asyncio.create_task(self._write(number, until))
            for number in range(self._settings.producers)
        ]
        try:
            # An error of one task ends all: a partial load shows nothing.
            await asyncio.gather(*writers)
        finally:
            self._ending.set()
            await asyncio.gather(*readers, return_exceptions=True)
        return self._series, [reader.result() for reader in readers]

    def _connections(self, client: str, acknowledgers: Acknowledgers) -> NotingConnections:
        routes = self._settings.routes
        return NotingConnections(client, routes, acknowledgers, self._note, now_ms)

    def _note(self, operations: list[Operation]) -> None:
        if operations:
            self._history.write_all(operations)

    # -- writing ---------------------------------------------------------------------------

    async def _write(self, number: int, until: asyncio.Event) -> None:
        """A producer that fails for good is replaced by another one."""
        while not until.is_set():
            self._incarnations += 1
            incarnation = self._incarnations
            name = f"{self._settings.name}producer-{number}.{incarnation}"
            acknowledgers = Acknowledgers()
            connections = self._connections(name, acknowledgers)
            producer = Producer(
                self._settings.bootstrap,
                linger_ms=0,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
                connections=connections,
            )
            async with producer:
                writer = _Writer(self, name, incarnation, producer, acknowledgers)
                await writer.run(self._partitions, until)
            await asyncio.sleep(RETRY_PAUSE_S)

    @property
    def _partitions(self) -> list[TopicPartition]:
        topic = self._settings.topic
        return [TopicPartition(topic, number) for number in range(self._settings.partitions)]

    @property
    def records_per_send(self) -> int:
        return self._settings.records_per_send

    @property
    def tick_s(self) -> float:
        return self._settings.tick_s

    def invoked(self, client: str, partition: TopicPartition, values: Sequence[int]) -> None:
        at_ms = now_ms()
        self._note([SendInvoked(at_ms, client, *partition, value) for value in values])

    def ended(
        self,
        client: str,
        partition: TopicPartition,
        values: Sequence[int],
        outcome: Outcome,
    ) -> None:
        at_ms = now_ms()
        self._note([*sends_ended(at_ms, client, partition, values, outcome)])

    def acknowledged(
        self,
        client: str,
        partition: TopicPartition,
        values: Sequence[int],
        place: tuple[int, int, int],
        began_ms: int,
    ) -> None:
        """`place`: base offset or NO_OFFSET, leader epoch, broker."""
        at_ms = now_ms()
        offset, epoch, broker_id = place
        self._series.acknowledged(at_ms, len(values), at_ms - began_ms)
        end = 0 if offset == NO_OFFSET else offset + len(values)
        self._acknowledged[partition] = max(end, self._acknowledged.get(partition, 0))
        if len(self._acknowledged) == self._settings.partitions:
            self.is_writing.set()
        self._note(
            [*sends_ended(at_ms, client, partition, values, Outcome.OK, offset, epoch, broker_id)]
        )

    # -- reading ---------------------------------------------------------------------------

    async def _read(self, name: str) -> ReaderSeen:
        consumer = Consumer(
            self._settings.bootstrap, connections=self._connections(name, Acknowledgers())
        )
        reader = Reader(name, consumer, self._acknowledged, self._note, now_ms)
        async with consumer:
            return await reader.run(self._partitions, self._ending, CATCH_UP_S)


class _Writer:
    """One producer, until it fails for good.

    Its sends are paced by the clock and not by the answers, so that a partition without a leader
    does not hold up the others."""

    def __init__(
        self,
        load: Load,
        name: str,
        number: int,
        producer: Producer,
        acknowledgers: Acknowledgers,
    ) -> None:
        self._load = load
        self._name = name
        self._values = values_of_client(number)
        self._producer = producer
        self._acknowledgers = acknowledgers
        self._unanswered: dict[TopicPartition, int] = {}
        self._waiting_for_outcome: set[asyncio.Task[None]] = set()
        self._is_over = asyncio.Event()

    async def run(self, partitions: Sequence[TopicPartition], until: asyncio.Event) -> None:
        tasks = []
        for partition in partitions:
            tasks.append(asyncio.create_task(self._write_to(partition, until)))
            # Partitions are spread over a tick.
            await asyncio.sleep(self._load.tick_s / len(partitions))
        await asyncio.gather(*tasks)
        if self._waiting_for_outcome:
            await asyncio.gather(*self._waiting_for_outcome)

    async def _write_to(self, partition: TopicPartition, until: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while not until.is_set() and not self._is_over.is_set():
            if self._unanswered.get(partition, 0) < MAX_UNANSWERED:
                await self._send(partition)
            due_s = max(due_s + self._load.tick_s, loop.time() - self._load.tick_s)
            await asyncio.sleep(max(0.0, due_s - loop.time()))

    async def _send(self, partition: TopicPartition) -> None:
        values = [next(self._values) for _ in range(self._load.records_per_send)]
        began_ms = now_ms()
        self._load.invoked(self._name, partition, values)
        try:
            delivery = await self._producer.send_many(
                partition.topic, [payload(v) for v in values], partition=partition.partition
            )
        except TidelogError:
            # Nothing was accepted.
            self._load.ended(self._name, partition, values, Outcome.FAIL)
            self._is_over.set()
            return
        self._unanswered[partition] = self._unanswered.get(partition, 0) + 1
        task = asyncio.create_task(self._note_outcome(delivery, partition, values, began_ms))
        self._waiting_for_outcome.add(task)
        task.add_done_callback(self._waiting_for_outcome.discard)

    async def _note_outcome(
        self,
        delivery: BatchDelivery,
        partition: TopicPartition,
        values: list[int],
        began_ms: int,
    ) -> None:
        try:
            [report] = await delivery
        except TidelogError as error:
            outcome = Outcome.INFO if error.outcome_unknown else Outcome.FAIL
            self._load.ended(self._name, partition, values, outcome)
        else:
            offset, epoch = report.base_offset, report.leader_epoch
            broker_id = self._acknowledgers.of(partition, epoch, offset)
            self._load.acknowledged(
                self._name, partition, values, (offset, epoch, broker_id), began_ms
            )
        finally:
            self._unanswered[partition] -= 1


async def until_stdin_ends(ended: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
    ended.set()


async def _run(settings: LoadSettings) -> tuple[Series, list[ReaderSeen]]:
    ended = asyncio.Event()
    with HistoryWriter(Path(settings.history)) as history:
        load = Load(settings, history)
        watching = asyncio.create_task(until_stdin_ends(ended))
        reporting = asyncio.create_task(_report_ready(load))
        shown = await load.run(ended)
        watching.cancel()
        reporting.cancel()
    return shown


def main(path: Path) -> None:
    settings = read_settings(path)
    series, readers = asyncio.run(_run(settings))
    Path(settings.series).write_text(json.dumps(series.points()))
    Path(settings.readers).write_text(json.dumps(readers))


async def _report_ready(load: Load) -> None:
    await load.is_writing.wait()
    sys.stdout.write(READY + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
