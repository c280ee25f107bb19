"""Limits on the memory, concurrency and time that a request may take in the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send
from structlog.testing import capture_logs

from tidelog.caller_limits import GATEWAY_LIMITS, METRICS_CONNECTIONS
from tidelog_admin_api.config import AdminApiConfig
from tidelog_admin_api.limits import LARGEST_BODIES, Limits, Usage, stream
from tidelog_admin_api.problems import ProblemError

# Without validation: real limits are larger.
BOUNDS = AdminApiConfig.model_construct(
    max_body_bytes=10,
    body_timeout_ms=20,
    request_timeout_ms=1_000,
    max_concurrent_requests=1,
    max_requests_per_client=1,
    max_concurrent_streams=1,
    allowed_hosts=["gateway"],
)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    body = await Request(scope, receive).body()
    await PlainTextResponse(body)(scope, receive, send)


async def answer_of(
    limits: Limits, *chunks: bytes, client: str = "10.0.0.1", **headers: str
) -> int:
    """The response status for a body; without chunks the body never ends."""
    sent: list[Message] = []
    messages = chunked(chunks)

    async def receive() -> Message:
        return await anext(messages)

    async def send(message: Message) -> None:
        sent.append(message)

    named = [(name.replace("_", "-").encode(), v.encode()) for name, v in headers.items()]
    scope: Scope = {"type": "http", "method": "POST", "path": "/v1/topics", "headers": named}
    scope["client"] = (client, 40_000)
    await limits(scope, receive, send)
    return int(sent[0]["status"])


async def chunked(chunks: tuple[bytes, ...]) -> AsyncIterator[Message]:
    for position, chunk in enumerate(chunks):
        yield {"type": "http.request", "body": chunk, "more_body": position < len(chunks) - 1}
    await asyncio.Event().wait()


async def test_a_body_within_the_limit_is_accepted() -> None:
    assert await answer_of(Limits(echo, BOUNDS, Usage()), b"12345", b"67890") == 200


async def test_a_body_with_too_large_a_content_length_is_not_read() -> None:
    assert await answer_of(Limits(echo, BOUNDS, Usage()), content_length="11") == 413


async def test_a_body_without_a_content_length_is_cut_at_the_limit() -> None:
    assert await answer_of(Limits(echo, BOUNDS, Usage()), b"123456", b"789012") == 413


async def test_buffered_bodies_are_bounded_in_total() -> None:
    usage = Usage()
    usage.body_bytes = held = LARGEST_BODIES * BOUNDS.max_body_bytes - 6
    limits = Limits(echo, BOUNDS, usage)
    assert await answer_of(limits, b"123", b"456") == 200
    assert await answer_of(limits, b"123", b"4567") == 429
    assert usage.body_bytes == held


async def test_one_client_cannot_take_all_body_buffers() -> None:
    usage, going = Usage(), asyncio.Event()

    async def wait(scope: Scope, receive: Receive, send: Send) -> None:
        await going.wait()
        await echo(scope, receive, send)

    bounds = BOUNDS.model_copy(update={"max_concurrent_requests": 3})
    limits = Limits(wait, bounds, usage)
    first = asyncio.create_task(answer_of(limits, b"1", client="10.0.0.7"))
    await asyncio.sleep(0)
    assert await answer_of(limits, b"1", client="10.0.0.7") == 429
    other = asyncio.create_task(answer_of(limits, b"1", client="10.0.0.8"))
    await asyncio.sleep(0)
    assert dict(usage.clients) == {"10.0.0.7": 1, "10.0.0.8": 1}
    going.set()
    assert [await first, await other] == [200, 200]
    assert (usage.requests, dict(usage.clients)) == (0, {})


async def test_a_non_numeric_content_length_is_malformed() -> None:
    assert await answer_of(Limits(echo, BOUNDS, Usage()), b"", content_length="-1") == 400


async def test_a_missing_body_times_out() -> None:
    assert await answer_of(Limits(echo, BOUNDS, Usage())) == 408


async def test_concurrent_requests_beyond_the_limit_are_rejected() -> None:
    usage = Usage()
    usage.requests = 1
    assert await answer_of(Limits(echo, BOUNDS, usage), b"") == 429


async def test_an_answered_request_frees_its_slot() -> None:
    limits = Limits(echo, BOUNDS, Usage())
    assert [await answer_of(limits, b"") for _ in range(2)] == [200, 200]


async def test_a_page_of_another_origin_cannot_change_anything() -> None:
    limits = Limits(echo, BOUNDS, Usage())
    assert await answer_of(limits, b"", origin="http://evil.example", host="gateway:7600") == 403


async def test_the_console_may_change_things() -> None:
    limits = Limits(echo, BOUNDS, Usage())
    assert await answer_of(limits, b"", origin="http://gateway:7600", host="gateway:7600") == 200


def test_browsers_reach_the_gateway_by_its_configured_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIDELOG_ALLOWED_HOSTS", "tides.example, tides")
    config = AdminApiConfig(advertised_address="Console.example:80")
    assert config.browser_hosts == {
        *("localhost", "127.0.0.1", "console.example", "tides.example", "tides"),
    }


async def test_a_stream_may_outlast_the_request_timeout() -> None:
    bounds = BOUNDS.model_copy(update={"request_timeout_ms": 5})

    async def slow_end(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(0.02)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    assert await answer_of(Limits(slow_end, bounds, Usage()), b"") == 200


async def test_a_slow_request_is_answered_with_a_timeout() -> None:
    bounds = BOUNDS.model_copy(update={"request_timeout_ms": 5})

    async def never(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
        await asyncio.Event().wait()

    assert await answer_of(Limits(never, bounds, Usage()), b"") == 504


async def test_a_timeout_of_a_backend_is_not_taken_for_one_of_the_request() -> None:
    async def faulty(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await answer_of(Limits(faulty, BOUNDS, Usage()), b"")


def test_streams_beyond_the_limit_are_rejected() -> None:
    usage = Usage()
    with (
        stream(usage, BOUNDS, "10.0.0.7"),
        pytest.raises(ProblemError) as raised,
        stream(usage, BOUNDS, "10.0.0.8"),
    ):
        pass
    assert raised.value.mapping.status == 429
    assert usage.streams == 0
    [limited] = usage.limited_clients()
    assert (limited.address, limited.limit) == ("10.0.0.8", "max_concurrent_streams")


def test_connections_closed_at_the_metrics_port_are_counted() -> None:
    usage = Usage()
    usage.metrics_connection_closed("10.0.0.7", METRICS_CONNECTIONS)
    [limited] = usage.limited_clients()
    assert (limited.address, limited.limit, limited.value) == ("10.0.0.7", METRICS_CONNECTIONS, 32)
    assert usage.rejections == {METRICS_CONNECTIONS: 1}
    assert set(usage.rejections) <= set(GATEWAY_LIMITS)


async def test_bodies_that_are_too_large_in_total_are_counted_under_the_shared_limit() -> None:
    usage = Usage()
    usage.body_bytes = LARGEST_BODIES * BOUNDS.max_body_bytes
    assert await answer_of(Limits(echo, BOUNDS, usage), b"1", client="10.0.0.7") == 429
    [limited] = usage.limited_clients()
    assert (limited.address, limited.limit) == ("10.0.0.7", "body_bytes")
    assert usage.rejections == {"body_bytes": 1}


async def test_a_client_limit_is_logged_once_with_the_address_and_name() -> None:
    usage = Usage()
    usage.requests, usage.clients["10.0.0.7"] = 1, 1
    limits = Limits(echo, BOUNDS, usage)
    with capture_logs() as lines:
        for client in ("10.0.0.7", "10.0.0.7", "10.0.0.8"):
            assert await answer_of(limits, b"1", client=client) == 429
    logged = [
        (line["client"], line["limit"], line["value"])
        for line in lines
        if line["event"] == "client_limit_reached"
    ]
    assert logged == [
        ("10.0.0.7", "max_requests_per_client", 1),
        ("10.0.0.8", "max_concurrent_requests", 1),
    ]
    counted = {"max_requests_per_client": 2, "max_concurrent_requests": 1}
    assert usage.rejections == counted
    assert set(counted) <= set(GATEWAY_LIMITS)


@pytest.mark.parametrize(
    ("encoding", "status"), [("gzip", 415), ("br, gzip", 415), ("identity", 200), ("Identity", 200)]
)
async def test_a_compressed_body_is_rejected_as_such(encoding: str, status: int) -> None:
    limits = Limits(echo, BOUNDS, Usage())
    assert await answer_of(limits, b"[]", content_encoding=encoding) == status
