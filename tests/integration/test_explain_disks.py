"""Incidents of disks that operators meet.

Each is explained beside a second, unrelated fault, a healthy partition is not blamed, and the step
that `explain` suggests ends it. One cluster serves all tests; broker FAILING has its own disk."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from beside import beside
from integration.bit_flips import flip_a_bit
from integration.clusters import running_cluster
from integration.explaining import (
    append,
    assert_not_blamed,
    causes_of,
    create_pairs,
    split,
    text_of,
    the,
    tidelog,
    until_present,
)
from integration.failing_disks import FailingDisk, Preloaded, failing_disk
from integration.load import load
from integration.logs import LogSince
from integration.suggested_steps import until_gone, without_standby
from integration.topics import create_topic, describe, new_name, read, until_in_sync, write
from integration.waiting import until
from tidelog.cli.exit_status import ExitStatus
from tidelog.client import Admin, Producer
from tidelog.errors import TidelogError
from tidelog.log_dump import dump_log, segment_paths
from tidelog_runtime.demo.replicas import find_replica
from tidelog_runtime.local.cluster import LocalCluster

FAILING, SLOW, WELL = 1, 2, 3
SYNC_MS = WRITE_MS = 1_500
HANG_MS = 30_000
# Enough that several segments are written, the newest one partly.
RECORDS = 34
VALUE = bytes(range(256)) * 24
SMALL_SEGMENTS = {"segment_bytes": str(64 << 10)}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True)
class World:
    """`alone`: a topic whose partition with a broker's number is on that broker alone."""

    cluster: LocalCluster
    preloaded: Preloaded
    disk: FailingDisk
    by_leader: dict[int, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    directory = tmp_path_factory.mktemp("disks")
    preloaded = Preloaded(directory / "brokers", directory / "failing-disk.so")
    disk = failing_disk(preloaded, directory / "brokers" / str(FAILING), FAILING)
    disk.prepare()
    try:
        with pytest.MonkeyPatch.context() as patched:
            for name, value in preloaded.variables.items():
                patched.setenv(name, value)
            async with running_cluster(
                directory,
                broker_config={"flush_interval_ms": 300},
                controller_config={"leader_balance": False},
            ) as cluster:
                alone = await create_topic(cluster, "alone", 3, 1)
                by_leader = {p.leader: f"alone/{p.partition}" for p in alone.partitions}
                yield World(cluster, preloaded, disk, by_leader)
    finally:
        disk.release()


@asynccontextmanager
async def written(cluster: LocalCluster, name: str) -> AsyncIterator[None]:
    """Writes records without a pause, so that disks have to sync."""

    async def write() -> None:
        while True:
            with suppress(TidelogError):
                await append(cluster, name, [b"record"] * 5)
            await asyncio.sleep(0.05)

    async with beside(write()):
        yield


async def test_a_disk_without_inodes_is_explained_beside_a_slow_one(world: World) -> None:
    cluster, topic = world.cluster, new_name("fresh")
    world.disk.take_inodes()
    world.preloaded.slow(SLOW, SYNC_MS)
    async with Admin(cluster.bootstrap) as admin, written(cluster, world.by_leader[SLOW]):
        # The request is answered when its replicas exist, or after its timeout.
        creating = asyncio.create_task(admin.create_topic(topic, 3, 2))
        found = await until_present(cluster, ("disk_full", FAILING), ("disk_slow", SLOW))
        full, slow = the(found, "disk_full"), the(found, "disk_slow")

        assert f"broker {FAILING} has no inodes left on its disk since" in full.summary
        assert "inodes left" in "\n".join(full.evidence)
        assert all(name.startswith(topic) for name in full.partitions)
        assert f"the disk of broker {SLOW} is slow: a sync takes" in slow.summary
        assert not causes_of(found) & {("command_overdue", FAILING), ("command_backlog", FAILING)}
        assert_not_blamed(found, world.by_leader[WELL])

        assert "remove small files that are not Tidelog's" in full.next_step
        world.disk.give_inodes()
        assert "End what slows it" in slow.next_step
        world.preloaded.sound(SLOW)
        await until_gone(cluster, "disk_full")
        await creating
        await until_in_sync(cluster, topic, partitions=3)
        await until_gone(cluster, "disk_slow")


async def test_slow_writes_are_explained_beside_a_missing_standby(world: World) -> None:
    """Slow writes block the whole broker, so that it answers no request."""
    cluster, topic = world.cluster, new_name("slow-writes")
    await create_topic(cluster, topic, 3)
    await until_in_sync(cluster, topic)
    async with without_standby(cluster), written(cluster, f"{topic}/0"):
        world.preloaded.slow(SLOW, write_ms=WRITE_MS)
        found = await until_present(cluster, ("disk_slow", SLOW), ("no_standby", -1))
        slow = the(found, "disk_slow")
        silent = {("broker_unreachable", SLOW), ("broker_paused", SLOW), ("broker_busy", SLOW)}
        assert f"the disk of broker {SLOW} is slow: a write takes" in slow.summary
        assert not causes_of(found) & silent
        assert_not_blamed(found, world.by_leader[WELL])

        assert "End what slows it" in slow.next_step
        world.preloaded.sound(SLOW)
        await until_gone(cluster, "disk_slow")
    await until_in_sync(cluster, topic)


async def replicas_to_damage(world: World) -> tuple[str, list[int], list[Path]]:
    """A topic, four of its partitions that broker SLOW leads and broker WELL follows, and the
    replicas of the latter, each with several segments."""
    cluster, topic = world.cluster, new_name("flips")
    described = await create_topic(cluster, topic, 24, 2, SMALL_SEGMENTS)
    chosen = [p.partition for p in described.partitions if list(p.replicas) == [SLOW, WELL]]
    assert len(chosen) == 4
    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        for _ in range(RECORDS):
            sent = [await producer.send(topic, VALUE, partition=number) for number in chosen]
            await asyncio.gather(*sent)
    await until_in_sync(cluster, topic)
    data_dir = cluster.broker_data_dir(WELL)
    found = [find_replica(data_dir, topic, number, described.topic_id) for number in chosen]
    return topic, chosen, found


def faults(replicas: list[Path]) -> list[str]:
    return [info.fault for r in replicas for _, info in dump_log(r) if info.fault is not None]


async def test_flipped_bits_on_a_follower_are_explained_beside_a_leaders_full_disk(
    world: World,
) -> None:
    """No reader finds the bits: closed and newest segments, over a clean restart and a kill -9."""
    cluster = world.cluster
    described = await create_topic(cluster, "full", 3)
    led = next(p.partition for p in described.partitions if p.leader == FAILING)
    name = f"full/{led}"
    topic, numbers, replicas = await replicas_to_damage(world)
    restarted, killed, closed, newest = replicas
    log = LogSince(cluster.broker_process(WELL).log_path)

    await cluster.stop_broker(WELL)
    flip_a_bit(segment_paths(restarted)[0])
    cluster.start_broker(WELL)
    await cluster.ready()
    await until_in_sync(cluster, topic)
    await cluster.kill(WELL)
    flip_a_bit(segment_paths(killed)[-1])
    cluster.start_broker(WELL)
    await cluster.ready()
    flip_a_bit(segment_paths(closed)[0])
    flip_a_bit(segment_paths(newest)[-1])
    world.disk.fill()
    async with written(cluster, name):
        await until_present(cluster, ("disk_full", FAILING))

        async def is_repaired() -> bool:
            status, printed = await tidelog(cluster, "brokers", "scrub", str(WELL), "--full-rate")
            assert status == ExitStatus.DONE, printed
            repairs = log.state_changes("replica_repaired", "completed")
            return {line["partition"] for line in repairs} >= set(numbers)

        await until(is_repaired, "the scrub finds all of them, and they are repaired")
        # Writes fail first; then the leadership is transferred.
        both = (("disk_full", FAILING), ("damage_repaired", WELL))
        found = await until_present(cluster, *both, containing=("leadership of",))
    await until_in_sync(cluster, topic)
    full, repaired = the(found, "disk_full"), the(found, "damage_repaired")

    assert faults(replicas) == []
    assert {line["partition"] for line in log.state_changes("replica_damaged")} == set(numbers)
    kept = [path.name for path in (cluster.broker_data_dir(WELL) / "evidence").iterdir()]
    assert len(kept) >= len(numbers), kept
    assert {f"{topic}/{number}" for number in numbers[2:]} <= set(repaired.partitions)
    assert all(partition.startswith(f"{topic}/") for partition in repaired.partitions)
    assert_not_blamed(found, world.by_leader[WELL], world.by_leader[SLOW])
    scrub = ("brokers", "scrub", str(WELL))
    assert f"tidelog {' '.join(scrub)}" in repaired.next_step
    status, printed = await tidelog(cluster, *scrub)
    assert status == ExitStatus.DONE, printed

    assert f"broker {FAILING} has no room on its disk since" in full.summary
    assert "leadership of" in full.summary
    assert f"broker {FAILING} led it in epoch 0, its writes have failed for" in text_of(full)
    assert "Make room on its data_dir" in full.next_step
    world.disk.free()
    await until_gone(cluster, "disk_full")
    await until_in_sync(cluster, "full")


@dataclass(frozen=True)
class Failure:
    """How a disk fails. `become_read_only`: the file system as a whole; otherwise each write
    fails with that error. `message`: what the broker reports."""

    message: str
    become_read_only: bool = False
    write: int = 0

    def begin(self, world: World) -> None:
        if self.become_read_only:
            world.disk.become_read_only()
        else:
            world.preloaded.set(FAILING, create=self.write, write=self.write)

    def end(self, world: World) -> None:
        """Called while the broker does not run."""
        if self.become_read_only:
            world.disk.mount_writable()
        else:
            world.preloaded.sound(FAILING)


FAILURES = {
    "read-only": Failure(
        "Read-only file system; mount the file system writable", become_read_only=True
    ),
    "EIO": Failure("Input/output error; check the disk", write=errno.EIO),
}


@pytest.mark.rule("failing-disk-transfers-leadership")
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
async def test_a_leaders_failing_disk_is_explained(world: World, failure: Failure) -> None:
    cluster, topic = world.cluster, new_name("sea")
    # A sync that runs when the file system is aborted fails with EIO instead of EROFS.
    described = await create_topic(cluster, topic, 3, 3, {"durability": "synced"})
    led = next(p.partition for p in described.partitions if p.leader == FAILING)
    await write(cluster, topic, [b"before"], led)
    async with without_standby(cluster):
        failure.begin(world)
        await write(cluster, topic, [b"meanwhile"], led)
        found = await until_present(cluster, ("disk_error", FAILING), ("no_standby", -1))
        failing = the(found, "disk_error")
        leader = (await describe(cluster, topic)).partitions[led].leader

        assert leader != FAILING
        assert f"the disk of broker {FAILING} fails since" in failing.summary
        assert "leadership of 1 partition transferred to other brokers" in failing.summary
        assert f"broker {FAILING} led it in epoch 0, its writes have failed for" in text_of(failing)
        assert failure.message in text_of(failing)
        assert not causes_of(found) & {("command_overdue", FAILING), ("command_backlog", FAILING)}
        assert_not_blamed(found, world.by_leader[WELL])

        step = failing.next_step
        assert f"Stop broker {FAILING}, repair the disk and mount it writable, and start" in step
        await cluster.stop_broker(FAILING)
        failure.end(world)
        cluster.start_broker(FAILING)
        await until_gone(cluster, "disk_error")
    await until_in_sync(cluster, topic)
    values = [record.value for record in await read(cluster, topic)]
    assert values == [b"before", b"meanwhile"]


@pytest.mark.rule("failing-disk-transfers-leadership")
async def test_leaders_whose_syncs_hang_and_fail_are_explained(world: World) -> None:
    """At broker SLOW no call fails: a sync does not return, and the broker stays registered. At
    broker FAILING each sync fails."""
    cluster, topic = world.cluster, new_name("synced")
    pairs = await create_pairs(cluster, topic, {"durability": "synced", "min_insync_replicas": "1"})
    slow, failing = pairs[SLOW, WELL], pairs[FAILING, WELL]
    log = LogSince(cluster.broker_process(SLOW).log_path)
    # Its writes fail if they are not acknowledged within 25 s.
    async with load(cluster, topic, split(slow)[1]) as written:
        world.preloaded.slow(SLOW, HANG_MS)
        world.preloaded.set(FAILING, sync=errno.EIO)
        await write(cluster, topic, [b"record of another"], split(failing)[1])
        both = (("disk_error", SLOW), ("disk_error", FAILING))
        hang = f"a sync of {slow} has not returned for"
        found = await until_present(cluster, *both, containing=(hang,))
        await written.acknowledges(20)
    described = (await describe(cluster, topic)).partitions
    hanging, fails = the(found, "disk_error", SLOW), the(found, "disk_error", FAILING)
    silent = {("broker_unreachable", SLOW), ("broker_paused", SLOW), ("broker_busy", SLOW)}

    assert [described[split(name)[1]].leader for name in (slow, failing)] == [WELL, WELL]
    assert f"the disk of broker {SLOW} hangs: a sync does not return" in hanging.summary
    assert f"the disk of broker {FAILING} fails since" in fails.summary
    assert hang in text_of(hanging)
    assert not causes_of(found) & {*silent, ("replica_dead", SLOW)}
    assert not log.state_changes("registration_lost")
    assert_not_blamed(found, world.by_leader[WELL])

    assert "If its syncs return, the broker continues by itself" in hanging.next_step
    world.preloaded.sound(SLOW)
    assert f"Stop broker {FAILING}, repair the disk" in fails.next_step
    await cluster.stop_broker(FAILING)
    world.preloaded.sound(FAILING)
    cluster.start_broker(FAILING)
    await until_present(cluster, ("disk_error", SLOW), containing=("syncs return again",))
    await until_in_sync(cluster, topic)
    written.assert_all_in(await read(cluster, topic))
    # Only a restart ends the minute in which it may hang again.
    await cluster.stop_broker(SLOW)
    cluster.start_broker(SLOW)
    await until_gone(cluster, "disk_error")
