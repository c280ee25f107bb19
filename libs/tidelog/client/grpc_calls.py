"""Errors of a client's gRPC calls: none of gRPC's own, and no cancellation that gRPC causes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import grpc.aio

from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc import forks
from tidelog.rpc.status import UnreachableError, from_status

_Answer = TypeVar("_Answer")


async def answered(call: Awaitable[_Answer], address: str) -> _Answer:
    """Returns the answer of a call to an address. Raises `UnreachableError` and `TidelogError`."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise from_status(error, address) from error
    except asyncio.CancelledError:
        if is_own_cancellation():
            raise
        raise UnreachableError(address, "CANCELLED: the connection was closed") from None


def is_own_cancellation() -> bool:
    """Returns whether the current task is being cancelled. gRPC also raises CancelledError if the
    channel is closed during a call, in a task that was not cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def check_usable() -> None:
    """Raises CLIENT_FORKED if gRPC does not work in this process."""
    if not forks.usable:
        raise TidelogError(
            ErrorCode.CLIENT_FORKED,
            "this process was forked while gRPC was in use, which does not work in the child; "
            "close the clients before the fork, or fork outside of their event loop, or start the "
            "process with multiprocessing's spawn or forkserver",
        )


def channel_closed(address: str) -> TidelogError:
    return TidelogError(
        ErrorCode.CLIENT_CLOSED,
        f"the client's connection to {address} is closed; make a new client",
    )
