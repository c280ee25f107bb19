"""The metrics of services for Prometheus, in a real cluster."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from integration.load import load
from integration.scraped import Scrape, scrape
from integration.single_service import SingleService
from integration.topics import (
    create_topic,
    new_name,
    partition_of,
    until_in_sync,
    until_led_by_another,
    write,
)
from integration.waiting import until
from tidelog_runtime.local.cluster import LocalCluster
from tidelog_runtime.local.cluster_file import Setting
from tidelog_runtime.telemetry.metrics.catalogue import CATALOGUE
from tidelog_runtime.telemetry.metrics.metric import MetricType

# The metrics of the library.
LIBRARY = ("process_", "python_")


async def test_every_service_exposes_exactly_the_metrics_of_the_catalogue(
    cluster: LocalCluster,
) -> None:
    parts = cluster.describe()
    for service, address in (
        ("broker", parts.brokers[0].metrics),
        ("controller", parts.controllers[0].metrics),
    ):
        sample = await scrape(address)

        names = {family.name for family in sample.families if not family.name.startswith(LIBRARY)}
        known = {metric.name.removesuffix("_total"): metric for metric in CATALOGUE[service]}
        assert names <= known.keys()
        recorded = {
            name for name, m in known.items() if m.type is not MetricType.GAUGE and m.series
        }
        assert recorded <= names
        assert all(
            known[family.name].help == family.documentation
            for family in sample.families
            if family.name in known
        )
        build = sample.values["tidelog_build_info"]
        assert [dict(labels)["service"] for labels in build] == [f"{service}-1"]
        assert sample.values["process_resident_memory_bytes"]


async def test_the_lag_of_a_paused_follower_grows_at_its_leader_and_ends_when_it_is_back(
    cluster: LocalCluster,
) -> None:
    topic = new_name("sea")
    leader = (await create_topic(cluster, topic)).partitions[0].leader
    paused = next(b for b in cluster.broker_ids if b != leader)
    labels = {"topic": topic, "partition": "0", "follower": str(paused)}

    async def lag_beyond(seconds: float) -> Scrape | None:
        sample = await scrape(cluster.broker_metrics(leader))
        lag = sample.value("replication_lag_seconds", **labels)
        return sample if lag is not None and lag > seconds else None

    async def out_of_isr() -> Scrape | None:
        """The follower leaves the ISR some time after it has lagged for too long."""
        sample = await lag_beyond(3.0)
        left = sample and sample.value("follower_out_of_isr_partitions", follower=str(paused))
        return sample if left else None

    async def caught_up() -> bool:
        sample = await scrape(cluster.broker_metrics(leader))
        return sample.value("replication_lag_seconds", **labels) == 0

    await write(cluster, topic, [b"before"])
    cluster.pause(paused)
    try:
        async with load(cluster, topic):
            first = await until(lambda: lag_beyond(1.0), "the follower lags by a second")
            later = await until(out_of_isr, "the follower lags by three, out of the ISR")
        assert first is not None
        assert later is not None
        assert (await partition_of(cluster, topic)).leader == leader
    finally:
        cluster.resume(paused)
    await until(caught_up, "the follower has caught up")
    # The broker is registered again, for the tests after this one.
    await until_in_sync(cluster, topic)

    max_lag = later.value("follower_max_lag_seconds", follower=str(paused))
    assert max_lag is not None
    assert max_lag > 3.0
    for measure in ("records", "bytes"):
        grown = later.value(f"replication_lag_{measure}", **labels)
        before = first.value(f"replication_lag_{measure}", **labels)
        assert grown is not None
        assert before is not None
        assert grown > before
    assert later.value("broker_under_replicated_partitions")
    for other in cluster.broker_ids:
        if other not in (leader, paused):
            healthy = later.value("replication_lag_seconds", **{**labels, "follower": str(other)})
            assert healthy is not None
            assert healthy < 1.0


async def test_written_records_are_counted_at_the_leader_and_its_followers(
    cluster: LocalCluster,
) -> None:
    topic = new_name("sea")
    leader = (await create_topic(cluster, topic)).partitions[0].leader
    follower = next(b for b in cluster.broker_ids if b != leader)
    before = await scrape(cluster.broker_metrics(follower))

    await write(cluster, topic, [bytes(100) for _ in range(50)])
    sample = await scrape(cluster.broker_metrics(leader))
    got = await scrape(cluster.broker_metrics(follower))

    assert sample.value("topic_records_total", topic=topic, flow="produce") == 50
    produced = sample.value("request_duration_seconds_count", request="produce", acks="all")
    assert produced is not None
    assert produced >= 1
    in_before = before.value("data_records_total", flow="replica_in")
    in_after = got.value("data_records_total", flow="replica_in")
    assert in_before is not None
    assert in_after is not None
    assert in_after >= in_before + 50


async def test_only_the_active_controller_exposes_cluster_metrics(
    cluster: LocalCluster,
) -> None:
    active = await cluster.active_controller()
    assert active is not None
    standby = 3 - active

    sample = await scrape(cluster.controller_metrics(active))
    silent = await scrape(cluster.controller_metrics(standby))

    assert sample.value("controller_active") == 1
    assert sample.value("cluster_brokers", state="running") == 3
    assert silent.value("controller_active") == 0
    assert silent.value("cluster_partitions") is None


async def test_a_leaders_death_is_counted_as_a_departure_and_an_election_by_cause(
    cluster: LocalCluster,
) -> None:
    topic = new_name("sea")
    before = (await create_topic(cluster, topic)).partitions[0]
    active = await cluster.active_controller()
    assert active is not None
    counted = (
        ("elections_total", {"outcome": "clean", "cause": "broker_crashed"}),
        ("broker_departures_total", {"cause": "broker_crashed"}),
        ("state_change_duration_seconds_count", {"kind": "election", "stage": "completed"}),
    )

    async def counts() -> list[float]:
        sample = await scrape(cluster.controller_metrics(active))
        return [sample.value(name, **labels) or 0.0 for name, labels in counted]

    first = await counts()
    await cluster.kill(before.leader)
    await until_led_by_another(cluster, topic, before)

    async def all_grown() -> bool:
        """Brokers may report the new leader before the controller has counted it."""
        return all(now > then for then, now in zip(first, await counts(), strict=True))

    await until(all_grown, "the departure and the election are counted")
    cluster.start_broker(before.leader)
    await cluster.ready()


@pytest.mark.parametrize("program", ["tidelog_broker", "tidelog_controller"])
async def test_a_service_whose_metrics_port_is_taken_does_not_start(
    program: str, tmp_path: Path
) -> None:
    own: dict[str, Setting] = {"controller_id": 1}
    if program == "tidelog_broker":
        own = {"broker_id": 1, "data_dir": str(tmp_path / "data")}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        own |= {"listen": "127.0.0.1:0", "metrics_listen": f"127.0.0.1:{port}"}
        service = SingleService(program, tmp_path, "alone", **own)
        service.process.start()

        status = await service.ended()

    assert status != 0
    assert f"cannot serve metrics on 127.0.0.1:{port}" in service.text()
    assert "choose another address with metrics_listen, or off" in service.text()
