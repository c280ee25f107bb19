"""Options of all gRPC channels and servers; they are set nowhere else."""

from __future__ import annotations

from collections.abc import Sequence

import grpc.aio

from tidelog.caller_limits import Callers
from tidelog.request_bounds import MAX_INTERNAL_REQUEST_BYTES
from tidelog.rpc.admission import Admission
from tidelog.rpc.handler_failures import HandlerFailures, reduce_grpc_log

MAX_MESSAGE_BYTES = 64 << 20
# A server copies a request before it can reject it as too large (`request_bounds`).
_SERVER_RECEIVES = ("grpc.max_receive_message_length", MAX_INTERNAL_REQUEST_BYTES)
# A connection without a request is closed after this time. Clients reconnect when they need one.
MAX_CONNECTION_IDLE_MS = 600_000
# Of one service, including each consumer's long poll.
MAX_CONCURRENT_CALLS = 4096

_COMMON_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A dead connection, or a stalled process, is detected within 10 + 5 s. `ping_timeout_ms` is the
    # limit for a ping without an answer; gRPC's default is a minute.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
)

CHANNEL_OPTIONS = (
    *_COMMON_OPTIONS,
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # A broker that restarts is back within a second, and may lead at once. Until the next attempt
    # every call to it fails. gRPC's default back-off grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 100),
    # Despite its name this is the time limit of one attempt to connect.
    ("grpc.min_reconnect_backoff_ms", 1_000),
    # A recreated container has the same name and another address. gRPC's default: 30 s.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # Each channel has its own connection. Otherwise two channels to one address fail together, and
    # a long-polled fetch delays a command.
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
    """Returns a channel to host:port, which connects on first use."""
    return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)


def new_server(
    callers: Callers | None = None, first: Sequence[grpc.aio.ServerInterceptor] = ()
) -> grpc.aio.Server:
    """Returns a server that rejects calls beyond MAX_CONCURRENT_CALLS with RESOURCE_EXHAUSTED, and
    calls that `Admission` rejects. A handler that fails ends only its own call (`HandlerFailures`).
    `callers`: shared by the servers of one process. `first`: interceptors before the others."""
    reduce_grpc_log()
    return grpc.aio.server(
        options=SERVER_OPTIONS,
        maximum_concurrent_rpcs=MAX_CONCURRENT_CALLS,
        interceptors=(*first, HandlerFailures(), Admission(callers)),
    )
