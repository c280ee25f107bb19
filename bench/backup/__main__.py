"""The speed of `tidelog backup`: create, verify, restore and compare, in MB/s of batches.

Fills a topic of three brokers, backs it up by the command, removes the topic with its files,
restores it into the same cluster, and compares each record. TMPDIR names the disk: the backup and
three replicas need four times the data. Exit status 1: a record differs, a file is damaged, or the
disk held more than that."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console

from bench.options import parse
from bench.report import (
    Measured,
    at_most,
    document,
    finish,
    lack_of_room,
    write_form,
)
from tidelog.client import Admin, Producer
from tidelog_runtime.local.cluster import LocalCluster

NAME = "bench-backup"
TOPIC = "sea"
REPLICAS = 3
# Every replica, and the backup.
COPIES = REPLICAS + 1
# Files of etcd, indexes and logs of processes; a run of 100 MB had 120 MB of them.
OVERHEAD_BYTES = 300e6
# Brokers delete the files of a deleted topic soon, but not before they answer.
DELETION_TIMEOUT_S = 300.0
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Settings:
    """What is backed up. The bytes are those of values."""

    megabytes: int = 10_000
    partitions: int = 12
    record_bytes: int = 1_024
    batch_bytes: int = 256 << 10


FULL = Settings()
QUICK = Settings(megabytes=200, partitions=6)


class CommandError(Exception):
    """A command failed; the message is its output."""


async def fill(cluster: LocalCluster, settings: Settings) -> float:
    """Writes the records; returns MB/s. Values do not repeat, so that no record hides another."""
    rng = random.Random(1)
    records_a_send = settings.batch_bytes // settings.record_bytes
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topic(TOPIC, settings.partitions, REPLICAS, {"retention_ms": "-1"})
    began = time.perf_counter()
    async with Producer(cluster.bootstrap, batch_bytes=settings.batch_bytes) as producer:
        sent = number = 0
        while sent < settings.megabytes * 1_000_000:
            values: list[bytes | None] = [
                rng.randbytes(settings.record_bytes) for _ in range(records_a_send)
            ]
            await producer.send_many(TOPIC, values, partition=number % settings.partitions)
            sent += records_a_send * settings.record_bytes
            number += 1
        await producer.flush()
    return sent / 1e6 / (time.perf_counter() - began)


def size_of(directory: Path) -> int:
    """Returns the bytes of all files. Files may vanish meanwhile."""
    size = 0
    for path in directory.rglob("*"):
        with suppress(OSError):
            size += path.stat().st_size
    return size


async def delete_topic(cluster: LocalCluster) -> None:
    """Deletes the topic, and waits until no broker has files of it. Raises `CommandError`."""
    async with Admin(cluster.bootstrap) as admin:
        await admin.delete_topic(TOPIC)
    give_up = time.perf_counter() + DELETION_TIMEOUT_S
    while left := list(cluster.directory.glob(f"brokers/*/**/{TOPIC}-*/*.log")):
        if time.perf_counter() > give_up:
            raise CommandError(
                f"{len(left)} files of the deleted topic are left after {DELETION_TIMEOUT_S:g} s, "
                f"such as {left[0]}"
            )
        await asyncio.sleep(POLL_S)


async def command(cluster: LocalCluster, *arguments: str) -> tuple[dict[str, Any], float]:
    """Returns the document of a `tidelog backup` command, and its seconds. Raises
    `CommandError`."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tidelog.cli", "backup", *arguments, "--json"),
        *("--bootstrap", cluster.bootstrap),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    seconds = time.perf_counter() - began
    try:
        return json.loads(output), seconds
    except ValueError:
        raise CommandError(f"{' '.join(arguments)}: {errors.decode()}") from None


async def measure(directory: Path, settings: Settings, console: Console) -> list[Measured]:
    cluster = LocalCluster(directory / "cluster", usual_ports=False)
    backup = str(directory / "backup")
    try:
        await cluster.start()
        await cluster.ready()
        filled = await fill(cluster, settings)
        console.print(f"  {settings.megabytes:,} MB written at {filled:.1f} MB/s")
        created, create_s = await command(cluster, "create", backup, "--topics", TOPIC)
        most_bytes = size_of(directory)
        verified, verify_s = await command(cluster, "verify", backup)
        await delete_topic(cluster)
        restored, restore_s = await command(cluster, "restore", backup)
        most_bytes = max(most_bytes, size_of(directory))
        compared, compare_s = await command(cluster, "verify", backup, "--against")
    finally:
        await cluster.stop()
    size_mb = created["size_bytes"] / 1e6
    lost = created["records"] - compared["records"]
    bound_mb = (created["size_bytes"] * COPIES * 1.05 + OVERHEAD_BYTES) / 1e6
    return [
        Measured("backup create", size_mb / create_s, "MB/s"),
        Measured("backup verify", size_mb / verify_s, "MB/s"),
        Measured("backup restore, acks=all, three replicas", size_mb / restore_s, "MB/s"),
        Measured("backup verify --against", size_mb / compare_s, "MB/s"),
        Measured("records", created["records"], ""),
        Measured("size", size_mb, "MB"),
        at_most("disk used at most", most_bytes / 1e6, bound_mb, "MB"),
        at_most("records that differ", compared["difference_count"] + abs(lost), 0, ""),
        at_most("records that were not restored", created["records"] - written(restored), 0, ""),
        at_most("damaged places of the backup", verified["fault_count"], 0, ""),
    ]


def written(restored: dict[str, Any]) -> int:
    """Returns the records that a `backup restore` wrote, from its document."""
    return sum(topic["written"] for topic in restored["topics"])


def main(argv: Sequence[str]) -> int:
    form, settings = parse("python -m bench.backup", __doc__, FULL, QUICK, argv)
    console = Console()
    directory = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))
    try:
        needed = settings.megabytes * 1e6 * COPIES * 1.05 + OVERHEAD_BYTES
        if lack := lack_of_room(directory, needed, "SIZE"):
            console.print(lack)
            return 2
        results = uvloop.run(measure(directory, settings, console))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    path = write_form(Path("out"), NAME, document(form, asdict(settings), results))
    return finish(results, console, "Backup and restore", path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
