from collections.abc import AsyncIterator

import pytest

from tidelog.client import leader_queries
from tidelog.spark import cluster_lookups
from unit.client.fake_broker import FakeCluster


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeCluster]:
    """Two brokers; topic "sea" has two partitions. Timeouts for denied topics are short."""
    monkeypatch.setattr(cluster_lookups, "GONE_AFTER_MS", 300)
    monkeypatch.setattr(cluster_lookups, "POLL_PAUSE_MS", 20)
    monkeypatch.setattr(leader_queries, "DENIED_MS", 300)
    started = await FakeCluster().start(2)
    started.create("sea", [0, 1])
    yield started
    await started.close()
