"""Cluster state that a job reads before it begins."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.errors import TidelogError
from tidelog_pipeline.archive import cluster_logs
from tidelog_pipeline.archive.core.spans import LogId, Span
from unit.client.fake_broker import FakeCluster, Slow
from unit.spark.lookups import fill


async def test_values_of_slow_leaders_are_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_logs, "_SAMPLE_POLL_MS", 50)
    monkeypatch.setattr(cluster_logs, "_SAMPLE_POLLS", 1_000)
    cluster = await FakeCluster().start(1)
    try:
        cluster.create("sea", [0])
        fill(cluster, 10)
        cluster.brokers[0].script["fetch"].append(Slow(300))
        expected = {LogId("sea", "id-of-sea", 0): Span(0, 10)}
        found = await asyncio.to_thread(
            cluster_logs.sample_values, cluster.bootstrap()[0], expected
        )
    finally:
        await cluster.close()
    assert [where for where, _ in found] == [f"sea/0 offset {offset}" for offset in range(10)]


@pytest.mark.rule("archive-records-known-without-checkpoint")
async def test_a_read_of_a_topic_that_was_created_again_is_an_error() -> None:
    """A back-fill reads a topic by its name, in parts that may take hours."""
    cluster = await FakeCluster().start(1)
    try:
        cluster.create("sea", [0])
        fill(cluster, 10)

        async def check(topic_id: str, partition: int) -> None:
            logs = [LogId("sea", topic_id, partition)]
            await asyncio.to_thread(cluster_logs.check_same_topics, cluster.bootstrap()[0], logs)

        await check("id-of-sea", 0)
        for topic_id, partition in (("former-id", 0), ("id-of-sea", 1)):
            with pytest.raises(TidelogError, match=r"was deleted while it was read"):
                await check(topic_id, partition)
    finally:
        await cluster.close()
