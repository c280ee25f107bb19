"""A second process with the id of a broker, in its own container beside that of the first."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from faults.cluster import ClusterFailedError
from faults.commands import run_command
from faults.compose_override import DATA_DIR, second_address
from faults.second_directory import copy_directory
from faults.small_disks import make_data_dir

STOP_TIMEOUT_S = 30
BROKER_PORT = 7500


def create_command(name: str, like: Mapping[str, Any], data_dir: Path, number: int) -> list[str]:
    """The command that creates the container. Pure.

    `like`: the inspection of the first process's container, whose image, settings and files are
    used, except for address and data.
    `number`: from 0."""
    config, host = like["Config"], like["HostConfig"]
    [network] = like["NetworkSettings"]["Networks"]
    address = second_address(number)
    environment = [
        *config["Env"],
        f"TIDELOG_ADVERTISED_ADDRESS={address}:{BROKER_PORT}",
    ]
    volumes = [bind for bind in host["Binds"] or [] if f":{DATA_DIR}" not in bind]
    return [
        *("docker", "create", "--name", name, "--network", network, "--ip", address),
        *(f"--env={setting}" for setting in environment),
        *(f"--volume={volume}" for volume in [*volumes, f"{data_dir}:{DATA_DIR}"]),
        *(["--user", config["User"]] if config["User"] else []),
        *("--read-only", "--tmpfs", "/tmp", f"--cpus={host['NanoCpus'] / 1e9:g}"),
        config["Image"],
        *(config["Cmd"] or []),
    ]


class ContainerSecond:
    """A `SecondProcess`. `directory`: a new one."""

    def __init__(self, name: str, number: int, directory: Path) -> None:
        """`number`: of its address, from 0."""
        self._name = name
        self._number = number
        self._directory = directory
        self._data_dir = directory / "data"

    @property
    def place(self) -> str:
        """All containers have their data at the same path."""
        return f"{second_address(self._number)}:{BROKER_PORT}"

    async def start(self, like: Mapping[str, Any], copied: Path | None) -> None:
        if copied is None:
            await asyncio.to_thread(make_data_dir, self._data_dir)
        else:
            await asyncio.to_thread(copy_directory, copied, self._data_dir)
        await run_command(create_command(self._name, like, self._data_dir, self._number))
        await run_command(["docker", "start", self._name])

    async def exit_status(self) -> int | None:
        [found] = json.loads(await run_command(["docker", "inspect", self._name]))
        state = found["State"]
        return None if state["Running"] else int(state["ExitCode"])

    async def log_lines(self) -> list[bytes]:
        return await read_log(self._name)

    async def stop(self) -> None:
        await remove([self._name], stop_first=True)
        await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)


async def remove(names: Sequence[str], *, stop_first: bool = False) -> None:
    """Succeeds also if no container has these names."""
    if stop_first:
        with suppress(ClusterFailedError):
            await run_command(["docker", "stop", "--time", str(STOP_TIMEOUT_S), *names])
    with suppress(ClusterFailedError):
        await run_command(["docker", "rm", "--force", *names])


async def read_log(container: str, *options: str) -> list[bytes]:
    """Its log over all restarts."""
    process = await asyncio.create_subprocess_exec(
        *("docker", "logs", *options, container),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return out.splitlines(keepends=True)
