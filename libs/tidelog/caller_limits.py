"""How many requests and connections one client address, and all of them together, may have at a
service. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.errors import ErrorCode, TidelogError

# Addresses that are remembered for having reached a limit.
MAX_REMEMBERED = 100


class CallerLimits(NamedTuple):
    """Of requests that are being answered, long polls among them.

    - `max_client_requests`: of all client addresses together.
    - `max_requests_per_client`, `max_connections_per_client`: of one address. A connection counts
      while it carries a request; idle ones are closed after a while.
    """

    max_client_requests: int = 3_584
    max_requests_per_client: int = 2_048
    max_connections_per_client: int = 1_024


@dataclass(slots=True)
class _Caller:
    requests: int = 0
    # Requests by connection: the peer with its port.
    connections: Counter[str] = field(default_factory=Counter)


class Rejections(NamedTuple):
    """`limit`: its name; `requests`: how many of this address were rejected by it."""

    address: str
    limit: str
    requests: int
    last_ms: int


class Callers:
    """Those who have requests now. `begin`, then `end` in any case."""

    def __init__(self, limits: CallerLimits) -> None:
        self.limits = limits
        self.requests = 0
        self.rejected: Counter[str] = Counter()
        self._callers: dict[str, _Caller] = {}
        self._recent: dict[tuple[str, str], Rejections] = {}

    def begin(self, peer: str, now_ms: int) -> None:
        """`peer`: as gRPC has it. Raises TOO_MANY_REQUESTS, which names the limit."""
        address = address_of(peer)
        caller = self._callers.get(address)
        if caller is None:
            caller = self._callers[address] = _Caller()
        reached = self._reached(caller, peer)
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

    @property
    def recent(self) -> list[Rejections]:
        """By address and limit, the last one first."""
        return sorted(self._recent.values(), key=lambda each: -each.last_ms)

    @property
    def most(self) -> tuple[int, int]:
        """Requests, and connections, of the address that has most of them."""
        callers = self._callers.values()
        return (
            max((caller.requests for caller in callers), default=0),
            max((len(caller.connections) for caller in callers), default=0),
        )

    def _reached(self, caller: _Caller, peer: str) -> str | None:
        """The name of the limit."""
        limits = self.limits
        if self.requests >= limits.max_client_requests:
            return "max_client_requests"
        if caller.requests >= limits.max_requests_per_client:
            return "max_requests_per_client"
        is_new = peer not in caller.connections
        if is_new and len(caller.connections) >= limits.max_connections_per_client:
            return "max_connections_per_client"
        return None

    def _reject(self, address: str, limit: str, now_ms: int) -> TidelogError:
        self.rejected[limit] += 1
        key = (address, limit)
        before = self._recent.pop(key, None)
        self._recent[key] = Rejections(
            address, limit, 1 + (before.requests if before else 0), now_ms
        )
        if len(self._recent) > MAX_REMEMBERED:
            del self._recent[next(iter(self._recent))]
        of_whom = "all clients together" if limit == "max_client_requests" else f"client {address}"
        what = "connections" if "connections" in limit else "requests"
        return TidelogError(
            ErrorCode.TOO_MANY_REQUESTS,
            f"{of_whom} may have {getattr(self.limits, limit)} {what} at once ({limit}); nothing "
            "was done: try again in a moment, share connections between threads, or raise the "
            "limit",
        )


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
