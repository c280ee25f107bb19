"""AdminService as the client calls it: the protocol, and its gRPC implementation."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol, TypeVar

import grpc.aio

from tidelog.client.grpc_calls import answered
from tidelog.rpc.trace_context import carried
from tidelog.v1 import admin_pb2 as pb
from tidelog.v1 import admin_pb2_grpc

_Response = TypeVar("_Response")


class AdminApi(Protocol):
    """Calls to one controller. `timeout_ms` bounds the entire call."""

    async def create_topic(
        self, request: pb.CreateTopicRequest, timeout_ms: int
    ) -> pb.CreateTopicResponse: ...

    async def delete_topic(
        self, request: pb.DeleteTopicRequest, timeout_ms: int
    ) -> pb.DeleteTopicResponse: ...

    async def describe_topics(
        self, request: pb.DescribeTopicsRequest, timeout_ms: int
    ) -> pb.DescribeTopicsResponse: ...

    async def alter_topic_config(
        self, request: pb.AlterTopicConfigRequest, timeout_ms: int
    ) -> pb.AlterTopicConfigResponse: ...

    async def add_partitions(
        self, request: pb.AddPartitionsRequest, timeout_ms: int
    ) -> pb.AddPartitionsResponse: ...

    async def remove_partitions(
        self, request: pb.RemovePartitionsRequest, timeout_ms: int
    ) -> pb.RemovePartitionsResponse: ...

    async def reassign(
        self, request: pb.ReassignRequest, timeout_ms: int
    ) -> pb.ReassignResponse: ...

    async def rebalance(
        self, request: pb.RebalanceRequest, timeout_ms: int
    ) -> pb.RebalanceResponse: ...

    async def add_brokers(
        self, request: pb.AddBrokersRequest, timeout_ms: int
    ) -> pb.AddBrokersResponse: ...

    async def remove_brokers(
        self, request: pb.RemoveBrokersRequest, timeout_ms: int
    ) -> pb.RemoveBrokersResponse: ...

    async def set_replication_factor(
        self, request: pb.SetReplicationFactorRequest, timeout_ms: int
    ) -> pb.SetReplicationFactorResponse: ...

    async def set_throttle(
        self, request: pb.SetThrottleRequest, timeout_ms: int
    ) -> pb.SetThrottleResponse: ...

    async def describe_throttle(
        self, request: pb.DescribeThrottleRequest, timeout_ms: int
    ) -> pb.DescribeThrottleResponse: ...

    async def list_operations(
        self, request: pb.ListOperationsRequest, timeout_ms: int
    ) -> pb.ListOperationsResponse: ...

    async def describe_operation(
        self, request: pb.DescribeOperationRequest, timeout_ms: int
    ) -> pb.DescribeOperationResponse: ...

    async def cancel_operation(
        self, request: pb.CancelOperationRequest, timeout_ms: int
    ) -> pb.CancelOperationResponse: ...

    async def reverse_operation(
        self, request: pb.ReverseOperationRequest, timeout_ms: int
    ) -> pb.ReverseOperationResponse: ...

    async def elect_preferred_leaders(
        self, request: pb.ElectPreferredLeadersRequest, timeout_ms: int
    ) -> pb.ElectPreferredLeadersResponse: ...

    async def move_leaders(
        self, request: pb.MoveLeadersRequest, timeout_ms: int
    ) -> pb.MoveLeadersResponse: ...

    async def set_maintenance(
        self, request: pb.SetMaintenanceRequest, timeout_ms: int
    ) -> pb.SetMaintenanceResponse: ...

    async def check_restart(
        self, request: pb.CheckRestartRequest, timeout_ms: int
    ) -> pb.CheckRestartResponse: ...

    async def describe_brokers(
        self, request: pb.DescribeBrokersRequest, timeout_ms: int
    ) -> pb.DescribeBrokersResponse: ...

    async def describe_recovery(
        self, request: pb.DescribeRecoveryRequest, timeout_ms: int
    ) -> pb.DescribeRecoveryResponse: ...

    async def recover_partitions(
        self, request: pb.RecoverPartitionsRequest, timeout_ms: int
    ) -> pb.RecoverPartitionsResponse: ...


class GrpcController:
    def __init__(self, channel: grpc.aio.Channel, address: str) -> None:
        self._stub = admin_pb2_grpc.AdminServiceStub(channel)
        self._address = address

    async def create_topic(
        self, request: pb.CreateTopicRequest, timeout_ms: int
    ) -> pb.CreateTopicResponse:
        return await self._answer(
            self._stub.CreateTopic(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def delete_topic(
        self, request: pb.DeleteTopicRequest, timeout_ms: int
    ) -> pb.DeleteTopicResponse:
        return await self._answer(
            self._stub.DeleteTopic(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def describe_topics(
        self, request: pb.DescribeTopicsRequest, timeout_ms: int
    ) -> pb.DescribeTopicsResponse:
        return await self._answer(
            self._stub.DescribeTopics(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def alter_topic_config(
        self, request: pb.AlterTopicConfigRequest, timeout_ms: int
    ) -> pb.AlterTopicConfigResponse:
        return await self._answer(
            self._stub.AlterTopicConfig(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def add_partitions(
        self, request: pb.AddPartitionsRequest, timeout_ms: int
    ) -> pb.AddPartitionsResponse:
        return await self._answer(
            self._stub.AddPartitions(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def remove_partitions(
        self, request: pb.RemovePartitionsRequest, timeout_ms: int
    ) -> pb.RemovePartitionsResponse:
        return await self._answer(
            self._stub.RemovePartitions(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def reassign(self, request: pb.ReassignRequest, timeout_ms: int) -> pb.ReassignResponse:
        return await self._answer(
            self._stub.Reassign(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def rebalance(
        self, request: pb.RebalanceRequest, timeout_ms: int
    ) -> pb.RebalanceResponse:
        return await self._answer(
            self._stub.Rebalance(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def add_brokers(
        self, request: pb.AddBrokersRequest, timeout_ms: int
    ) -> pb.AddBrokersResponse:
        return await self._answer(
            self._stub.AddBrokers(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def remove_brokers(
        self, request: pb.RemoveBrokersRequest, timeout_ms: int
    ) -> pb.RemoveBrokersResponse:
        return await self._answer(
            self._stub.RemoveBrokers(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def set_replication_factor(
        self, request: pb.SetReplicationFactorRequest, timeout_ms: int
    ) -> pb.SetReplicationFactorResponse:
        return await self._answer(
            self._stub.SetReplicationFactor(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def set_throttle(
        self, request: pb.SetThrottleRequest, timeout_ms: int
    ) -> pb.SetThrottleResponse:
        return await self._answer(
            self._stub.SetThrottle(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def describe_throttle(
        self, request: pb.DescribeThrottleRequest, timeout_ms: int
    ) -> pb.DescribeThrottleResponse:
        return await self._answer(
            self._stub.DescribeThrottle(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def list_operations(
        self, request: pb.ListOperationsRequest, timeout_ms: int
    ) -> pb.ListOperationsResponse:
        return await self._answer(
            self._stub.ListOperations(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def describe_operation(
        self, request: pb.DescribeOperationRequest, timeout_ms: int
    ) -> pb.DescribeOperationResponse:
        return await self._answer(
            self._stub.DescribeOperation(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def cancel_operation(
        self, request: pb.CancelOperationRequest, timeout_ms: int
    ) -> pb.CancelOperationResponse:
        return await self._answer(
            self._stub.CancelOperation(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def reverse_operation(
        self, request: pb.ReverseOperationRequest, timeout_ms: int
    ) -> pb.ReverseOperationResponse:
        return await self._answer(
            self._stub.ReverseOperation(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def elect_preferred_leaders(
        self, request: pb.ElectPreferredLeadersRequest, timeout_ms: int
    ) -> pb.ElectPreferredLeadersResponse:
        return await self._answer(
            self._stub.ElectPreferredLeaders(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def move_leaders(
        self, request: pb.MoveLeadersRequest, timeout_ms: int
    ) -> pb.MoveLeadersResponse:
        return await self._answer(
            self._stub.MoveLeaders(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def set_maintenance(
        self, request: pb.SetMaintenanceRequest, timeout_ms: int
    ) -> pb.SetMaintenanceResponse:
        return await self._answer(
            self._stub.SetMaintenance(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def check_restart(
        self, request: pb.CheckRestartRequest, timeout_ms: int
    ) -> pb.CheckRestartResponse:
        return await self._answer(
            self._stub.CheckRestart(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def describe_brokers(
        self, request: pb.DescribeBrokersRequest, timeout_ms: int
    ) -> pb.DescribeBrokersResponse:
        return await self._answer(
            self._stub.DescribeBrokers(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def describe_recovery(
        self, request: pb.DescribeRecoveryRequest, timeout_ms: int
    ) -> pb.DescribeRecoveryResponse:
        return await self._answer(
            self._stub.DescribeRecovery(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def recover_partitions(
        self, request: pb.RecoverPartitionsRequest, timeout_ms: int
    ) -> pb.RecoverPartitionsResponse:
        return await self._answer(
            self._stub.RecoverPartitions(request, timeout=timeout_ms / 1000, metadata=carried())
        )

    async def _answer(self, call: Awaitable[_Response]) -> _Response:
        return await answered(call, self._address)
