"""Incidents of broker ids and data directories.

Each is explained beside a second, unrelated fault, a healthy partition is not blamed, and the step
that `explain` suggests ends it. One cluster serves all tests; partitions of `alone` have one
replica each."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from integration.clusters import running_cluster
from integration.explaining import (
    append,
    assert_not_blamed,
    assert_still_found,
    causes_of,
    explained,
    text_of,
    the,
    until_found,
)
from integration.logs import LogSince
from integration.reconfigured import directory_id
from integration.single_service import SingleService
from integration.suggested_steps import until_gone, without_standby
from integration.topics import create_topic, read, until_in_sync
from integration.waiting import until_true
from tidelog.inspection.state_reports import Finding
from tidelog.model import Acks
from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.local.cluster_file import Setting

EXIT_CANNOT_START = 1
TOPIC = "sea"
# While a broker is away, the partition of `alone` that only it has waits for it.
NO_LEADER = ("no_leader", -1)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True)
class World:
    """`led_by`: by broker, a partition whose only replica is on it."""

    cluster: LocalCluster
    led_by: dict[int, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    async with running_cluster(
        tmp_path_factory.mktemp("identity"), controller_config={"leader_balance": False}
    ) as cluster:
        alone = await create_topic(cluster, "alone", 3, 1)
        await create_topic(cluster, TOPIC, 3)
        yield World(cluster, {p.leader: f"alone/{p.partition}" for p in alone.partitions})


def process(
    beside: LocalCluster, directory: Path, data_dir: Path | str, **settings: Setting
) -> SingleService:
    """A broker with that directory, beside those of the cluster."""
    defaults: dict[str, Setting] = {
        "listen": "127.0.0.1:0",
        "data_dir": str(data_dir),
        "etcd_endpoints": [beside.etcd_address],
        "cluster": beside.cluster,
        "state_changes_topic": False,
    }
    name = f"other-{Path(data_dir).name}-{settings['broker_id']}"
    return SingleService("tidelog_broker", directory, name, **{**defaults, **settings})


def suggested(finding: Finding, pattern: str) -> str:
    """The path or id that the next step names."""
    found = re.search(pattern, finding.next_step)
    assert found is not None, finding.next_step
    return found[1]


async def test_a_copied_directory_waits_while_another_broker_restores_an_old_one(
    world: World, tmp_path: Path
) -> None:
    """Each of the two is the second fault of the other."""
    cluster, restored = world.cluster, world.cluster.broker_data_dir(3)
    log = LogSince(cluster.broker_process(2).log_path)
    await cluster.kill(3)
    shutil.copytree(restored, tmp_path / "backup")
    shutil.copytree(cluster.broker_data_dir(2), tmp_path / "copy")
    twin = process(cluster, tmp_path, tmp_path / "copy", broker_id=2)
    twin.process.start()
    try:
        cluster.start_broker(3)
        await cluster.ready()
        await until_in_sync(cluster, TOPIC)
        for partition in range(3):
            await append(cluster, f"{TOPIC}/{partition}", [b"acknowledged"], Acks.ALL)
        await cluster.kill(3)
        shutil.rmtree(restored)
        shutil.move(tmp_path / "backup", restored)
        cluster.start_broker(3)
        await twin.until_logged("broker_id_taken")
        found = await until_found(
            cluster,
            ("broker_id_contested", 2),
            ("directory_not_intact", 3),
            # What only the older copy has may lack records, until that broker starts again.
            ("unclean_election", 3),
        )
        assert_not_blamed(found, world.led_by[1], world.led_by[2])

        contested = the(found, "broker_id_contested")
        waiting = suggested(contested, r"the waiting process at \S+ with data_dir (\S+) on")
        assert waiting == str(tmp_path / "copy")
        assert f"the registered one at {cluster.broker_address(2)}" in contested.next_step
    finally:
        await twin.process.stop()
    await until_gone(cluster, "broker_id_contested")
    assert not log.state_changes("registration_lost")

    old = the(found, "directory_not_intact")
    assert "it is an older copy" in old.summary
    assert "copy what they lack from their leaders by themselves" in old.next_step
    await until_in_sync(cluster, TOPIC)
    values = [record.value for record in await read(cluster, TOPIC)]
    assert values == [b"acknowledged"] * 3
    assert "ends with its next start" in old.next_step
    await cluster.stop_broker(3)
    cluster.start_broker(3)
    await cluster.ready()
    await until_gone(cluster, "directory_not_intact")


async def test_a_directory_of_another_cluster_and_an_unmounted_disk_are_explained(
    world: World, tmp_path: Path
) -> None:
    """Each of the two is the second fault of the other."""
    cluster = world.cluster
    southern = process(cluster, tmp_path, tmp_path / "south", broker_id=3, cluster="south")
    southern.process.start()
    await southern.until_reported("registration")
    await southern.process.stop()
    data_dirs = {broker_id: cluster.broker_data_dir(broker_id) for broker_id in (2, 3)}
    owns = directory_id(data_dirs[2])
    await asyncio.gather(*map(cluster.stop_broker, data_dirs))
    for broker_id, data_dir in data_dirs.items():
        data_dir.rename(tmp_path / f"kept-{broker_id}")
    shutil.copytree(tmp_path / "south", data_dirs[3])
    for broker_id in data_dirs:
        cluster.start_broker(broker_id)
    # With two of three replicas away, partitions of TOPIC are below their min ISR.
    away = (("broker_cannot_start", 2), ("broker_cannot_start", 3), ("under_min_isr", 1))
    found = await until_found(cluster, *away, NO_LEADER, NO_LEADER)
    assert_not_blamed(found, world.led_by[1])

    unmounted, stranger = (the(found, "broker_cannot_start", b) for b in (2, 3))
    assert f"{data_dirs[2]} is not the directory {owns}" in unmounted.summary
    assert "its disk may not be mounted; mount it, or put the directory back" in unmounted.summary
    assert f"{data_dirs[3]} belongs to cluster" in stranger.summary
    assert "set data_dir or etcd_endpoints to those of one cluster" in stranger.summary
    # A start is reported before its process has ended.
    await until_true(lambda: len(cluster.died()) == len(data_dirs), "both processes have ended")
    for broker_id, finding in ((2, unmounted), (3, stranger)):
        assert "Correct what its last start reported, and start broker" in text_of(finding)
        shutil.rmtree(data_dirs[broker_id])
        (tmp_path / f"kept-{broker_id}").rename(data_dirs[broker_id])
        cluster.start_broker(broker_id)
    await cluster.ready()
    await until_gone(cluster, "broker_cannot_start")
    await until_in_sync(cluster, TOPIC)
    await until_in_sync(cluster, "alone")


async def test_a_wrong_cluster_name_and_a_wrong_id_are_reported_for_the_missing_brokers(
    world: World, tmp_path: Path
) -> None:
    """Each of the two is the second fault of the other."""
    cluster = world.cluster
    await asyncio.gather(*map(cluster.stop_broker, (2, 3)))
    misnamed = process(cluster, tmp_path, cluster.broker_data_dir(2), broker_id=2, cluster="west")
    wrong_id = process(cluster, tmp_path, cluster.broker_data_dir(3), broker_id=1)
    for started in (misnamed, wrong_id):
        started.process.start()
    for rejected in (misnamed, wrong_id):
        assert await rejected.ended() == EXIT_CANNOT_START, rejected.text()
        assert len(rejected.events("cannot_start")) == 1
    # With two of three replicas away, partitions of TOPIC are below their min ISR.
    away = (("broker_cannot_start", 2), ("broker_cannot_start", 3), ("under_min_isr", 1))
    found = await until_found(cluster, *away, NO_LEADER, NO_LEADER)
    assert_not_blamed(found, world.led_by[1])
    named, numbered = (the(found, "broker_cannot_start", b) for b in (2, 3))
    assert f"belongs to cluster {cluster.cluster!r}" in named.summary
    assert "this broker is configured for cluster 'west'" in named.summary
    assert f"set cluster to {cluster.cluster}" in named.summary
    assert "belongs to broker 3, this is broker 1" in numbered.summary
    for broker_id in (2, 3):
        cluster.start_broker(broker_id)
    await cluster.ready()
    await until_gone(cluster, "broker_cannot_start")
    await until_in_sync(cluster, TOPIC)


async def test_a_start_rejected_while_the_broker_ran_is_not_the_cause_of_its_absence(
    world: World, tmp_path: Path
) -> None:
    cluster = world.cluster
    second = process(cluster, tmp_path, cluster.broker_data_dir(3), broker_id=3)
    second.process.start()
    assert await second.ended() == EXIT_CANNOT_START, second.text()
    assert "is in use by another broker process" in second.text()
    await cluster.stop_broker(3)
    expected = (("broker_stopped", 3), NO_LEADER)
    await until_found(cluster, *expected)
    await assert_still_found(cluster, *expected)
    cluster.start_broker(3)
    await cluster.ready()
    await until_gone(cluster, "broker_stopped")
    await until_in_sync(cluster, TOPIC)


async def test_a_second_process_of_a_live_id_gets_an_id_of_its_own(
    world: World, tmp_path: Path
) -> None:
    cluster, own = world.cluster, world.cluster.broker_data_dir(1)
    log = LogSince(cluster.broker_process(1).log_path)
    second = process(cluster, tmp_path, tmp_path / "second", broker_id=1)
    second.process.start()
    async with without_standby(cluster):
        assert await second.ended() == EXIT_CANNOT_START, second.text()
        found = await until_found(cluster, ("broker_id_contested", 1), ("no_standby", -1))
        await append(cluster, world.led_by[1], [b"of the first one"], Acks.ALL)
        contested = the(found, "broker_id_contested")
        first_line, second_line = contested.evidence
        assert all(s in first_line for s in (cluster.broker_address(1), str(own)))
        assert directory_id(own) in first_line
        assert str(tmp_path / "second") in second_line
        assert directory_id(tmp_path / "second") in second_line
        assert_not_blamed(found, *world.led_by.values())
        assert not log.state_changes("registration_lost")

        data_dir = suggested(contested, r"Give the process with data_dir (\S+) on \S+ a broker_id")
        corrected = process(cluster, tmp_path, data_dir, broker_id=4)
        corrected.process.start()
        try:
            await corrected.until_reported("registration")
            await until_gone(cluster, "broker_id_contested")
        finally:
            await corrected.process.stop()


async def test_a_second_process_of_a_live_controller_id_waits(world: World, tmp_path: Path) -> None:
    """The cluster keeps its active controller and its standby; a dead broker is the second
    fault."""
    cluster = world.cluster
    standby = 2 if await cluster.active_controller() == 1 else 1
    settings: dict[str, Setting] = {
        "controller_id": standby,
        "listen": "127.0.0.1:0",
        "etcd_endpoints": [cluster.etcd_address],
        "cluster": cluster.cluster,
        "state_changes_topic": False,
    }
    second = SingleService("tidelog_controller", tmp_path, "second-controller", **settings)
    await cluster.stop_broker(3)
    second.process.start()
    try:
        line = await second.until_logged("controller_id_taken")
        assert line["by"] == cluster.controller_address(standby)
        expected = (("controller_id_contested", -1), ("broker_stopped", 3), NO_LEADER)
        found = await until_found(cluster, *expected)
        contested = the(found, "controller_id_contested")
        assert f"at {cluster.controller_address(standby)}" in contested.summary
        assert "standby_missing" not in {cause for cause, _ in causes_of(found)}
        await assert_still_found(cluster, *expected)
        assert_not_blamed(found, world.led_by[1], world.led_by[2])
        own = second.events("controller_started")[0]["address"]
        assert suggested(contested, r"Stop the process at (\S+) on") == own
    finally:
        await second.process.stop()
    await until_gone(cluster, "controller_id_contested")
    assert not second.state_changes("controller_elected")
    cluster.start_broker(3)
    await cluster.ready()
    await until_gone(cluster, "broker_stopped")
    silent = (await explained(cluster)).silent
    assert not [service for service in silent if service.startswith("controller")]
