"""A proxy of a server that is cut off from some client processes, and reachable for others.

It acts like lost packets between two machines while both reach all other machines."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from weakref import WeakKeyDictionary

from integration.tcp_proxy import TcpProxy

MAX_LOOKUPS = 40
LOOKUP_SECONDS = 0.05


class ProcessProxy(TcpProxy):
    """`processes`: the process ids of the clients, by name. Traffic of other processes, such as the
    test itself, always passes."""

    def __init__(self, target: str, processes: Callable[[], Mapping[str, int]]) -> None:
        super().__init__(target)
        self._processes = processes
        self._held: dict[str, asyncio.Event] = {}
        self._names: WeakKeyDictionary[asyncio.StreamWriter, str] = WeakKeyDictionary()

    def hold(self, clients: Iterable[str]) -> None:
        """No data passes to or from these clients; their connections stay open, and new ones are
        accepted."""
        for client in clients:
            self._held.setdefault(client, asyncio.Event()).clear()

    def release(self) -> None:
        for event in self._held.values():
            event.set()

    async def _may_pass(self, client: asyncio.StreamWriter) -> None:
        if all(event.is_set() for event in self._held.values()):
            return
        if client not in self._names:
            self._names[client] = await self._name_of(client)
        event = self._held.get(self._names[client])
        if event is not None:
            await event.wait()

    async def _name_of(self, client: asyncio.StreamWriter) -> str:
        """The kernel's list of sockets has gaps on a busy machine: a client that is not found is
        searched again."""
        port = client.get_extra_info("peername")[1]
        for _ in range(MAX_LOOKUPS):
            if (name := self._owner(port)) is not None:
                return name
            await asyncio.sleep(LOOKUP_SECONDS)
        raise ConnectionResetError("the client has closed its socket")

    def _owner(self, port: int) -> str | None:
        """None: no process is known to have a connection from there. Empty: it is this process."""
        inode = _inode(port, int(self.address.rpartition(":")[2]))
        expected = f"socket:[{inode}]"
        for name, pid in {**self._processes(), "": os.getpid()}.items():
            with suppress(OSError):
                for link in Path(f"/proc/{pid}/fd").iterdir():
                    with suppress(OSError):
                        if str(link.readlink()) == expected:
                            return name
        return None


def _inode(port: int, to_port: int) -> str:
    """The inode of the socket of a connection between these ports of 127.0.0.1. A socket of gRPC is
    an IPv6 one. Connections to several servers may have the same local port."""
    (host,) = struct.unpack("=I", socket.inet_aton("127.0.0.1"))  # in the machine's byte order
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            local, remote = (f"{host:08X}:{each:04X}" for each in (port, to_port))
            if fields[1].endswith(local) and fields[2].endswith(remote):
                return fields[9]
    return ""
