"""One run: a cluster of the previous release is rolled to this one, back and forward again, under
load; then every acknowledged record is accounted for."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from faults.drain import DRAIN_TIMEOUT_S, POLL_TIMEOUT_MS, DrainError, drain
from faults.gaps import Successes
from faults.load import now_ms
from faults.observed import ReaderSeen
from faults.replicas import digests
from tidelog.client import Admin, Consumer
from tidelog.errors import TidelogError
from tidelog.history import HistoryWriter, Report, check_history, read_history
from tidelog.model import TopicPartition
from upgrade.client_load import CLIENTS_OF_A_PROCESS, ClientSettings
from upgrade.client_process import ClientProcess
from upgrade.mixed_cluster import MixedCluster
from upgrade.orders import ORDERS, Step, rolled_back, without_stops
from upgrade.releases import Release
from upgrade.rest_load import RestLoad
from upgrade.roll import Roll, Roller, Say
from upgrade.stops import Stops

PLAIN, SYNCED, KEYED, REST, MOVED = "sea", "synced", "keyed", "rest", "moved"
# Topics whose partitions all get records all the time, so that a gap is one of the cluster.
PACED = {PLAIN: 3, SYNCED: 2}
TOPICS = {**PACED, KEYED: 3, REST: 2}
REPLICATION_FACTOR = 3
MIN_ISR = {"min_insync_replicas": "2"}
# Data of an operation that lasts a while.
MOVED_RECORDS, MOVED_RECORD_BYTES = 4_000, 1_000
# Records per second of each process, for each paced topic.
RATE = 50
CREATE_TIMEOUT_S = 120.0
RETRY_PAUSE_S = 0.5
APPLICATION = "application"


@dataclass(slots=True)
class FinishedRun:
    """What a run has shown.

    - `kept_keys`: keys whose records are all in one partition, of both releases' producers.
    - `counts`: what was done while the roll stood still.
    - `unchecked`: checks that were not done, and everything that was wrong besides the history."""

    order: str
    rolls: list[Roll]
    report: Report
    load_end_ms: int
    kept_keys: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def paced_successes(self) -> Successes:
        times = self.report.success_times_ms
        return {partition: of for partition, of in times.items() if partition.topic in PACED}


class Run:
    """`is_short`: one roll forward and one back, without stops."""

    def __init__(
        self,
        order: str,
        releases: tuple[Release, Release],
        directory: Path,
        say: Say,
        *,
        is_short: bool = False,
    ) -> None:
        self._order = order
        self._old, self._new = releases
        self._directory = directory
        self._say = say
        self._is_short = is_short
        self._cluster = MixedCluster(directory / "cluster", self._old)
        self._history_file = directory / "history"
        self._stops = Stops(self._cluster, releases, PLAIN, MOVED, say)
        self._processes = 0
        self._application: ClientProcess | None = None
        self._readers: list[ReaderSeen] = []
        self._problems: list[str] = []

    async def run(self) -> FinishedRun:
        """Raises `MixedClusterError`, `ClientsFailedError`, `ClusterError`."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._cluster.stop)
            await self._cluster.start()
            await self._create_topics()
            history = stack.enter_context(HistoryWriter(self._history_file))
            rolls = await self._roll_under_load(stack, history)
            load_end_ms = now_ms()
            self._say("  final reads")
            kept_keys = await self._read_all(history)
            self._problems += self._cluster.tracebacks()
        self._say("  checking the history")
        report = await asyncio.to_thread(lambda: check_history(read_history(self._history_file)))
        self._problems += [problem for seen in self._readers for problem in seen.problems]
        return FinishedRun(
            self._order,
            rolls,
            report,
            load_end_ms,
            kept_keys,
            self._stops.counts,
            self._problems + self._stops.problems,
        )

    # -- before the rolls ------------------------------------------------------------------

    async def _create_topics(self) -> None:
        async with Admin(self._cluster.bootstrap) as admin:
            for topic, partitions in TOPICS.items():
                durability = "synced" if topic == SYNCED else "replicated"
                await self._create(admin, topic, partitions, {"durability": durability})
        if self._is_short:
            return
        # Two replicas, so that one broker is free; min ISR 1, so that brokers can be restarted.
        placed = ("--assignment", "1,2", "--config", "min_insync_replicas=1")
        create = ("topics", "create", MOVED, *placed)
        await self._cluster.done(self._old, *create)
        line = "x" * MOVED_RECORD_BYTES + "\n"
        await self._cluster.done(self._old, "produce", MOVED, input_=line * MOVED_RECORDS)
        # A reassignment before the roll: its traces are in the store.
        before = ("reassign", f"{MOVED}/0=2,3", "--operation-id", "before", "--yes", "--watch")
        await self._cluster.done(self._old, *before)

    async def _create(
        self, admin: Admin, topic: str, partitions: int, config: dict[str, str]
    ) -> None:
        """A cluster that has just started may reject topics for a moment."""
        async with asyncio.timeout(CREATE_TIMEOUT_S):
            while True:
                try:
                    await admin.create_topic(
                        topic, partitions, REPLICATION_FACTOR, {**MIN_ISR, **config}
                    )
                except TidelogError as error:
                    if not error.retriable:
                        raise
                    await asyncio.sleep(RETRY_PAUSE_S)
                else:
                    return

    # -- rolls -----------------------------------------------------------------------------

    async def _roll_under_load(self, stack: AsyncExitStack, history: HistoryWriter) -> list[Roll]:
        ending = asyncio.Event()
        rest = RestLoad(self._cluster.gateway_address, REST, history, self._first_client())
        clients = [
            self._clients(stack, release, name, PACED)
            for release, name in ((self._old, "old"), (self._new, "new"))
        ]
        await asyncio.gather(*(client.start() for client in clients))
        self._application = await self._start_application(stack, self._old)
        writing = asyncio.create_task(rest.run(ending))
        try:
            rolls = await self._rolls(stack)
        finally:
            ending.set()
            await writing
        for client in [self._application, *clients]:
            self._readers += await client.end()
        self._problems += [f"REST: {error}" for error in rest.errors]
        return rolls

    async def _rolls(self, stack: AsyncExitStack) -> list[Roll]:
        async def replace_clients(release: Release) -> None:
            assert self._application is not None
            self._readers += await self._application.end()
            self._application = await self._start_application(stack, release)

        commands = None if self._is_short else self._new
        roller = Roller(self._cluster, commands, replace_clients, self._stop, self._say)
        steps = ORDERS[self._order]
        if self._is_short:
            return [
                await roller.roll("forward", without_stops(steps), self._new),
                await roller.roll("back", rolled_back(steps), self._old),
            ]
        return [
            await roller.roll("forward", steps, self._new),
            await roller.roll("back", rolled_back(steps), self._old),
            await roller.roll("forward again", without_stops(steps), self._new),
        ]

    async def _stop(self, step: Step) -> None:
        if step is Step.STOP_WITH_MIXED_CONTROLLERS:
            await self._stops.with_mixed_controllers()
        else:
            await self._stops.with_mixed_brokers()

    async def _start_application(self, stack: AsyncExitStack, release: Release) -> ClientProcess:
        """Its producer takes over the name, and with it the sequences, of the one before."""
        name = f"{APPLICATION}-{self._processes}"
        started = self._clients(stack, release, name, {}, producer_name=APPLICATION)
        await started.start()
        return started

    def _clients(
        self,
        stack: AsyncExitStack,
        release: Release,
        name: str,
        topics: dict[str, int],
        producer_name: str = "",
    ) -> ClientProcess:
        settings = ClientSettings(
            name=name,
            number=self._first_client() // CLIENTS_OF_A_PROCESS,
            history=str(self._history_file),
            readers=str(self._directory / f"{name}.readers.json"),
            bootstrap=self._cluster.bootstrap,
            topics=topics,
            keyed_topic=KEYED,
            rate=RATE,
            producer_name=producer_name,
        )
        process = ClientProcess(release, settings, self._directory)
        stack.push_async_callback(process.kill)
        return process

    def _first_client(self) -> int:
        """Numbers of clients that no other process has."""
        self._processes += 1
        return self._processes * CLIENTS_OF_A_PROCESS

    # -- afterwards ------------------------------------------------------------------------

    async def _read_all(self, history: HistoryWriter) -> int:
        """Final reads of every topic, digests of all replicas, and the partitions of keys. Returns
        the number of keys that each have one partition."""
        ends: dict[TopicPartition, int] = {}
        try:
            for topic in TOPICS:
                ends |= await drain(self._cluster, topic, history)
        except DrainError as error:
            self._problems.append(str(error))
            return 0
        async with Admin(self._cluster.bootstrap) as admin:
            for topic in TOPICS:
                described = await admin.describe_topic(topic)
                directories = {
                    i: self._cluster.local.broker_data_dir(i)
                    for i in self._cluster.local.broker_ids
                }
                history.write_all(await asyncio.to_thread(digests, directories, described, ends))
        places = await self._places_of_keys(ends)
        spread = [key for key, partitions in places.items() if len(partitions) > 1]
        self._problems += [
            f"records of key {key!r} are in the partitions {sorted(places[key])}" for key in spread
        ]
        return len(places) - len(spread)

    async def _places_of_keys(
        self, ends: dict[TopicPartition, int]
    ) -> dict[bytes | None, set[int]]:
        places: dict[bytes | None, set[int]] = {}
        left = {partition: end for partition, end in ends.items() if partition.topic == KEYED}
        reached = dict.fromkeys(left, 0)
        async with asyncio.timeout(DRAIN_TIMEOUT_S), Consumer(self._cluster.bootstrap) as consumer:
            consumer.assign(list(left))
            while any(reached[partition] < end for partition, end in left.items()):
                for batch in await consumer.poll_batches(POLL_TIMEOUT_MS):
                    reached[batch.partition] = batch.next_offset
                    for key in batch.columns().keys:
                        places.setdefault(key, set()).add(batch.partition.partition)
        return places
