"""How many requests and connections one client address, and all of them together, may have at a
service. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.errors import ErrorCode, TidelogError

# Addresses that are remembered for having reached a limit.
MAX_REMEMBERED = 100
# Of gateways: by client address, then of all clients together. Each is a setting of that name, but
# for the number of all connections and the bytes of all bodies that are being received.
GATEWAY_CLIENT_LIMITS = ("max_requests_per_client", "max_connections_per_client")
GATEWAY_TOTAL_LIMITS = (
    "max_concurrent_requests",
    "max_concurrent_streams",
    "connections",
    "body_bytes",
)
GATEWAY_LIMITS = (*GATEWAY_CLIENT_LIMITS, *GATEWAY_TOTAL_LIMITS)
# An address has left a limit when nothing of it was rejected for so long.
OVER_AFTER_MS = 60_000
# Requests beyond the limits that only describe the service: at a limit it still has to say so.
RESERVED_FOR_INSPECTION = 32


class CallerLimits(NamedTuple):
    """Of requests that are being answered, long polls among them.

    - `max_client_requests`: of all client addresses together.
    - `max_requests_per_client`: of one address.
    - `max_connections_per_client`: of one address. A request on one more is rejected, and where
      idle ones exceed it, those are closed (`tidelog_runtime.pressure.idle_connections`).
    """

    max_client_requests: int = 3_584
    max_requests_per_client: int = 2_048
    max_connections_per_client: int = 1_024


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
    """A limit that an address is at. `limit`: its name; `value`: what it allows; `requests`: how
    many of this address were rejected by it since `since_ms`, the last at `last_ms` (both
    by the monotonic clock: when the wall clock jumps, no limit is reached or left)."""

    address: str
    limit: str
    value: int
    requests: int
    since_ms: int
    last_ms: int


class ReachedLimits:
    """Which limits addresses are at. `on_reached`: called when an address reaches a limit, and not
    again until it has left it."""

    def __init__(self, on_reached: Callable[[LimitReached], None]) -> None:
        self._on_reached = on_reached
        # The one that was rejected last is the last.
        self._reached: dict[tuple[str, str], LimitReached] = {}

    def rejected(self, address: str, limit: str, value: int, now_ms: int) -> None:
        """A request of the address, by the limit of that name, which allows `value`."""
        key = (address, limit)
        before = self._reached.pop(key, None)
        if before is None or _is_over(before, now_ms):
            before = LimitReached(address, limit, value, 0, now_ms, now_ms)
            self._on_reached(before)
        self._reached[key] = before._replace(requests=before.requests + 1, last_ms=now_ms)
        if len(self._reached) > MAX_REMEMBERED:
            del self._reached[next(iter(self._reached))]

    def now(self, now_ms: int) -> list[LimitReached]:
        """The one that was rejected last first."""
        return [each for each in reversed(self._reached.values()) if not _is_over(each, now_ms)]

    def described(self, now_ms: int) -> list[LimitedClient]:
        """Likewise."""
        return [
            LimitedClient(r.address, r.limit, r.value, r.requests, now_ms - r.last_ms)
            for r in self.now(now_ms)
        ]


class Callers:
    """Those who have requests now. `begin`, then `end` in any case. `on_reached`: as
    `ReachedLimits` takes it."""

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

    def begin(self, peer: str, now_ms: int, reserved: int = 0) -> None:
        """`peer`: as gRPC has it. `reserved`: by how many the request may exceed the limits. Raises
        TOO_MANY_REQUESTS, which names the limit."""
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
        """A request of a broker or controller, which has no limit."""
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
        """An idle connection of the address, which had more than it may."""
        self._count_rejection(address, "max_connections_per_client", now_ms)

    def reached(self, now_ms: int) -> list[LimitReached]:
        """Limits that addresses are at now, the one that was rejected last first."""
        return self._reached.now(now_ms)

    def limited(self, now_ms: int) -> list[LimitedClient]:
        """The same, as the service describes itself."""
        return self._reached.described(now_ms)

    @property
    def most(self) -> tuple[int, int]:
        """Requests, and connections, of the address that has most of them."""
        callers = self._callers.values()
        return (
            max((caller.requests for caller in callers), default=0),
            max((len(caller.connections) for caller in callers), default=0),
        )

    def _limit_of(self, caller: _Caller, peer: str, reserved: int) -> str | None:
        """The name of the limit that one request more would exceed."""
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
        """What the limit allows."""
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
    """Without the port.

    >>> address_of("ipv4:10.0.0.7:40112"), address_of("ipv6:%5B::1%5D:40112"), address_of("unix:")
    ('10.0.0.7', '::1', 'unix:')
    """
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return peer
    host = rest.rpartition(":")[0]
    return host.replace("%5B", "").replace("%5D", "").strip("[]")
