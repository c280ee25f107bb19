"""Clients of one release, in their own process:

    python -m upgrade.client_load SETTINGS

`SETTINGS` is a JSON file (`ClientSettings`). The process prints READY once it writes. It
writes and reads until its standard input ends. The client library comes from the release, and this
module from this source tree: it uses only what both releases have."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from faults.load import (
    DELIVERY_TIMEOUT_MS,
    READY,
    REQUEST_TIMEOUT_MS,
    Load,
    LoadSettings,
    now_ms,
    until_stdin_ends,
)
from faults.observed import ReaderSeen
from faults.values import payload, values_of_client
from tidelog.client import Delivery, Producer
from tidelog.client.delivery import DeliveryFuture
from tidelog.errors import TidelogError
from tidelog.history import NO_PARTITION, HistoryWriter, Outcome, SendEnded, SendInvoked

# Clients of one process have numbers of their own, by which values are unique in a history.
CLIENTS_OF_A_PROCESS = 1_000
# The keyed producer's number; the loads count up from the first number of the process.
_KEYED_CLIENT = CLIENTS_OF_A_PROCESS - 1
# Low rates: on two cores a roll has to end within minutes, beside eleven processes.
LOAD_TICK_S = 0.4
KEYED_PAUSE_S = 0.2
MAX_UNANSWERED = 64
KEYS = 20


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """`topics`: the number of partitions, by topic, that get records by their partitions.
    `keyed_topic`: gets records by their keys.
    `producer_name`: of the keyed producer; empty: it has none.
    `number`: of this process, from 0 on."""

    name: str
    number: int
    history: str
    readers: str
    bootstrap: Sequence[str]
    topics: Mapping[str, int]
    keyed_topic: str
    rate: int
    producer_name: str = ""

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @property
    def first_client(self) -> int:
        return self.number * CLIENTS_OF_A_PROCESS

    def load_settings(self, topic: str, first_client: int) -> LoadSettings:
        return LoadSettings(
            history=self.history,
            series="",
            readers="",
            bootstrap=self.bootstrap,
            routes={},
            topic=topic,
            partitions=self.topics[topic],
            rate=self.rate,
            producers=1,
            consumers=1,
            tick_s=LOAD_TICK_S,
            name=f"{self.name} {topic} ",
            first_client=first_client,
        )


def key_of(value: int) -> bytes:
    return b"key-%d" % (value % KEYS)


class KeyedWriter:
    """One producer, whose records get their partitions by their keys."""

    def __init__(self, settings: ClientSettings, history: HistoryWriter) -> None:
        self._client = f"{settings.name} keyed"
        self._settings = settings
        self._history = history
        self._values = values_of_client(settings.first_client + _KEYED_CLIENT)
        self._room = asyncio.Semaphore(MAX_UNANSWERED)
        self._outcomes: set[asyncio.Task[None]] = set()
        self.is_writing = asyncio.Event()

    async def run(self, until: asyncio.Event) -> None:
        producer = Producer(
            self._settings.bootstrap,
            linger_ms=0,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            producer_name=self._settings.producer_name or None,
        )
        async with producer:
            while not until.is_set():
                await self._send(producer)
                await asyncio.sleep(KEYED_PAUSE_S)
            await asyncio.gather(*self._outcomes)

    async def _send(self, producer: Producer) -> None:
        await self._room.acquire()
        value = next(self._values)
        topic = self._settings.keyed_topic
        self._history.write(SendInvoked(now_ms(), self._client, topic, NO_PARTITION, value))
        try:
            delivery = await producer.send(topic, payload(value), key=key_of(value))
        except TidelogError as error:
            self._failed(value, error)
            raise
        task = asyncio.create_task(self._note(delivery, value))
        self._outcomes.add(task)
        task.add_done_callback(self._outcomes.discard)

    async def _note(self, delivery: DeliveryFuture[Delivery], value: int) -> None:
        try:
            done = await delivery
        except TidelogError as error:
            self._failed(value, error)
        else:
            place = (done.topic, done.partition, value)
            end = (Outcome.OK, done.offset, done.leader_epoch)
            self._history.write(SendEnded(now_ms(), self._client, *place, *end))
            self.is_writing.set()
        finally:
            self._room.release()

    def _failed(self, value: int, error: TidelogError) -> None:
        outcome = Outcome.INFO if error.outcome_unknown else Outcome.FAIL
        place = (self._settings.keyed_topic, NO_PARTITION, value)
        self._history.write(SendEnded(now_ms(), self._client, *place, outcome))
        sys.stderr.write(f"record {value} failed: {error!r}\n")


async def _run(settings: ClientSettings) -> list[ReaderSeen]:
    ended = asyncio.Event()
    with HistoryWriter(Path(settings.history)) as history:
        keyed = KeyedWriter(settings, history)
        loads = [
            Load(settings.load_settings(topic, settings.first_client + 100 * number), history)
            for number, topic in enumerate(settings.topics)
        ]
        watching = asyncio.create_task(until_stdin_ends(ended))
        reporting = asyncio.create_task(_report_ready([keyed, *loads]))
        shown, _ = await asyncio.gather(
            asyncio.gather(*(load.run(ended) for load in loads)), keyed.run(ended)
        )
        watching.cancel()
        reporting.cancel()
    return [reader for _, readers in shown for reader in readers]


async def _report_ready(writers: Sequence[KeyedWriter | Load]) -> None:
    for writer in writers:
        await writer.is_writing.wait()
    sys.stdout.write(READY + "\n")
    sys.stdout.flush()


def main(path: Path) -> None:
    settings = ClientSettings(**json.loads(path.read_text()))
    readers = asyncio.run(_run(settings))
    Path(settings.readers).write_text(json.dumps(readers))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
