"""One life of a broker's process: start, serve until it is told to stop or has a fault, stop.

`__main__` gives it the real edge, the simulator its own.
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
    """Where others reach this broker."""

    async def start(self) -> str:
        """Answers from now on: health checks and Inspect, and the rest when the broker's start
        has come so far. Returns the address that is advertised."""

    async def set_serving(self, serving: bool) -> None:
        """What the health service answers."""

    async def stop(self) -> None:
        """Ends what is being answered, and listens no more."""


async def live(
    broker: Broker,
    edge: Edge,
    stop_requested: asyncio.Event,
    on_left: Callable[[], None] = lambda: None,
) -> int:
    """Returns the exit status. Raises what kept the broker from starting. `on_left`: is called once
    the broker belongs to no cluster any more."""
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
        await edge.set_serving(False)
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
    # First of all, so that a start that waits, or takes long, can be told from a process that
    # stands still.
    address = await edge.start()
    broker.inspection.address = address
    await broker.prepare()
    await broker.join(address)
    await broker.manager.has_full_state.wait()
    await edge.set_serving(True)
    _log.info("serving", address=address)
