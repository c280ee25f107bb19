from collections.abc import AsyncIterator

import pytest

from unit.backup.controllers import ConfiguringController
from unit.client.fake_broker import FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Two brokers and a controller; topic "sea" has two partitions."""
    started = await FakeCluster().start(2)
    started.controller = await ConfiguringController(started, 7).start()  # type: ignore[abstract]
    started.create("sea", [0, 1], retention_ms="1000", timestamp_type="append")
    yield started
    await started.close()
