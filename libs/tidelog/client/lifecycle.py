"""Use and end of a client: in one process, on one event loop, until `close`.

`Lifecycle` keeps the calls in progress. `close` ends them with CLIENT_CLOSED in the way that
`asyncio.timeout` ends its block: it cancels the task, and the call turns that cancellation, and no
other, into `ClientClosedError`. So a caller gets a CancelledError only if the caller was
cancelled. docs/client-guarantees.md is the contract.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from tidelog.client.client_errors import closed_error, forked_error, other_loop_error
from tidelog.client.clock import Clock
from tidelog.client.delivery import mark_seen
from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc import forks

# Calls that do not wait let other tasks run after this time,
SLICE_MS = 5
# or after this many calls, for clocks that do not advance meanwhile.
SLICE_CALLS = 256

# An event loop does not keep its tasks alive. If `close` is cancelled, only this set does.
_closing_tasks: set[asyncio.Task[None]] = set()

Finish = Callable[[], Coroutine[Any, Any, None]]

# Public calls without a public name: entering the client, and iterating over it.
_PUBLIC_DUNDERS = frozenset({"__aenter__", "__aiter__", "__anext__"})

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Lifecycle:
    """Guards one client. `client`: its name in messages, such as "producer"."""

    def __init__(self, client: str, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._generation = forks.generation
        self._loop: asyncio.AbstractEventLoop | None = None
        # The call in progress of each task.
        self._calls: dict[asyncio.Task[Any], Call] = {}
        self._closing: asyncio.Task[None] | None = None
        self._slice_began_ms = 0
        self._slice_calls = 0
        # True from the start of the first `close`.
        self.closed = False

    def __del__(self) -> None:
        if self._loop is not None and not self.closed and self._generation == forks.generation:
            warnings.warn(f"a {self._client} was not closed", ResourceWarning, stacklevel=2)

    def check(self) -> asyncio.AbstractEventLoop:
        """Returns the running event loop. Raises `TidelogError` unless the client is open and may
        be used in this process and on this event loop."""
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
        """Returns a context manager for all that a public coroutine awaits. Raises as `check`."""
        return Call(self)

    def is_yield_due(self, now_ms: int) -> bool:
        """Returns whether calls have used the event loop for an entire slice. The caller then lets
        other tasks run (`asyncio.sleep(0)`), at a point where a cancellation loses nothing."""
        self._slice_calls += 1
        if now_ms - self._slice_began_ms < SLICE_MS and self._slice_calls < SLICE_CALLS:
            return False
        self._slice_began_ms = now_ms
        self._slice_calls = 0
        return True

    async def checkpoint(self) -> None:
        if self.is_yield_due(self._clock.monotonic_ms()):
            await asyncio.sleep(0)
            self.check()

    async def close(self, finish: Finish, abandon: Finish) -> None:
        """Ends calls in progress, then runs `finish` in a task of its own.

        A cancelled `close` stops waiting for that task, and a later one waits again. `abandon`
        replaces `finish` if the client's event loop is closed, and its tasks with it. In a forked
        child this does nothing, because everything belongs to the parent."""
        if self._generation != forks.generation:
            return
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop:
            if not self._loop.is_closed():
                raise self._other_loop()
            self.closed = True
            await abandon()
            return
        self._loop, self.closed = loop, True
        if self._closing is None or self._unfinished():
            self._end_calls()
            self._closing = loop.create_task(finish(), name=f"tidelog-close-{self._client}")
            # A `close` that still waits for the task raises its error.
            self._closing.add_done_callback(mark_seen)
            _closing_tasks.add(self._closing)
            self._closing.add_done_callback(_closing_tasks.discard)
        await asyncio.shield(self._closing)

    def closed_error(self) -> TidelogError:
        return closed_error(f"the {self._client}")

    def _unfinished(self) -> bool:
        """Returns whether closing began and stopped before its end."""
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
        return other_loop_error(f"the {self._client}")


class Call:
    """One call in progress. Of nested calls, the outermost one of a task counts."""

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
            # Otherwise another caller has cancelled the task as well.
            and self._task.uncancel() <= self._cancelling
            and kind is not None
            and issubclass(kind, asyncio.CancelledError)
        ):
            raise self._lifecycle.closed_error() from None


class FinalFlush:
    """The flush with which a producer closes. It runs once at most, and a later call may leave it
    out or cancel it."""

    def __init__(self) -> None:
        self._is_left_out = False
        self._task: asyncio.Task[None] | None = None

    async def run(self, flush: Finish) -> None:
        """Waits for the flush, unless it was left out or has begun before. Its errors are
        dropped."""
        if not self._is_left_out and self._task is None:
            self._task = asyncio.create_task(flush())
            await asyncio.wait((self._task,))

    def leave_out(self) -> None:
        """Cancels the flush, or keeps it from beginning."""
        self._is_left_out = True
        self.cancel()

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


class _Guarded(Protocol):
    _lifecycle: Lifecycle


_Client = TypeVar("_Client", bound=_Guarded)


def guards_itself(
    method: Callable[Concatenate[_Client, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[_Client, _P], Coroutine[Any, Any, _T]]:
    """Marks a public call that uses its client's lifecycle itself: `close`, or a call so frequent
    that the wrapper would cost too much."""
    method.__guards_itself__ = True  # type: ignore[attr-defined]
    return method


def guarded(client: type[_Client]) -> type[_Client]:
    """Class decorator that turns public coroutines, inherited ones included, into calls of the
    client's lifecycle, which let other tasks run now and then. Other public methods raise as
    `Lifecycle.check`. Properties only read memory, and are not changed."""
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
