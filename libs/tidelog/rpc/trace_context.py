"""W3C trace context (https://www.w3.org/TR/trace-context/) in gRPC's metadata: which request
of a user made a service do something.

A span of the user's own OpenTelemetry is continued. Loading OpenTelemetry takes as long as
a small program runs, and without it there is no span to continue: it is loaded only where
somebody else has, or where a context is to be made or read.

What is to be carried is given to each call by `carrying`, never taken from the task that
happens to make it: a client's tasks outlive the span in which they were started.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Metadata = tuple[tuple[str, str], ...]

_USED_WHERE_LOADED = "opentelemetry.trace"
_TRACE_ID_BITS, _SPAN_ID_BITS = 128, 64

_carried: ContextVar[Metadata | None] = ContextVar("carried_trace_context", default=None)


def captured() -> Metadata | None:
    """`traceparent` (and `tracestate`) of the user's span that is current where this is
    called; None: there is none, which costs a look into a dictionary where nobody has
    loaded OpenTelemetry."""
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
    """What the calls made here are to carry."""
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
    """Calls made inside belong to the request around this one or to the user's span, where
    there is one, else to a new trace; gives the trace id, 32 hexadecimal digits."""
    metadata = carried() or captured() or _new(rng)
    with carrying(metadata):
        yield trace_id_of(metadata)


def _new(rng: random.Random) -> Metadata:
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    # Zero is no id.
    trace_id = rng.getrandbits(_TRACE_ID_BITS) or 1
    span_id = rng.getrandbits(_SPAN_ID_BITS) or 1
    span = trace.NonRecordingSpan(trace.SpanContext(trace_id, span_id, is_remote=False))
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, trace.set_span_in_context(span))
    return tuple(carrier.items())


def trace_id_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """Of a request that came with this metadata; empty: it has none, or one that is no
    trace context."""
    carrier = {key: value for key, value in metadata or () if isinstance(value, str)}
    if "traceparent" not in carrier:
        return ""
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    # Into a context of its own: what is current here is no part of the request.
    found = TraceContextTextMapPropagator().extract(carrier, Context())
    span_context = trace.get_current_span(found).get_span_context()
    return trace.format_trace_id(span_context.trace_id) if span_context.is_valid else ""
