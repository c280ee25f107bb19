"""The requester and trace of a request. Every call that the gateway makes for it carries them."""

from __future__ import annotations

import random
from collections.abc import Mapping

from starlette.types import Scope

from tidelog.errors import TidelogError
from tidelog.request_bounds import check_requester
from tidelog.rpc.trace_context import Metadata, of_trace, passed_on

REQUESTED_BY_HEADER = "X-Tidelog-Requested-By"
TRACE_ID_HEADER = "X-Tidelog-Trace-Id"
_TRACE_ID_BITS = 128
# W3C requires 512 characters. All metadata of a call is limited to 8 KiB.
MAX_TRACE_STATE_LENGTH = 1_024


def requested_by(headers: Mapping[str, str], remote_host: str) -> str:
    """Returns the name in the header, or the remote address if the name is missing or invalid.

    `check_named` makes operations reject an invalid name.
    """
    try:
        check_named(headers)
    except TidelogError:
        return remote_host
    return _name(headers) or remote_host


def check_named(headers: Mapping[str, str]) -> None:
    """Raises `TidelogError` (INVALID_REQUEST) for an invalid name."""
    check_requester(_name(headers), REQUESTED_BY_HEADER)


def _name(headers: Mapping[str, str]) -> str:
    """Returns the name. Clients send UTF-8, which the framework decodes as Latin-1."""
    name = headers.get(REQUESTED_BY_HEADER, "").strip()
    try:
        return name.encode("latin-1").decode()
    except UnicodeError:
        return name


def requested_from(host: str, port: int) -> str:
    """Returns host:port, or only the host if a proxy sent no port."""
    if not port:
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def trace_of(headers: Mapping[str, str], rng: random.Random) -> Metadata:
    """Returns the caller's trace context if it is valid, or a new one."""
    given = [(name, headers[name]) for name in ("traceparent", "tracestate") if name in headers]
    # gRPC metadata has no other characters.
    passed = passed_on(
        (name, value)
        for name, value in given
        if value.isascii() and value.isprintable() and len(value) <= MAX_TRACE_STATE_LENGTH
    )
    if passed:
        return passed
    new = of_trace(f"{rng.getrandbits(_TRACE_ID_BITS) or 1:032x}", rng)
    assert new is not None
    return new


def trace_id(scope: Scope) -> str:
    found: str = scope.get("state", {}).get("trace_id", "")
    return found
