"""A TCP relay in front of a server: it delays, cuts, and holds back one way.

    python -m faults.relay HOST:PORT HOST:PORT   listens on the first, connects to the second

As a program it takes one JSON object a line on its standard input, a `Manner`, and answers each
with its `Counts`; it ends with its input.
"""

from __future__ import annotations

import asyncio
import enum
import json
import sys
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field

CHUNK_BYTES = 64 << 10
# The most bytes that are in flight in one direction of one connection while it is delayed.
MAX_DELAYED_CHUNKS = 256


class Way(enum.StrEnum):
    """The direction of the bytes, seen from the server."""

    IN = "in"
    OUT = "out"


@dataclass(slots=True)
class Manner:
    """How the relay treats traffic.

    `delay_ms`: in each direction.
    `cut`: connections are closed, and new ones refused.
    `held`: the directions in which nothing passes, while connections stay open."""

    delay_ms: int = 0
    cut: bool = False
    held: list[Way] = field(default_factory=list)


@dataclass(slots=True)
class Counts:
    """Counts since the relay began. `least_delay_ms`: the shortest delay; 0 if nothing was
    delayed."""

    bytes_through: int = 0
    bytes_delayed: int = 0
    least_delay_ms: int = 0
    bytes_held: int = 0
    connections_cut: int = 0

    def delayed(self, size: int, by_ms: int) -> None:
        self.least_delay_ms = min(self.least_delay_ms, by_ms) if self.bytes_delayed else by_ms
        self.bytes_delayed += size


class Relay:
    def __init__(self, target: str, listen: str = "127.0.0.1:0") -> None:
        self._target = _host_and_port(target)
        self._listen = _host_and_port(listen)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._manner = Manner()
        # By direction: set while it is not held.
        self._open = {way: asyncio.Event() for way in Way}
        for event in self._open.values():
            event.set()
        self.counts = Counts()
        self.address = ""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, *self._listen)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = f"{host}:{port}"

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._break_all()

    def aim(self, target: str) -> None:
        """Sets the server of new connections."""
        self._target = _host_and_port(target)

    async def behave(self, manner: Manner) -> None:
        """Sets the treatment of traffic from now on."""
        self._manner = manner
        for way, event in self._open.items():
            if way in manner.held:
                event.clear()
            else:
                event.set()
        if manner.cut:
            self.counts.connections_cut += len(self._connections)
            await self._break_all()

    async def _break_all(self) -> None:
        for connection in self._connections:
            connection.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._manner.cut:
            self.counts.connections_cut += 1
            writer.transport.abort()
            return
        connection = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_writer: asyncio.StreamWriter | None = None
        try:
            # A server that is down closes the connection, as it would close its own.
            with suppress(OSError):
                far_reader, far_writer = await asyncio.open_connection(*self._target)
                await self._join(
                    self._carry(reader, far_writer, Way.IN),
                    self._carry(far_reader, writer, Way.OUT),
                )
        finally:
            for end in (writer, far_writer):
                if end is not None:
                    # Close at once, with a reset: no remaining byte may arrive.
                    end.transport.abort()

    async def _join(self, *parts: Coroutine[object, None, None]) -> None:
        """Waits until all have ended, or one has failed, which ends the others."""
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way
    ) -> None:
        """Copies bytes up to the end of the stream, and that end itself.

        Reads and writes run concurrently, so that a delay does not reduce the throughput."""
        loop = asyncio.get_running_loop()
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(MAX_DELAYED_CHUNKS)

        async def read() -> None:
            while data := await reader.read(CHUNK_BYTES):
                await chunks.put((loop.time(), data))
            await chunks.put((loop.time(), b""))

        async def write() -> None:
            while True:
                came_s, data = await chunks.get()
                await self._wait(way, came_s, len(data))
                if not data:
                    writer.write_eof()
                    return
                writer.write(data)
                self.counts.bytes_through += len(data)
                await writer.drain()

        await self._join(read(), write())

    async def _wait(self, way: Way, came_s: float, size: int) -> None:
        loop = asyncio.get_running_loop()
        if not self._open[way].is_set():
            self.counts.bytes_held += size
            await self._open[way].wait()
        delay_ms = self._manner.delay_ms
        if delay_ms:
            left_s = came_s + delay_ms / 1000 - loop.time()
            if left_s > 0:
                await asyncio.sleep(left_s)
            self.counts.delayed(size, round((loop.time() - came_s) * 1000))


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def manner_from_json(line: str) -> Manner:
    fields = json.loads(line)
    return Manner(fields["delay_ms"], fields["cut"], [Way(way) for way in fields["held"]])


async def _main(arguments: Sequence[str]) -> None:
    listen, target = arguments
    relay = Relay(target, listen)
    await relay.start()
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    _say(relay.counts)
    while line := await lines.readline():
        await relay.behave(manner_from_json(line.decode()))
        _say(relay.counts)
    await relay.stop()


def _say(counts: Counts) -> None:
    sys.stdout.write(json.dumps(asdict(counts)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1:]))
