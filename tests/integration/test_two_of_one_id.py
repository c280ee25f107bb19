"""A broker id is bound to one data directory.

The tests start a second process with another directory, and replace a directory, restore it from a
copy, or move it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from integration.clusters import running_cluster
from integration.explaining import (
    assert_not_blamed,
    explained,
    faults_of,
    text_of,
    the,
    until_present,
)
from integration.logs import LogSince
from integration.reconfigured import directory_id, restart_broker
from integration.single_service import SingleService
from integration.suggested_steps import until_gone, without_standby
from integration.topics import (
    create_topic,
    new_name,
    read,
    read_values,
    until_in_sync,
    until_isr,
    write,
)
from integration.waiting import until_true
from tidelog.inspection.explain import causes
from tidelog.inspection.state_reports import Finding
from tidelog_broker.log.checkpoint import HIGH_WATERMARKS
from tidelog_broker.storage.data_directory import REVISION_FILE
from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.local.cluster_file import Setting

EXIT_CANNOT_START = 1
# With one of two replicas in sync, writes are acknowledged.
LENIENT = {"min_insync_replicas": "1"}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    # State files are replaced soon after each change.
    settings = {"checkpoint_interval_ms": 500}
    directory = tmp_path_factory.mktemp("ids")
    async with running_cluster(directory, broker_config=settings) as running:
        yield running


def second_process(
    cluster: LocalCluster, directory: Path, broker_id: int, **settings: Setting
) -> SingleService:
    """A second process with an empty directory and its own address."""
    with_defaults: dict[str, Setting] = {
        "broker_id": broker_id,
        "listen": "127.0.0.1:0",
        "data_dir": str(directory / "second-data"),
        "etcd_endpoints": [cluster.etcd_address],
        "cluster": cluster.cluster,
        "state_changes_topic": False,
        **settings,
    }
    return SingleService("tidelog_broker", directory, "second", **with_defaults)


def registration_log(cluster: LocalCluster, broker_id: int) -> LogSince:
    return LogSince(cluster.broker_process(broker_id).log_path)


async def last_registration(log: LogSince) -> str:
    """Why its directory is not intact; empty: it is intact."""
    await until_true(lambda: bool(log.state_changes("registration", "completed")), "it registers")
    return str(log.state_changes("registration", "completed")[-1]["details"]["not_intact_reason"])


@pytest.mark.rule("broker-id-bound-to-directory")
async def test_a_paused_broker_keeps_its_id(cluster: LocalCluster, tmp_path: Path) -> None:
    """Otherwise the second process would lead, and records that it acknowledges would be lost when
    the first one is back. A killed standby controller is the second fault."""
    topic, alone = new_name("paused"), await create_topic(cluster, new_name("alone"), 3, 1)
    bystander = next(f"{alone.name}/{p.partition}" for p in alone.partitions if p.leader == 2)
    await create_topic(cluster, topic, config=LENIENT)
    await write(cluster, topic, [b"before"])
    second = second_process(cluster, tmp_path, 1)
    own = directory_id(cluster.broker_data_dir(1))
    async with without_standby(cluster):
        cluster.pause(1)
        try:
            await until_isr(cluster, topic, {2, 3})  # its lease has ended
            second.process.start()
            assert await second.ended() == EXIT_CANNOT_START, second.text()
            found = await until_present(
                cluster, (causes.BROKER_ID_CONTESTED, 1), (causes.NO_STANDBY, -1)
            )
            healthy = await faults_of(cluster, bystander)
            contested = the(found, causes.BROKER_ID_CONTESTED, 1)
            await _give_own_id(cluster, tmp_path, contested)
            await write(cluster, topic, [b"while it is paused"])
        finally:
            cluster.resume(1)
    await until_in_sync(cluster, topic)

    assert healthy == []
    assert_not_blamed(found, bystander)
    [rejected] = second.events("cannot_start")
    other = directory_id(tmp_path / "second-data")
    assert own in rejected["why"]
    assert other in rejected["why"]
    assert f"--replace-directory {own}" in rejected["why"]
    evidence = "\n".join(contested.evidence)
    assert other in evidence
    assert str(tmp_path / "second-data") in evidence
    values = [record.value for record in await read(cluster, topic)]
    assert values == [b"before", b"while it is paused"]
    assert "Traceback" not in second.text()


async def _give_own_id(cluster: LocalCluster, directory: Path, contested: Finding) -> None:
    """Carries out the suggested step."""
    [data_dir] = re.findall(
        r"Give the process with data_dir (\S+) on \S+ a broker_id of its own", contested.next_step
    )
    corrected = second_process(cluster, directory, 4, data_dir=data_dir)
    corrected.process.start()
    try:
        await corrected.until_reported("registration")
        await until_gone(cluster, causes.BROKER_ID_CONTESTED)
    finally:
        await corrected.process.stop()


async def test_an_abandoned_directory_is_replaced_and_never_intact_again(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    topic = new_name("replaced")
    await create_topic(cluster, topic, config=LENIENT)
    await write(cluster, topic, [b"before"])
    first_id = directory_id(cluster.broker_data_dir(2))
    await cluster.kill(2)

    new = second_process(cluster, tmp_path, 2, replace_directory=first_id)
    new.process.start()
    registered = await new.until_reported("registration")
    assert f"it replaces data directory {first_id}" in registered["details"]["not_intact_reason"]
    await until_isr(cluster, topic, {1, 2, 3})
    await write(cluster, topic, [b"while it is replaced"])
    assert await new.process.stop()
    new_id = directory_id(tmp_path / "second-data")

    log = registration_log(cluster, 2)
    cluster.start_broker(2)
    await cluster.broker_process(2).wait()
    [line] = log.events("cannot_start")
    assert new_id in line["why"]

    await restart_broker(cluster, 2, {"replace_directory": new_id})
    assert f"it replaces data directory {new_id}" in await last_registration(log)
    await until_in_sync(cluster, topic)
    finding = the(await explained(cluster), causes.DIRECTORY_NOT_INTACT, 2)
    assert new_id in finding.summary
    values = [record.value for record in await read(cluster, topic)]
    assert values == [b"before", b"while it is replaced"]


async def test_a_copy_is_intact_only_after_a_clean_stop(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    data, backup = cluster.broker_data_dir(3), tmp_path / "backup"

    def put_back() -> None:
        shutil.rmtree(data)
        shutil.copytree(backup, data)

    log = registration_log(cluster, 3)
    await cluster.stop_broker(3)
    shutil.copytree(data, backup)
    put_back()  # as when it is moved to another disk
    cluster.start_broker(3)
    assert await last_registration(log) == ""

    log = registration_log(cluster, 3)
    await cluster.kill(3)
    put_back()
    cluster.start_broker(3)
    assert "has registered since" in await last_registration(log)

    shutil.rmtree(backup)
    log = registration_log(cluster, 3)
    await cluster.kill(3)
    shutil.copytree(data, backup)
    put_back()
    cluster.start_broker(3)
    assert "copied or restored without a clean stop" in await last_registration(log)
    assert [line["event"] for line in log.events("data_directory_not_intact")]


async def test_a_backup_copied_over_the_files_is_recognized_after_a_reboot(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """A `synced` topic trusts a directory whose machine was only rebooted."""
    data, backup, topic = cluster.broker_data_dir(3), tmp_path / "backup", new_name("restored")
    await create_topic(cluster, topic, config=LENIENT | {"durability": "synced"})
    await write(cluster, topic, [b"before"])
    log = registration_log(cluster, 3)
    await cluster.kill(3)
    await restart_broker(cluster, 3, {"boot_id_file": other_boot(tmp_path, 2)})
    assert await last_registration(log) == ""
    await until_in_sync(cluster, topic)

    cluster.pause(3)
    copy_over(data, backup)
    cluster.resume(3)
    backed_up = file_ids(data)
    await write(cluster, topic, [b"after"])
    await until_true(lambda: file_ids(data) != backed_up, "a state file is replaced")
    log = registration_log(cluster, 3)
    await cluster.kill(3)
    copy_over(backup, data)
    other_boot(tmp_path, 3)
    cluster.start_broker(3)
    assert "copied or restored without a clean stop" in await last_registration(log)
    await until_in_sync(cluster, topic)
    assert await read_values(cluster, topic) == [b"before", b"after"]


def copy_over(source: Path, target: Path) -> None:
    """Existing files keep their inodes."""
    target.mkdir(exist_ok=True)
    subprocess.run(["cp", "-a", f"{source}/.", str(target)], check=True)


def file_ids(data: Path) -> list[int]:
    """Of the files that are replaced by new ones when something is committed."""
    return [(data / name).stat().st_ino for name in (REVISION_FILE, HIGH_WATERMARKS)]


def other_boot(directory: Path, number: int) -> str:
    """The path of a file with the boot id of another machine, or of a later boot."""
    path = directory / "boot_id"
    path.write_text(f"boot {number}")
    return str(path)


async def test_a_copied_directory_waits_for_the_original(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """The copy, on another machine, does not end the registration of a living broker."""
    shutil.copytree(cluster.broker_data_dir(1), tmp_path / "second-data")
    twin = second_process(cluster, tmp_path, 1, boot_id_file=other_boot(tmp_path, 2))
    log = registration_log(cluster, 1)
    twin.process.start()
    try:
        await twin.until_logged("broker_id_taken")
        found = await until_present(cluster, (causes.BROKER_ID_CONTESTED, 1))
    finally:
        await twin.process.stop()
    contested = the(found, causes.BROKER_ID_CONTESTED)
    assert "waits for the registration of the first one to end" in contested.summary
    assert not log.state_changes("registration_lost")


async def test_a_waiting_copy_takes_over_from_a_dead_broker_and_is_always_reported(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """An operator who starts the first process again has to know of the second."""
    copy = tmp_path / "second-data"
    shutil.copytree(cluster.broker_data_dir(1), copy)
    twin = second_process(cluster, tmp_path, 1)
    twin.process.start()
    try:
        await twin.until_logged("broker_id_taken")
        await until_present(cluster, (causes.BROKER_ID_CONTESTED, 1))
        await cluster.kill(1)
        cause = ""
        while cause != causes.DIRECTORY_NOT_INTACT:
            named = [f for f in (await explained(cluster)).findings if str(copy) in text_of(f)]
            assert {f.broker for f in named} == {1}
            [cause] = {f.cause for f in named}
        cluster.start_broker(1)
        found = await until_present(cluster, (causes.BROKER_ID_CONTESTED, 1))
        waiting = the(found, causes.BROKER_ID_CONTESTED).evidence[1]
        assert str(cluster.broker_data_dir(1)) in waiting
    finally:
        await twin.process.stop()
    await cluster.ready()
