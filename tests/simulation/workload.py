"""The clients of a world: they produce unique records, poll, and request committed ends.

They are production producers and consumers; the `Recorder` records every operation.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from simulation.directed_faults import HOLDER, MAX_HOLDERS
from simulation.history import Recorder, host_of
from simulation.metadata_faults import RESIZED_PARTITIONS, SHORT_LIVED_PARTITIONS
from simulation.old_sequences import OldSequences
from simulation.processes import ClientProcess
from simulation.readers import FETCH_WAIT_MS, POLL_TIMEOUT_MS, RETRY_PAUSE_S, Reader
from simulation.topic_lives import AGAIN, RESIZED
from simulation.topic_plans import SYNCED_TOPIC, TopicPlan
from simulation.violation import Violation
from simulation.world import World
from tidelog.client import Admin, Producer
from tidelog.client.delivery import BatchDelivery, BatchReport
from tidelog.errors import ErrorCode, TidelogError
from tidelog.history import Outcome
from tidelog.model import Acks, OffsetPosition, TopicPartition

CREATE_TIMEOUT_MS = 20_000
# A record without an outcome by then is of unknown outcome.
DELIVERY_TIMEOUT_MS = 20_000
REQUEST_TIMEOUT_MS = 4_000
END_PAUSE_S = 1.5
# How long after healing a producer that still writes may take to learn of a loss.
TOLD_WITHIN_S = 10


MAX_RECORDS_A_BATCH = 10
GUEST_RECORDS = 5
# Longer than a leader lets a reader wait for a batch that a follower may have.
GUEST_READS_S = 12.0
PRODUCER_NAME = "ship"
# How long a holder of the name is left alone, and how long it writes on beside the next one.
HOLDING_S = (5.0, 18.0)
OVERLAP_S = 4.0
# The share of holders that stop before the next one begins.
QUIET_END = 0.3
PASSING_NAME = "boat"
PASSING_S = 4.0
# Between two batches that are sent again under a name.
OLD_SEQUENCE_PAUSE_S = (8.0, 20.0)
SHORT_LIVED_BATCHES_PER_SECOND = 2.0


@dataclass(frozen=True, slots=True)
class _Visitors:
    """The clients of a short-lived topic.

    - `over`: ends the producer
    """

    plan: TopicPlan
    over: asyncio.Event
    producing: asyncio.Task[None]
    reader: Reader


class Workload:
    """The clients of a world.

    - `start` creates the topics and begins
    - `stop` ends the producers and waits for their records in flight
    - `end` ends the rest
    """

    def __init__(self, world: World, recorder: Recorder, topics: Sequence[TopicPlan]) -> None:
        self._world = world
        self._recorder = recorder
        self.topics = topics
        self._stopping = asyncio.Event()
        self._ending = False
        self._producing: list[asyncio.Task[None]] = []
        # Readers of topics that stay, and of short-lived ones.
        self.readers: list[Reader] = []
        self._visitors: dict[str, _Visitors] = {}
        self._visits = 0
        world.on_topic_created.append(self._visit)
        world.on_topic_given_up.append(self._leave)
        world.write_to = self._write_to
        world.read_from_start = self._read_from_start
        self._guests = 0

    async def start(self) -> None:
        client = self._world.client("setup")
        await client.spawn(self._create(client))
        for plan in self.topics:
            name = f"p-{plan.name}"
            producer = self._world.client(name)
            self._producing.append(
                producer.spawn(self._produce(producer, name, plan, self._stopping))
            )
        self._producing.append(asyncio.create_task(self._hold_name(self.topics[0])))
        for passing in (None, PASSING_NAME):
            self._producing.append(asyncio.create_task(self._pass_by(self.topics[0], passing)))
        self._producing.append(self._world.client("old").spawn(self._send_old_sequences()))
        kept = [p for plan in self.topics if plan.keeps_all for p in plan.all_partitions]
        self._read("c1", kept)
        self._read("c2", [p for p in kept if p.topic != SYNCED_TOPIC], resumes=True)
        reader = self._world.client("ends")
        reader.spawn(self._read_ends(reader, "ends"))

    async def stop(self) -> None:
        """Raises `Violation` if a producer was not informed of what it has lost."""
        await self._require_informed()
        self._stopping.set()
        for visitors in self._visitors.values():
            visitors.over.set()
            self._producing.append(visitors.producing)
        await asyncio.gather(*self._producing)

    def end(self) -> None:
        self._ending = True
        for reader in self.readers:
            reader.end()

    async def _require_informed(self) -> None:
        """Checks that producers that still write, and so know a new leader, know their losses."""
        producers = [f"p-{plan.name}" for plan in self.topics if plan.keeps_all]
        for _ in range(TOLD_WITHIN_S):
            untold = [
                (name, loss)
                for name in producers
                if (loss := self._recorder.losses.untold(name, only_where_later=True))
            ]
            if not untold:
                return
            await asyncio.sleep(1)
        name, loss = untold[0]
        raise Violation("loss_not_told", f"{name} was not informed of it", loss=loss)

    def _read(
        self, name: str, partitions: Sequence[TopicPartition], *, resumes: bool = False
    ) -> Reader:
        client = self._world.client(name)
        rng = self._world.rng(f"workload/{name}") if resumes else None
        reader = Reader(client, self._recorder, partitions, rng)
        self.readers.append(reader)
        client.spawn(reader.run())
        return reader

    # -- topics that come and go -----------------------------------------------------------

    def _visit(self, topic: str) -> None:
        """Starts a producer and a reader by the topic's name; they survive its recreation."""
        if topic in self._visitors or self._stopping.is_set():
            return
        is_resized = topic.startswith(RESIZED)
        plan = TopicPlan(
            topic,
            RESIZED_PARTITIONS if is_resized else SHORT_LIVED_PARTITIONS,
            3,
            batches_per_second=SHORT_LIVED_BATCHES_PER_SECOND,
        )
        # Clients of a topic that exists again know nothing of earlier ones.
        self._visits += 1
        name, over = f"p-{topic}-{self._visits}", asyncio.Event()
        client = self._world.client(name)
        producing = client.spawn(self._produce(client, name, plan, over))
        reader = self._read(f"c-{topic}-{self._visits}", plan.all_partitions)
        self._visitors[topic] = _Visitors(plan, over, producing, reader)

    def _leave(self, topic: str) -> None:
        visitors = self._visitors.pop(topic, None)
        if visitors is not None:
            visitors.over.set()
            visitors.reader.end()
            self.readers.remove(visitors.reader)
            self._producing.append(visitors.producing)

    def visited_partitions(self) -> list[TopicPartition]:
        """Returns the partitions of short-lived topics that exist now."""
        return [
            partition
            for topic, visitors in self._visitors.items()
            if topic.startswith(AGAIN)
            for partition in visitors.plan.all_partitions
        ]

    async def _create(self, client: ClientProcess) -> None:
        async with client.admin() as admin:
            for plan in self.topics:
                await create_topic(admin, plan)

    # -- producing -----------------------------------------------------------------------

    async def _hold_name(self, plan: TopicPlan) -> None:
        """Runs producers of one name in turn.

        Each takes over from the previous one, which often does not know it and writes until it
        is fenced.
        """
        rng = self._world.rng("workload/name")
        plan = replace(plan, batches_per_second=plan.batches_per_second / 2)
        holding: dict[asyncio.Task[None], None] = {}
        for number in range(1, MAX_HOLDERS + 1):
            name = f"{HOLDER}{number}"
            client = self._world.client(name)
            over = asyncio.Event()
            task = client.spawn(
                self._produce(client, name, plan, over, producer_name=PRODUCER_NAME)
            )
            holding[task] = None
            await _wait_for_any(self._stopping, task, rng.uniform(*HOLDING_S))
            if rng.random() < QUIET_END or self._stopping.is_set():
                over.set()
            else:
                asyncio.get_running_loop().call_later(OVERLAP_S, over.set)
            if self._stopping.is_set():
                break
        await asyncio.gather(*holding)

    async def _pass_by(self, plan: TopicPlan, producer_name: str | None) -> None:
        """Runs a producer that writes a little, and is forgotten unless it has a name."""
        over = asyncio.Event()
        name = f"passing-{producer_name or 'by'}"
        client = self._world.client(name)
        producing = client.spawn(self._produce(client, name, plan, over, producer_name))
        await _wait(self._stopping, PASSING_S)
        over.set()
        await producing

    async def _send_old_sequences(self) -> None:
        old = OldSequences(self._world, f"{host_of('named')}-", self._recorder.has_lost)
        self._recorder.on_accepted.append(old.answer_accepted)
        rng = self._world.rng("workload/old")
        while not self._stopping.is_set():
            await _wait(self._stopping, rng.uniform(*OLD_SEQUENCE_PAUSE_S))
            await old.send_again(rng)

    async def _produce(
        self,
        client: ClientProcess,
        name: str,
        plan: TopicPlan,
        over: asyncio.Event,
        producer_name: str | None = None,
    ) -> None:
        """Writes until `over`, or with a name until the producer cannot continue."""
        rng = self._world.rng(f"workload/{name}")
        producer = client.producer(
            acks=plan.acks,
            linger_ms=0,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            producer_name=producer_name,
            on_unclean_election=lambda election: self._recorder.election_reported(name, election),
        )
        settling: dict[asyncio.Task[bool], None] = {}
        refused = asyncio.Event()

        def settled(task: asyncio.Task[bool]) -> None:
            settling.pop(task, None)
            if producer_name is not None and not task.result():
                refused.set()

        ahead = itertools.cycle(plan.ahead_ms)
        async with producer:
            while not over.is_set() and not refused.is_set():
                partition = rng.choice(plan.all_partitions)
                values = [
                    self._recorder.new_value() for _ in range(rng.randint(1, MAX_RECORDS_A_BATCH))
                ]
                delivery = await self._hand_over(
                    producer, name, partition, values, ahead_ms=next(ahead)
                )
                if delivery is not None:
                    task = asyncio.create_task(
                        self._settle(delivery, name, plan, partition, values)
                    )
                    settling[task] = None
                    task.add_done_callback(settled)
                elif producer_name is not None:
                    break
                pause = rng.expovariate(plan.batches_per_second)
                await _wait(over, min(pause, 4 / plan.batches_per_second))
            if settling:
                await asyncio.gather(*settling)

    async def _hand_over(
        self,
        producer: Producer,
        name: str,
        partition: TopicPartition,
        values: list[int],
        ahead_ms: int = 0,
    ) -> BatchDelivery | None:
        """Hands over records one after another, in their order.

        None: they were rejected at once. `ahead_ms`: how far they are dated ahead.
        """
        self._recorder.send_invoked(name, partition, values)
        try:
            return await producer.send_many(
                partition.topic,
                [b"%d" % value for value in values],
                partition=partition.partition,
                timestamps_ms=self._world.true_ms + ahead_ms if ahead_ms else None,
            )
        except TidelogError:
            # Nothing was accepted: the topic is not known, or the producer has ended.
            self._recorder.send_ended(name, partition, values, None, outcome=Outcome.FAIL)
            return None

    async def _settle(
        self,
        delivery: BatchDelivery,
        name: str,
        plan: TopicPlan,
        partition: TopicPartition,
        values: list[int],
    ) -> bool:
        """Records the outcome. False: the producer has been fenced."""
        report: BatchReport | None = None
        fenced = False
        try:
            (report,) = await delivery
        except TidelogError as error:
            # What a client is certain of is compared with the log.
            outcome = Outcome.INFO if error.outcome_unknown else Outcome.FAIL
            fenced = error.code is ErrorCode.FENCED_PRODUCER_EPOCH
        else:
            outcome = Outcome.OK if plan.acks is Acks.ALL else Outcome.INFO
        self._recorder.send_ended(name, partition, values, report, outcome=outcome)
        return not fenced

    def _write_to(
        self, partition: TopicPartition, broker_id: int, batches: int, *, apart_s: float = 0.0
    ) -> str:
        """Writes in the background as a client that knows only this broker.

        Other clients may know another leader.
        """
        client = self._guest()
        if not self._stopping.is_set():
            writing = self._write_as_guest(client, partition, broker_id, batches, apart_s)
            self._producing.append(client.spawn(writing))
        return client.host

    def _guest(self) -> ClientProcess:
        self._guests += 1
        return self._world.client(f"guest-{self._guests}")

    async def _write_as_guest(
        self,
        client: ClientProcess,
        partition: TopicPartition,
        broker_id: int,
        batches: int,
        apart_s: float,
    ) -> None:
        acks = next(plan.acks for plan in self.topics if plan.name == partition.topic)
        plan = TopicPlan(partition.topic, 1, 1, acks=acks)
        producer = client.producer(
            [self._world.brokers[broker_id].address],
            acks=acks,
            linger_ms=0,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=DELIVERY_TIMEOUT_MS if apart_s else REQUEST_TIMEOUT_MS,
        )
        async with producer:
            handed_over = []
            for _ in range(batches):
                values = [self._recorder.new_value() for _ in range(GUEST_RECORDS)]
                delivery = await self._hand_over(producer, client.name, partition, values)
                if delivery is not None:
                    handed_over.append((delivery, values))
                if apart_s:
                    await asyncio.sleep(apart_s)
            for delivery, values in handed_over:
                await self._settle(delivery, client.name, plan, partition, values)

    # -- reading ---------------------------------------------------------------------------

    def _read_from_start(self, partition: TopicPartition) -> None:
        """Reads in the background; what it reads is not part of the history."""
        if not self._stopping.is_set():
            client = self._guest()
            self._producing.append(client.spawn(self._read_as_guest(client, partition)))

    async def _read_as_guest(self, client: ClientProcess, partition: TopicPartition) -> None:
        with suppress(TimeoutError):
            async with (
                asyncio.timeout(GUEST_READS_S),
                client.consumer(max_wait_ms=FETCH_WAIT_MS, on_damage="skip") as consumer,
            ):
                consumer.assign([partition], start=OffsetPosition.EARLIEST)
                while True:
                    try:
                        await consumer.poll(POLL_TIMEOUT_MS)
                    except TidelogError:
                        await asyncio.sleep(RETRY_PAUSE_S)

    async def _read_ends(self, client: ClientProcess, name: str) -> None:
        rng = self._world.rng(f"workload/{name}")
        partitions = [p for plan in self.topics for p in plan.all_partitions]
        async with client.consumer(offsets_timeout_ms=10_000) as consumer:
            while not self._ending:
                partition = rng.choice(partitions)
                self._recorder.end_invoked(name, partition)
                try:
                    told = await consumer.end_offsets([partition])
                except TidelogError:
                    self._recorder.end_reported(name, partition, None)
                else:
                    self._recorder.end_reported(name, partition, told[partition])
                await asyncio.sleep(END_PAUSE_S * rng.uniform(0.5, 1.5))


