"""An event loop in its own thread, and the calls of other threads that run on it.

A signal handler runs in the middle of a call of the main thread, and may call or close the same
client. So a waiting thread holds no lock that another call or the event loop needs: each call has
a lock of its own, which only the event loop releases.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar, cast

# How long a thread takes at most to end after its event loop.
THREAD_END_S = 1.0
# Interval at which a closing thread checks that the event loop has ended; it wakes up earlier.
END_CHECK_S = 0.05

_Result = TypeVar("_Result")


class LoopCall(Generic[_Result]):
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
        # While it runs. The caller's thread never holds it: its end would run code there.
        self.task: asyncio.Task[_Result] | None = None
        # Whether the event loop has ended the call.
        self.is_over = False
        self._result: _Result | None = None
        self._error: BaseException | None = asyncio.CancelledError()
        self._waiting = threading.Lock()
        self._waiting.acquire()

    def wait(self) -> _Result:
        """Waits for the outcome. Raises the error of the work; CancelledError if the event loop
        ended before it."""
        self._waiting.acquire()
        if self._error is None:
            return cast("_Result", self._result)
        try:
            raise self._error
        finally:
            # Otherwise the error would refer to itself by its traceback.
            del self

    def end(self) -> None:
        """Sets the outcome, that of the task if it is done. The event loop calls it."""
        task, self.task = self.task, None
        try:
            if task is not None and task.done() and not task.cancelled():
                self._error = task.exception()
                if self._error is None:
                    self._result = task.result()
            # It may never have been started.
            self.work.close()
        finally:
            self.is_over = True
            self._waiting.release()


class LoopThread:
    """Runs until `stop`, or until a call ends that is the last one. It does not keep the process
    alive."""

    def __init__(self) -> None:
        self.is_stopping = False
        self._loop = asyncio.new_event_loop()
        # Calls without an outcome.
        self._calls: set[LoopCall[Any]] = set()
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

    def submit(self, call: LoopCall[Any]) -> None:
        """Starts a call. Raises CancelledError after the end of the event loop."""
        # In this order: the end of the event loop ends all calls that are found here.
        self._calls.add(call)
        try:
            self._loop.call_soon_threadsafe(self._start, call)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            raise asyncio.CancelledError from None

    def give_up(self, call: LoopCall[Any]) -> None:
        """Cancels a call whose caller no longer waits, unless it is the last one."""
        if call.is_over:
            return
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

    def join(self) -> None:
        """Waits for the end of the thread."""
        # Not one `Thread.join`: up to Python 3.12, a signal handler that joins the thread in the
        # middle of another `join` may wait for ever without a timeout.
        while not self._ended and self.thread.is_alive():
            self.thread.join(END_CHECK_S)
        self.thread.join(THREAD_END_S)

    def _start(self, call: LoopCall[Any]) -> None:
        if self.is_stopping:
            # Ended with the event loop.
            return
        self._last_calls += call.is_last
        coroutine = call.work if call.wrap is None else call.wrap(call.work)
        call.task = self._loop.create_task(coroutine)
        call.task.add_done_callback(lambda _: self._end(call))

    def _cancel(self, call: LoopCall[Any]) -> None:
        if call.task is None:
            # It is over, or its caller was interrupted before it was started.
            self._end(call)
        elif not call.is_last:
            call.task.cancel()

    def _end(self, call: LoopCall[Any]) -> None:
        if call.is_over:
            return
        self._calls.discard(call)
        if call.is_last and call.task is not None:
            self._stop()
        call.end()

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
            self.is_stopping = True
            try:
                loop.close()
            finally:
                for call in list(self._calls):
                    # A suspended coroutine may fail when it is closed.
                    with contextlib.suppress(Exception):
                        self._end(call)
                self._ended = True
