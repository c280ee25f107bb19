"""The caller of an admin request, from the call's metadata."""

from __future__ import annotations

import re
from typing import Any

import grpc.aio

from tidelog.rpc.trace_context import trace_id_of
from tidelog_controller.state.admin_requests import Caller

REQUESTED_BY = "tidelog-requested-by"
# Set by a service that forwards a request.
REQUESTED_FROM = "tidelog-requested-from"
MAX_NAME_LENGTH = 200
_ADDRESS = re.compile(r"[0-9A-Za-z.:%_\[\]-]{1,100}")

Context = grpc.aio.ServicerContext[Any, Any]


def trace_of(context: Context) -> str:
    return trace_id_of(context.invocation_metadata())


def caller_of(context: Context) -> Caller:
    """Returns the caller as stated, without characters that do not belong in a log line."""
    said = dict(context.invocation_metadata() or ())
    name = _text(said.get(REQUESTED_BY, ""))[:MAX_NAME_LENGTH]
    printable = "".join(c for c in name if c.isascii() and c.isprintable())
    return Caller(printable, _address(_text(said.get(REQUESTED_FROM, "")), context.peer() or ""))


def _address(said: str, peer: str) -> str:
    """Returns the stated address with the peer's, because a caller can state any address."""
    return f"{said} by way of {peer}" if _ADDRESS.fullmatch(said) else peer


def _text(said: str | bytes) -> str:
    return said if isinstance(said, str) else ""
