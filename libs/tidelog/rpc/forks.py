"""Closes gRPC channels before the process forks.

gRPC for asyncio polls in a thread of its own, which a forked child does not have. A channel that is
open at the fork, and every channel that the child opens afterwards, hangs or crashes in the child.
So all channels are closed before a fork, each in the thread of its event loop, which then blocks
until the fork is done. The parent's clients reconnect when they next send something: for them a
fork is like a short network failure.

After its last channel gRPC shuts down, in the thread that freed the channel and then in a native
thread. Both hold locks that the child would inherit as held for ever, so the fork waits for them.

A channel cannot be closed if the forking thread runs its event loop and a request is in progress,
or if it is not registered here. `usable` is then false in the child, as it is if an event loop or
the shutdown takes too long.
"""

from __future__ import annotations

import asyncio

# Its hook, which takes a lock that every executor needs, must be registered before the one of this
# module. Hooks run in reverse order, and event loops and signal handlers may use executors while a
# fork waits.
import concurrent.futures.thread  # noqa: F401
import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

# How long a fork waits for the event loops of other threads.
MAX_WAIT_S = 1.0
# How long requests in progress may take to end, within that time.
MAX_CLOSING_S = 0.5
# How long gRPC's poll thread may take to end once the last channel is closed.
MAX_ENDING_S = 0.05
# How long a fork waits for the end of gRPC's timer thread, which lives on if other code uses gRPC.
MAX_TIMER_WAIT_S = 0.2
# How long an event loop blocks at most.
MAX_STANDSTILL_S = 5.0

# Names of native threads of gRPC; Linux keeps 15 bytes. The timer thread ends in the shutdown, so
# it is found when the shutdown's thread does not have its name yet.
_TIMER_THREAD = b"grpc_global_tim"
_SHUTDOWN_THREAD = b"grpc_shutdown"
_NATIVE_THREADS = Path("/proc/self/task")

# Number of forks that led to this process. An object created under another number was inherited
# from the parent.
generation = 0
# Whether gRPC can be used in this process.
usable = True


class Parking:
    """The event loop of another thread, which blocks during a fork."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Not events, which have locks of their own: a signal handler in the middle of `wait` would
        # keep the event loop from standing still.
        self._standing = threading.Lock()
        self._forked = threading.Lock()
        self._standing.acquire()
        self._forked.acquire()

    def stand_still(self) -> None:
        """Blocks until the fork is done. The event loop calls it when its channels are closed."""
        self._standing.release()
        self._forked.acquire(timeout=MAX_STANDSTILL_S)

    def wait(self, timeout_s: float) -> bool:
        """Returns whether the event loop stands still, or has ended."""
        return self._standing.acquire(timeout=timeout_s) or not self._loop.is_running()

    def leave(self) -> None:
        self._forked.release()


class Forkable(Protocol):
    """An owner of channels."""

    def before_fork(self) -> Parking | None:
        """Closes its channels. If another thread has to do so, requests it and returns the object
        to wait for."""

    def in_child(self) -> None:
        """Forgets channels that could not be closed, without ever closing them."""


_owners: WeakSet[Forkable] = WeakSet()
_parked: list[Parking] = []
_was_in_use = False
# Held by the thread that forks. A signal handler may fork in the middle of that.
_forking = threading.RLock()
# Held while a channel is opened, and while `_in_progress` is set. So a channel either exists when
# owners close theirs, or is not opened before the fork is done.
# Signal handlers may fork while the same thread opens a channel.
_opening = threading.RLock()
_in_progress = False


def register(owner: Forkable) -> None:
    _owners.add(owner)


@contextmanager
def opening() -> Iterator[bool]:
    """Yields true if a channel may be opened and put where `before_fork` finds it; false from the
    beginning of a fork until its end."""
    with _opening:
        yield not _in_progress


def is_polling() -> bool:
    """Returns whether gRPC for asyncio is in use in this process."""
    return any(
        getattr(getattr(thread, "_target", None), "__name__", "") == "_poll_wrapper"
        for thread in threading.enumerate()
    )


async def until_not_polling() -> None:
    """Returns when the last channel of this process is closed, or after MAX_CLOSING_S."""
    until_s = time.monotonic() + MAX_CLOSING_S
    while is_polling() and time.monotonic() < until_s:  # noqa: ASYNC110 - gRPC does not inform
        await asyncio.sleep(0.001)


def _native_thread_names() -> set[bytes]:
    """Names of all threads of this process, which need not be text. Raises OSError if they cannot
    be read, as on systems other than Linux."""
    names = set()
    for thread in list(_NATIVE_THREADS.iterdir()):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread ended meanwhile
            names.add((thread / "comm").read_bytes().rstrip(b"\n"))
    return names


def _until_shut_down() -> bool:
    """Waits for the end of gRPC's shutdown, if one is in progress.

    Returns whether none is; true on systems other than Linux, false on Linux if threads cannot be
    listed, for example for lack of file descriptors.
    """
    try:
        return _until_threads_end()
    except OSError:
        return sys.platform != "linux"


def _until_threads_end() -> bool:
    began_s = time.monotonic()
    while (names := _native_thread_names()) & {_TIMER_THREAD, _SHUTDOWN_THREAD}:
        limit_s = MAX_WAIT_S if _SHUTDOWN_THREAD in names else MAX_TIMER_WAIT_S
        if time.monotonic() - began_s >= limit_s:
            return _SHUTDOWN_THREAD not in names
        time.sleep(0.001)
    return True


def _before() -> None:
    global _was_in_use, _in_progress
    _forking.acquire()
    # Python forks even if this function is interrupted.
    _was_in_use = True
    with _opening:
        _in_progress = True
    asked = [owner.before_fork() for owner in list(_owners)]
    _parked.extend(parking for parking in asked if parking is not None)
    until_s = time.monotonic() + MAX_WAIT_S
    # An event loop that does not stand still may be in the middle of gRPC's shutdown, without any
    # channel and without gRPC's poll thread.
    all_stand = all(parking.wait(max(until_s - time.monotonic(), 0)) for parking in _parked)
    if is_polling():
        # A reference cycle may hold a channel, for example that of an error and its traceback.
        gc.collect()
        until_s = time.monotonic() + MAX_ENDING_S
        while is_polling() and time.monotonic() < until_s:
            time.sleep(0.001)
    # Determined before the fork, because the child has only the thread that forks.
    _was_in_use = not all_stand or is_polling() or not _until_shut_down()


def _in_parent() -> None:
    global _in_progress
    _in_progress = False
    for parking in _parked:
        parking.leave()
    _parked.clear()
    _forking.release()


def _in_child() -> None:
    global generation, usable, _forking, _opening, _in_progress
    generation += 1
    usable = usable and not _was_in_use
    _parked.clear()
    # Another thread may have held these locks.
    _forking, _opening = threading.RLock(), threading.RLock()
    _in_progress = False
    for owner in list(_owners):
        owner.in_child()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
