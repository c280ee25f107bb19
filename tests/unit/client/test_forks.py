"""A fork waits until gRPC is at rest. If it is not, clients in the child raise CLIENT_FORKED: the
child would inherit locks of gRPC that no thread releases."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakSet

import grpc.aio
import pytest

from tidelog.client.connections import GrpcConnections
from tidelog.errors import ErrorCode, TidelogError
from tidelog.rpc import forks

SHUTDOWN = forks._SHUTDOWN_THREAD
TIMER = forks._TIMER_THREAD
LONG_S = 30
SOON_S = 0.05


class Owner:
    """An owner of channels in an event loop of another thread."""

    def __init__(self, parking: forks.Parking) -> None:
        self._parking = parking

    def before_fork(self) -> forks.Parking:
        return self._parking

    def in_child(self) -> None:
        pass


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class NativeThread:
    """A thread of a process, as Linux lists it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def start(self, name: bytes) -> None:
        thread = self._directory / "7"
        thread.mkdir()
        (thread / "comm").write_bytes(name + b"\n")

    def end_soon(self) -> threading.Timer:
        timer = threading.Timer(SOON_S, (self._directory / "7" / "comm").unlink)
        timer.start()
        return timer


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> NativeThread:
    """Without the owners and threads of other tests."""
    monkeypatch.setattr(forks, "_NATIVE_THREADS", tmp_path)
    monkeypatch.setattr(forks, "_owners", WeakSet())
    monkeypatch.setattr(forks, "is_polling", lambda: False)
    return NativeThread(tmp_path)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "MAX_WAIT_S", SOON_S)
    monkeypatch.setattr(forks, "MAX_TIMER_WAIT_S", SOON_S)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "MAX_WAIT_S", LONG_S)
    monkeypatch.setattr(forks, "MAX_TIMER_WAIT_S", LONG_S)


def error_in_child(monkeypatch: pytest.MonkeyPatch) -> ErrorCode | None:
    """The error of a new client's connections in a forked child. Runs what runs before and after a
    fork, without the fork."""
    forks._before()
    forks._in_parent()
    monkeypatch.setattr(forks, "usable", not forks._was_in_use)
    try:
        GrpcConnections()
    except TidelogError as error:
        return error.code
    return None


@pytest.mark.usefixtures("native", "impatient")
def test_grpc_is_unusable_if_an_event_loop_did_not_stand_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running_loop() as loop:
        # Until then the loop may not run yet, as if it had ended.
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()
        owner = Owner(forks.Parking(loop))
        forks.register(owner)
        assert error_in_child(monkeypatch) is ErrorCode.CLIENT_FORKED


@pytest.mark.usefixtures("native", "impatient")
def test_grpc_is_usable_if_an_event_loop_ended_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_loop() as loop:
        owner = Owner(forks.Parking(loop))
    forks.register(owner)
    assert error_in_child(monkeypatch) is None


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("name", [SHUTDOWN, TIMER])
def test_a_fork_waits_for_the_threads_of_grpcs_shutdown(
    name: bytes, native: NativeThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    native.start(name)
    ending = native.end_soon()
    assert error_in_child(monkeypatch) is None
    assert forks._native_thread_names() == set()
    ending.join()


@pytest.mark.usefixtures("impatient")
def test_grpc_is_unusable_if_its_shutdown_takes_long(
    native: NativeThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    native.start(SHUTDOWN)
    assert error_in_child(monkeypatch) is ErrorCode.CLIENT_FORKED


@pytest.mark.usefixtures("impatient")
def test_grpc_is_usable_if_other_code_keeps_its_timer_thread(
    native: NativeThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    native.start(TIMER)
    assert error_in_child(monkeypatch) is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists native threads")
async def test_grpc_has_a_timer_thread_while_a_channel_is_open() -> None:
    async with grpc.aio.insecure_channel("127.0.0.1:1"):
        # The thread names itself once it runs.
        until_s = time.monotonic() + LONG_S
        while forks._TIMER_THREAD not in forks._native_thread_names():
            assert time.monotonic() < until_s
            time.sleep(0.001)  # noqa: ASYNC251 - the thread needs no event loop


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists native threads")
@pytest.mark.usefixtures("patient")
def test_grpc_is_unusable_if_threads_cannot_be_listed(
    native: NativeThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    native.start(b"other")

    def without_descriptors(_: Path) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Path, "read_bytes", without_descriptors)
    assert error_in_child(monkeypatch) is ErrorCode.CLIENT_FORKED


@pytest.mark.usefixtures("native")
def test_grpc_is_unusable_if_the_wait_was_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(Owner):
        def before_fork(self) -> forks.Parking:
            raise KeyboardInterrupt

    assert error_in_child(monkeypatch) is None
    with running_loop() as loop:
        owner = Interrupted(forks.Parking(loop))
    forks.register(owner)
    with pytest.raises(KeyboardInterrupt):
        forks._before()
    forks._in_parent()
    assert forks._was_in_use


_USES_AN_EXECUTOR_IN_THE_WAIT = """
import os
import tidelog.client
from tidelog.rpc import forks
from concurrent.futures import ThreadPoolExecutor

class Owner:
    def before_fork(self):
        with ThreadPoolExecutor(1) as executor:
            executor.submit(int).result()

    def in_child(self):
        pass

owner = Owner()
forks.register(owner)
child = os.fork()
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
"""


def test_executors_can_be_used_while_a_fork_waits() -> None:
    subprocess.run(
        [sys.executable, "-c", _USES_AN_EXECUTOR_IN_THE_WAIT], timeout=LONG_S, check=True
    )
