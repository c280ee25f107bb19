from collections.abc import AsyncIterator

import pytest

from tidelog.v1 import admin_pb2
from unit.client.fake_broker import FakeCluster, ServicerContext
from unit.client.fake_controller import FakeController


class ConfiguringController(FakeController):
    """Changes the configuration of topics, too."""

    async def AlterTopicConfig(  # noqa: N802
        self,
        request: admin_pb2.AlterTopicConfigRequest,
        context: ServicerContext,  # noqa: ARG002
    ) -> admin_pb2.AlterTopicConfigResponse:
        config = self.cluster.topics[request.topic].config
        config.update(request.set)
        for key in request.unset:
            config.pop(key, None)
        return admin_pb2.AlterTopicConfigResponse()


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Two brokers and a controller; topic "sea" has two partitions."""
    started = await FakeCluster().start(2)
    started.controller = await ConfiguringController(started, 7).start()  # type: ignore[abstract]
    started.create("sea", [0, 1], retention_ms="1000", timestamp_type="append")
    yield started
    await started.close()
