"""TCP segments that this process's connections have sent, and those that they had to send again."""

from __future__ import annotations

import socket
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

# Connections that are measured: those with the lowest descriptors, which are the oldest. The
# connections to other brokers and to the metadata store are opened at the start.
MAX_MEASURED = 1_000
# A connection is ignored once this many segments in a row were sent in vain: its peer is gone or
# cut off, which is no packet loss.
SILENT_AFTER = 4
# Peers that are named, those with the most retransmissions first.
MAX_NAMED_PEERS = 3

# The kernel's `struct tcp_info`: state, retransmissions in a row, all of them, and all segments.
_TCP_INFO = struct.Struct("=B1xB97xI32xI")
_ESTABLISHED = 1


class TcpConnection(NamedTuple):
    """`peer`: the peer's address, with its port if this process has opened the connection."""

    peer: str
    local_port: int
    peer_port: int


class Segments(NamedTuple):
    """Cumulative. `sent` includes those that were sent again."""

    sent: int
    resent: int


class Resent(NamedTuple):
    """Segments within a window, of all measured connections, and those sent again by peer."""

    sent: int
    resent: int
    by_peer: Mapping[str, int]

    @property
    def peers(self) -> str:
        """Names the peers to which most were sent again."""
        most = Counter(self.by_peer).most_common(MAX_NAMED_PEERS)
        return ", ".join(f"{count:,} to {peer}" for peer, count in most if count)


def within(
    before: Mapping[TcpConnection, Segments], now: Mapping[TcpConnection, Segments]
) -> Resent:
    """Returns the difference of two measurements. Connections that have ended do not count."""
    sent = resent = 0
    by_peer: Counter[str] = Counter()
    for connection, segments in now.items():
        earlier = before.get(connection, Segments(0, 0))
        if earlier.sent > segments.sent:
            earlier = Segments(0, 0)  # another connection with the same ports
        sent += segments.sent - earlier.sent
        resent += segments.resent - earlier.resent
        by_peer[connection.peer] += segments.resent - earlier.resent
    return Resent(sent, resent, by_peer)


def measure_segments(
    descriptors: Iterable[int], ports: Collection[int]
) -> dict[TcpConnection, Segments]:
    """Measures the established TCP connections among these sockets.

    - `ports`: the ports on which this process listens.

    A descriptor may be closed, or reused, in the meantime: nothing is changed or closed here.
    """
    found: dict[TcpConnection, Segments] = {}
    for descriptor in sorted(descriptors)[:MAX_MEASURED]:
        with suppress(OSError, struct.error):
            measured = _measure(descriptor, ports)
            if measured is not None:
                connection, segments = measured
                found[connection] = segments
    return found


def _measure(descriptor: int, ports: Collection[int]) -> tuple[TcpConnection, Segments] | None:
    # Addresses of both families fit into one of IPv6, and keep their own family.
    borrowed = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 0, fileno=descriptor)
    try:
        info = borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        state, in_a_row, resent, sent = _TCP_INFO.unpack(info)
        if state != _ESTABLISHED or in_a_row >= SILENT_AFTER:
            return None
        local_port, (host, peer_port) = borrowed.getsockname()[1], borrowed.getpeername()[:2]
    finally:
        borrowed.detach()
    peer = _plain(host)
    if local_port not in ports:
        peer = f"[{peer}]:{peer_port}" if ":" in peer else f"{peer}:{peer_port}"
    return TcpConnection(peer, local_port, peer_port), Segments(sent, resent)


def _plain(host: str) -> str:
    """
    >>> _plain("::ffff:10.0.0.7"), _plain("::1"), _plain("10.0.0.7")
    ('10.0.0.7', '::1', '10.0.0.7')
    """
    address = ip_address(host.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
