"""The real gateway over a cluster in memory. It can stop, and start again at its address."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

import uvicorn
from fastapi import FastAPI

_GRACE_SECONDS = 1


class MemoryGateway:
    """`make_app`: called at each start. `app`: that of the current start."""

    app: FastAPI

    def __init__(self, make_app: Callable[[], FastAPI]) -> None:
        self._make_app = make_app
        self._port = 0
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        listening = socket.create_server(("127.0.0.1", self._port))
        self._port = listening.getsockname()[1]
        self.app = self._make_app()
        self._server = uvicorn.Server(
            uvicorn.Config(
                self.app,
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=_GRACE_SECONDS,
            )
        )
        self._serving = asyncio.create_task(self._server.serve(sockets=[listening]))

    async def stop(self) -> None:
        """Stops the gateway; open streams are cut."""
        if self._server is None or self._serving is None:
            return
        self._server.should_exit = True
        with suppress(asyncio.CancelledError):
            await self._serving
        self._server = self._serving = None
