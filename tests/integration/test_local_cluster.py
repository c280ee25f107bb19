"""A local cluster of real processes: it starts, is killed in part, and comes back."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.local.cluster_view import open_view

START_TIMEOUT_SECONDS = 60


async def test_every_broker_is_registered_where_the_file_says(cluster: LocalCluster) -> None:
    view = open_view(cluster.etcd_address, cluster.cluster)
    try:
        registered = await view.brokers()
    finally:
        await view.close()

    assert registered == {part.id: part.address for part in cluster.describe().brokers}


async def test_a_killed_broker_comes_back(cluster: LocalCluster) -> None:
    await cluster.kill(2)
    cluster.start_broker(2)

    await cluster.ready()


async def test_the_other_controller_takes_over(cluster: LocalCluster) -> None:
    killed = await cluster.active_controller()
    assert killed is not None

    await cluster.kill_controller(killed)
    await cluster.ready()
    successor = await cluster.active_controller()
    cluster.start_controller(killed)
    await cluster.ready()

    assert successor not in (None, killed)


def parts_of(directory: Path) -> dict[str, int | None]:
    content = json.loads((directory / "cluster.json").read_text())
    return {part["address"]: part["pid"] for part in content["controllers"] + content["brokers"]}


async def test_make_up_runs_until_it_is_interrupted_and_leaves_nothing_running(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "tidelog_runtime.local", "--directory", str(tmp_path)]
    up = await asyncio.create_subprocess_exec(
        *command, "--brokers", "1", "--controllers", "1", stdout=asyncio.subprocess.PIPE
    )
    assert up.stdout is not None
    shown = ""
    async with asyncio.timeout(START_TIMEOUT_SECONDS):
        while "Ctrl-C" not in shown:
            line = await up.stdout.readline()
            assert line, f"it ended early: {shown}"
            shown += line.decode()
    running = parts_of(tmp_path)
    up.send_signal(signal.SIGINT)
    async with asyncio.timeout(START_TIMEOUT_SECONDS):
        rest, _ = await up.communicate()

    assert up.returncode == 0
    assert all(address in shown for address in running)
    assert "The data is kept" in rest.decode()
    assert not any(is_running(pid) for pid in running.values() if pid is not None)
    assert set(parts_of(tmp_path).values()) == {None}


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
