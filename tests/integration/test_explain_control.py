"""A broker is paused while it stays registered.

`tidelog explain` reports what waits for it (commands, a deletion, the high watermark, consumers)
and what queues up for it, and traces each back to it, beside a broker that died. Leases are long
here, so that the paused broker stays registered and in every ISR."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import pytest
import pytest_asyncio

from integration.clusters import running_cluster
from integration.explaining import (
    Pairs,
    append,
    assert_not_blamed,
    causes_of,
    create_pairs,
    explained,
    of,
    produce_error,
    split,
    text_of,
    the,
    until_present,
)
from integration.reconfigured import restart_controller
from integration.topics import create_topic
from integration.waiting import until
from integration.wire_client import WireClient
from tidelog.client import Admin
from tidelog.inspection.state_reports import Explanation, Finding, Scope
from tidelog.model import Acks
from tidelog_runtime.local.cluster import LocalCluster

TOPIC, DELETED = "pairs", "gone"
DEAD, PAUSED = 2, 3
MORE = 3
# A stalled high watermark is detected after a fourth of the lag time. Until the lag time has
# passed, the paused broker is in every ISR: everything is explained by then.
SETTINGS = {"lease_ttl_seconds": 60, "replica_lag_time_max_ms": 32_000}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Faulty:
    """The cluster with its faults, and the explanation at that time."""

    cluster: LocalCluster
    pairs: Pairs
    alone: str  # a partition on broker 1 alone
    idle: str  # led by broker 1, followed by the paused one, and never written
    whole: Explanation
    parts: Mapping[Scope, Explanation]

    def faults(self, name: str) -> list[Finding]:
        """The faults of a partition, without notes."""
        return [f for f in self.parts[of(name)].findings if f.severity != "info"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def faulty(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Faulty]:
    async with running_cluster(
        tmp_path_factory.mktemp("explain"),
        controllers=1,
        broker_config=SETTINGS,
        controller_config={"command_timeout_ms": 2_000},
    ) as cluster:
        pairs = await create_pairs(cluster, TOPIC)
        single = (await create_topic(cluster, "alone", 3, 1)).partitions
        alone = next(f"alone/{p.partition}" for p in single if p.leader == 1)
        idle = (await create_pairs(cluster, "idle"))[1, PAUSED]
        await create_topic(cluster, DELETED, 3)
        await append(cluster, pairs[1, PAUSED], [b"committed"] * 10, Acks.ALL)
        cluster.pause(PAUSED)
        consuming = asyncio.create_task(_wait_for_records(cluster, pairs[1, PAUSED], 12))
        try:
            await cluster.kill(DEAD)
            await append(cluster, pairs[1, PAUSED], [b"waits"] * 5)
            async with Admin(cluster.bootstrap) as admin:
                await admin.delete_topic(DELETED, timeout_ms=3_000)
            await produce_error(cluster, pairs[1, DEAD])
            found = await until_present(
                cluster,
                ("broker_paused", PAUSED),
                ("replica_dead", DEAD),
                ("command_overdue", PAUSED),
                ("deletion_waits", PAUSED),
                ("hw_stalled", 1),
                ("consumer_waits", 1),
                ("under_min_isr", 1),
                ("no_leader", PAUSED),
            )
            names = (pairs[PAUSED, 1], pairs[1, DEAD], idle, alone)
            scopes = [*map(of, names), Scope(broker=PAUSED), Scope(DELETED)]
            parts = await asyncio.gather(*(explained(cluster, scope) for scope in scopes))
            by_scope = dict(zip(scopes, parts, strict=True))
            yield Faulty(cluster, pairs, alone, idle, found, by_scope)
        finally:
            consuming.cancel()
            cluster.resume(PAUSED)


async def _wait_for_records(cluster: LocalCluster, name: str, offset: int) -> None:
    """A consumer that polls repeatedly, beyond the high watermark."""
    topic, partition = split(name)
    async with WireClient(cluster.broker_address(1)) as leader:
        while True:
            await leader.fetch(topic, partition, offset)
            await asyncio.sleep(0.1)


async def test_a_paused_broker_is_the_root_of_what_waits_for_it(faulty: Faulty) -> None:
    paused = the(faulty.whole, "broker_paused")
    assert paused.severity == "critical"
    stands_still = "the high watermark does not advance in 1 partition: " + faulty.pairs[1, PAUSED]
    assert stands_still in text_of(paused)
    assert "it is registered in incarnation" in text_of(paused)
    assert f"{faulty.cluster.broker_address(PAUSED)} takes connections" in text_of(paused)


async def test_partitions_of_a_paused_leader_are_unavailable_though_their_metadata_look_healthy(
    faulty: Faulty,
) -> None:
    led = faulty.pairs[PAUSED, 1]
    assert the(faulty.parts[of(led)], "no_leader").broker == PAUSED
    for explanation in (faulty.whole, faulty.parts[Scope(broker=PAUSED)]):
        missing = [f for f in explanation.findings if (f.cause, f.broker) == ("no_leader", PAUSED)]
        assert {finding.severity for finding in missing} == {"critical"}
        assert all(f"broker_paused of broker {PAUSED}" in finding.because for finding in missing)
        # One partition with each other broker, one with a single replica, and internal ones.
        assert sum(finding.partition_count for finding in missing) >= 5
        names = [name for finding in missing for name in finding.partitions]
        assert {split(name)[0] for name in names} <= {TOPIC, "idle", "alone", "__state_changes"}
        # Broker 1 can replace it. The dead broker cannot, and the partition with a single replica
        # has no other.
        [elected] = [f for f in missing if "another is elected" in f.summary]
        assert led in elected.partitions
        [with_the_dead] = [f for f in missing if faulty.pairs[PAUSED, DEAD] in f.partitions]
        assert f"any one of brokers {DEAD}, {PAUSED}" in with_the_dead.summary
        assert f"replica_dead of broker {DEAD}" in with_the_dead.because
        assert_not_blamed(explanation, faulty.alone)


async def test_an_idle_partition_with_a_stalled_follower_is_unhealthy(
    faulty: Faulty,
) -> None:
    faults = faulty.faults(faulty.idle)
    paused = the(faults, "broker_paused", PAUSED)
    assert paused.severity == "warning"
    # The controller sends its full state again to a broker that it lost.
    assert {fault.cause for fault in faults} <= {"broker_paused", "command_overdue"}
    assert f"still in the ISR of 1 partition: {faulty.idle}" in text_of(paused)


async def test_commands_that_are_not_acknowledged_are_overdue(faulty: Faulty) -> None:
    overdue = the(faulty.whole, "command_overdue")
    assert overdue.because == (f"broker_paused of broker {PAUSED}",)
    assert "has yet to acknowledge" in text_of(overdue)
    assert overdue.partition_count > 0
    assert not [f for f in faulty.whole.findings if f.cause == "command_overdue" and f.broker == 1]


async def test_a_deletion_waits_for_the_paused_broker_and_not_for_the_dead_one(
    faulty: Faulty,
) -> None:
    waits = the(faulty.whole, "deletion_waits")
    assert waits.topic == DELETED
    assert waits.because == (f"broker_paused of broker {PAUSED}",)
    assert f"broker {DEAD}" not in text_of(waits)
    scoped = faulty.parts[Scope(DELETED)]
    assert "deletion_waits" in {finding.cause for finding in scoped.findings}


async def test_a_stalled_high_watermark_is_traced_to_the_paused_follower(
    faulty: Faulty,
) -> None:
    stalled = the(faulty.whole, "hw_stalled", 1)
    assert stalled.partitions == (faulty.pairs[1, PAUSED],)
    assert stalled.because == (f"broker_paused of broker {PAUSED}",)
    assert "does not advance from 10" in stalled.summary
    assert "its log ends at 15" in text_of(stalled)
    assert f"broker {PAUSED} holds it back: its log ends at 10" in text_of(stalled)


async def test_a_consumer_between_high_watermark_and_log_end_gets_nothing(
    faulty: Faulty,
) -> None:
    waits = the(faulty.whole, "consumer_waits")
    assert (waits.topic, waits.partition) == split(faulty.pairs[1, PAUSED])
    assert "at offset 12 get nothing" in waits.summary
    assert "between the high watermark (10) and the log's end (15)" in waits.summary
    assert f"broker_paused of broker {PAUSED}" in waits.because
    assert "hw_stalled of broker 1" in waits.because


async def test_a_partition_of_the_dead_broker_is_not_blamed_on_the_paused_one(
    faulty: Faulty,
) -> None:
    below = faulty.parts[of(faulty.pairs[1, DEAD])]
    rejected = the(below, "under_min_isr")
    assert rejected.because == (f"replica_dead of broker {DEAD}",)
    assert "broker-1, the leader, has rejected" in text_of(rejected)
    assert "broker_paused" not in {finding.cause for finding in below.findings}


async def test_a_partition_on_neither_broker_is_healthy(faulty: Faulty) -> None:
    assert faulty.faults(faulty.alone) == []
    assert_not_blamed(faulty.whole, faulty.alone)


async def test_state_changes_queue_only_for_the_paused_broker(
    faulty: Faulty,
) -> None:
    """The last test: the next controller waits longer before it considers a command overdue."""
    cluster = faulty.cluster
    await restart_controller(cluster, 1, {"command_timeout_ms": 600_000})
    found = await until_present(
        cluster, ("command_backlog", PAUSED), ("broker_paused", PAUSED), ("replica_dead", DEAD)
    )
    before = the(found, "command_backlog").partition_count
    async with Admin(cluster.bootstrap) as admin:
        for topic in ("kept", "short-lived"):
            # On brokers 1 and 3, because 2 is dead.
            await admin.create_topic(topic, MORE, 2, timeout_ms=3_000)
        # Only the latest state of each replica is queued, here its deletion.
        await admin.delete_topic("short-lived", timeout_ms=3_000)

    async def check() -> Explanation | None:
        now = await explained(cluster)
        waiting = [f.partition_count for f in now.findings if f.cause == "command_backlog"]
        return now if max(waiting, default=0) >= before + 2 * MORE else None

    later = await until(check, "the new states wait, too")
    assert later is not None
    backlog = the(later, "command_backlog")
    assert backlog.partition_count == before + 2 * MORE
    assert backlog.because == (f"broker_paused of broker {PAUSED}",)
    assert "is behind with" in backlog.summary
    assert f"broker {PAUSED}, in incarnation" in text_of(backlog)
    assert f"broker {DEAD}" not in text_of(backlog)
    assert {("broker_paused", PAUSED), ("replica_dead", DEAD)} <= causes_of(later)
    assert "command_overdue" not in {finding.cause for finding in later.findings}
    assert_not_blamed(later, faulty.alone)
