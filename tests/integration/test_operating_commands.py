"""`tidelog` as an operator types it, against running brokers: a cluster grows, is maintained and
shrinks, and a partition is recovered with the shown loss of records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from integration.clusters import running_cluster
from integration.explaining import explained, the
from integration.shell import done, tidelog
from integration.topics import describe, new_name, read_values, until_in_sync, write
from integration.waiting import until
from tidelog.cli.exit_status import ExitStatus
from tidelog.client import Admin
from tidelog.inspection.state_reports import Scope
from tidelog.model import NO_LEADER
from tidelog_runtime.local.cluster import LocalCluster

# A broker restarts, and each command is a process.
PATIENCE_SECONDS = 90.0
VALUES = [f"value-{number}".encode() for number in range(200)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    async with running_cluster(tmp_path_factory.mktemp("operated-by-hand"), brokers=4) as running:
        yield running


async def shares(cluster: LocalCluster) -> dict[int, int]:
    """The number of replicas by broker."""
    listed = (await tidelog(cluster, "brokers", "list", "--json")).document()
    return {broker["broker_id"]: broker["replicas"] for broker in listed}


async def test_a_cluster_grows_is_maintained_and_shrinks_by_commands_alone(
    cluster: LocalCluster,
) -> None:
    topic = new_name("sea")
    # Placed on three of the four brokers.
    created = await tidelog(
        cluster, "topics", "create", topic, "--assignment", "1,2:2,3:3,1:1,2:2,3:3,1", "--json"
    )  # fmt: skip
    assert created.document()["partitions"] == 6
    await until_in_sync(cluster, topic, PATIENCE_SECONDS)
    await write(cluster, topic, VALUES)
    logs = (await tidelog(cluster, "topics", "describe", topic, "--logs", "--json")).document()[
        "logs"
    ]
    ends = [log["log_end_offset"] for log in logs if log["role"] == "leader"]
    assert (len(logs), len(ends), sum(ends)) == (12, 6, len(VALUES))

    # No replica moves before the operator has confirmed.
    rejected = await tidelog(cluster, "brokers", "add", "4")
    assert (rejected.status, "--dry-run" in rejected.err) == (ExitStatus.USAGE, True)
    planned = (await tidelog(cluster, "brokers", "add", "4", "--dry-run", "--json")).document()
    assert (await shares(cluster)).get(4, 0) == 0
    assert planned["plan"]["replicas_added"] == planned["plan"]["minimum_replicas_added"] == 3

    bound = (await tidelog(cluster, "throttle", "set", "50MB", "--json")).document()
    assert bound["bytes_per_second"] == 50_000_000
    grow = ("brokers", "add", "4", "--operation-id", "grow", "--yes", "--requested-by", "ann")
    grown = await tidelog(cluster, *grow, "--watch")
    assert grown.status == ExitStatus.DONE, grown.err
    assert "done" in grown.out.splitlines()[-1]
    assert (await shares(cluster))[4] == 3
    again = (await tidelog(cluster, *grow, "--json")).document()
    assert (again["operation"]["state"], again["operation"]["requested_by"]) == ("done", "ann")
    moves = (await tidelog(cluster, "operations", "moves", "grow", "--json")).document()
    assert [move["move"]["target"] for move in moves] == [
        move["target"] for move in planned["plan"]["moves"]
    ]

    # Maintenance moves all leaders away; but acks=all needs two of two replicas.
    kept = (await tidelog(cluster, "brokers", "maintenance", "4", "--json")).document()
    assert kept["leaders_kept"] == 0
    check = await tidelog(cluster, "brokers", "check-restart", "4", "--json")
    assert check.status == ExitStatus.FAILED
    found = json.loads(check.out)
    assert (found["unavailable"], found["under_min_isr"], found["leader_moves"]) == (0, 3, 0)
    explained = json.loads((await tidelog(cluster, "explain", "--json")).out)
    steps = {f["cause"]: f["next_step"] for f in explained["findings"] if f["broker"] == 4}
    assert steps["not_preferred_leader"].endswith("tidelog brokers maintenance 4 --off")
    await done(cluster, "brokers", "maintenance", "4", "--off")
    elected = (await tidelog(cluster, "leaders", "elect-preferred", topic, "--json")).document()
    assert all(one["error"] is None for one in elected["partitions"])

    # A saved plan runs as it was shown, and is reversed.
    kept_plan = await tidelog(cluster, "operations", "reverse", "grow", "--dry-run", "--json")
    assert kept_plan.document()["plan"]["moves"]
    shrunk = await tidelog(
        cluster,
        *("brokers", "remove", "4", "--operation-id", "shrink", "--yes", "--watch", "--json"),
    )
    assert shrunk.document()["operation"]["state"] == "done"
    assert (await shares(cluster))[4] == 0
    too_few = await tidelog(cluster, "brokers", "remove", "2", "3", "--dry-run")
    assert too_few.status == ExitStatus.FAILED

    await until_in_sync(cluster, topic, PATIENCE_SECONDS)
    assert Counter(await read_values(cluster, topic)) == Counter(VALUES)
    unknown = await tidelog(cluster, "operations", "describe", "nosuch")
    assert unknown.status == ExitStatus.NOT_FOUND


async def test_a_topic_is_changed_by_commands_alone(cluster: LocalCluster) -> None:
    topic = new_name("bay")
    planned = (await tidelog(cluster, "topics", "create", topic, "-p", "2", "-r", "2",
                             "--dry-run", "--json")).document()  # fmt: skip
    by_hand = ":".join(",".join(map(str, replicas)) for replicas in planned["assignment"])
    await done(cluster, "topics", "create", topic, "--assignment", by_hand)
    await until_in_sync(cluster, topic, PATIENCE_SECONDS)

    await done(cluster, "topics", "alter-config", topic, "--set", "segment_ms=60000")
    config = (await tidelog(cluster, "topics", "config", topic, "--set-only", "--json")).document()
    assert [(entry["key"], entry["value"]) for entry in config["config"]] == [
        ("segment_ms", "60000")
    ]
    wrong = await tidelog(cluster, "topics", "alter-config", topic, "--set", "segmentms=1")
    assert (wrong.status, "did you mean segment_ms?" in wrong.err) == (ExitStatus.FAILED, True)
    stale = await tidelog(
        cluster, "topics", "add-partitions", topic, "-p", "4", "--yes", "--expected-revision", "1"
    )  # fmt: skip
    assert (stale.status, "no longer at 1" in stale.err) == (ExitStatus.FAILED, True)
    added = (await tidelog(cluster, "topics", "add-partitions", topic, "-p", "4", "--yes",
                           "--json")).document()  # fmt: skip
    assert added["added"] == 2
    wider = await tidelog(
        cluster, "topics", "set-replication-factor", topic, "-r", "3", "--yes", "--watch", "--json"
    )  # fmt: skip
    assert wider.document()["operation"]["state"] == "done"
    described = await until_in_sync(cluster, topic, PATIENCE_SECONDS)
    assert {len(p.replicas) for p in described.partitions} == {3}

    follower = described.partitions[0].replicas[1]
    moved = (await tidelog(cluster, "leaders", "move", f"{topic}/0={follower}",
                           "--json")).document()  # fmt: skip
    assert moved["partitions"][0]["error"] is None
    removed = (await tidelog(cluster, "topics", "remove-partitions", topic, "-p", "1", "--yes",
                             "--json")).document()  # fmt: skip
    assert removed["removed"] == 3
    await done(cluster, "topics", "delete", topic, "--yes")


async def test_an_unprotected_topic_is_noted_until_it_has_more_replicas(
    cluster: LocalCluster,
) -> None:
    topic = new_name("mole")
    created = await tidelog(cluster, "topics", "create", topic, "-p", "4", "-r", "1")
    assert f"Topic {topic} is unprotected" in created.err
    await until_in_sync(cluster, topic, PATIENCE_SECONDS)
    await write(cluster, topic, VALUES)

    async def noted() -> list[dict[str, Any]]:
        # Exit status 0: it is no fault.
        document = (await tidelog(cluster, "explain", topic, "--json")).document()
        return [f for f in document["findings"] if f["cause"] == "single_replica"]

    (finding,) = await noted()
    note = the(await explained(cluster, Scope(topic)), "single_replica")
    assert (note.severity, note.next_step) == ("info", finding["next_step"])
    (listed,) = (await tidelog(cluster, "topics", "list", "--contains", topic, "--rates", "1",
                               "--json")).document()  # fmt: skip
    assert (listed["unprotected"], listed["approximate_records"]) == (True, len(VALUES))
    assert 0 < listed["leader_bytes"] == listed["total_bytes"]
    assert (listed["records_per_second"], listed["partitions_unmeasured"]) == (0.0, 0)

    command = finding["next_step"].removeprefix("To protect: tidelog ").removesuffix(".")
    await done(cluster, *command.split(), "--yes", "--watch")
    assert await noted() == []
    (listed,) = (await tidelog(cluster, "topics", "list", "--contains", topic, "--json")).document()
    assert (listed["unprotected"], listed["replicas_unknown"]) == (False, 0)
    assert listed["total_bytes"] == 3 * listed["leader_bytes"]
    await done(cluster, "topics", "delete", topic, "--yes")


async def test_a_partition_is_recovered_with_the_loss_that_was_shown(cluster: LocalCluster) -> None:
    topic = new_name("reef")
    await done(
        cluster,
        *("topics", "create", topic, "--assignment", "1,2", "-c", "min_insync_replicas=1"),
    )
    await until_in_sync(cluster, topic, PATIENCE_SECONDS)
    await write(cluster, topic, VALUES[:100])
    await cluster.kill(2)

    async def alone() -> bool:
        return (await describe(cluster, topic)).partitions[0].isr == (1,)

    await until(alone, "broker 1 is alone in the ISR")
    await write(cluster, topic, VALUES[100:])
    await cluster.kill(1)
    cluster.start_broker(2)

    async def is_shown() -> bool:
        async with Admin(cluster.bootstrap) as admin:
            described = await admin.describe_recovery(topic, timeout_ms=1_000)
        return any(s.described for found in described for s in found.survivors)

    await until(is_shown, "broker 2 has reported the end of its log", PATIENCE_SECONDS)
    printed = await done(cluster, "recovery", "describe", f"{topic}/0", "--json")
    ((_, survivor),) = [found["survivors"] for found in json.loads(printed)]
    assert (survivor["broker_id"], survivor["log_end_offset"]) == (2, 100)
    rejected = await tidelog(cluster, "recovery", "choose", f"{topic}/0=2")
    assert rejected.status == ExitStatus.USAGE
    shown = await done(cluster, "recovery", "choose", f"{topic}/0=2", "--dry-run")
    assert "What only 1 holds is lost, too" in shown
    assert (await describe(cluster, topic)).partitions[0].leader == NO_LEADER
    chosen = await done(cluster, "recovery", "choose", f"{topic}/0=2", "--yes")
    assert chosen == f"Broker 2 leads {topic}/0.\n"
    cluster.start_broker(1)
    await until_in_sync(cluster, topic, PATIENCE_SECONDS)
    assert await read_values(cluster, topic) == VALUES[:100]
