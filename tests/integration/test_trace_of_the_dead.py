"""A trace of state changes whose services have died since."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from integration.clusters import publishing_cluster
from integration.topics import create_topic, new_name, until_led_by_another
from integration.traced import stages_of, traced
from integration.waiting import until
from tidelog.client.event_streams import EventStreams
from tidelog.client.published_events import published
from tidelog.state_changes.event import Kind
from tidelog.state_changes.tracing import TraceScope
from tidelog_runtime.local.cluster import LocalCluster


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    async with publishing_cluster(tmp_path_factory.mktemp("publishing"), gateway=True) as running:
        yield running


async def _finished_election(cluster: LocalCluster, topic: str, leader: int) -> dict[str, Any]:
    """The election of `leader`, once all participants have reported it and the topic has all of
    their events."""

    async def acknowledged() -> dict[str, Any]:
        story = await traced(f"{topic}/0", "--bootstrap", cluster.bootstrap)
        elections = [c for c in story if c["kind"] == "election" and not c["missing"]]
        leads = ("become_leader", leader, "completed")
        return next((c for c in elections if leads in [s[1:] for s in stages_of(c)]), {})

    change = await until(acknowledged, f"all have acknowledged that {leader} leads")

    async def is_published() -> bool:
        events = (await published(cluster.bootstrap, TraceScope(topic, 0))).events
        identities = {event.identity for event in events if event.change_id == change["change_id"]}
        fenced = any(event.kind is Kind.BROKER_FENCED for event in events)
        return fenced and len(identities) >= len(change["stages"])

    await until(is_published, "the topic holds all stages of the election, and why it was")
    return change


async def _services_that_remember(cluster: LocalCluster, topic: str) -> set[str]:
    async with EventStreams(cluster.bootstrap) as streams:
        return {event.service for event in (await streams.recent(TraceScope(topic, 0))).events}


async def _services_of_the_timeline(cluster: LocalCluster, topic: str) -> set[str]:
    """The services in the timeline of the gateway."""
    async with httpx.AsyncClient(base_url=f"http://{cluster.gateway_address}") as gateway:
        answer = await gateway.get(f"/v1/topics/{topic}/partitions/0/events", timeout=60)
    return {event["service"] for event in answer.json()["items"]}


async def test_an_election_is_traced_after_its_controller_died(cluster: LocalCluster) -> None:
    topic = new_name("sea")
    before = (await create_topic(cluster, topic)).partitions[0]
    await cluster.kill(before.leader)
    after = await until_led_by_another(cluster, topic, before)
    controller = await cluster.active_controller()
    assert controller is not None
    election = await _finished_election(cluster, topic, after.leader)

    await cluster.kill_controller(controller)

    async def replaced() -> bool:
        return await cluster.active_controller() not in (None, controller)

    await until(replaced, "another controller is active")
    story = await traced(f"{topic}/0", "--bootstrap", cluster.bootstrap)
    remember = await _services_that_remember(cluster, topic)
    in_timeline = await _services_of_the_timeline(cluster, topic)
    cluster.start_controller(controller)
    cluster.start_broker(before.leader)

    assert f"controller-{controller}" not in remember
    assert f"controller-{controller}" in in_timeline
    (remembered,) = [c for c in story if c["change_id"] == election["change_id"]]
    assert (remembered["kind"], remembered["cause"]) == ("election", "broker_crashed")
    assert set(stages_of(election)) <= set(stages_of(remembered))
    assert {s[0] for s in stages_of(remembered)} >= {
        f"controller-{controller}",
        f"broker-{after.leader}",
    }
    fenced = ("broker_fenced", before.leader, "broker_crashed")
    assert fenced in [(c["kind"], c.get("broker"), c.get("cause")) for c in story]
