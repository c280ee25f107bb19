"""`tidelog apply` against running brokers: it changes what differs, nothing else, and finishes what
an interrupted one has begun."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from integration.shell import done, tidelog
from integration.topics import describe, new_name, until_in_sync, write
from integration.waiting import until
from tidelog.cli.exit_status import ExitStatus
from tidelog.client import Admin
from tidelog_runtime.local.cluster import LocalCluster

PATIENCE_SECONDS = 90.0


def declared(path: Path, topics: dict[str, Any]) -> tuple[str, str, str]:
    path.write_text(json.dumps({"topics": topics}))
    return "apply", "-f", str(path)


async def interrupt(
    cluster: LocalCluster, *arguments: str, when: Callable[[], Awaitable[bool]]
) -> None:
    """Kills the command once `when` returns true."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tidelog.cli", *arguments, "--bootstrap", cluster.bootstrap,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip

    async def has_ended_or() -> bool:
        return process.returncode is not None or await when()

    await until(has_ended_or, "the command has begun", PATIENCE_SECONDS)
    if process.returncode is None:
        process.kill()
    _, errors = await process.communicate()
    assert process.returncode == -signal.SIGKILL, errors.decode()


async def test_apply_twice_changes_nothing_and_finds_drift(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    topic, other = new_name("sea"), new_name("bay")
    config = {"retention_ms": 86_400_000, "min_insync_replicas": 2, "recovery": "manual"}
    apply = declared(
        tmp_path / "topics.yaml",
        {
            topic: {"partitions": 2, "replication_factor": 2, "config": config},
            other: {"partitions": 1, "replication_factor": 3},
        },
    )
    drift = await tidelog(cluster, *apply, "--dry-run", "--json")
    assert drift.status == ExitStatus.DRIFT, drift.err
    assert [c["action"] for c in json.loads(drift.out)["changes"]] == ["create", "create"]
    await done(cluster, *apply)
    async with Admin(cluster.bootstrap) as admin:
        before = await admin.topic_details([topic, other])
        assert await done(cluster, *apply, "--dry-run") == "Every topic is as declared.\n"
        assert await done(cluster, *apply, "--yes") == "Every topic is as declared.\n"
        assert [t.revision for t in await admin.topic_details([topic, other])] == [
            t.revision for t in before
        ]
        # By hand: another value, one that is no longer set, one that should not be, partitions.
        await admin.alter_topic_config(topic, {"retention_ms": "1000"}, ["recovery"])
        await admin.alter_topic_config(topic, {"segment_ms": "60000"})
        await admin.add_partitions(topic, 4)
    found = json.loads((await tidelog(cluster, *apply, "--dry-run", "--json")).out)
    (change,) = found["changes"]
    assert {d["field"]: (d["before"], d["after"]) for d in change["differences"]} == {
        "partitions": ("4", "2"),
        "retention_ms": ("1000", "86400000"),
        "recovery": ("balanced", "manual"),
        "segment_ms": ("60000", "604800000"),
    }
    rejected = await tidelog(cluster, *apply)
    assert (rejected.status, "--yes" in rejected.err) == (ExitStatus.USAGE, True)
    await done(cluster, *apply, "--yes", "--expected-plan", found["digest"])
    assert (await tidelog(cluster, *apply, "--dry-run")).status == ExitStatus.DONE
    assert (await describe(cluster, topic)).partition_count == 2
    await done(cluster, "topics", "delete", topic, "--yes")
    await done(cluster, "topics", "delete", other, "--yes")


async def test_an_interrupted_apply_finishes(cluster: LocalCluster, tmp_path: Path) -> None:
    topic = new_name("reef")
    await done(cluster, "topics", "create", topic, "--assignment", "1:2:3")
    await until_in_sync(cluster, topic, PATIENCE_SECONDS)
    await write(cluster, topic, [b"x" * 1_000] * 300)
    apply = declared(
        tmp_path / "topics.yaml",
        {
            topic: {
                "partitions": 4,
                "replication_factor": 3,
                "config": {"min_insync_replicas": 2, "segment_ms": 60_000},
            }
        },
    )
    # The copies take minutes.
    await done(cluster, "throttle", "set", "1024")

    async def is_copying() -> bool:
        async with Admin(cluster.bootstrap) as admin:
            running = await admin.list_operations(states=["running"])
        return any(operation.progress.moves_active for operation in running)

    await interrupt(cluster, *apply, "--yes", when=is_copying)
    drift = json.loads((await tidelog(cluster, *apply, "--dry-run", "--json")).out)
    assert len(drift["waits_for"]) == 1
    assert [d["field"] for c in drift["changes"] for d in c["differences"]] == [
        "min_insync_replicas"
    ]
    await done(cluster, "throttle", "set", "none")
    # Only a harmless difference is left.
    finished = json.loads(await done(cluster, *apply, "--json"))
    assert finished["operations"] == []
    assert (await tidelog(cluster, *apply, "--dry-run")).status == ExitStatus.DONE
    described = await until_in_sync(cluster, topic, PATIENCE_SECONDS, partitions=4)
    assert {len(p.replicas) for p in described.partitions} == {3}
    assert {p.min_isr for p in described.partitions} == {2}
    await done(cluster, "topics", "delete", topic, "--yes")


async def test_an_interrupted_creation_of_many_topics_finishes(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    names = [new_name("isle") for _ in range(12)]
    apply = declared(
        tmp_path / "topics.yaml",
        {name: {"partitions": 2, "replication_factor": 3} for name in names},
    )

    async def has_begun() -> bool:
        async with Admin(cluster.bootstrap) as admin:
            return len(await admin.find_topics(names)) >= 2

    await interrupt(cluster, *apply, when=has_begun)
    await done(cluster, *apply)
    assert (await tidelog(cluster, *apply, "--dry-run")).status == ExitStatus.DONE
    async with Admin(cluster.bootstrap) as admin:
        assert [t.partition_count for t in await admin.topic_details(names)] == [2] * 12
    # An empty list of declared topics would delete all; one is enough to delete the others.
    one = declared(tmp_path / "one.yaml", {names[0]: {}})
    planned = json.loads((await tidelog(cluster, *one, "--prune", "--dry-run", "--json")).out)
    assert {c["topic"] for c in planned["changes"]} >= set(names[1:])
    assert {c["action"] for c in planned["changes"]} == {"delete"}
    await done(cluster, *one, "--prune", "--yes", "--expected-plan", planned["digest"])
    async with Admin(cluster.bootstrap) as admin:
        assert [t.topic for t in await admin.topic_details()] == [names[0]]
