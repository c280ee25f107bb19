"""Explanations do not depend on one controller: any broker finds all controllers, and a
controller reports what its predecessor has seen."""

from __future__ import annotations

import re

import pytest

from integration.explaining import ANSWER_MS, text_of, tidelog
from integration.topics import create_topic, describe, new_name, until_isr
from integration.waiting import until
from tidelog.cli.exit_status import ExitStatus
from tidelog.client import Admin
from tidelog.client.event_streams import EventStreams, Gathered
from tidelog.client.explain_requests import explain_cluster
from tidelog.inspection.state_reports import Finding, Scope
from tidelog.model import NO_LEADER
from tidelog.state_changes.event import Kind
from tidelog.state_changes.tracing import TraceScope
from tidelog_runtime.local.cluster import LocalCluster

NO_CONTROLLER = "no_controller"


async def _standby(cluster: LocalCluster) -> int:
    active = await cluster.active_controller()
    assert active is not None
    (standby,) = {1, 2} - {active}
    return standby


@pytest.mark.parametrize("begins_with", ["a broker", "the controller that stands by"])
async def test_trace_reaches_all_services_from_one_address(
    cluster: LocalCluster, begins_with: str
) -> None:
    standby = await _standby(cluster)
    address = cluster.controller_address(standby)
    if begins_with == "a broker":
        address = cluster.broker_address(1)

    all_services = {cluster.broker_address(b) for b in cluster.broker_ids}
    all_services |= {cluster.controller_address(c) for c in (1, 2)}

    async def gathered_events() -> Gathered | None:
        """The called service may have started a moment before the others, and a standby
        reports new services a moment after it serves."""
        async with EventStreams(address) as streams:
            gathered = await streams.recent(TraceScope())
        reporters = {event.service for event in gathered.events}
        complete = set(gathered.heard) == all_services and f"controller-{standby}" in reporters
        return gathered if complete else None

    gathered = await until(gathered_events, "all services answer, the standby too")
    assert gathered is not None
    assert gathered.silent == ()


async def test_the_standby_controller_is_described(cluster: LocalCluster) -> None:
    standby = await _standby(cluster)
    async with Admin(cluster.broker_address(2)) as admin:
        described = await admin.describe_cluster()
    assert [c.controller_id for c in described.controllers] == [1, 2]
    assert [c.address for c in described.standby] == [cluster.controller_address(standby)]
    status, output = await tidelog(cluster, "cluster", "describe")
    assert status == ExitStatus.DONE, output
    assert f"Standby     {standby} at {cluster.controller_address(standby)}" in output


async def test_the_next_controller_reports_who_was_in_sync_and_how_it_died(
    cluster: LocalCluster,
) -> None:
    topic = new_name("sea")
    created = await create_topic(cluster, topic, 1, 2, {"min_insync_replicas": "1"})
    (led,) = created.partitions
    leader, follower = led.leader, next(b for b in led.replicas if b != led.leader)
    (called,) = set(cluster.broker_ids) - {leader, follower}
    await cluster.kill(follower)
    await until_isr(cluster, topic, {leader})
    await cluster.kill(leader)

    async def waits_for_leader() -> Finding | None:
        """By the report of the only remaining broker."""
        scope = Scope(topic, 0)
        found = await explain_cluster([cluster.broker_address(called)], scope, ANSWER_MS)
        return next((finding for finding in found.findings if finding.cause == "no_leader"), None)

    async def explained() -> Finding | None:
        """By a controller that has loaded its state: brokers do not know who was in sync."""
        waits = await waits_for_leader()
        return waits if waits is not None and _fate(waits, leader) else None

    before = await until(explained, "explain reports how the leader ended")
    killed = await cluster.active_controller()
    assert killed is not None
    await cluster.kill_controller(killed)

    async def taken_over() -> bool:
        async with Admin(cluster.broker_address(called)) as admin:
            active = (await admin.describe_cluster()).controller
        return active is not None and active.controller_id != killed

    await until(taken_over, "another controller is active")
    after = await until(explained, "explain still reports how the leader ended")
    (partition,) = (await describe(cluster, topic)).partitions
    (other,) = {1, 2} - {killed}
    await cluster.kill_controller(other)

    async def without_controller() -> Finding | None:
        waits = await waits_for_leader()
        if waits is None or NO_CONTROLLER not in waits.because:
            return None
        return waits if "gone since" in text_of(waits) else None

    alone = await until(without_controller, "explain reports that no controller is active")
    cluster.start_controller(other)
    cluster.start_controller(killed)
    for broker_id in (leader, follower):
        cluster.start_broker(broker_id)
    await cluster.ready()

    assert before is not None
    assert after is not None
    assert partition.leader == NO_LEADER
    assert f"waits for broker {leader}, last known to hold every committed record" in after.summary
    fate = _fate(after, leader)
    assert fate is not None
    assert fate == _fate(before, leader)
    assert alone is not None
    assert f"gone since {fate[1]}" in text_of(alone)
    assert _brokers_of(after.next_step) == {leader}

    async def both_joined() -> set[str]:
        async with EventStreams(cluster.broker_address(called)) as streams:
            events = (await streams.recent(TraceScope())).events
        reporters = {e.service for e in events if e.kind is Kind.CONTROLLER_JOINED}
        return reporters if len(reporters) == 2 else set()

    await until(both_joined, "both controllers report controllers that joined")


def _brokers_of(text: str) -> set[int]:
    """The brokers that it names. Other numbers, such as that of a partition, are not included.

    >>> sorted(_brokers_of("Start broker 1, or brokers 2 and 3, of sea-4/5"))
    [1, 2, 3]
    """
    lists = re.findall(r"\bbrokers? (\d+(?:(?:, | and | or )\d+)*)", text)
    return {int(number) for numbers in lists for number in re.findall(r"\d+", numbers)}


def _fate(waits: Finding, leader: int) -> tuple[str, str] | None:
    """The incarnation in which it was in the ISR, and the second in which it ended; None: not
    reported."""
    found = re.search(
        rf"broker {leader} was in the ISR in its incarnation (\d+); gone since (\S+) \(.*\), "
        "by broker_crashed",
        text_of(waits),
    )
    return (found[1], found[2]) if found else None
