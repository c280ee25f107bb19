"""A leader's death is one change through all services, and an idle cluster logs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from integration.topics import create_topic, new_name, until_in_sync, until_led_by_another
from integration.waiting import until
from tidelog.client.event_streams import EventStreams
from tidelog.state_changes.event import NO_BROKER, Cause, Kind, Stage, StateChange
from tidelog.state_changes.tracing import TraceScope
from tidelog_runtime.local.cluster import LocalCluster

QUIET_SECONDS = 5.0
# The work that a repaired cluster still has to do, besides what the test waits for.
SETTLE_SECONDS = 10.0


async def all_events(cluster: LocalCluster, topic: str) -> list[StateChange]:
    brokers = [cluster.broker_address(broker_id) for broker_id in cluster.broker_ids]
    controllers = [cluster.controller_address(number) for number in (1, 2)]
    async with EventStreams([*brokers, *controllers]) as streams:
        return (await streams.recent(TraceScope(topic, 0))).events


def stages_of(
    events: Iterable[StateChange], change_id: str, service: str, broker: int
) -> list[Stage]:
    return [
        event.stage
        for event in events
        if (event.change_id, event.service, event.broker) == (change_id, service, broker)
    ]


async def test_the_death_of_a_leader_is_one_change_through_all_services(
    cluster: LocalCluster,
) -> None:
    topic = new_name("sea")
    before = (await create_topic(cluster, topic)).partitions[0]
    controller = f"controller-{await cluster.active_controller()}"

    await cluster.kill(before.leader)
    after = await until_led_by_another(cluster, topic, before)
    survivors = [b for b in cluster.broker_ids if b != before.leader]

    async def acknowledged() -> list[StateChange]:
        """All services are asked at once, and one that answers late has events that another had not
        yet."""
        events = await all_events(cluster, topic)
        of_epoch = {(e.stage, e.broker) for e in events if e.leader_epoch == after.leader_epoch}
        ends = {(s, b) for s in (Stage.COMPLETED, Stage.ACKNOWLEDGED) for b in survivors}
        return events if ends <= of_epoch else []

    events = await until(acknowledged, "the survivors have acknowledged the election")
    elected = next(
        e
        for e in events
        if (e.kind, e.stage, e.topic) == (Kind.ELECTION, Stage.COMPLETED, topic)
        and e.leader_epoch == after.leader_epoch
    )
    change_id = elected.change_id
    assert elected.cause is Cause.BROKER_CRASHED
    assert elected.details["leader_before"] == before.leader
    assert stages_of(events, change_id, controller, NO_BROKER) == [
        Stage.REQUESTED,
        Stage.COMPLETED,
    ]
    for broker in survivors:
        assert stages_of(events, change_id, controller, broker) == [
            Stage.REQUESTED,
            Stage.ACKNOWLEDGED,
        ]
        assert stages_of(events, change_id, f"broker-{broker}", broker) == [
            Stage.RECEIVED,
            Stage.COMPLETED,
        ]
    parts = {(e.kind, e.broker) for e in events if e.change_id == change_id}
    assert parts == {(Kind.ELECTION, NO_BROKER)} | {
        (Kind.BECOME_LEADER if b == after.leader else Kind.BECOME_FOLLOWER, b) for b in survivors
    }
    # All events after the dropped connection have one cause.
    fenced = next(e for e in events if e.kind is Kind.BROKER_FENCED)
    assert (fenced.broker, fenced.cause) == (before.leader, Cause.BROKER_CRASHED)
    last = max(e.duration_ms for e in events if e.change_id == change_id)
    assert 0 <= last < 5_000

    cluster.start_broker(before.leader)
    await until_in_sync(cluster, topic)


async def test_the_log_of_a_quiet_cluster_is_quiet(cluster: LocalCluster) -> None:
    topic = new_name("lake")
    await create_topic(cluster, topic)
    await until_in_sync(cluster, topic)

    def sizes() -> dict[str, int]:
        return {p.name: p.log_path.stat().st_size for p in cluster.processes()}

    async def silent() -> bool:
        before = sizes()
        await asyncio.sleep(QUIET_SECONDS)
        return sizes() == before

    await until(silent, "no service writes a line", SETTLE_SECONDS + 2 * QUIET_SECONDS)
