"""Closes idle connections of an address that has more than `max_connections_per_client`, and
connections that do not take an answer in time (`unsent_answers`).

gRPC has no limit on connections and reports none without requests, but this process owns the
sockets. To close a connection, its socket is shut down in both directions, and gRPC sees that
the peer has left. A request that arrives at that moment ends with UNAVAILABLE, as on any lost
connection.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import structlog

from tidelog.caller_limits import Callers, address_of
from tidelog_runtime.clock import Clock

INTERVAL_SECONDS = 2.0
# A connection that received data less than this long ago may be about to carry a request.
MIN_IDLE_MS = 1_000
# Connections closed between two yields to the event loop.
CLOSED_PER_TURN = 50
# Descriptors that are inspected if their directory cannot be opened.
_MAX_DESCRIPTORS = 1 << 16
# `tcpi_last_data_recv` of `struct tcp_info` (linux/tcp.h): milliseconds.
_LAST_RECEIVED = struct.Struct("52xI")

_log = structlog.get_logger()


class Connection(NamedTuple):
    """An accepted connection.

    - `peer`: in gRPC's notation.
    - `idle_ms`: time since data arrived.
    """

    descriptor: int
    peer: str
    idle_ms: int


class SocketTable:
    """The sockets of this process.

    A socket is inspected through a duplicate descriptor that is reserved for this purpose: its
    own descriptor may be closed at any time, and there may be no free one.
    """

    def __init__(self) -> None:
        self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._slot = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        # The inspecting thread may outlive the task that waits for it. By then, the numbers of
        # these two descriptors may belong to other files.
        self._lock = threading.Lock()
        self._is_closed = False

    def close(self) -> None:
        """Waits for a running `accepted`; later calls find nothing."""
        with self._lock:
            self._is_closed = True
            os.close(self._slot)
            os.close(self._null)

    def accepted(self, ports: Collection[int], more_than: int) -> list[Connection]:
        """Returns the connections accepted at these local ports.

        Returns none if the process has at most `more_than` open files. Blocks for some
        milliseconds per thousand connections.
        """
        with self._lock:
            descriptors = [] if self._is_closed else _descriptors()
            if len(descriptors) <= more_than:
                return []
            found: list[Connection] = []
            for descriptor in descriptors:
                with self._duplicated(descriptor) as sock:
                    connection = _connection(descriptor, sock, ports) if sock is not None else None
                    if connection is not None:
                        found.append(connection)
            return found

    def shut_down(
        self, idle: Connection, ports: Collection[int], min_idle_ms: int = MIN_IDLE_MS
    ) -> bool:
        """Shuts the connection down, unless it has received data or is another one by now."""
        with self._duplicated(idle.descriptor) as sock:
            if sock is None:
                return False
            now = _connection(idle.descriptor, sock, ports)
            if now is None or now.peer != idle.peer or now.idle_ms < min_idle_ms:
                return False
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        return True

    @contextmanager
    def _duplicated(self, descriptor: int) -> Iterator[socket.socket | None]:
        """Yields the socket of a descriptor; None: it is closed or not a socket."""
        if descriptor in (self._slot, self._null):
            yield None
            return
        try:
            os.dup2(descriptor, self._slot, inheritable=False)
            sock = socket.socket(fileno=self._slot)
        except OSError:
            yield None
            return
        try:
            yield sock
        finally:
            sock.detach()
            # The duplicate must not keep the connection open.
            os.dup2(self._null, self._slot, inheritable=False)


def _descriptors() -> list[int]:
    try:
        return [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    except OSError:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return list(range(min(limit, _MAX_DESCRIPTORS)))


def _connection(descriptor: int, sock: socket.socket, ports: Collection[int]) -> Connection | None:
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        if sock.getsockname()[1] not in ports:
            return None
        host, port = sock.getpeername()[:2]
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_RECEIVED.size)
        (idle_ms,) = _LAST_RECEIVED.unpack(info)
    except (OSError, struct.error):
        # It is a listening socket, or it is gone.
        return None
    host = host.removeprefix("::ffff:") if "." in host else host
    peer = f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"
    return Connection(descriptor, peer, idle_ms)


def surplus(
    connections: Iterable[Connection], limit: int, is_busy: Callable[[str], bool]
) -> list[Connection]:
    """Returns the idle connections to close, so that no address has more than `limit`.

    Connections that were idle for longest come first.
    """
    by_address: dict[str, list[Connection]] = defaultdict(list)
    for connection in connections:
        by_address[address_of(connection.peer)].append(connection)
    found: list[Connection] = []
    for of_address in by_address.values():
        too_many = len(of_address) - limit
        if too_many <= 0:
            continue
        idle = [c for c in of_address if c.idle_ms >= MIN_IDLE_MS and not is_busy(c.peer)]
        idle.sort(key=lambda connection: -connection.idle_ms)
        found += idle[:too_many]
    return found


class IdleConnections:
    """Closes surplus idle connections of the clients of one service.

    - `ports`: the ports at which the process accepts `callers`.
    """

    def __init__(self, callers: Callers, ports: Collection[int], clock: Clock) -> None:
        self._callers = callers
        self._ports = ports
        self._clock = clock
        self._table = SocketTable()

    async def step(self) -> None:
        await self._close_overdue()
        limit = self._callers.limits.max_connections_per_client
        found = await asyncio.to_thread(self._table.accepted, self._ports, limit)
        for number, connection in enumerate(surplus(found, limit, self._callers.is_busy), 1):
            # It may carry a request by now.
            if self._callers.is_busy(connection.peer):
                continue
            if self._table.shut_down(connection, self._ports):
                self._callers.closed(address_of(connection.peer), self._clock.monotonic_ms())
            if number % CLOSED_PER_TURN == 0:
                await asyncio.sleep(0)

    async def _close_overdue(self) -> None:
        """Closes the connections that did not take an answer in time."""
        if not self._callers.answers.overdue(self._clock.monotonic_ms()):
            return
        found = await asyncio.to_thread(self._table.accepted, self._ports, 0)
        overdue = {a.peer: a for a in self._callers.answers.overdue(self._clock.monotonic_ms())}
        for connection in found:
            answer = overdue.get(connection.peer)
            # One that answers pings is never idle.
            if answer is not None and self._table.shut_down(connection, self._ports, 0):
                self._callers.answer_not_received(connection.peer)
                _log.warning(
                    "answer_not_received",
                    client=connection.peer,
                    size_bytes=answer.size,
                    hint="its connection was closed; the client must receive answers in time",
                )

    async def run(self) -> None:
        """Checks the connections at intervals until it is cancelled."""
        while True:
            try:
                await self.step()
            except OSError as error:
                _log.warning("idle_connections_not_checked", reason=str(error))
            await asyncio.sleep(INTERVAL_SECONDS)

    def close(self) -> None:
        self._table.close()


@asynccontextmanager
async def closing_idle_connections(
    callers: Callers, ports: Collection[int], clock: Clock
) -> AsyncIterator[None]:
    idle = IdleConnections(callers, ports, clock)
    task = asyncio.create_task(idle.run(), name="idle-connections")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        idle.close()
