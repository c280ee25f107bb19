"""A controller in memory that backups and restores use."""

from __future__ import annotations

from tidelog.v1 import admin_pb2
from unit.client.fake_broker import ServicerContext
from unit.client.fake_controller import FakeController


class ConfiguringController(FakeController):
    """Changes the configuration of topics, and the limit on moves, too."""

    throttle = admin_pb2.Throttle()

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

    async def DescribeThrottle(  # noqa: N802
        self,
        request: admin_pb2.DescribeThrottleRequest,  # noqa: ARG002
        context: ServicerContext,  # noqa: ARG002
    ) -> admin_pb2.DescribeThrottleResponse:
        return admin_pb2.DescribeThrottleResponse(throttle=self.throttle, revision=1)

    async def SetThrottle(  # noqa: N802
        self,
        request: admin_pb2.SetThrottleRequest,
        context: ServicerContext,  # noqa: ARG002
    ) -> admin_pb2.SetThrottleResponse:
        self.throttle = request.throttle
        return admin_pb2.SetThrottleResponse(revision=2)
