from collections.abc import AsyncIterator

import pytest

from unit.client.fake_broker import FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Three brokers; topic "sea" has one partition, led by broker 0."""
    started = await FakeCluster().start(3)
    started.create("sea", [0])
    yield started
    await started.close()
