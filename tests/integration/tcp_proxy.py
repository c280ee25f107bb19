"""A proxy of a server that can cut connections, hang, or slow them down."""

from __future__ import annotations

import asyncio
from contextlib import suppress

CHUNK_BYTES = 64 << 10


class TcpProxy:
    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.address = ""
        # The delay of each chunk, in both directions.
        self.delay_seconds = 0.0
        # The bytes per second of the server's answers, for each connection; 0: unlimited.
        self.bytes_per_second = 0
        # Replaces these bytes of the server's answers by others of the same length.
        self.garbles: tuple[bytes, bytes] | None = None

    async def start(self) -> None:
        """Listens on a free port; when started again, on the same one."""
        port = int(self.address.rpartition(":")[2] or 0)
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"

    @property
    def is_used(self) -> bool:
        return bool(self._connections)

    def hang(self) -> None:
        """Connections stay open and are accepted, but no data passes."""
        self._flowing.clear()

    def flow(self) -> None:
        """Ends the effect of `hang`."""
        self._flowing.set()

    async def stop(self) -> None:
        """Closes the connections and rejects new ones."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    async def _may_pass(self, client: asyncio.StreamWriter) -> None:  # noqa: ARG002
        """Waits while no data may pass between the server and this client."""
        await self._flowing.wait()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target_reader, target_writer = await asyncio.open_connection(*self._target)
            try:
                # The first side to end ends both.
                await asyncio.wait(
                    tasks := [
                        asyncio.create_task(self._copy(reader, target_writer, writer)),
                        asyncio.create_task(
                            self._copy(target_reader, writer, writer, answers=True)
                        ),
                    ],
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                for task in tasks:
                    task.cancel()
                target_writer.close()
        finally:
            writer.close()

    async def _copy(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        client: asyncio.StreamWriter,
        *,
        answers: bool = False,
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(CHUNK_BYTES):
                await self._may_pass(client)
                if answers and self.garbles is not None:
                    data = data.replace(*self.garbles)
                paced = answers and self.bytes_per_second
                pace = len(data) / self.bytes_per_second if paced else 0.0
                if pace or self.delay_seconds:
                    await asyncio.sleep(pace + self.delay_seconds)
                writer.write(data)
                await writer.drain()
