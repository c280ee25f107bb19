"""A Spark driver and its descendants in /proc, and functions that kill them. Linux only."""

from __future__ import annotations

import ctypes
import os
import re
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from bench.spark_kills.points import POLL_S

_EXECUTOR = b"CoarseGrainedExecutorBackend"
_JVM = b"SparkSubmit"
_IN_CREATE = 0x100
_EVENT = struct.Struct("iIII")
# Spark gives a file this name before it renames it to the number of a micro-batch.
_TEMPORARY = re.compile(r"\.(\d+)\.[0-9a-f-]+\.tmp")
LOG_TAIL_BYTES = 4_000


class DriverEndedError(Exception):
    """The driver has ended without being killed; the message has the end of its log."""


class Stat(NamedTuple):
    state: str
    parent: int
    session: int


class DriverProcess:
    """A driver in its own session, with its JVM, and the executors of a local cluster below that.

    - `module`: gets the file of the settings as its argument.
    """

    def __init__(
        self,
        settings: Path,
        log: Path,
        environment: Mapping[str, str],
        module: str = "bench.spark_kills.driver",
    ) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(settings)],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                # Otherwise Spark takes an address of any network of the machine, which may
                # disappear.
                env={**environment, "SPARK_LOCAL_IP": "127.0.0.1"},
                start_new_session=True,
            )

    def check(self) -> None:
        """Raises `DriverEndedError`."""
        status = self._process.poll()
        if status is not None:
            tail = self._log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
            raise DriverEndedError(f"the driver ended with status {status}:\n{tail}")

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def status(self) -> int | None:
        return self._process.poll()

    @property
    def jvm(self) -> int | None:
        """None while it starts."""
        return next(iter(self._below(_JVM)), None)

    @property
    def executors(self) -> list[int]:
        return self._below(_EXECUTOR)

    def _below(self, word: bytes) -> list[int]:
        sessions = {pid for pid, stat in _all().items() if stat.session == self._process.pid}
        return sorted(pid for pid in sessions if word in _command(pid))

    def is_above(self, pid: int) -> bool:
        """Returns whether the process is below the driver; False if one between them died."""
        return self._process.pid in _upwards(pid)

    def kill(self) -> None:
        """Kills driver and JVM; the executors detect that by themselves."""
        jvm = self.jvm
        if jvm is not None:
            os.kill(jvm, signal.SIGKILL)
        self._process.kill()
        self._process.wait()

    def end_all(self) -> None:
        """Kills the driver, and all processes of its session."""
        self._process.kill()
        self._process.wait()
        for pid, stat in _all().items():
            if stat.session == self._process.pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def kill(pid: int) -> None:
    """Kills a process. Returns once it and its children are gone, because a JVM ends slowly."""
    os.kill(pid, signal.SIGKILL)
    while True:
        processes = _all()
        is_gone = pid not in processes or processes[pid].state in "ZX"
        if is_gone and all(stat.parent != pid for stat in processes.values()):
            return
        time.sleep(POLL_S)


def executor_above(pid: int) -> int:
    """Returns the executor of a Python worker."""
    for above in _upwards(pid):
        if _EXECUTOR in _command(above):
            return above
    raise LookupError(f"no executor is above process {pid}")


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Pauses the process during the context, unless it is killed there."""
    os.kill(pid, signal.SIGSTOP)
    try:
        while (stat := _stat(pid)) is not None and stat.state not in "TtZ":
            time.sleep(POLL_S / 10)
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def batches_about_to_end(commits: Path, driver: DriverProcess) -> Iterator[int]:
    """Yields the number of each micro-batch whose end is about to be written to a checkpoint.
    Raises `DriverEndedError`."""
    while not commits.is_dir():
        driver.check()
        time.sleep(POLL_S)
    with _watched(commits) as descriptor:
        while True:
            driver.check()
            if not select.select([descriptor], [], [], 1.0)[0]:
                continue
            for name in _created(os.read(descriptor, 65_536)):
                match = _TEMPORARY.fullmatch(name)
                if match is not None:
                    yield int(match[1])


@contextmanager
def _watched(directory: Path) -> Iterator[int]:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if descriptor < 0 or libc.inotify_add_watch(descriptor, bytes(directory), _IN_CREATE) < 0:
            raise OSError(ctypes.get_errno(), f"{directory} cannot be watched")
        yield descriptor
    finally:
        os.close(descriptor)


def _created(events: bytes) -> Iterator[str]:
    at = 0
    while at < len(events):
        _, _, _, length = _EVENT.unpack_from(events, at)
        at += _EVENT.size
        yield events[at : at + length].rstrip(b"\0").decode()
        at += length


def _all() -> dict[int, Stat]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return {pid: stat for pid in pids if (stat := _stat(pid)) is not None}


def _upwards(pid: int) -> Iterator[int]:
    """Yields the process and its ancestors."""
    while (stat := _stat(pid)) is not None:
        yield pid
        pid = stat.parent


def _stat(pid: int) -> Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in parentheses, may contain any character.
    state, parent, _, session, *_ = text.rpartition(")")[2].split()
    return Stat(state, int(parent), int(session))


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
