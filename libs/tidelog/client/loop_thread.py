"""An event loop in its own thread, and the calls of other threads that run on it.

A signal handler runs in the middle of a call of the main thread, and may call or close the same
client. So a waiting thread holds no lock that another call or the event loop needs: each call has
a lock of its own, which only the event loop releases.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import math
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from tidelog.client.delivery import mark_seen
from tidelog.rpc import forks

# How long a thread takes at most to end after its event loop.
THREAD_END_S = 1.0
# Interval at which a closing thread checks that the event loop has ended; it wakes up earlier.
END_CHECK_S = 0.05
# How long the process waits at its exit for clients whose `close` was interrupted.
EXIT_WAIT_S = 2.0

_Result = TypeVar("_Result")


class Call(Generic[_Result]):
    """The work of one caller, and its outcome.

    - `is_last`: the event loop stops after the work. It is not cancelled if its caller gives up.
    - `wrap`: makes the coroutine that runs the work, on the event loop."""

    def __init__(
        self,
        work: Coroutine[Any, Any, _Result],
        *,
        is_last: bool = False,
        wrap: Callable[[Coroutine[Any, Any, _Result]], Coroutine[Any, Any, _Result]] | None = None,
    ) -> None:
        self.work = work
        self.is_last = is_last
        self.wrap = wrap
        self.task: asyncio.Task[_Result] | None = None
        # Whether the event loop has ended the call, with an outcome unless the task was cancelled.
        self.is_over = False
        self._waiting = threading.Lock()
        self._waiting.acquire()

    def wait(self) -> _Result:
        """Waits for the outcome. Raises the error of the work; CancelledError if the event loop
        ended before it."""
        self._waiting.acquire()
        if self.task is None or not self.task.done():
            raise asyncio.CancelledError
        try:
            return self.task.result()
        finally:
            # Otherwise the error would refer to itself by its traceback.
            del self

    def end(self) -> None:
        self.is_over = True
        self._waiting.release()


class LoopThread:
    """Runs until `stop`, or until a call ends that is the last one. It does not keep the process
    alive."""

    def __init__(self) -> None:
        self.is_stopping = False
        self._generation = forks.generation
        self._loop = asyncio.new_event_loop()
        # Calls without an outcome.
        self._calls: set[Call[Any]] = set()
        self._last_calls = 0
        self._ended = False
        self.thread = threading.Thread(target=self._serve, name="tidelog-client", daemon=True)
        try:
            self.thread.start()
        except BaseException:
            self.stop()
            raise

    @property
    def is_closing(self) -> bool:
        return self.is_stopping or self._last_calls > 0

    def submit(self, call: Call[Any]) -> None:
        """Starts a call. Raises CancelledError after the end of the event loop."""
        # In this order: the end of the event loop ends all calls that are found here.
        self._calls.add(call)
        try:
            self._loop.call_soon_threadsafe(self._start, call)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            raise asyncio.CancelledError from None

    def give_up(self, call: Call[Any]) -> None:
        """Cancels a call whose caller no longer waits, unless it is the last one."""
        if call.is_over:
            return
        if call.is_last:
            _unfinished.add(self)
            if self._ended:
                _unfinished.discard(self)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cancel, call)

    def stop(self) -> None:
        """Ends all calls, and the thread soon after."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop)

    def forget(self) -> None:
        """Stops, unless a last call is in progress, which stops the thread itself."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop_unless_closing)

    def join(self, timeout_s: float = math.inf) -> None:
        """Waits for the end of the thread."""
        # Not one `Thread.join`: up to Python 3.12, a signal handler that joins the thread in the
        # middle of another `join` may wait for ever without a timeout.
        until_s = time.monotonic() + timeout_s
        while not self._ended and time.monotonic() < until_s:
            self.thread.join(END_CHECK_S)
        if self._ended:
            self.thread.join(THREAD_END_S)

    def _start(self, call: Call[Any]) -> None:
        if self.is_stopping:
            # Ended with the event loop.
            return
        self._last_calls += call.is_last
        coroutine = call.work if call.wrap is None else call.wrap(call.work)
        call.task = self._loop.create_task(coroutine)
        call.task.add_done_callback(lambda _: self._end(call))

    def _cancel(self, call: Call[Any]) -> None:
        if call.task is None:
            # The caller was interrupted before the call was started.
            self._end(call)
        elif not call.is_last:
            call.task.cancel()

    def _end(self, call: Call[Any]) -> None:
        if call.is_over:
            return
        self._calls.discard(call)
        if call.task is not None:
            mark_seen(call.task)
        # It may never have been started.
        call.work.close()
        call.end()
        if call.is_last and call.task is not None:
            self._stop()

    def _stop_unless_closing(self) -> None:
        if not self._last_calls:
            self._stop()

    def _stop(self) -> None:
        if not self.is_stopping:
            self.is_stopping = True
            self._loop.stop()

    def _serve(self) -> None:
        """Runs the loop until it is stopped, then cancels the remaining tasks."""
        loop = self._loop
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
            for call in list(self._calls):
                self._end(call)
            _unfinished.discard(self)
            self._ended = True


# Threads whose last call was given up by its caller.
_unfinished: set[LoopThread] = set()


def _finish_at_exit() -> None:
    """Ends what the clients do, which fails and reports records that are not delivered."""
    unfinished = [each for each in _unfinished if each._generation == forks.generation]
    for each in unfinished:
        each.stop()
    for each in unfinished:
        each.join(EXIT_WAIT_S)


atexit.register(_finish_at_exit)
