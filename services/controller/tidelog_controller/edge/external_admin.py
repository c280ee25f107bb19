"""AdminService for clients of `external_listen`; broker addresses are those reachable for them."""

from __future__ import annotations

from tidelog.v1 import admin_pb2 as pb
from tidelog_controller.edge.admin import Admin, AdminServicer
from tidelog_controller.edge.caller_context import Context
from tidelog_runtime.external_addresses import ExternalAddresses


class ExternalAdminServicer(AdminServicer):
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
