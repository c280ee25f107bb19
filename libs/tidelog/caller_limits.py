"""Limits on the requests and connections of one client address, and of all clients together, at
one service. No I/O."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.errors import ErrorCode, TidelogError
from tidelog.unsent_answers import ANSWER_LIMITS, ANSWER_TIMEOUT, CallAnswer, UnsentAnswers

# Addresses at a limit that are remembered.
MAX_REMEMBERED = 100
# Limits on connections to the metrics port of a service: of each client address, and of all
# together. A scraper needs one. Each has a thread.
METRICS_CONNECTIONS_PER_CLIENT = "metrics_connections_per_client"
METRICS_CONNECTIONS = "metrics_connections"
METRICS_LIMITS = {METRICS_CONNECTIONS_PER_CLIENT: 8, METRICS_CONNECTIONS: 32}
# Limits of a gateway for each client address, then for all clients together. Each is a setting of
# the same name, except `connections` (all connections), `body_bytes` (bytes of all request bodies
# that are being received) and METRICS_LIMITS.
GATEWAY_CLIENT_LIMITS = (
    "max_requests_per_client",
    "max_connections_per_client",
    "max_searches_per_client",
    METRICS_CONNECTIONS_PER_CLIENT,
)
GATEWAY_TOTAL_LIMITS = (
    "max_concurrent_requests",
    "max_concurrent_streams",
    "max_concurrent_searches",
    "connections",
    "body_bytes",
    METRICS_CONNECTIONS,
)
GATEWAY_LIMITS = (*GATEWAY_CLIENT_LIMITS, *GATEWAY_TOTAL_LIMITS)
# An address is no longer at a limit after this time without a rejection.
OVER_AFTER_MS = 60_000
# Requests beyond the limits for methods that only describe the service: a service at a limit must
# be able to report it.
RESERVED_FOR_INSPECTION = 32
# The same for health checks: an orchestrator restarts a service that rejects its probe. More, so
# that inspections do not take their room. A check is answered at once, so few are in progress.
RESERVED_FOR_HEALTH_CHECKS = 2 * RESERVED_FOR_INSPECTION


class CallerLimits(NamedTuple):
    """Limits on requests in progress, long polls included.

    - `max_client_requests`: requests of all client addresses together.
    - `max_requests_per_client`: requests of one address.
    - `max_connections_per_client`: connections of one address. A request on one more connection
      is rejected. Idle connections above the limit are closed
      (`tidelog_runtime.pressure.idle_connections`).
    """

    max_client_requests: int = 3_584
    max_requests_per_client: int = 2_048
    max_connections_per_client: int = 1_024


# Limits of a broker or controller.
SERVICE_LIMITS = (*CallerLimits._fields, *ANSWER_LIMITS, *METRICS_LIMITS)


@dataclass(frozen=True, slots=True)
class LimitedClient:
    """A client at a limit, as a service describes it; `inspect.proto` documents each field."""

    address: str
    limit: str
    value: int
    rejected: int
    last_ms: int


@dataclass(slots=True)
class _Caller:
    requests: int = 0
    # Requests by connection: the peer with its port.
    connections: Counter[str] = field(default_factory=Counter)


class LimitReached(NamedTuple):
    """A limit that an address has reached.

    - `limit`: name of the limit.
    - `value`: requests or connections that it allows.
    - `requests`: requests of this address that it rejected since `since_ms`, the last one at
      `last_ms`. Both times are of the monotonic clock, so that a jump of the wall clock changes
      nothing.
    """

    address: str
    limit: str
    value: int
    requests: int
    since_ms: int
    last_ms: int


class ReachedLimits:
    """The limits that addresses have reached. `on_reached` is called when an address reaches a
    limit, and again only after the address has left it. Threads may share it."""

    def __init__(self, on_reached: Callable[[LimitReached], None]) -> None:
        self._on_reached = on_reached
        # In the order of the last rejections.
        self._reached: dict[tuple[str, str], LimitReached] = {}
        self._lock = threading.Lock()

    def rejected(self, address: str, limit: str, value: int, now_ms: int) -> None:
        """Counts a rejected request of the address, by the limit of that name and `value`."""
        key = (address, limit)
        with self._lock:
            before = self._reached.pop(key, None)
            is_new = before is None or _is_over(before, now_ms)
            if before is None or is_new:
                before = LimitReached(address, limit, value, 0, now_ms, now_ms)
            self._reached[key] = before._replace(requests=before.requests + 1, last_ms=now_ms)
            if len(self._reached) > MAX_REMEMBERED:
                del self._reached[next(iter(self._reached))]
        if is_new:
            self._on_reached(before)

    def now(self, now_ms: int) -> list[LimitReached]:
        """Returns the limits that addresses are at, the latest rejection first."""
        with self._lock:
            latest_first = list(reversed(self._reached.values()))
        return [each for each in latest_first if not _is_over(each, now_ms)]

    def described(self, now_ms: int) -> list[LimitedClient]:
        """Returns the same limits as `now`, in the form in which a service describes itself."""
        return [
            LimitedClient(r.address, r.limit, r.value, r.requests, now_ms - r.last_ms)
            for r in self.now(now_ms)
        ]


class Callers:
    """The addresses with requests in progress. Each successful `begin` needs one `end`.
    `on_reached` is passed to `ReachedLimits`."""

    def __init__(
        self, limits: CallerLimits, on_reached: Callable[[LimitReached], None] = lambda _: None
    ) -> None:
        self.limits = limits
        self.requests = 0
        self.rejected: Counter[str] = Counter()
        self._callers: dict[str, _Caller] = {}
        # Requests of brokers and controllers, by connection.
        self._internal: Counter[str] = Counter()
        self._reached = ReachedLimits(on_reached)
        self.answers = UnsentAnswers(self._count_answer)

    def begin(self, peer: str, now_ms: int, reserved: int = 0) -> None:
        """Counts a request. Raises TOO_MANY_REQUESTS, which names the limit.

        - `peer`: the peer as gRPC names it.
        - `reserved`: by how many the request may exceed the limits.
        """
        address = address_of(peer)
        caller = self._callers.get(address)
        if caller is None:
            caller = self._callers[address] = _Caller()
        reached = self._limit_of(caller, peer, reserved)
        if reached is not None:
            if caller.requests == 0:
                del self._callers[address]
            raise self._reject(address, reached, now_ms)
        self.requests += 1
        caller.requests += 1
        caller.connections[peer] += 1

    def end(self, peer: str) -> None:
        address = address_of(peer)
        caller = self._callers[address]
        self.requests -= 1
        caller.requests -= 1
        caller.connections[peer] -= 1
        if not caller.connections[peer]:
            del caller.connections[peer]
        if not caller.requests:
            del self._callers[address]

    def begin_internal(self, peer: str) -> None:
        """Counts a request of a broker or controller, which has no limit."""
        self._internal[peer] += 1

    def end_internal(self, peer: str) -> None:
        self._internal[peer] -= 1
        if not self._internal[peer]:
            del self._internal[peer]

    def is_busy(self, peer: str) -> bool:
        """Whether the connection carries a request."""
        caller = self._callers.get(address_of(peer))
        return peer in self._internal or (caller is not None and peer in caller.connections)

    def closed(self, address: str, now_ms: int) -> None:
        """Counts an idle connection that was closed because its address had too many."""
        self._count_rejection(address, "max_connections_per_client", now_ms)

    def metrics_connection_closed(self, address: str, limit: str, now_ms: int) -> None:
        """Counts a connection to the metrics port that was closed by one of METRICS_LIMITS.

        Called in the thread of the metrics server; only that changes these counts.
        """
        self.rejected[limit] += 1
        self._reached.rejected(address, limit, METRICS_LIMITS[limit], now_ms)

    def new_answer(self, peer: str) -> CallAnswer:
        """Returns the answer of a new call; `answers.end` ends it."""
        return CallAnswer(self.answers, peer, address_of(peer))

    def answer_not_received(self, peer: str) -> None:
        """Counts a connection that was closed because it took no answer for too long."""
        self._count_answer(address_of(peer), ANSWER_TIMEOUT, ANSWER_LIMITS[ANSWER_TIMEOUT])

    def _count_answer(self, address: str, limit: str, value: int) -> None:
        self.rejected[limit] += 1
        self._reached.rejected(address, limit, value, time.monotonic_ns() // 1_000_000)

    def reached(self, now_ms: int) -> list[LimitReached]:
        """Returns the limits that addresses are at, the latest rejection first."""
        return self._reached.now(now_ms)

    def limited(self, now_ms: int) -> list[LimitedClient]:
        """Returns the same limits as `reached`, in the form in which a service describes
        itself."""
        return self._reached.described(now_ms)

    @property
    def most(self) -> tuple[int, int]:
        """The highest number of requests, and of connections, of any one address."""
        callers = self._callers.values()
        return (
            max((caller.requests for caller in callers), default=0),
            max((len(caller.connections) for caller in callers), default=0),
        )

    def _limit_of(self, caller: _Caller, peer: str, reserved: int) -> str | None:
        """Returns the name of the limit that one more request would exceed."""
        limits = self.limits
        if self.requests >= limits.max_client_requests + reserved:
            return "max_client_requests"
        if caller.requests >= limits.max_requests_per_client + reserved:
            return "max_requests_per_client"
        is_new = peer not in caller.connections
        if is_new and len(caller.connections) >= limits.max_connections_per_client + reserved:
            return "max_connections_per_client"
        return None

    def _count_rejection(self, address: str, limit: str, now_ms: int) -> int:
        """Counts a rejection and returns the value of the limit."""
        self.rejected[limit] += 1
        value: int = getattr(self.limits, limit)
        self._reached.rejected(address, limit, value, now_ms)
        return value

    def _reject(self, address: str, limit: str, now_ms: int) -> TidelogError:
        value = self._count_rejection(address, limit, now_ms)
        of_whom = "all clients together" if limit == "max_client_requests" else f"client {address}"
        what = "connections" if "connections" in limit else "requests"
        return TidelogError(
            ErrorCode.TOO_MANY_REQUESTS,
            f"{of_whom} may have {value} {what} at once ({limit}); nothing "
            "was done: try again in a moment, share connections between threads, or raise the "
            "limit",
        )


def _is_over(reached: LimitReached, now_ms: int) -> bool:
    return now_ms - reached.last_ms > OVER_AFTER_MS


def address_of(peer: str) -> str:
    """Returns the address of a gRPC peer, without the port.

    >>> address_of("ipv4:10.0.0.7:40112"), address_of("ipv6:%5B::1%5D:40112"), address_of("unix:")
    ('10.0.0.7', '::1', 'unix:')
    """
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return peer
    host = rest.rpartition(":")[0]
    return host.replace("%5B", "").replace("%5D", "").strip("[]")
