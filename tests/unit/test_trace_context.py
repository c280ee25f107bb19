"""W3C trace context in metadata."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
from opentelemetry import context, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tidelog.rpc.trace_context import (
    captured,
    carried,
    carrying,
    of_request,
    of_trace,
    passed_on,
    trace_id_of,
)

USERS = trace.SpanContext(0xA1, 0xB2, is_remote=False)


def test_a_request_without_a_span_starts_its_own_trace() -> None:
    with of_request(random.Random(5)) as trace_id:
        metadata = carried()
    assert len(trace_id) == 32
    assert trace_id_of(metadata) == trace_id


def test_a_span_of_the_user_is_continued() -> None:
    token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(USERS)))
    try:
        with of_request(random.Random(5)) as trace_id:
            metadata = dict(carried() or ())
    finally:
        context.detach(token)
    assert trace_id == f"{USERS.trace_id:032x}"
    assert metadata["traceparent"] == f"00-{USERS.trace_id:032x}-{USERS.span_id:016x}-00"


def test_a_request_within_a_request_belongs_to_the_same_trace() -> None:
    with of_request(random.Random(5)) as outer, of_request(random.Random(6)) as inner:
        assert inner == outer


def test_an_ended_request_leaves_no_context() -> None:
    with of_request(random.Random(5)):
        pass
    assert carried() is None


def test_the_given_context_is_sent_and_not_the_current_one() -> None:
    token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(USERS)))
    try:
        with carrying(None):
            assert captured() is not None
            assert carried() is None
    finally:
        context.detach(token)


def test_other_metadata_is_no_trace() -> None:
    assert trace_id_of((("user-agent", "any"), ("raw-bin", b"\x00"))) == ""
    assert trace_id_of(None) == ""


def test_a_broken_traceparent_is_no_trace() -> None:
    for broken in ("", "00-1-2-00", f"00-{0:032x}-{1:016x}-00", "00-" + "x" * 32 + "-1-00"):
        assert trace_id_of((("traceparent", broken),)) == ""


def test_the_current_span_of_the_service_is_not_used_for_a_request() -> None:
    token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(USERS)))
    try:
        assert trace_id_of((("traceparent", "broken"),)) == ""
    finally:
        context.detach(token)


@pytest.mark.parametrize(
    ("traceparent", "is_one"),
    [
        (f"00-{1:032x}-{1:016x}-01", True),
        (f"00-{1:032x}-{1:016x}-01-more", False),
        (f"42-{1:032x}-{1:016x}-01-more", True),
        (f"ff-{1:032x}-{1:016x}-01", False),
        (f"00-{1:032x}-{0:016x}-01", False),
        (f"00-{1:032X}-{0xAB:016X}-01", False),
    ],
)
def test_a_traceparent_is_parsed_as_by_open_telemetry(traceparent: str, is_one: bool) -> None:
    theirs = _read_by_open_telemetry(traceparent)
    assert trace_id_of((("traceparent", traceparent),)) == theirs
    assert bool(theirs) == is_one


def _read_by_open_telemetry(traceparent: str) -> str:
    carrier = {"traceparent": traceparent}
    found = TraceContextTextMapPropagator().extract(carrier, context.Context())
    read = trace.get_current_span(found).get_span_context()
    return trace.format_trace_id(read.trace_id) if read.is_valid else ""


def test_calls_of_one_trace_have_separate_spans() -> None:
    rng = random.Random(5)
    calls = [dict(of_trace("a" * 32, rng) or ())["traceparent"] for _ in range(2)]
    assert [_read_by_open_telemetry(call) for call in calls] == ["a" * 32] * 2
    assert calls[0] != calls[1]


@pytest.mark.parametrize("wrong", ["", "0" * 32, "A" * 32, "a" * 31, "a" * 31 + "\n"])
def test_no_call_carries_an_invalid_trace_id(wrong: str) -> None:
    assert of_trace(wrong, random.Random(5)) is None


def test_only_the_complete_context_of_a_request_is_forwarded() -> None:
    own = (("traceparent", f"00-{1:032x}-{1:016x}-01"), ("tracestate", "sea=calm"))
    assert passed_on((("user-agent", "any"), *own, ("raw-bin", b"\x00"))) == own
    assert passed_on((("traceparent", "broken"), ("tracestate", "sea=calm"))) is None
    assert passed_on(None) is None


def test_without_a_span_of_the_user_open_telemetry_is_not_loaded() -> None:
    program = (
        "import random, sys; import tidelog.client; from tidelog.rpc.trace_context import *; "
        "assert captured() is None; "
        "request = of_request(random.Random(5)); request.__enter__(); "
        "assert len(trace_id_of(carried())) == 32; "
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
