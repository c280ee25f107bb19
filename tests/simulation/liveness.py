"""Checks that the cluster heals after the last fault, within bounded virtual time.

Every broker is registered. Every partition has a leader and all its replicas in sync, and
accepts a write with acks=all. Every intent is done, and no broker keeps a stray.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from simulation.history import Recorder
from simulation.invariants import Invariants
from simulation.violation import Violation
from simulation.world import World
from tidelog.client.delivery import BatchReport
from tidelog.errors import TidelogError
from tidelog.history import Outcome
from tidelog.model import NO_LEADER, TopicPartition
from tidelog_runtime.metadata.keys import PartitionKey
from tidelog_runtime.metadata.schema import RUNNING, decode_leader_and_isr

HEALING_TIME_MS = 30_000
WRITE_TIME_MS = 10_000
LOOK_INTERVAL_S = 0.25
# From healing until what is too old is deleted; and how late it may always be deleted: a segment is
# rolled first, and retention runs every few seconds.
RETENTION_TIME_MS = 20_000
RETENTION_SLACK_MS = 12_000


async def require_healed(world: World, invariants: Invariants) -> None:
    """Waits until the world has healed. Raises `Violation` with the name of what is missing."""
    deadline_ms = world.now_ms + HEALING_TIME_MS
    while True:
        problem = first_problem(world, invariants)
        if problem is None:
            world.trace("healed", left_ms=deadline_ms - world.now_ms)
            return
        if world.now_ms >= deadline_ms:
            raise Violation(problem[0], f"{HEALING_TIME_MS} ms after the last fault: {problem[1]}")
        await asyncio.sleep(LOOK_INTERVAL_S)


async def require_retention(world: World, invariants: Invariants) -> None:
    """Waits until no leader holds anything much older than `retention_ms`. Raises `Violation`."""
    deadline_ms = world.now_ms + RETENTION_TIME_MS
    while (problem := _first_overdue(world, invariants)) is not None:
        if world.now_ms >= deadline_ms:
            raise Violation("retention_blocked", problem)
        await asyncio.sleep(LOOK_INTERVAL_S)


def _first_overdue(world: World, invariants: Invariants) -> str | None:
    for (machine_id, _), replica in invariants.replicas.replicas.items():
        if machine_id not in world.brokers:
            continue  # of a second process, which is gone
        present = world.partitions_of(world.brokers[machine_id])
        if not any(id(partition.log) == id(replica.disk_log) for partition in present):
            continue  # it left with its disk, which another broker has now
        config = invariants.store.config_of(replica.partition)
        if replica.leading is None or "retention_ms" not in config or not replica.log.entries:
            continue
        oldest = replica.log.entries[0]
        age_ms = invariants.retention.age_ms(replica.partition, oldest, world.true_ms)
        if age_ms is not None and age_ms > int(config["retention_ms"]) + RETENTION_SLACK_MS:
            return f"{invariants.name_of(replica.partition)} holds {oldest}, {age_ms} ms old"
    return None


def first_problem(world: World, invariants: Invariants) -> tuple[str, str] | None:
    for problems in (
        _brokers(world, invariants),
        _intents(world),
        _partitions(world, invariants),
        _moves(world, invariants),
        _replicas(world, invariants),
    ):
        for problem in problems:
            return problem
    return None


def _brokers(world: World, invariants: Invariants) -> Iterator[tuple[str, str]]:
    registered = invariants.store.registered
    for broker_id, process in world.brokers.items():
        found = registered.get(broker_id)
        if found is None or found.registration.state != RUNNING:
            yield "broker_stays_away", f"broker {broker_id} is registered as {found}"
        elif process.broker is None:
            yield "broker_stays_away", f"broker {broker_id} does not run"
        elif process.broker.manager.broker_epoch != found.broker_epoch:
            yield "broker_stays_away", f"broker {broker_id} does not know its present life"


def _intents(world: World) -> Iterator[tuple[str, str]]:
    intents = f"{world.keys.root}admin/"
    for key in world.store_data.snapshot(intents).items:
        yield "intent_unfinished", key


def _partitions(world: World, invariants: Invariants) -> Iterator[tuple[str, str]]:
    found: dict[TopicPartition, None] = {}
    for key, item in world.store_data.snapshot(world.keys.topics).items.items():
        parsed = world.keys.parse(key)
        if not isinstance(parsed, PartitionKey):
            continue
        name = parsed.partition
        found[name] = None
        state = decode_leader_and_isr(item.value)
        topic = invariants.store.topics.get(name.topic)
        if topic is None or topic.topic_id != state.topic_id:
            yield "partition_without_topic", str(name)
        if state.leader == NO_LEADER:
            yield "no_leader", f"{name}: {state}"
        if len(state.isr) < len(state.replicas):
            yield "isr_not_full", f"{name}: {state}"
        for broker_id, broker_epoch in state.isr:
            registered = invariants.store.registered.get(broker_id)
            if registered is None or registered.broker_epoch != broker_epoch:
                yield "isr_not_full", f"{name}: broker {broker_id} is a member in a former life"
    for topic_name, entry in invariants.store.topics.items():
        for number in range(entry.partitions):
            if TopicPartition(topic_name, number) not in found:
                yield "partition_not_placed", f"{topic_name}/{number}"


def _moves(world: World, invariants: Invariants) -> Iterator[tuple[str, str]]:
    """Yields moves that have not ended, and targets that are missed."""
    for written in invariants.store.partitions.values():
        state, wanted = written.state, world.mover.wanted.get(written.name)
        if state.moving is not None:
            yield "move_unfinished", f"{written.name}: {state}, wanted is {wanted}"
        elif wanted is not None and not wanted.cancelled and state.replicas != wanted.target:
            yield "move_not_made", f"{written.name}: {state}, wanted is {wanted}"


def _replicas(world: World, invariants: Invariants) -> Iterator[tuple[str, str]]:
    """Yields where the replicas of a broker differ from its assignment in the store."""
    for broker_id, process in world.brokers.items():
        assigned = {
            partition: written
            for partition, written in invariants.store.partitions.items()
            if broker_id in written.state.replicas
        }
        present = {(p.topic_id, p.name.partition): p for p in world.partitions_of(process)}
        for key in present:
            if key not in assigned:
                yield "stray_left", f"broker {broker_id} keeps {present[key].name} of {key[0]}"
        for partition, written in assigned.items():
            replica = present.get(partition)
            if replica is None:
                yield "replica_missing", f"broker {broker_id} has no {written.name}"
            elif replica.leader_epoch != written.state.leader_epoch:
                yield (
                    "replica_behind",
                    f"broker {broker_id} has {written.name} in epoch {replica.leader_epoch}, the "
                    f"store has {written.state.leader_epoch}",
                )


async def require_writable(
    world: World, recorder: Recorder, partitions: list[TopicPartition]
) -> dict[TopicPartition, BatchReport]:
    """Writes to each partition with acks=all; raises `Violation` if a write fails."""
    client = world.client("probe")
    reports: dict[TopicPartition, BatchReport] = {}

    async def write() -> None:
        async with client.producer(
            linger_ms=0, request_timeout_ms=WRITE_TIME_MS, delivery_timeout_ms=WRITE_TIME_MS
        ) as producer:
            for partition in partitions:
                value = recorder.new_value()
                recorder.send_invoked(client.name, partition, [value])
                delivery = await producer.send_many(
                    partition.topic, [b"%d" % value], partition=partition.partition
                )
                try:
                    (report,) = await delivery
                except TidelogError as error:
                    raise Violation(
                        "not_writable_after_healing", error.message, partition=str(partition)
                    ) from error
                reports[partition] = report
                recorder.send_ended(client.name, partition, [value], report, outcome=Outcome.OK)

    await client.spawn(write())
    return reports
