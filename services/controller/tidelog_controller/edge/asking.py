"""Who asks, as a call tells it."""

from __future__ import annotations

from typing import Any

import grpc.aio

from tidelog.rpc.trace_context import trace_id_of
from tidelog_controller.state.admin_requests import Asker

REQUESTED_BY = "tidelog-requested-by"
MAX_NAME_LENGTH = 200

Context = grpc.aio.ServicerContext[Any, Any]


def trace_of(context: Context) -> str:
    return trace_id_of(context.invocation_metadata())


def asker_of(context: Context) -> Asker:
    """What is said is taken as it is, but for what no line of a log should hold."""
    said = dict(context.invocation_metadata() or ()).get(REQUESTED_BY, "")
    name = said if isinstance(said, str) else ""
    printable = "".join(c for c in name[:MAX_NAME_LENGTH] if c.isascii() and c.isprintable())
    return Asker(printable, context.peer() or "")
