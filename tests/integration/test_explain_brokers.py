"""Brokers die or are paused, controllers are killed: `tidelog explain` names each fault, its
consequences, and nothing else."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from integration.clusters import running_cluster
from integration.explaining import (
    Pairs,
    assert_not_blamed,
    assert_still_found,
    causes_of,
    create_pairs,
    explained,
    explained_by,
    of,
    of_partition,
    only,
    produce_error,
    services,
    text_of,
    the,
    tidelog,
    until_found,
)
from integration.load import load
from integration.topics import until_in_sync
from integration.waiting import until
from tidelog.cli.exit_status import ExitStatus
from tidelog.inspection.state_reports import Scope
from tidelog_runtime.local.cluster import LocalCluster

TOPIC = "pairs"
DEAD, PAUSED = 3, 4
# Partitions with the same missing broker are one finding.
BELOW_MIN_ISR = ("under_min_isr", -1)
# A new leader learns that the last records of the load are committed once its ISR is complete.
# Those of the same cause are one finding, about their leader if that is a single one.
UNCOMMITTED = tuple(("hw_stalled", broker_id) for broker_id in (-1, -1, 1, 2, PAUSED))
# Every test kills broker DEAD, which counts as a crash loop before long.
EARLIER = (*UNCOMMITTED, ("crash_loop", DEAD))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    async with running_cluster(tmp_path_factory.mktemp("explain"), brokers=4) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pairs(cluster: LocalCluster) -> Pairs:
    return await create_pairs(cluster, TOPIC)


async def all_back(cluster: LocalCluster) -> None:
    for broker_id in cluster.broker_ids:
        if not cluster.broker_process(broker_id).running:
            cluster.start_broker(broker_id)
    await cluster.ready()
    await until_in_sync(cluster, TOPIC)


async def test_a_healthy_cluster_is_reported_healthy(cluster: LocalCluster, pairs: Pairs) -> None:
    assert (await explained(cluster)).findings == ()
    status, output = await tidelog(cluster, "explain", pairs[1, 2])
    assert (status, output) == (
        ExitStatus.DONE,
        f"All is well with {pairs[1, 2]}, according to 6 services.\n",
    )


@pytest.mark.usefixtures("pairs")
async def test_a_cluster_under_load_is_reported_healthy(cluster: LocalCluster) -> None:
    async with load(cluster, TOPIC) as written:
        for _ in range(5):
            await written.acknowledges(20)
            assert (await explained(cluster)).findings == ()


async def test_a_dead_and_a_paused_broker_are_distinguished(
    cluster: LocalCluster, pairs: Pairs
) -> None:
    await cluster.kill(DEAD)
    cluster.pause(PAUSED)
    try:
        expected = (
            ("replica_dead", DEAD),
            ("broker_paused", PAUSED),
            ("no_leader", -1),
            # Those of the one, and those of the other.
            BELOW_MIN_ISR,
            BELOW_MIN_ISR,
        )
        await until_found(cluster, *expected, also=UNCOMMITTED)
        of_one = (("under_min_isr", 1), ("replica_dead", DEAD))
        await until_found(cluster, *of_one, also=UNCOMMITTED, scope=of(pairs[1, DEAD]))
        assert await produce_error(cluster, pairs[1, DEAD])
        below = await explained(cluster, of(pairs[1, DEAD]))
        whole = await explained(cluster)
        of_paused = await of_partition(cluster, pairs[1, PAUSED])
        healthy = await of_partition(cluster, pairs[1, 2])
        status, output = await tidelog(cluster, "explain", "--broker", str(DEAD))
    finally:
        cluster.resume(PAUSED)
    await all_back(cluster)

    only(whole, *expected, *UNCOMMITTED)
    only(below, *of_one, *UNCOMMITTED)
    dead = the(whole, "replica_dead")
    assert dead.severity == "critical"
    assert f"{cluster.broker_address(DEAD)} refuses connections" in text_of(dead)
    assert "broker_crashed" in text_of(dead)
    paused = the(whole, "broker_paused")
    assert f"{cluster.broker_address(PAUSED)} takes connections" in text_of(paused)
    assert "kill -CONT" in paused.next_step

    rejected = the(below, "under_min_isr")
    assert rejected.because == (f"replica_dead of broker {DEAD}",)
    assert re.search(r"has rejected [\d,]+ appends? with acks=all in this epoch", text_of(rejected))
    assert f"broker {PAUSED}" not in text_of(rejected)
    assert ("replica_dead", DEAD) not in causes_of(of_paused)
    assert ("broker_paused", PAUSED) in causes_of(of_paused)

    # By then the other partitions of the paused broker have another leader.
    lost = the(whole, "no_leader")
    names = {pairs[DEAD, PAUSED], pairs[PAUSED, DEAD]}
    assert set(lost.partitions) <= names
    assert re.search(
        r"broker \d was (in the ISR|eligible) in its incarnation \d+; gone since", text_of(lost)
    )

    assert healthy == []
    assert_not_blamed(whole, pairs[1, 2], pairs[2, 1])
    assert status == ExitStatus.FAILED
    assert f"replica_dead: broker {DEAD} is gone" in output
    assert f"No answer from broker-{DEAD} at" in output


async def test_a_partition_without_leader_names_its_dead_members_and_their_incarnations(
    cluster: LocalCluster, pairs: Pairs
) -> None:
    name = pairs[DEAD, PAUSED]
    await cluster.kill(DEAD)
    await cluster.kill(PAUSED)
    found = await until_found(
        cluster,
        ("no_leader", -1),
        ("replica_dead", PAUSED),
        # Broker PAUSED may have been elected for a moment, and the other has left the ISR.
        also=(("replica_dead", DEAD),),
        scope=of(name),
    )
    healthy = await of_partition(cluster, pairs[1, 2])
    await all_back(cluster)

    lost = the(found, "no_leader")
    assert lost.severity == "critical"
    assert f"replica_dead of broker {PAUSED}" in lost.because
    assert "in its incarnation" in text_of(lost)
    assert "broker_crashed" in text_of(lost)
    assert f"tidelog topics recover {TOPIC} --partition" in lost.next_step
    assert healthy == []


@pytest.mark.usefixtures("pairs")
async def test_all_remaining_services_give_the_same_explanation(cluster: LocalCluster) -> None:
    await cluster.kill(DEAD)
    expected = (("replica_dead", DEAD), BELOW_MIN_ISR)
    await until_found(cluster, *expected, also=EARLIER)
    dead = cluster.broker_address(DEAD)
    found_by = [await explained_by(a) for a in services(cluster) if a != dead]
    await all_back(cluster)

    for found in found_by:
        assert causes_of(found).issuperset(expected)
        only(found, *expected, *EARLIER)
    assert len(found_by) == 5


async def test_leaders_that_are_not_preferred_are_a_note_and_no_fault(
    cluster: LocalCluster, pairs: Pairs
) -> None:
    # Not by a kill: earlier tests have killed it so often that it would be a crash loop.
    await cluster.stop_broker(DEAD)
    await until_found(cluster, ("broker_stopped", DEAD), BELOW_MIN_ISR, also=EARLIER)
    await all_back(cluster)

    async def check() -> bool:
        return causes_of(await explained(cluster, Scope(broker=DEAD))) == {
            ("not_preferred_leader", DEAD)
        }

    await until(check, "all but the preferred leader is healthy")
    found = await explained(cluster)
    status, _ = await tidelog(cluster, "explain", TOPIC)
    cluster.pause(PAUSED)
    try:
        beside = await until_found(
            cluster,
            ("not_preferred_leader", DEAD),
            ("broker_paused", PAUSED),
            BELOW_MIN_ISR,
            also=EARLIER,
        )
        of_noted = await of_partition(cluster, pairs[DEAD, 1])
        healthy = await of_partition(cluster, pairs[1, 2])
    finally:
        cluster.resume(PAUSED)
    # Without a controller, the next test gets no newer record of its end than this one.
    await cluster.kill(DEAD)
    await until_found(cluster, ("replica_dead", DEAD), BELOW_MIN_ISR, also=EARLIER)
    await all_back(cluster)

    only(found, *EARLIER)
    note = the(found, "not_preferred_leader", DEAD)
    assert note.severity == "info"
    assert note.partition_count == 3
    assert_not_blamed(found, pairs[1, 2])
    assert status == ExitStatus.DONE
    note = the(beside, "not_preferred_leader")
    assert {pairs[DEAD, 1], pairs[DEAD, 2]} <= set(note.partitions)
    # A broker that cannot lead is not reported missing as a leader.
    assert not {pairs[PAUSED, broker] for broker in (1, 2, DEAD)} & set(note.partitions)
    paused = the(beside, "broker_paused")
    assert not {pairs[DEAD, 1], pairs[DEAD, 2], pairs[1, 2]} & set(paused.partitions)
    assert causes_of(of_noted) == {("not_preferred_leader", DEAD)}
    assert healthy == []


async def test_without_a_controller_a_dead_leader_is_not_replaced(
    cluster: LocalCluster, pairs: Pairs
) -> None:
    later = await create_pairs(cluster, "later")
    for controller_id in (1, 2):
        await cluster.kill_controller(controller_id)
    await cluster.kill(DEAD)
    cluster.pause(PAUSED)
    try:
        found = await until_found(
            cluster,
            ("no_controller", -1),
            ("replica_dead", DEAD),
            ("broker_paused", PAUSED),
            ("no_leader", DEAD),
            ("no_leader", PAUSED),
            # Those of the one, and those of the other.
            BELOW_MIN_ISR,
            BELOW_MIN_ISR,
            also=EARLIER,
        )
        of_led = await of_partition(cluster, later[DEAD, 1])
        healthy = await of_partition(cluster, pairs[1, 2])
    finally:
        cluster.resume(PAUSED)
        for controller_id in (1, 2):
            cluster.start_controller(controller_id)
    await all_back(cluster)

    missing = the(found, "no_controller")
    assert missing.severity == "critical"
    assert re.search(
        r"(controllers?-\d at [\d.:]+|names the one at [\d.:]+ as active; it) refuses connect",
        text_of(missing),
    )
    lost = the(of_led, "no_leader")
    assert lost.because == (f"replica_dead of broker {DEAD}", "no_controller")
    assert healthy == []
    assert_not_blamed(found, pairs[1, 2], pairs[2, 1])


async def test_a_broker_and_a_controller_in_crash_loops_are_named_while_they_run(
    cluster: LocalCluster, pairs: Pairs
) -> None:
    """Last, because the findings remain for a while."""
    standby = 3 - await until_active(cluster)
    loops = (("crash_loop", DEAD), ("crash_loop", -1))
    for _ in range(3):
        await cluster.kill(DEAD)
        await cluster.kill_controller(standby)
        dead = (("replica_dead", DEAD), BELOW_MIN_ISR, ("no_standby", -1))
        await until_found(cluster, *dead, also=loops)
        cluster.start_broker(DEAD)
        cluster.start_controller(standby)
        await all_back(cluster)
    found = await until_found(cluster, *loops)
    of_led = await of_partition(cluster, pairs[DEAD, 1])

    loop = the(found, "crash_loop", DEAD)
    assert re.match(rf"broker {DEAD} has crashed [3-9] times within the last ", loop.summary)
    assert "the exit status that its supervisor" in loop.next_step
    assert f"controller {standby} has crashed" in the(found, "crash_loop", -1).summary
    assert ("crash_loop", DEAD) in causes_of(of_led)
    assert_not_blamed(found, pairs[1, 2])
    await assert_still_found(cluster, *loops)


async def until_active(cluster: LocalCluster) -> int:
    """Returns the id of the active controller."""
    found: list[int] = []

    async def check() -> bool:
        active = await cluster.active_controller()
        found.extend([] if active is None else [active])
        return bool(found)

    await until(check, "a controller is active")
    return found[0]
