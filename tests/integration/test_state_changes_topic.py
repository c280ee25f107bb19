"""The topic `__state_changes`: services write their events to it, and it does not affect users."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from integration.clusters import PUBLISHING, publishing_cluster, running_cluster
from integration.logs import LogSince
from integration.topics import create_topic, new_name, read, write
from integration.waiting import until
from tidelog.client import Admin, Consumer
from tidelog.client.connections import GrpcConnections
from tidelog.errors import TidelogError
from tidelog.state_changes.event import StateChange
from tidelog.state_changes.topic import STATE_CHANGES_TOPIC, from_value
from tidelog.v1 import inspect_pb2
from tidelog_runtime.local.cluster import LocalCluster


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    async with publishing_cluster(tmp_path_factory.mktemp("publishing")) as running:
        yield running


async def _read_until(
    cluster: LocalCluster, topic: str, services: set[str], what: str
) -> list[StateChange]:
    """The content of `__state_changes`, once each of `services` has written an event of `topic`."""
    seen: list[StateChange] = []
    async with Consumer(cluster.bootstrap, max_wait_ms=100) as consumer:
        await consumer.assign_topic(STATE_CHANGES_TOPIC)

        async def read_on() -> bool:
            seen.extend(from_value(record.value or b"") for record in await consumer.poll())
            return services <= {event.service for event in seen if event.topic == topic}

        await until(read_on, what)
    return seen


async def test_the_topic_receives_the_events_of_all_services(cluster: LocalCluster) -> None:
    services = {f"broker-{broker_id}" for broker_id in cluster.broker_ids}
    services.add(f"controller-{await cluster.active_controller()}")
    topic = new_name("reported")
    await create_topic(cluster, topic, 3)
    seen = await _read_until(cluster, topic, services, f"{services} have reported {topic}")
    assert STATE_CHANGES_TOPIC not in {event.topic for event in seen}


async def test_events_buffered_while_the_topic_is_unavailable_are_written_later(
    cluster: LocalCluster,
) -> None:
    """One broker is left, and two must be in sync."""
    controller = f"controller-{await cluster.active_controller()}"
    for broker_id in (2, 3):
        await cluster.kill(broker_id)
    topic = new_name("alone")
    async with Admin(cluster.broker_address(1)) as admin:
        await until(lambda: _runs_alone(admin), "only broker 1 runs")
        await admin.create_topic(topic, 1, 1)
    await write(cluster, topic, [b"calm"])
    for broker_id in (2, 3):
        cluster.start_broker(broker_id)
    await cluster.ready()
    await _read_until(
        cluster, topic, {"broker-1", controller}, f"all events of {topic} are in the topic"
    )


async def _runs_alone(admin: Admin) -> bool:
    """The controller, which has to place a topic, reports no other broker."""
    return [b.broker_id for b in await admin.describe_brokers() if b.status == "running"] == [1]


async def test_the_topic_is_read_by_the_command_like_any_other(cluster: LocalCluster) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tidelog.cli", "consume", STATE_CHANGES_TOPIC),
        *("--bootstrap", cluster.bootstrap),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    assert {"time", "service", "kind", "stage"} <= set(json.loads(out.splitlines()[0]))


async def test_users_do_not_see_the_topic_and_cannot_delete_it(
    cluster: LocalCluster,
) -> None:
    async with Admin(cluster.bootstrap) as admin:
        assert STATE_CHANGES_TOPIC not in {topic.name for topic in await admin.list_topics()}
        assert STATE_CHANGES_TOPIC in {t.name for t in await admin.list_topics(internal=True)}
        with pytest.raises(TidelogError, match="state_changes_topic = false"):
            await admin.delete_topic(STATE_CHANGES_TOPIC)


async def test_without_the_topic_services_continue_and_count_dropped_events(tmp_path: Path) -> None:
    """The topic needs more brokers than there are, and so is never created."""
    settings = {**PUBLISHING, "state_changes_queue_events": 3}
    async with running_cluster(
        tmp_path,
        broker_config=settings,
        controller_config={**settings, "state_changes_replication_factor": 4},
    ) as cluster:
        topic = new_name("sea")
        await create_topic(cluster, topic, 6)
        await write(cluster, topic, [b"calm"])
        assert [record.value for record in await read(cluster, topic)] == [b"calm"]
        connections = GrpcConnections()

        async def dropped() -> bool:
            described = await connections.inspected(cluster.broker_address(1)).describe_service(
                inspect_pb2.DescribeServiceRequest(), 5_000
            )
            return described.events_dropped > 0

        await until(dropped, "broker 1 counts the events that it dropped")
        log = LogSince(tmp_path / "logs" / "broker-1.log", from_start=True)

        async def held() -> bool:
            return len(log.events("state_changes_held")) == 1

        await until(held, "broker 1 reports that it holds its events back")
        await connections.close()
