"""State changes as all services report them: live, from log files, and by the id of a request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from integration.listening_broker import listening_broker
from integration.topics import create_topic, new_name, until_in_sync, until_led_by_another
from integration.traced import stages_of, traced
from integration.waiting import until
from tidelog.client import Admin
from tidelog.client.event_streams import EventStreams
from tidelog.rpc.trace_context import trace_id_of
from tidelog.state_changes.event import Kind, Stage, StateChange
from tidelog.state_changes.tracing import TraceScope
from tidelog.v1 import replica_control_pb2 as pb
from tidelog_runtime.local.cluster import LocalCluster


def _logs(cluster: LocalCluster) -> list[str]:
    return [str(path) for path in sorted(Path(cluster.directory / "logs").glob("*.log"))]


def _decided(story: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The changes, without those that followers and the other controller each notice at their own
    time."""
    noticed = {"leader_unreachable", "leader_reached", "controller_joined"}
    return [change for change in story if change["kind"] not in noticed]


async def test_a_leaders_death_is_traced_from_the_dropped_connection_to_the_last_follower(
    cluster: LocalCluster,
) -> None:
    topic = new_name("sea")
    before = (await create_topic(cluster, topic)).partitions[0]
    await cluster.kill(before.leader)
    after = await until_led_by_another(cluster, topic, before)
    (follower,) = [b for b in before.replicas if b not in (before.leader, after.leader)]

    async def acknowledged() -> list[dict[str, Any]]:
        story = _decided(await traced(f"{topic}/0", "--bootstrap", cluster.bootstrap))
        return story if story[-1]["kind"] == "election" and not story[-1]["missing"] else []

    live = await until(acknowledged, "every survivor has acknowledged the election")
    from_files = _decided(await traced("--files", *_logs(cluster), f"{topic}/0"))
    cluster.start_broker(before.leader)
    await until_in_sync(cluster, topic)

    story = [(change["kind"], change.get("broker"), change.get("cause")) for change in live]
    died = story.index(("broker_fenced", before.leader, "broker_crashed"))
    assert story[died:] == [
        ("broker_fenced", before.leader, "broker_crashed"),
        ("broker_left", before.leader, "broker_crashed"),
        ("election", None, "broker_crashed"),
    ]
    controller = f"controller-{await cluster.active_controller()}"
    leads, follows = f"broker-{after.leader}", f"broker-{follower}"
    assert stages_of(live[-1]) == [
        (controller, "election", None, "requested"),
        (controller, "election", None, "completed"),
        (controller, "become_leader", after.leader, "requested"),
        (leads, "become_leader", after.leader, "received"),
        (leads, "become_leader", after.leader, "completed"),
        (controller, "become_leader", after.leader, "acknowledged"),
        (controller, "become_follower", follower, "requested"),
        (follows, "become_follower", follower, "received"),
        (follows, "become_follower", follower, "completed"),
        (controller, "become_follower", follower, "acknowledged"),
    ]
    assert all(stage["duration_ms"] >= 0 for stage in live[-1]["stages"])
    assert from_files[-3:] == live[-3:]


async def test_the_trace_of_a_request_is_in_the_events_of_every_replica_and_in_the_calls(
    cluster: LocalCluster,
) -> None:
    topic = new_name("traced")
    listener_id = max(cluster.broker_ids) + 1
    async with listening_broker(cluster, listener_id) as listener:
        async with Admin(cluster.bootstrap) as admin:
            created = await admin.create_topic(topic, 2, len(cluster.broker_ids) + 1)
        async with EventStreams(cluster.bootstrap) as streams:

            async def request_events() -> list[StateChange]:
                events = (await streams.recent(TraceScope(topic))).events
                done = [e for e in events if e.topic == topic and e.stage is Stage.COMPLETED]
                replicas = {(e.partition, e.broker) for e in done if e.broker >= 0}
                return events if len(replicas) == 6 else []

            events = await until(request_events, "each of six replicas has reported its start")
        async with Admin(cluster.bootstrap) as admin:
            with admin.traced() as deletion:
                await admin.delete_topic(topic)
    carrying = [event for event in events if event.trace_id == created.trace_id]
    replicas = {(e.service, e.partition) for e in carrying if e.stage is Stage.COMPLETED}
    assert {(f"broker-{b}", p) for b in cluster.broker_ids for p in (0, 1)} <= replicas
    assert Kind.TOPIC_CREATION in {event.kind for event in carrying}
    for command, trace_id in (
        (pb.LeaderAndIsrRequest, created.trace_id),
        (pb.StopReplicaRequest, deletion),
    ):
        first, *others = (
            trace_id_of([("traceparent", call.traceparent)])
            for call in listener.about(topic, command)
        )
        assert first == trace_id
        # Later changes may belong to no request, such as an ISR that shrinks.
        assert set(others) <= {created.trace_id, deletion, ""}
