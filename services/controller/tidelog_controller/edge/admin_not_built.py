# ruff: noqa: ARG002 - no request is looked at
"""What the wire API has and this controller does not do yet: each call ends with
UNIMPLEMENTED and says so."""

from __future__ import annotations

from typing import Any, NoReturn

import grpc
import grpc.aio

from tidelog.v1 import admin_pb2 as pb
from tidelog.v1.admin_pb2_grpc import AdminServiceServicer

Context = grpc.aio.ServicerContext[Any, Any]


class AdminNotBuilt(AdminServiceServicer):
    async def DescribeRecovery(  # noqa: N802 - the generated name
        self, request: pb.DescribeRecoveryRequest, context: Context
    ) -> pb.DescribeRecoveryResponse:
        await _refuse(context, "DescribeRecovery")


async def _refuse(context: Context, call: str) -> NoReturn:
    await context.abort(
        grpc.StatusCode.UNIMPLEMENTED, f"{call} is not built yet; a later version has it"
    )
