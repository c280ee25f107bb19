"""The TCP segments that connections had to send again, on sockets that lose packets."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from lossy_sockets import lose
from tidelog_runtime.pressure import segments
from tidelog_runtime.pressure.segments import (
    Segments,
    TcpConnection,
    measure_segments,
    within,
)

DEADLINE_SECONDS = 20.0
INTO = TcpConnection("10.0.0.7", 7_500, 40_000)
OUT_OF = TcpConnection("10.0.0.8:7500", 50_000, 7_500)


class Pair:
    """Both ends of a connection of this process."""

    def __init__(self, stack: ExitStack) -> None:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.port = listening.getsockname()[1]
        self.opened = stack.enter_context(socket.create_connection(("127.0.0.1", self.port)))
        self.accepted = stack.enter_context(listening.accept()[0])
        self.descriptors = [s.fileno() for s in (listening, self.opened, self.accepted)]

    def measured(self) -> dict[str, Segments]:
        found = measure_segments(self.descriptors, {self.port})
        return {connection.peer: counts for connection, counts in found.items()}

    def send_until(self, resent: int) -> Segments:
        """Sends through the opened end until it has sent so many segments again."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            self.opened.sendall(b"record")
            counts = self.measured().get(f"127.0.0.1:{self.port}", Segments(0, 0))
            if counts.resent >= resent:
                return counts
            assert time.monotonic() < deadline, counts
            time.sleep(0.02)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(stack)


def test_addresses_of_both_families_are_read() -> None:
    """gRPC's sockets are of IPv6, also for addresses of IPv4."""
    with ExitStack() as stack:
        listening = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        stack.enter_context(listening)
        port = listening.getsockname()[1]
        opened = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        accepted = stack.enter_context(listening.accept()[0])
        found = measure_segments([accepted.fileno(), opened.fileno()], {port})
    own_port = opened_port(found, port)
    assert set(found) == {
        TcpConnection("127.0.0.1", port, own_port),
        TcpConnection(f"127.0.0.1:{port}", own_port, port),
    }


def opened_port(found: dict[TcpConnection, Segments], port: int) -> int:
    return next(c.local_port for c in found if c.local_port != port)


def test_segments_that_are_lost_are_sent_again_and_counted(pair: Pair) -> None:
    pair.opened.sendall(b"arrives")
    assert pair.accepted.recv(7) == b"arrives"
    before = pair.measured()
    assert {counts.resent for counts in before.values()} == {0}
    lose(pair.accepted, 50)
    lossy = pair.send_until(resent=3)
    assert lossy.sent > before[f"127.0.0.1:{pair.port}"].sent
    # The port of a connection that this process has accepted says nothing about its peer.
    assert pair.measured()["127.0.0.1"].resent == 0


def test_a_peer_that_answers_nothing_loses_no_packets(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "SILENT_AFTER", 2)
    lose(pair.accepted, 100)
    pair.opened.sendall(b"lost")
    deadline = time.monotonic() + DEADLINE_SECONDS
    while f"127.0.0.1:{pair.port}" in pair.measured():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_descriptors_that_are_closed_or_no_tcp_connections_are_ignored(pair: Pair) -> None:
    one, other = socket.socketpair()
    with one, other, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        descriptors = [one.fileno(), datagrams.fileno(), 999_999, *pair.descriptors[:1]]
        assert measure_segments(descriptors, ()) == {}
    pair.opened.sendall(b"still open")
    assert pair.accepted.recv(10) == b"still open"


def test_the_oldest_connections_are_measured(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "MAX_MEASURED", 2)
    assert list(pair.measured()) == [f"127.0.0.1:{pair.port}"]


def test_only_segments_within_the_window_count() -> None:
    before = {INTO: Segments(100, 10), OUT_OF: Segments(50, 0)}
    now = {INTO: Segments(160, 30), OUT_OF: Segments(70, 5)}
    lost = within(before, now)
    assert (lost.sent, lost.resent) == (80, 25)
    assert lost.peers == "20 to 10.0.0.7, 5 to 10.0.0.8:7500"


def test_a_new_connection_counts_from_its_beginning() -> None:
    reused = {INTO: Segments(9, 4), OUT_OF: Segments(7, 0)}
    assert within({INTO: Segments(100, 10)}, reused) == (16, 4, {"10.0.0.7": 4, "10.0.0.8:7500": 0})


def test_the_peers_with_most_are_named() -> None:
    now = {TcpConnection(f"10.0.0.{n}", 7_500, n): Segments(100, n) for n in range(6)}
    assert within({}, now).peers == "5 to 10.0.0.5, 4 to 10.0.0.4, 3 to 10.0.0.3"
