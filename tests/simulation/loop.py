"""An event loop on a virtual clock, in which every step belongs to a process.

Time jumps to the next timer when nothing is left to run. A context variable names the process
of a callback: callbacks of a paused process are held back, those of a dead one dropped. What
runs, and in which order, depends only on what was scheduled: tasks and futures hash by the
order in which they were first hashed, so that sets of them iterate alike in every run.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
import warnings
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar
from itertools import count
from typing import Any, TypeVar

T = TypeVar("T")

# The virtual time of a callback: messages arrive between the steps of longer work.
STEP_US = 5
# More than MAX_STEPS_AT_ONE_TIME callbacks within LIVELOCK_US are an endless loop.
LIVELOCK_US = 1_000_000
MAX_STEPS_AT_ONE_TIME = 50_000

# How often a coroutine that is being closed may await something in its `finally`.
MAX_CLOSING_ROUNDS = 20


# Numbers tasks and futures in the order in which they are first hashed, from 1 in each loop, so
# that nothing depends on earlier runs of the same interpreter.
_next_serial: Callable[[], int] = count(1).__next__


class LivelockError(Exception):
    """The run makes no progress: callbacks continue without end, or everything waits."""


class SimProcess:
    """One incarnation of something that can be paused and killed.

    - `observed`: whether invariants are checked after its steps
    - `held`: what became due while it was paused, in order
    """

    __slots__ = ("alive", "context", "held", "host", "incarnation", "name", "observed", "paused")

    def __init__(self, host: str, incarnation: int, *, observed: bool = True) -> None:
        self.host = host
        self.incarnation = incarnation
        self.name = f"{host}/{incarnation}"
        self.observed = observed
        self.alive = True
        self.paused = False
        self.held: list[SimHandle] = []
        self.context = Context()
        self.context.run(PROCESS.set, self)

    def __repr__(self) -> str:
        return self.name


PROCESS: ContextVar[SimProcess | None] = ContextVar("PROCESS", default=None)


class SimTask(asyncio.Task[Any]):
    __slots__ = ("process", "serial")

    process: SimProcess | None
    serial: int

    def __hash__(self) -> int:
        try:
            return self.serial
        except AttributeError:
            self.serial = serial = _next_serial()
            return serial


class SimFuture(asyncio.Future[Any]):
    __slots__ = ("serial",)

    serial: int

    def __hash__(self) -> int:
        try:
            return self.serial
        except AttributeError:
            self.serial = serial = _next_serial()
            return serial


class SimHandle:
    """What `call_soon` and `call_at` return: the part of `asyncio.TimerHandle` that is used.

    - `callback`: None once it is cancelled. A cancelled timer stays queued until its time, and
      keeps nothing else alive.
    """

    __slots__ = ("args", "callback", "context", "process", "when_us")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context,
        process: SimProcess | None,
        when_us: int,
    ) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.context = context
        self.process = process
        self.when_us = when_us

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.when_us / 1e6


class SimLoop(asyncio.AbstractEventLoop):
    """The loop, which is also a `Clock`.

    - `after_step`: called after every step of an observed process
    """

    def __init__(self, *, wall_start_ms: int = 1_700_000_000_000) -> None:
        global _next_serial
        _next_serial = count(1).__next__
        self.now_us = 0
        self.steps = 0
        self.after_step: list[Callable[[], None]] = []
        # The process of the callback that runs, or has run last.
        self.stepped: SimProcess | None = None
        # The first error, which ends the run.
        self.failure: BaseException | None = None
        self._wall_start_ms = wall_start_ms
        self._ready: deque[SimHandle] = deque()
        self._timers: list[tuple[int, int, SimHandle]] = []
        self._next_sequence = count().__next__
        # The context of what belongs to no process: messages in flight, and the world's own work.
        self.world_context = Context()
        self._context = self.world_context
        self._closed = False
        # Called for each task and future: a call of C costs a tenth of one of Python.
        self.get_debug = bool  # type: ignore[method-assign]
        # Tasks of dead processes, referenced so that none of their `finally` blocks runs.
        self._graveyard: list[asyncio.Task[Any]] = []

    # -- time ------------------------------------------------------------------------

    def time(self) -> float:
        return self.now_us / 1e6

    def monotonic_ms(self) -> int:
        return self.now_us // 1000

    def wall_ms(self) -> int:
        return self._wall_start_ms + self.now_us // 1000

    # -- scheduling ------------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimHandle:
        if context is None:
            handle = SimHandle(callback, args, self._context, self.stepped, self.now_us)
        else:
            handle = SimHandle(callback, args, context, context.get(PROCESS), self.now_us)
        if not self._closed:
            self._ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> SimHandle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> SimHandle:
        return self.call_at_us(
            self.now_us + max(1, round(delay * 1e6)), callback, *args, context=context
        )

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> SimHandle:
        # Some time passes before any timer: otherwise a wait for the rest of a fraction of a
        # microsecond would never end.
        when_us = max(self.now_us + 1, round(when * 1e6))
        return self.call_at_us(when_us, callback, *args, context=context)

    def call_at_us(
        self,
        when_us: int,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> SimHandle:
        if context is None:
            handle = SimHandle(callback, args, self._context, self.stepped, when_us)
        else:
            handle = SimHandle(callback, args, context, context.get(PROCESS), when_us)
        if not self._closed:
            heapq.heappush(self._timers, (when_us, self._next_sequence(), handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        task = SimTask(coro, loop=self, name=name or "", context=context)
        task.process = self.stepped if context is None else context.get(PROCESS)
        return task

    def spawn(self, process: SimProcess, coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Creates a task of that process."""
        return self.create_task(coro, context=process.context.copy())

    # -- processes -------------------------------------------------------------------

    def pause(self, process: SimProcess) -> None:
        process.paused = True

    def resume(self, process: SimProcess) -> None:
        process.paused = False
        self._ready.extend(process.held)
        process.held = []

    def kill(self, process: SimProcess) -> None:
        """Ends a process at once, without its cleanup."""
        process.alive = False
        self._graveyard += [t for t in asyncio.all_tasks(self) if _process_of(t) is process]

    # -- running ---------------------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Runs until `main` is done. Raises its exception, or the first failure."""
        events._set_running_loop(self)
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(finalizer=self._end_generator)
        try:
            task = self.create_task(main)
            self._run_until(task)
            return task.result()
        finally:
            sys.set_asyncgen_hooks(*hooks)
            events._set_running_loop(None)

    def fail(self, error: BaseException) -> None:
        """Ends the run with this error, unless it has failed already."""
        if self.failure is None:
            self.failure = error

    def _run_until(self, task: asyncio.Task[Any]) -> None:
        ready, timers = self._ready, self._timers
        pop_ready, pop_timer = ready.popleft, heapq.heappop
        steps_before = at_us = 0
        while not task.done():
            if not ready:
                self._jump()
            # As in asyncio's own loops, what is ready now runs before what becomes due meanwhile.
            for _ in range(len(ready)):
                handle = pop_ready()
                callback = handle.callback
                if callback is None:
                    continue
                process = handle.process
                if process is not None and (process.paused or not process.alive):
                    if process.alive:
                        process.held.append(handle)
                    continue
                self._step(handle, callback, process)
            now_us = self.now_us
            while timers and timers[0][0] <= now_us:
                ready.append(pop_timer(timers)[2])
            if now_us - at_us > LIVELOCK_US:
                steps_before, at_us = self.steps, now_us
            elif self.steps - steps_before > MAX_STEPS_AT_ONE_TIME:
                raise LivelockError(
                    f"{self.steps - steps_before} callbacks within {LIVELOCK_US} us, at "
                    f"{self.monotonic_ms()} ms; the last was of {self.stepped}"
                )

    def _step(
        self, handle: SimHandle, callback: Callable[..., object], process: SimProcess | None
    ) -> None:
        self.steps += 1
        self.now_us += STEP_US
        self.stepped = process
        context = self._context = handle.context
        try:
            context.run(callback, *handle.args)
        except Exception as error:
            self.fail(error)
        if process is not None and process.observed:
            for observe in self.after_step:
                observe()
        if self.failure is not None:
            raise self.failure

    def _jump(self) -> None:
        """Advances the clock to the next timer, and makes all timers that are due then ready."""
        timers, pop_timer = self._timers, heapq.heappop
        while timers and timers[0][2].callback is None:
            pop_timer(timers)
        if not timers:
            raise LivelockError("everything waits, and no timer will end it")
        now_us = self.now_us = max(self.now_us, timers[0][0])
        while timers and timers[0][0] <= now_us:
            self._ready.append(pop_timer(timers)[2])

    def _end_generator(self, generator: Any) -> None:
        if not self._closed:
            self.create_task(generator.aclose())

    # -- the rest of the interface of an asyncio loop -----------------------------------

    def is_running(self) -> bool:
        return not self._closed

    def is_closed(self) -> bool:
        return self._closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Exception) and not self._closed:
            self.fail(error)

    def close(self) -> None:
        """Closes every coroutine where it awaits. What it does then has no effect."""
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        self.after_step.clear()
        hook = sys.unraisablehook
        sys.unraisablehook = lambda _: None
        events._set_running_loop(self)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ended: list[asyncio.Task[Any]] = []
                # A coroutine that is closed may create tasks.
                for _ in range(MAX_CLOSING_ROUNDS):
                    pending = asyncio.all_tasks(self).difference(ended)
                    if not pending:
                        break
                    for task in pending:
                        _end(task)
                    ended += pending
                self._graveyard.clear()
        finally:
            events._set_running_loop(None)
            sys.unraisablehook = hook


def _end(task: asyncio.Task[Any]) -> None:
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine: Any = task.get_coro()
    for _ in range(MAX_CLOSING_ROUNDS):
        try:
            coroutine.close()
            return
        except BaseException:
            continue


def _process_of(task: asyncio.Task[Any]) -> SimProcess | None:
    return task.process if isinstance(task, SimTask) else None


def current_process() -> SimProcess:
    """Returns the process whose code is running."""
    process = PROCESS.get()
    assert process is not None, "this belongs to no process"
    return process
