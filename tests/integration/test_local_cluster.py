"""A local cluster of real processes: it starts, some of its processes are killed, and it
recovers."""

import asyncio
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tidelog.client import Admin
from tidelog_runtime.local.addresses import BROKER_BASE_PORT
from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.local.cluster_view import open_view

START_TIMEOUT_SECONDS = 60


async def test_every_broker_is_registered_at_its_configured_address(cluster: LocalCluster) -> None:
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


async def test_an_occupied_usual_port_is_reported_with_the_one_chosen_instead(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "tidelog_runtime.local", "--directory", str(tmp_path)]
    options = ["--brokers", "1", "--controllers", "1", "--no-gateway"]
    usual = BROKER_BASE_PORT + 1
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Another program of this machine may have it already.
        with suppress(OSError):
            other.bind(("127.0.0.1", usual))
            other.listen()
        up = await asyncio.create_subprocess_exec(
            *command, *options, stdout=asyncio.subprocess.PIPE
        )
        try:
            line = await shown_until(up, f"Port {usual} is occupied")
            await shown_until(up, "Ctrl-C")
            parts = json.loads((tmp_path / "cluster.json").read_text())
            async with asyncio.timeout(START_TIMEOUT_SECONDS), Admin(parts["bootstrap"]) as admin:
                await admin.create_topic("sea", 1, 1)
        finally:
            up.send_signal(signal.SIGINT)
            async with asyncio.timeout(START_TIMEOUT_SECONDS):
                await up.communicate()
    chosen = re.fullmatch(rf"Port {usual} is occupied: broker-1 has port (\d+) instead\.", line)
    assert chosen is not None, line
    assert parts["bootstrap"] == f"127.0.0.1:{chosen[1]}"


# By the options of the mounted file system, the reason and the remedy.
UNWRITABLE = {
    "ro": ("Read-only file system", "mount the file system of {} for writing"),
    # One for the directory itself.
    "nr_inodes=1": ("no inodes left", "choose a directory on another disk"),
    "size=64k": ("0.1 MB free, and at least", "choose a directory on another disk"),
}


@pytest.mark.parametrize("options", UNWRITABLE)
async def test_a_file_system_that_takes_no_file_is_reported_and_nothing_starts(
    options: str, tmp_path: Path
) -> None:
    """Mounted in a mount namespace of its own, which ends with the process."""
    mount = ["mount", "-t", "tmpfs", "-o", options, "tidelog-test", str(tmp_path)]
    if await asyncio.to_thread(subprocess.call, ["unshare", "-m", *mount]) != 0:
        pytest.skip("mounting is not allowed here")
    up = [sys.executable, "-m", "tidelog_runtime.local", "--directory", str(tmp_path)]
    ended = await asyncio.create_subprocess_exec(
        *("unshare", "-m", "sh", "-c", f"{shlex.join(mount)} && exec {shlex.join(up)}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(START_TIMEOUT_SECONDS):
        shown, errors = await ended.communicate()

    reason, remedy = UNWRITABLE[options]
    [line] = errors.decode().splitlines()
    assert ended.returncode == 1
    assert line.startswith("The cluster cannot run: ")
    assert reason in line
    assert line.endswith(remedy.format(tmp_path))
    assert "Starting" not in shown.decode()
    assert not processes_of(tmp_path)


def processes_of(directory: Path) -> list[int]:
    """The processes that have the directory among their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(directory).encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


async def test_the_printed_command_starts_a_dead_etcd_of_this_cluster_again(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "tidelog_runtime.local", "--directory", str(tmp_path)]
    options = ["--brokers", "1", "--controllers", "1", "--no-gateway"]
    up = await asyncio.create_subprocess_exec(*command, *options, stdout=asyncio.subprocess.PIPE)
    try:
        await shown_until(up, "Ctrl-C")
        etcd = json.loads((tmp_path / "cluster.json").read_text())["etcd"]
        os.kill(await asyncio.to_thread(listener, etcd), signal.SIGKILL)
        dead = await shown_until(up, "start it again: ")
        again = dead.partition("start it again: ")[2]
        started = await asyncio.create_subprocess_shell(again, cwd="/")
        async with asyncio.timeout(START_TIMEOUT_SECONDS):
            assert await started.wait() == 0
        await shown_until(up, "etcd was started.")
        parts = json.loads((tmp_path / "cluster.json").read_text())
        async with asyncio.timeout(START_TIMEOUT_SECONDS), Admin(parts["bootstrap"]) as admin:
            # The controller and the broker use the same etcd again.
            await admin.create_topic("sea", 1, 1)
    finally:
        up.send_signal(signal.SIGINT)
        async with asyncio.timeout(START_TIMEOUT_SECONDS):
            rest, _ = await up.communicate()
    stopped = rest.decode().partition("Start it again: ")[2].strip()
    assert stopped == shlex.join([*command, *options])


async def shown_until(up: asyncio.subprocess.Process, text: str) -> str:
    """Waits for the line that contains the text."""
    assert up.stdout is not None
    async with asyncio.timeout(START_TIMEOUT_SECONDS):
        while text not in (line := (await up.stdout.readline()).decode()):
            assert line, "it ended early"
    return line.strip()


def listener(address: str) -> int:
    """The process that was started to listen there for clients."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if f"--listen-client-urls=http://{address}".encode() in words:
            return int(path.parent.name)
    raise AssertionError(f"no process listens at {address}")


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
