"""One incarnation of a broker process: start, serve until a stop request or a fault, stop.

`__main__` passes the real edge, the simulator its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from tidelog_broker.broker import Broker

EXIT_FAULT = 3

_log = structlog.get_logger()


class Edge(Protocol):
    """The servers at which others reach this broker."""

    async def start(self) -> str:
        """Starts the servers and returns the advertised address.

        Health checks and Inspect are answered at once, other requests when the broker's start has
        come far enough.
        """

    def set_serving(self, serving: bool) -> None:
        """Sets the answer of the health service."""

    async def stop(self) -> None:
        """Ends the running requests and stops listening."""


async def run_incarnation(
    broker: Broker,
    edge: Edge,
    stop_requested: asyncio.Event,
    on_left: Callable[[], None] = lambda: None,
) -> int:
    """Runs the broker and returns the exit status.

    Raises the error that kept the broker from starting. `on_left` is called once the broker has
    left the cluster.
    """
    starting = asyncio.create_task(_start(broker, edge))
    ends = [asyncio.create_task(event.wait()) for event in (stop_requested, broker.faults.found)]
    await asyncio.wait([starting, *ends], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done() or starting.exception() is None:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        end.cancel()
    if broker.faults.found.is_set():
        await broker.report_fault()
    if not starting.done():
        starting.cancel()
        await asyncio.wait([starting])
    elif starting.exception() is None:
        _log.info("stopping", why=broker.faults.reason or "requested")
        edge.set_serving(False)
        await broker.hand_over()
    await broker.leave()
    on_left()
    await edge.stop()
    await broker.stop()
    if broker.faults.found.is_set():
        _log.critical("crashed", why=broker.faults.reason)
    else:
        _log.info("stopped")
    if not starting.cancelled():
        starting.result()
    return EXIT_FAULT if broker.faults.found.is_set() else 0


async def _start(broker: Broker, edge: Edge) -> None:
    # The edge starts first, so that a start that waits or takes long can be distinguished from a
    # hung process.
    address = await edge.start()
    broker.inspection.address = address
    await broker.prepare()
    await broker.join(address)
    await broker.manager.has_full_state.wait()
    edge.set_serving(True)
    _log.info("serving", address=address)
