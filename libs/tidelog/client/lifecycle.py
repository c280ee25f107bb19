"""How a client is used and how it ends: in one process, on one event loop, until `close`.

`Lifecycle` keeps the calls that are in progress. `close` ends them with CLIENT_CLOSED the way
`asyncio.timeout` ends its block: it cancels the task, and the call turns that cancellation, and no
other, into `ClientClosedError`. So a caller gets a CancelledError only where somebody cancelled the
caller. docs/client-guarantees.md is the contract.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from tidelog.client.clock import Clock
from tidelog.client.delivery import mark_seen
from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc import forks

# Calls that wait for nothing keep the event loop for no longer than this before other tasks run,
SLICE_MS = 5
# or for so many calls, for clocks that do not move meanwhile.
SLICE_CALLS = 256

# An event loop does not keep its tasks alive; these have nobody else once `close` is cancelled.
_closing_tasks: set[asyncio.Task[None]] = set()

Finish = Callable[[], Coroutine[Any, Any, None]]

# Calls without a public name: entering the client, and iterating over it.
_PUBLIC_DUNDERS = frozenset({"__aenter__", "__aiter__", "__anext__"})

_P = ParamSpec("_P")
_T = TypeVar("_T")


def closed_error(client: str) -> TidelogError:
    return TidelogError(
        ErrorCode.CLIENT_CLOSED, f"{client} is closed; make a new one for further calls"
    )


def forked_error(client: str) -> TidelogError:
    return TidelogError(
        ErrorCode.CLIENT_FORKED,
        f"{client} was made before this process was forked, and works in the parent only; make a "
        "new one in this process",
    )


class Lifecycle:
    """Guards one client. `client`: its name in messages, as "producer"."""

    def __init__(self, client: str, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._generation = forks.generation
        self._loop: asyncio.AbstractEventLoop | None = None
        # Tasks that are in a call of this client.
        self._calls: dict[asyncio.Task[Any], Call] = {}
        self._closing: asyncio.Task[None] | None = None
        self._slice_began_ms = 0
        self._slice_calls = 0
        # True from the beginning of the first `close`.
        self.closed = False

    def __del__(self) -> None:
        if self._loop is not None and not self.closed and self._generation == forks.generation:
            warnings.warn(f"a {self._client} was not closed", ResourceWarning, stacklevel=2)

    def check(self) -> asyncio.AbstractEventLoop:
        """The running event loop. Raises `TidelogError` unless the client can be used in this
        process, on this event loop, and is open."""
        if self._generation != forks.generation:
            raise forked_error(f"the {self._client}")
        if self.closed:
            raise self.closed_error()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise TidelogError(
                ErrorCode.INVALID_REQUEST,
                f"the {self._client} is used without an event loop; call it from a coroutine, or "
                "use the clients without async (SyncProducer, SyncConsumer, SyncAdmin)",
            ) from None
        if loop is not self._loop:
            self._bind(loop)
        return loop

    def call(self) -> Call:
        """A context manager around all that a public coroutine awaits. Raises as `check`."""
        return Call(self)

    def turn_due(self, now_ms: int) -> bool:
        """Whether calls have kept the event loop for a whole slice: the caller then lets other
        tasks run (`asyncio.sleep(0)`), at a point where a cancellation loses nothing."""
        self._slice_calls += 1
        if now_ms - self._slice_began_ms < SLICE_MS and self._slice_calls < SLICE_CALLS:
            return False
        self._slice_began_ms = now_ms
        self._slice_calls = 0
        return True

    async def checkpoint(self) -> None:
        if self.turn_due(self._clock.monotonic_ms()):
            await asyncio.sleep(0)
            self.check()

    async def close(self, finish: Finish, abandon: Finish) -> None:
        """Ends calls in progress, then runs `finish` in a task of its own: a `close` that is
        cancelled stops waiting for it, and a later one waits again. `abandon` takes its place
        where the client's event loop is closed, and its tasks with it. In a forked child it does
        nothing: all belongs to the parent."""
        if self._generation != forks.generation:
            return
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop:
            if not self._loop.is_closed():
                raise self._other_loop()
            self.closed = True
            await abandon()
            return
        self.closed = True
        if self._closing is None or self._unfinished():
            self._end_calls()
            self._closing = loop.create_task(finish(), name=f"tidelog-close-{self._client}")
            # Its error is that of the `close` that waits for it, if one still does.
            self._closing.add_done_callback(mark_seen)
            _closing_tasks.add(self._closing)
            self._closing.add_done_callback(_closing_tasks.discard)
        await asyncio.shield(self._closing)

    def closed_error(self) -> TidelogError:
        return closed_error(f"the {self._client}")

    def _unfinished(self) -> bool:
        """Whether the work of closing was begun and stopped before its end."""
        closing = self._closing
        if closing is None or not closing.done():
            return False
        return closing.cancelled() or closing.exception() is not None

    def _end_calls(self) -> None:
        for task, call in self._calls.items():
            call.ended = True
            task.cancel()

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None:
            raise self._other_loop()
        self._loop = loop

    def _other_loop(self) -> TidelogError:
        return TidelogError(
            ErrorCode.INVALID_REQUEST,
            f"the {self._client} belongs to another event loop, that of its first call; make one "
            "for each event loop, or share a SyncProducer, SyncConsumer or SyncAdmin",
        )


class Call:
    """One call in progress. Calls nest: the outermost of a task counts."""

    __slots__ = ("_cancelling", "_lifecycle", "_task", "ended")

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self.ended = False

    def __enter__(self) -> None:
        self._lifecycle.check()
        task = asyncio.current_task()
        calls = self._lifecycle._calls
        if task is not None and task not in calls:
            self._task = task
            self._cancelling = task.cancelling()
            calls[task] = self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._task is None:
            return
        del self._lifecycle._calls[self._task]
        if (
            self.ended
            # Otherwise somebody else has cancelled the task as well.
            and self._task.uncancel() <= self._cancelling
            and kind is not None
            and issubclass(kind, asyncio.CancelledError)
        ):
            raise self._lifecycle.closed_error() from None


class _Guarded(Protocol):
    _lifecycle: Lifecycle


_Client = TypeVar("_Client", bound=_Guarded)


def guards_itself(
    method: Callable[Concatenate[_Client, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[_Client, _P], Coroutine[Any, Any, _T]]:
    """Marks a public call that uses its client's lifecycle by itself, being `close` or so
    frequent that the wrapper would cost too much."""
    method.__guards_itself__ = True  # type: ignore[attr-defined]
    return method


def guarded(client: type[_Client]) -> type[_Client]:
    """Class decorator: every public coroutine of the class, inherited ones included, is a call of
    its lifecycle, and gives other tasks their turn. Every other public method raises as
    `Lifecycle.check`; properties only read memory, and are left as they are."""
    for name, method in inspect.getmembers(client, inspect.isfunction):
        is_public = not name.startswith("_") or name in _PUBLIC_DUNDERS
        if is_public and not hasattr(method, "__guards_itself__"):
            is_coroutine = inspect.iscoroutinefunction(method)
            setattr(client, name, _as_call(method) if is_coroutine else _checked(method))
    return client


def _checked(method: Callable[Concatenate[_Client, _P], _T]) -> Callable[..., _T]:
    @functools.wraps(method)
    def call(self: _Client, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        self._lifecycle.check()
        return method(self, *args, **kwargs)

    return call


def _as_call(
    method: Callable[Concatenate[_Client, _P], Awaitable[_T]],
) -> Callable[Concatenate[_Client, _P], Coroutine[Any, Any, _T]]:
    @functools.wraps(method)
    async def call(self: _Client, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with self._lifecycle.call():
            await self._lifecycle.checkpoint()
            return await method(self, *args, **kwargs)

    return call
