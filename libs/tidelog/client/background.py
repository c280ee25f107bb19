"""Runs an async client on an event loop in its own thread, for synchronous callers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import warnings
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from tidelog.client.client_errors import closed_error, forked_error
from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc import forks

_Result = TypeVar("_Result")


class _Closable(Protocol):
    async def close(self) -> None: ...


_Client = TypeVar("_Client", bound=_Closable)


class BackgroundClient(Generic[_Client]):
    """An async client that any number of threads may call.

    docs/client-guarantees.md is the contract. `close` ends each call with CLIENT_CLOSED."""

    def __init__(self, make: Callable[[], _Client]) -> None:
        self._generation = forks.generation
        # Held from the check of `_closed` until work is submitted to the loop.
        self._lock = threading.Lock()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        # A daemon, so that a script that does not close the client still ends.
        self._thread = threading.Thread(
            target=_serve, args=(self._loop,), name="tidelog-client", daemon=True
        )
        self._thread.start()

        async def made() -> _Client:
            return make()

        try:
            self._client = self._run(made())
        except BaseException:
            self._stop()
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
        # `_closed` is missing if the constructor failed early.
        if getattr(self, "_closed", True) or self._generation != forks.generation:
            return
        warnings.warn(f"{type(self).__name__} was not closed", ResourceWarning, stacklevel=2)
        # Not joined: this may run in any thread, including the client's own.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)

    def ask(self, request: Callable[[_Client], Coroutine[Any, Any, _Result]]) -> _Result:
        """Runs any other request of the client, for example of an admin:
        `ask(lambda a: a.rebalance(dry_run=True))`."""
        return self._run(request(self._client))

    def close(self) -> None:
        """Ends calls of other threads with CLIENT_CLOSED. Can be repeated, in any thread except the
        client's own. Does nothing in a forked child."""
        self._close(lambda client: client.close())

    def _close(self, close: Callable[[_Client], Coroutine[Any, Any, None]]) -> None:
        if self._generation != forks.generation:
            return
        self._check_thread()
        try:
            self._run(close(self._client))
        except TidelogError as error:
            # Another thread has closed it meanwhile.
            if error.code is not ErrorCode.CLIENT_CLOSED:
                raise
        finally:
            self._stop()

    def _run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        try:
            future = self._submit(work)
        except BaseException:
            work.close()
            raise
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            # No caller can cancel it: the loop ended, and with it the work in progress.
            raise closed_error(type(self).__name__) from None
        except BaseException:
            # Ctrl-C in the caller's thread cancels the work, too.
            future.cancel()
            raise

    def _submit(self, work: Coroutine[Any, Any, _Result]) -> concurrent.futures.Future[_Result]:
        self._check()
        with self._lock:
            if self._closed:
                raise closed_error(type(self).__name__)
            return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _check(self) -> None:
        """Raises `TidelogError` unless the client is open, in its process, and not called from its
        own thread."""
        if self._generation != forks.generation:
            raise forked_error(type(self).__name__)
        self._check_thread()
        if self._closed:
            raise closed_error(type(self).__name__)

    def _check_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise TidelogError(
                ErrorCode.INVALID_REQUEST,
                f"{type(self).__name__} is called in its own thread, as from a callback, where the "
                "call would wait for itself for ever; call it from another thread",
            )

    def _stop(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    """Runs the loop until it is stopped, then cancels the remaining tasks."""
    try:
        loop.run_forever()
        if left := asyncio.all_tasks(loop):
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.wait(left))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