async def create_topic(admin: Admin, plan: TopicPlan) -> None:
    while True:
        try:
            await admin.create_topic(
                plan.name,
                plan.partitions,
                plan.replication_factor,
                plan.config,
                CREATE_TIMEOUT_MS,
            )
        except TidelogError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                return
            await asyncio.sleep(RETRY_PAUSE_S)
        else:
            return


async def drain(
    client: ClientProcess, recorder: Recorder, ends: Mapping[TopicPartition, int], timeout_s: float
) -> dict[TopicPartition, int]:
    """Reads every partition from its start to `ends` with a new consumer.

    Returns where it came to, which is below the end if `timeout_s` was not enough.
    """
    reached = dict.fromkeys(ends, 0)
    async with client.consumer(max_wait_ms=FETCH_WAIT_MS, on_damage="skip") as consumer:
        consumer.assign(list(ends), start=OffsetPosition.EARLIEST)
        for partition in ends:
            recorder.poll_invoked(client.name, partition, final=True)
        try:
            async with asyncio.timeout(timeout_s):
                while any(reached[p] < end for p, end in ends.items()):
                    records = await consumer.poll(POLL_TIMEOUT_MS)
                    recorder.polled(client.name, records, final=True)
                    for partition in ends:
                        position = consumer.position(partition)
                        reached[partition] = max(reached[partition], position or 0)
        except TimeoutError:
            pass
    return reached


async def _wait_for_any(event: asyncio.Event, task: asyncio.Task[None], seconds: float) -> None:
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait([waiting, task], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
