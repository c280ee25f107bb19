"""Runs an async client on an event loop in its own thread, for synchronous callers."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import inspect
import threading
import warnings
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, get_origin

from tidelog.client.client_errors import closed_error, forked_error
from tidelog.client.loop_thread import LoopCall, LoopThread
from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc import forks

_Result = TypeVar("_Result")
_Owner = TypeVar("_Owner")
_P = ParamSpec("_P")


class _Closable(Protocol):
    async def close(self) -> None: ...


_Client = TypeVar("_Client", bound=_Closable)


# Clients whose `close` was interrupted.
_unfinished: set[BackgroundClient[Any]] = set()


class BackgroundClient(Generic[_Client]):
    """An async client that any number of threads may call, and signal handlers.

    docs/client-guarantees.md is the contract. `close` ends each call with CLIENT_CLOSED."""

    def __init_subclass__(cls) -> None:
        """Gives methods made by `blocking` the names under which users find them."""
        for name, method in vars(cls).items():
            if hasattr(method, "__is_blocking__"):
                method.__module__ = cls.__module__
                method.__qualname__ = f"{cls.__qualname__}.{name}"

    def __init__(self, make: Callable[[], _Client]) -> None:
        self._generation = forks.generation
        # A daemon, so that a script that does not close the client still ends.
        self._background = LoopThread()

        async def made() -> _Client:
            return make()

        try:
            self._client = self._run(made())
        except BaseException:
            self._background.stop()
            self._background.join()
            raise

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # `_background` is missing if the constructor failed early.
        background = getattr(self, "_background", None)
        if background is None or self._generation != forks.generation:
            return
        if not background.is_closing:
            warnings.warn(f"{type(self).__name__} was not closed", ResourceWarning, stacklevel=2)
        # Not joined: this may run in any thread, including the client's own.
        background.forget()

    def ask(self, request: Callable[[_Client], Coroutine[Any, Any, _Result]]) -> _Result:
        """Runs any other request of the client, for example of an admin:
        `ask(lambda a: a.rebalance(dry_run=True))`."""
        return self._run(self._requested(request))

    def _requested(
        self, request: Callable[[_Client], Coroutine[Any, Any, _Result]]
    ) -> Coroutine[Any, Any, _Result]:
        work = request(self._client)
        if not inspect.iscoroutine(work):
            raise TypeError(
                "ask takes a function that returns a coroutine of the client, such as "
                f"lambda client: client.close(); it returned {type(work).__name__}"
            )
        return work

    def close(self) -> None:
        """Ends calls of other threads with CLIENT_CLOSED. Can be repeated, in any thread except the
        client's own. If a signal handler interrupts it, it continues in the background. Does
        nothing in a forked child."""
        self._close(lambda client: client.close())

    def _close(self, close: Callable[[_Client], Coroutine[Any, Any, None]]) -> None:
        if self._generation != forks.generation:
            return
        self._check_thread()
        call = LoopCall(close(self._client), is_last=True)
        try:
            self._wait(call)
        except BaseException as error:
            if not self._background.is_stopping:
                # Interrupted. It continues, or has not begun.
                _unfinished.difference_update([c for c in _unfinished if c._background.is_stopping])
                _unfinished.add(self)
                raise
            self._background.join()
            # Otherwise another thread has closed it meanwhile.
            if not isinstance(error, TidelogError) or error.code is not ErrorCode.CLIENT_CLOSED:
                raise
        else:
            self._background.join()

    def _close_at_exit(self) -> None:
        """Ends a `close` that was interrupted."""
        self.close()

    def _call(self, work: Callable[[_Client], _Result]) -> _Result:
        """Runs a call of the client that is no coroutine, on its event loop."""

        async def call() -> _Result:
            return work(self._client)

        return self._run(call())

    def _run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return self._wait(LoopCall(work))

    def _wait(self, call: LoopCall[_Result]) -> _Result:
        try:
            self._check()
        except BaseException:
            call.work.close()
            raise
        try:
            self._background.submit(call)
            return call.wait()
        except asyncio.CancelledError:
            # No caller can cancel it: the loop ended, and with it the work in progress.
            call.work.close()
            raise closed_error(type(self).__name__) from None
        except BaseException:
            # Ctrl-C in the caller's thread cancels the work, too.
            self._background.give_up(call)
            raise
        finally:
            del call

    def _check(self) -> None:
        """Raises `TidelogError` unless the client is open, in its process, and not called from its
        own thread."""
        if self._generation != forks.generation:
            raise forked_error(type(self).__name__)
        self._check_thread()
        if self._background.is_stopping:
            raise closed_error(type(self).__name__)

    def _check_thread(self) -> None:
        if threading.current_thread() is self._background.thread:
            raise TidelogError(
                ErrorCode.INVALID_REQUEST,
                f"{type(self).__name__} is called in its own thread, as from a callback, where the "
                "call would wait for itself for ever; call it from another thread",
            )


def blocking(
    method: Callable[Concatenate[Any, _P], Coroutine[Any, Any, _Result]],
) -> Callable[Concatenate[Any, _P], _Result]:
    """Returns a method of a `BackgroundClient` that runs a coroutine of its async client. It has
    the same parameters, result and docstring, for type checkers and for `help`, too."""

    @functools.wraps(method)
    def call(self: BackgroundClient[Any], /, *args: _P.args, **kwargs: _P.kwargs) -> _Result:
        return self._run(method(self._client, *args, **kwargs))

    call.__is_blocking__ = True  # type: ignore[attr-defined]
    return call


def settings_of(
    client: Callable[_P, _Client],
) -> Callable[
    [Callable[[_Owner, Callable[[], _Client]], None]], Callable[Concatenate[_Owner, _P], None]
]:
    """Decorates the constructor of a `BackgroundClient`, which takes a function that makes the
    async client. The result takes the settings of the async client instead, for type checkers and
    for `help`, too."""
    made: Any = get_origin(client) or client
    settings: Any = made.__init__

    def decorate(
        construct: Callable[[_Owner, Callable[[], _Client]], None],
    ) -> Callable[Concatenate[_Owner, _P], None]:
        @functools.wraps(settings)
        def construct_with(self: _Owner, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
            construct(self, lambda: client(*args, **kwargs))

        construct_with.__module__ = construct.__module__
        construct_with.__qualname__ = construct.__qualname__
        return construct_with

    return decorate


def _close_unfinished() -> None:
    for client in list(_unfinished):
        with contextlib.suppress(TidelogError):
            client._close_at_exit()


atexit.register(_close_unfinished)
