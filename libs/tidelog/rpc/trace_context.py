"""W3C trace context (https://www.w3.org/TR/trace-context/) in gRPC's metadata: which request
of a user made a service do something.

A span of the user's own OpenTelemetry is continued. Loading OpenTelemetry takes as long as
a small program runs, and without it there is no span to continue: it is loaded only where
somebody else has, or where a context is to be made or read.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

Metadata = tuple[tuple[str, str], ...]

_USED_WHERE_LOADED = "opentelemetry.trace"
_TRACE_ID_BITS, _SPAN_ID_BITS = 128, 64


def current_metadata() -> Metadata | None:
    """`traceparent` (and `tracestate`) of the span that is current where this is called;
    None: there is none."""
    if _USED_WHERE_LOADED not in sys.modules:
        return None
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if not trace.get_current_span().get_span_context().is_valid:
        return None
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return tuple(carrier.items())


@contextmanager
def of_request(rng: random.Random) -> Iterator[str]:
    """What is called inside belongs to the user's span, where there is one, else to a new
    trace; gives the trace id, 32 hexadecimal digits."""
    from opentelemetry import context, trace

    span_context = trace.get_current_span().get_span_context()
    if span_context.is_valid:
        yield trace.format_trace_id(span_context.trace_id)
        return
    made = trace.SpanContext(
        # Zero is no id.
        rng.getrandbits(_TRACE_ID_BITS) or 1,
        rng.getrandbits(_SPAN_ID_BITS) or 1,
        is_remote=False,
    )
    span = trace.NonRecordingSpan(made)
    token = context.attach(trace.set_span_in_context(span))
    try:
        yield trace.format_trace_id(made.trace_id)
    finally:
        context.detach(token)


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
