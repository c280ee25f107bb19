"""After a reboot of all machines no replica is intact: `tidelog explain` reports what each
partition waits for, and later what an election may have lost."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
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
    faults_of,
    of,
    only,
    split,
    text_of,
    the,
    until_found,
    until_present,
)
from integration.suggested_steps import carried_out, commands_of
from integration.topics import until_in_sync
from tidelog.inspection.state_reports import Explanation
from tidelog.model import Acks
from tidelog_runtime.local.cluster import LocalCluster

# The `synced` topic loses nothing; the other topic waits for consent.
KEPT, MANUAL = "kept", "manual"
DEAD = 3

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Rebooted:
    """All machines were rebooted; then one broker died as well."""

    cluster: LocalCluster
    kept: Pairs
    manual: Pairs
    whole: Explanation


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rebooted(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rebooted]:
    directory = tmp_path_factory.mktemp("explain")
    boot_id = directory / "boot_id"
    boot_id.write_text("boot 1")
    settings = {"boot_id_file": str(boot_id)}
    async with running_cluster(
        directory / "cluster", controllers=1, broker_config=settings
    ) as cluster:
        kept = await create_pairs(cluster, KEPT, {"durability": "synced"})
        manual = await create_pairs(cluster, MANUAL, {"recovery": "manual"})
        for name in (kept[1, 2], manual[1, 2], manual[1, DEAD]):
            await append(cluster, name, [b"acknowledged"] * 20, Acks.ALL)
        await asyncio.gather(*(cluster.kill(broker_id) for broker_id in cluster.broker_ids))
        boot_id.write_text("boot 2")
        for broker_id in cluster.broker_ids:
            cluster.start_broker(broker_id)
        await cluster.ready()
        await until_present(cluster, ("no_leader", -1))
        # The synced topic is intact again before anything else happens.
        await until_in_sync(cluster, KEPT)
        await cluster.kill(DEAD)
        # Its address refuses connections a moment before the controller has noticed its end and
        # reports when it was.
        found = await until_found(
            cluster,
            # What waits for consent, and what waits for the dead broker.
            ("no_leader", -1),
            ("no_leader", -1),
            ("replica_dead", DEAD),
            ("machine_rebooted", -1),
            # The synced partitions on the dead broker.
            ("under_min_isr", -1),
            containing=("it has no registration",),
            missing=("; it is dead",),
        )
        yield Rebooted(cluster, kept, manual, found)


async def test_a_manual_recovery_awaits_consent_and_shows_the_command(
    rebooted: Rebooted,
) -> None:
    topic, partition = split(rebooted.manual[1, 2])
    found = await explained(rebooted.cluster, of(rebooted.manual[1, 2]))
    waits = the(found, "no_leader")
    assert (waits.topic, waits.partition) == (topic, partition)
    assert "waits for consent" in waits.summary
    assert waits.because == ("machine_rebooted",)
    assert "has lost data: it is intact only since incarnation" in text_of(waits)
    assert waits.next_step.endswith(f"tidelog topics recover {topic} --partition {partition}")


async def test_the_reboot_of_all_machines_is_explained_with_its_consequences(
    rebooted: Rebooted,
) -> None:
    named = the(rebooted.whole, "machine_rebooted")
    assert named.severity == "warning"
    assert named.summary.startswith("all machines: the machines of brokers 1, 2 were rebooted")
    assert "in boot boot 2" in text_of(named)
    [listed] = re.findall(r"partitions without a leader: (.*)", text_of(named))
    names, _, more = listed.partition(" and ")
    assert {*names.split(", ")} <= {*rebooted.manual.values()}
    # Five of at most six are named.
    assert rebooted.manual[1, 2] in names or more == "1 more"


async def test_recovery_waits_for_a_dead_member(rebooted: Rebooted) -> None:
    found = await explained(rebooted.cluster, of(rebooted.manual[1, DEAD]))
    waits = the(found, "no_leader")
    assert f"waits for broker {DEAD}, last known to hold every committed record" in waits.summary
    assert waits.because == (f"replica_dead of broker {DEAD}", "machine_rebooted")
    was = rf"broker {DEAD} was (in the ISR|eligible) in its incarnation \d+; gone since"
    assert re.search(was, text_of(waits))
    assert "broker_crashed" in text_of(waits)
    assert "--from-live-replicas" in waits.next_step


async def test_a_synced_partition_has_a_leader_and_is_not_blamed(rebooted: Rebooted) -> None:
    assert await faults_of(rebooted.cluster, rebooted.kept[1, 2]) == []
    assert_not_blamed(rebooted.whole, rebooted.kept[1, 2], rebooted.kept[2, 1])
    of_kept = await explained(rebooted.cluster, of(rebooted.kept[1, DEAD]))
    assert "no_leader" not in {finding.cause for finding in of_kept.findings}
    assert ("replica_dead", DEAD) in causes_of(of_kept)


async def test_after_consent_the_unclean_election_is_reported_with_its_epoch(
    rebooted: Rebooted,
) -> None:
    cluster, name = rebooted.cluster, rebooted.manual[1, 2]
    topic, partition = split(name)
    [command] = commands_of(the(await explained(cluster, of(name)), "no_leader"))
    await carried_out(cluster, command, "--yes")
    found = await explained(cluster, of(name))
    still = await explained(cluster, of(rebooted.manual[2, 1]))

    unclean = the(found, "unclean_election")
    assert unclean.severity == "warning"
    assert (unclean.topic, unclean.partition) == (topic, partition)
    assert f"{name}: broker {unclean.broker} was elected in leader epoch" in text_of(unclean)
    assert "Compare what producers had acknowledged before 20" in unclean.next_step
    assert unclean.because == ("machine_rebooted",)
    only(found, ("unclean_election", unclean.broker), ("machine_rebooted", -1))
    assert "unclean_election" not in {finding.cause for finding in still.findings}
