"""W3C trace context (https://www.w3.org/TR/trace-context/) in gRPC metadata: it names the user's
request that caused an action of a service.

A span of the user's own OpenTelemetry is continued. Loading OpenTelemetry takes as long as a small
program runs, which is longer than a service's event loop may block, and without it there is no span
to continue. So it is used only if the process has loaded it already.

`carrying` sets the metadata of each call. It is never taken from the task that makes the call,
because a client's tasks outlive the span in which they were started.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Metadata = tuple[tuple[str, str], ...]

_USED_WHERE_LOADED = "opentelemetry.trace"
_TRACEPARENT = "traceparent"
_HEADERS = (_TRACEPARENT, "tracestate")
_TRACE_ID_BITS, _SPAN_ID_BITS = 128, 64
# Version, trace id, span id, flags; later versions may have more fields.
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
_FIRST_VERSION, _NO_VERSION = "00", "ff"
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_NO_FLAGS = "00"

_carried: ContextVar[Metadata | None] = ContextVar("carried_trace_context", default=None)


def captured() -> Metadata | None:
    """Returns `traceparent` (and `tracestate`) of the user's current span; None: there is none.
    This costs one dictionary lookup if OpenTelemetry is not loaded."""
    if _USED_WHERE_LOADED not in sys.modules:
        return None
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if not trace.get_current_span().get_span_context().is_valid:
        return None
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return tuple(carrier.items())


def carried() -> Metadata | None:
    """Returns the metadata of calls that are made here."""
    return _carried.get()


@contextmanager
def carrying(metadata: Metadata | None) -> Iterator[None]:
    token = _carried.set(metadata)
    try:
        yield
    finally:
        _carried.reset(token)


@contextmanager
def of_request(rng: random.Random) -> Iterator[str]:
    """Yields the trace id, 32 hexadecimal digits. Calls made inside belong to the enclosing request
    or to the user's span if there is one, else to a new trace."""
    metadata = carried() or captured() or _new(rng)
    with carrying(metadata):
        yield trace_id_of(metadata)


def of_trace(trace_id: str, rng: random.Random) -> Metadata | None:
    """Returns metadata for a call that belongs to this trace, in a span of its own. Returns None
    for an invalid trace id, so that no call fails for it."""
    if not _TRACE_ID.fullmatch(trace_id) or not int(trace_id, 16):
        return None
    # Zero is not a valid id.
    span_id = rng.getrandbits(_SPAN_ID_BITS) or 1
    return ((_TRACEPARENT, f"{_FIRST_VERSION}-{trace_id}-{span_id:016x}-{_NO_FLAGS}"),)


def passed_on(metadata: Iterable[tuple[str, str | bytes]] | None) -> Metadata | None:
    """Returns metadata for calls that a service makes on behalf of a request with this metadata."""
    came = tuple(metadata or ())
    if not trace_id_of(came):
        return None
    return tuple((k, value) for k, value in came if k in _HEADERS and isinstance(value, str))


def trace_id_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """Returns the trace id of a request with this metadata; empty: it has none, or its trace
    context is invalid."""
    carrier = dict(metadata or ())
    traceparent = carrier.get(_TRACEPARENT, "")
    found = _FORM.fullmatch(traceparent) if isinstance(traceparent, str) else None
    if found is None:
        return ""
    version, trace_id, span_id, more = found.groups()
    if version == _NO_VERSION or (version == _FIRST_VERSION and more):
        return ""
    return trace_id if int(trace_id, 16) and int(span_id, 16) else ""


def _new(rng: random.Random) -> Metadata:
    made = of_trace(f"{rng.getrandbits(_TRACE_ID_BITS) or 1:032x}", rng)
    assert made is not None
    return made
