"""The only place where gRPC channels and servers get their options."""

from __future__ import annotations

import grpc.aio

from tidelog.caller_limits import Callers
from tidelog.request_bounds import MAX_INTERNAL_REQUEST_BYTES
from tidelog.rpc.admission import Admission
from tidelog.rpc.handler_failures import HandlerFailures

MAX_MESSAGE_BYTES = 64 << 20
# A server copies a request before it can say that it is too large (`request_bounds`).
_SERVER_RECEIVES = ("grpc.max_receive_message_length", MAX_INTERNAL_REQUEST_BYTES)
# A connection without a request is closed after this: clients connect again when they have one.
MAX_CONNECTION_IDLE_MS = 600_000
# Of one service; each consumer's long poll is one of them.
MAX_CONCURRENT_CALLS = 4096

_COMMON_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A connection that silently died, or a process that stands still, is noticed within
    # 10 + 5 s. The second timeout is the one that a ping without an answer meets; gRPC's
    # own is a minute.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
)

CHANNEL_OPTIONS = (
    *_COMMON_OPTIONS,
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # A broker that restarts is back within a second, and may lead at once: until the next
    # attempt every call to it fails. gRPC's own back-off grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 100),
    # In spite of its name this is how long an attempt to connect may take.
    ("grpc.min_reconnect_backoff_ms", 1_000),
    # A container that was made anew has its name and another address. gRPC's own: 30 s.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # Each channel has its own connection: otherwise two channels to one address share
    # their fate, and a long-polled fetch delays a command.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
)

SERVER_OPTIONS = (
    *_COMMON_OPTIONS,
    _SERVER_RECEIVES,
    ("grpc.max_connection_idle_ms", MAX_CONNECTION_IDLE_MS),
    # Fails at start when the port is in use, instead of sharing it with another process.
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
)


def open_channel(address: str) -> grpc.aio.Channel:
    """A channel to host:port; connects when first used."""
    return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)


def new_server(callers: Callers | None = None) -> grpc.aio.Server:
    """Rejects calls beyond MAX_CONCURRENT_CALLS with RESOURCE_EXHAUSTED, and what `Admission`
    rejects; a handler that fails ends its call alone (`HandlerFailures`). `callers`: shared by the
    servers of one process."""
    return grpc.aio.server(
        options=SERVER_OPTIONS,
        maximum_concurrent_rpcs=MAX_CONCURRENT_CALLS,
        interceptors=(HandlerFailures(), Admission(callers)),
    )
