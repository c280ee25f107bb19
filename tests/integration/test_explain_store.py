"""Incidents of a metadata store of three members.

Each is explained beside a second fault, a healthy partition is not blamed, and the step that
`explain` suggests ends it. One cluster serves all tests: each test restores the state that it
found."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

import pytest
import pytest_asyncio

from beside import beside
from integration.clusters import running_cluster
from integration.etcd_members import EtcdMember, EtcdMembers, etcdctl, running_etcd
from integration.explaining import (
    Pairs,
    assert_not_blamed,
    assert_still_present,
    causes_of,
    create_pairs,
    explained,
    faults_of,
    text_of,
    the,
    until_present,
)
from integration.suggested_steps import lead_as_preferred, until_gone
from integration.topics import until_in_sync
from integration.waiting import until
from tidelog.inspection.state_reports import Explanation, Finding
from tidelog_runtime.local.cluster import LocalCluster

TOPIC = "pairs"
# Small enough to be filled in a moment.
QUOTA_BYTES = 4 << 20
FILLER_BYTES = 100_000
# How many members stop together, for how long, and how long they run in between. Two of three
# cost the quorum. A service without requests probes the store after 5 s without an answer, so that
# all of them notice a stop of 6 s. In 3 s etcd elects a leader and leases are renewed, in 1 s few.
STOPS = [(2, 6.0, 3.0), (3, 5.0, 1.0)]
# Effects of an election, for some seconds.
PASSING = {"broker_unregistered", "no_leader", "under_min_isr", "replica_out_of_isr"}
OF_THE_STORE = frozenset({"store_slow", "store_unreachable", "repeated_elections"})
# So many later checks extend over some of these cycles.
CYCLES_CHECKED = 5
SLOW_NOW = "elections and ISR changes take as long, and leases may end"
# The broker that is killed as the second fault.
DEAD = 3
# Partitions of that broker.
BELOW_MIN_ISR = ("under_min_isr", -1)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class World:
    cluster: LocalCluster
    etcd: EtcdMembers
    pairs: Pairs

    @property
    def healthy(self) -> str:
        """A partition without a replica on the dead broker."""
        return self.pairs[1, 2]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    directory = tmp_path_factory.mktemp("explain")
    async with running_etcd(directory / "etcd", quota_bytes=QUOTA_BYTES) as etcd:
        endpoints = {"etcd_endpoints": etcd.addresses}
        async with running_cluster(
            directory / "cluster",
            broker_config=endpoints,
            controller_config={**endpoints, "leader_balance": False},
            etcd=etcd.addresses[0],
        ) as cluster:
            yield World(cluster, etcd, await create_pairs(cluster, TOPIC))


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def everything_runs_again(world: World) -> AsyncIterator[None]:
    """A test that fails between a fault and its repair leaves an intact cluster to the next
    ones."""
    yield
    world.etcd.resume_all()
    await _make_room(world.etcd)
    if not world.cluster.broker_process(DEAD).running:
        world.cluster.start_broker(DEAD)
    await world.cluster.ready()
    await until_in_sync(world.cluster, TOPIC)


@asynccontextmanager
async def dead_broker(cluster: LocalCluster) -> AsyncIterator[None]:
    """The second fault."""
    await cluster.kill(DEAD)
    yield
    cluster.start_broker(DEAD)


@pytest.mark.parametrize("how", ["ended", "cut off"])
async def test_a_missing_etcd_member_is_explained(world: World, how: str) -> None:
    cluster, [away, *others] = world.cluster, _members(world.etcd, how)
    # A slow store is reported for a minute, also that of the previous test.
    before = causes_of(await explained(cluster))
    expected = (("store_member_unreachable", -1), ("replica_dead", DEAD), BELOW_MIN_ISR)
    async with dead_broker(cluster):
        if how == "ended":
            await away.process.kill()
        else:
            away.process.pause()
        # The services notice it one after the other, and on a busy machine another member may seem
        # to be down for a moment.
        found = await until_present(
            cluster,
            *expected,
            containing=(f"member {away.address} of the metadata store is down or cut off",),
            missing=tuple(f"member {member.address} of" for member in others),
        )
        lost = the(found, "store_member_unreachable")
        assert lost.severity == "warning"
        assert not any(member.address in text_of(lost) for member in others)
        new = {cause for cause, _ in causes_of(found) - before}
        assert not {"store_unreachable", "store_slow"} & new
        assert await faults_of(cluster, world.healthy) == []
        assert_not_blamed(found, world.healthy)
        await assert_still_present(cluster, *expected)
        # The suggested step, and its result there.
        [address] = re.findall(r"Check the etcd process at (\S+) ", lost.next_step)
        process = world.etcd.at(address).process
        assert process.running == (how == "cut off")
        world.etcd.resume_all()
        await until_gone(cluster, "store_member_unreachable")


def _members(etcd: EtcdMembers, how: str) -> Sequence[EtcdMember]:
    """Each kind of fault strikes another member first."""
    return etcd.members if how == "ended" else etcd.members[::-1]


async def test_a_store_out_of_space_is_explained(world: World) -> None:
    cluster = world.cluster
    # The broker that dies leads again, as before other tests killed it.
    await lead_as_preferred(cluster)
    await _fill(world.etcd)
    # No records are written: it is detected all the same.
    quiet = await until_present(cluster, ("store_full", -1))
    critical = {finding.cause for finding in quiet.findings if finding.severity == "critical"}
    assert critical == {"store_full"}
    async with dead_broker(cluster):
        expected = (("store_full", -1), ("replica_dead", DEAD), ("no_leader", DEAD))
        found = await until_present(cluster, *expected)
        full = the(found, "store_full")
        assert full.severity == "critical"
        assert "answers reads and accepts no writes" in full.summary
        # Detected by the alarm or by a rejected write, whichever a service requested last.
        reasons = [line for line in full.evidence if " reports, for " in line]
        assert reasons
        assert all(re.search("alarm NOSPACE|database space exceeded", line) for line in reasons)
        assert "store_full" in the(found, "no_leader", DEAD).because
        assert "store_unreachable" not in {cause for cause, _ in causes_of(found)}
        assert await faults_of(cluster, world.healthy) == []
        await assert_still_present(cluster, *expected)
        await _carry_out(world.etcd, full.next_step)
        await until_gone(cluster, "store_full")
        # A leader is elected, which needs a write to the store.
        await until_gone(cluster, "no_leader")


async def _fill(etcd: EtcdMembers) -> None:
    """Overwrites one key repeatedly, like a program whose history is never compacted."""
    value = "x" * FILLER_BYTES
    for _ in range(2 * QUOTA_BYTES // FILLER_BYTES):
        try:
            await etcdctl(etcd, "put", "other/key", value)
        except AssertionError as error:
            assert "database space exceeded" in str(error)  # noqa: PT017
            return
    pytest.fail("etcd takes more than its quota")


async def _make_room(etcd: EtcdMembers) -> None:
    """Makes room, in case the test failed before it did."""
    if "NOSPACE" not in await etcdctl(etcd, "alarm", "list"):
        return
    # The history is compacted already if the test got so far.
    with suppress(AssertionError):
        await etcdctl(etcd, "compact", await _revision(etcd))
    await etcdctl(etcd, "defrag", "--cluster")
    await etcdctl(etcd, "alarm", "disarm")


async def _revision(etcd: EtcdMembers) -> str:
    status = json.loads(await etcdctl(etcd, "endpoint", "status", "--write-out=json"))
    return str(max(member["Status"]["header"]["revision"] for member in status))


async def _carry_out(etcd: EtcdMembers, next_step: str) -> None:
    """Runs the commands of etcdctl that it quotes, one after the other."""
    revision = await _revision(etcd)
    commands = [c.split() for c in re.findall(r"`etcdctl ([^`]*)`", next_step)]
    assert [command[0] for command in commands] == ["compact", "endpoint", "defrag", "alarm"]
    for command in commands:
        await etcdctl(etcd, *(revision if word == "REVISION" else word for word in command))


@pytest.mark.parametrize(("stopped", "stops_seconds", "runs_seconds"), STOPS)
async def test_a_store_that_stops_repeatedly_is_explained(
    world: World, stopped: int, stops_seconds: float, runs_seconds: float
) -> None:
    """The last test: elections are reported for 45 s after the last one."""
    cluster = world.cluster
    async with dead_broker(cluster):
        async with beside(_stop_and_go(world.etcd, stopped, stops_seconds, runs_seconds)):
            found = await until_present(
                cluster,
                ("store_slow", -1),
                ("repeated_elections", -1),
                ("replica_dead", DEAD),
                # A current finding: that the store was slow in earlier tests is a note.
                containing=(SLOW_NOW,),
                timeout_seconds=60,
            )
            assert the(found, "store_slow").next_step.startswith("Check etcd's process and disk")
            assert any("store_slow" in root for root in the(found, "repeated_elections").because)
            # After an election a partition may lack a replica that registers again at that moment.
            effects = _effects_of_elections(found)
            assert {f.cause for f in effects} <= PASSING, effects
            found = Explanation(tuple(f for f in found.findings if f not in effects))
            assert_not_blamed(found, world.healthy)
            # No broker is at fault, and the effects of the dead broker are not attributed to the
            # store.
            assert not the(found, "replica_dead", DEAD).because
            # A broker whose lease ended because of the store may not be registered again yet.
            others = [f for f in found.findings if f.broker not in (-1, DEAD)]
            faults = [f for f in others if f.severity != "info"]
            assert {f.cause for f in faults} <= {"broker_unregistered"}, faults
            for _ in range(CYCLES_CHECKED):
                await assert_still_present(cluster, any_of=OF_THE_STORE)
        world.etcd.resume_all()
        # Its processes run again.
        await until(partial(_is_quick, cluster), "explain reports that the store is quick")


def _effects_of_elections(found: Explanation) -> list[Finding]:
    """What follows from repeated elections, also by way of a broker that is not registered."""
    roots, effects = {"repeated_elections"}, list[Finding]()
    for _ in found.findings:
        effects = [f for f in found.findings if f.because and roots.issuperset(f.because)]
        roots |= {f"{f.cause} of broker {f.broker}" for f in effects}
    return effects


async def _is_quick(cluster: LocalCluster) -> bool:
    slow = [f for f in (await explained(cluster)).findings if f.cause.startswith("store_")]
    return all(finding.severity == "info" for finding in slow)


async def _stop_and_go(
    etcd: EtcdMembers, stopped: int, stops_seconds: float, runs_seconds: float
) -> None:
    while True:
        for member in etcd.members[:stopped]:
            member.process.pause()
        await asyncio.sleep(stops_seconds)
        for member in etcd.members[:stopped]:
            member.process.resume()
        await asyncio.sleep(runs_seconds)
