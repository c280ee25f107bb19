"""W3C trace context in metadata."""

from __future__ import annotations

import random
import subprocess
import sys

from opentelemetry import context, trace

from tidelog.rpc.trace_context import captured, carried, carrying, of_request, trace_id_of

USERS = trace.SpanContext(0xA1, 0xB2, is_remote=False)


def test_a_request_without_a_span_begins_a_trace_of_its_own() -> None:
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


def test_a_request_that_is_over_leaves_no_context() -> None:
    with of_request(random.Random(5)):
        pass
    assert carried() is None


def test_what_is_carried_is_what_was_given_and_not_what_is_current() -> None:
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


def test_what_is_current_in_the_service_is_no_part_of_a_request() -> None:
    token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(USERS)))
    try:
        assert trace_id_of((("traceparent", "broken"),)) == ""
    finally:
        context.detach(token)


def test_a_client_without_requests_does_not_load_open_telemetry() -> None:
    program = (
        "import sys; import tidelog.client; from tidelog.rpc.trace_context import *; "
        "assert captured() is None; "
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
