"""Cluster state that a job reads before it begins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tidelog.errors import TidelogError
from tidelog.model import NO_LEADER
from tidelog.spark import cluster_lookups
from tidelog.spark.options import BOOTSTRAP, ReadOptions
from tidelog_pipeline.archive import archive_job, cluster_logs
from tidelog_pipeline.archive.core.ranges import range_options
from tidelog_pipeline.archive.core.spans import LogId, Span
from unit.client.fake_broker import FakeCluster, Slow
from unit.spark.lookups import fill


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    started = await FakeCluster().start(1)
    yield started
    await started.close()


async def test_values_of_slow_leaders_are_checked(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_logs, "_SAMPLE_POLL_MS", 50)
    monkeypatch.setattr(cluster_logs, "_SAMPLE_POLLS", 1_000)
    cluster.create("sea", [0])
    fill(cluster, 10)
    cluster.brokers[0].script["fetch"].append(Slow(300))
    expected = {LogId("sea", "id-of-sea", 0): Span(0, 10)}
    found = await asyncio.to_thread(cluster_logs.sample_values, cluster.bootstrap()[0], expected)
    assert [where for where, _ in found] == [f"sea/0 offset {offset}" for offset in range(10)]


async def check(cluster: FakeCluster, *logs: LogId) -> None:
    await asyncio.to_thread(cluster_logs.check_same_topics, cluster.bootstrap()[0], logs)


@pytest.mark.rule("archive-records-known-without-checkpoint")
async def test_a_read_of_a_topic_that_was_created_again_is_an_error(
    cluster: FakeCluster,
) -> None:
    """A back-fill reads a topic by its name, in parts that may take hours."""
    cluster.create("sea", [0])
    fill(cluster, 10)
    await check(cluster, LogId("sea", "id-of-sea", 0))
    with pytest.raises(TidelogError, match=r"was deleted and created again while it was read"):
        await check(cluster, LogId("sea", "former-id", 0))


async def test_what_was_read_of_a_topic_before_it_was_deleted_is_archived(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else has its records any more."""
    monkeypatch.setattr(cluster_lookups, "GONE_AFTER_MS", 100)
    cluster.create("sea", [0])
    cluster.create("bay", [0])
    cluster.delete("sea")
    await check(cluster, LogId("bay", "id-of-bay", 0), LogId("sea", "id-of-sea", 0))


async def test_a_read_partition_is_checked_while_another_one_has_no_leader(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_lookups, "OFFSETS_TIMEOUT_MS", 500)
    cluster.create("sea", [0, NO_LEADER])
    await check(cluster, LogId("sea", "id-of-sea", 0))
    with pytest.raises(TidelogError, match=r"created again"):
        await check(cluster, LogId("sea", "former-id", 0))


async def test_a_back_fill_of_a_partition_reports_it_while_another_one_has_no_leader(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records are committed by then."""
    monkeypatch.setattr(cluster_lookups, "OFFSETS_TIMEOUT_MS", 500)
    cluster.create("sea", [0, NO_LEADER])
    fill(cluster, 10)
    bootstrap = cluster.bootstrap()[0]
    chosen = range_options([], '{"sea": {"0": 5}}', "latest")
    requested = ReadOptions.of_batch({**chosen, BOOTSTRAP: bootstrap})
    read = {LogId("sea", "id-of-sea", 0): Span(5, 10)}
    now = await asyncio.to_thread(archive_job._logs_to_report, bootstrap, requested, read)
    assert now == {LogId("sea", "id-of-sea", 0): Span(0, 10)}
