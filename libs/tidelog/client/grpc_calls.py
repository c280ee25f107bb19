"""Errors of a client's gRPC calls: none of gRPC's own, and no cancellation that gRPC causes.

No error refers to a channel. A caller may keep an error, with its traceback, for as long as it
likes; a channel that is kept would make gRPC unusable in a forked child (`rpc.forks`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc.aio

from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc import forks
from tidelog.rpc.status import UnreachableError, from_status

_Answer = TypeVar("_Answer")
_Stub = TypeVar("_Stub")


class ReleasableChannel:
    """A channel to an address. The objects that make calls hold this one, because the traceback of
    an error holds them: `close` and `release` take the channel away from all of them."""

    def __init__(self, channel: grpc.aio.Channel, address: str) -> None:
        self.address = address
        self._channel: grpc.aio.Channel | None = channel
        self._stubs: dict[Callable[[grpc.aio.Channel], Any], Any] = {}

    @property
    def channel(self) -> grpc.aio.Channel:
        """Raises `UnreachableError` if the channel was released."""
        if self._channel is None:
            raise connection_closed(self.address)
        return self._channel

    def stub(self, make: Callable[[grpc.aio.Channel], _Stub]) -> _Stub:
        """Returns the stub that `make` returns for the channel. Raises as `channel`."""
        found: _Stub | None = self._stubs.get(make)
        if found is None:
            found = self._stubs[make] = make(self.channel)
        return found

    def release(self) -> grpc.aio.Channel | None:
        released, self._channel = self._channel, None
        self._stubs.clear()
        return released

    async def close(self) -> None:
        released = self.release()
        if released is not None:
            await released.close()


async def answered(call: Awaitable[_Answer], address: str) -> _Answer:
    """Returns the answer of a call to an address. Raises `UnreachableError` and `TidelogError`."""
    failure: BaseException
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        failure = from_status(error, address)
    except asyncio.CancelledError as error:
        failure = ended_by(error, address)
    # The traceback of gRPC's error, and this frame, would keep the channel.
    del call
    raise failure


def ended_by(error: asyncio.CancelledError, address: str) -> BaseException:
    """Returns the error to raise for a call that `error` ended: a new CancelledError if the current
    task is being cancelled, else `UnreachableError`."""
    if is_own_cancellation():
        return asyncio.CancelledError(*error.args)
    return connection_closed(address)


def connection_closed(address: str) -> UnreachableError:
    return UnreachableError(address, "CANCELLED: the connection was closed")


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
