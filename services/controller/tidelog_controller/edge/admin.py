"""The complete AdminService, for clients inside and outside the cluster's network."""

from __future__ import annotations

from tidelog.v1 import admin_pb2 as pb
from tidelog_controller.edge.admin_descriptions import DescriptionCalls
from tidelog_controller.edge.admin_leaders import LeaderCalls
from tidelog_controller.edge.admin_operations import OperationCalls
from tidelog_controller.edge.admin_topics import TopicCalls
from tidelog_controller.edge.caller_context import Context
from tidelog_controller.metrics.decision_meter import Admin
from tidelog_runtime.external_addresses import ExternalAddresses


class AdminServicer(TopicCalls, OperationCalls, LeaderCalls, DescriptionCalls):
    """Turns requests into events of the controller, and its replies into responses."""


class ExternalAdminServicer(AdminServicer):
    """For clients of `external_listen`: broker addresses are those reachable for them."""

    def __init__(self, admin: Admin, addresses: ExternalAddresses) -> None:
        super().__init__(admin)
        self._addresses = addresses

    async def DescribeBrokers(  # noqa: N802 - the generated name
        self, request: pb.DescribeBrokersRequest, context: Context
    ) -> pb.DescribeBrokersResponse:
        response = await super().DescribeBrokers(request, context)
        for broker in response.brokers:
            broker.address = self._addresses.of_broker(broker.broker_id, broker.address)
        return response
