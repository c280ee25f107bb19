"""One operating-system process of a local cluster."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tidelog_runtime.config import ENVIRONMENT_PREFIX
from tidelog_runtime.local import die_with_parent

# Longer than a broker needs to transfer its leaders.
STOP_TIMEOUT_SECONDS = 15.0
TAIL_LINES = 20
# Enough for the last lines of a log of any length.
_TAIL_BYTES = 64 << 10


class LocalProcess:
    """A command that can be started, stopped, killed and paused repeatedly.

    Its output is appended to `log_path`. It ends with the process that started it. Any event
    loop may wait for it.
    """

    def __init__(
        self, name: str, command: Sequence[str], *, log_path: Path, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self.log_path = log_path
        self._command = list(command)
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._end_was_asked_for = False

    @property
    def pid(self) -> int | None:
        """None: the process is not running."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def started_pid(self) -> int | None:
        """The pid of the latest start, even if that process has ended."""
        return None if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def died(self) -> bool:
        """Whether it was started and has ended by itself."""
        was_started = self._process is not None
        return was_started and not self.running and not self._end_was_asked_for

    @property
    def exit_status(self) -> int | None:
        """Negative: the number of the signal that ended it."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        if self.running:
            raise RuntimeError(f"{self.name} is already running, as process {self.pid}")
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        launcher = [sys.executable, "-I", "-S", die_with_parent.__file__, str(os.getpid())]
        self._end_was_asked_for = False
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*launcher, *self._command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                # Ctrl-C in a terminal reaches only the parent, which stops the parts in order.
                start_new_session=True,
            )

    async def stop(self, timeout_seconds: float = STOP_TIMEOUT_SECONDS) -> bool:
        """Sends SIGTERM, and SIGKILL after the timeout. Returns False if it had to be killed."""
        self._signal(signal.SIGCONT)
        self._ask_to_end(signal.SIGTERM)
        try:
            async with asyncio.timeout(timeout_seconds):
                await self.wait()
        except TimeoutError:
            await self.kill()
            return False
        return True

    async def kill(self) -> None:
        self._ask_to_end(signal.SIGKILL)
        await self.wait()

    def pause(self) -> None:
        """Returns once the process has stopped or ended.

        A process may run for a moment after SIGSTOP was sent.
        """
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    async def wait(self) -> None:
        """Returns when it is not running."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        pid_descriptor = os.pidfd_open(process.pid)
        loop.add_reader(pid_descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(pid_descriptor)
            os.close(pid_descriptor)
        process.wait()

    def log_tail(self, lines: int = TAIL_LINES) -> str:
        """Returns the last lines of its output."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as log:
            log.seek(max(0, self.log_path.stat().st_size - _TAIL_BYTES))
            text = log.read().decode(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def _ask_to_end(self, number: signal.Signals) -> None:
        # A process that ended by itself before this call still counts as died.
        if self.running:
            self._end_was_asked_for = True
            self._signal(number)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)


def environment_without(settings: Iterable[str]) -> dict[str, str]:
    """Returns this process's environment without variables that would override the settings."""
    overridden = {ENVIRONMENT_PREFIX + name.upper() for name in settings}
    return {name: value for name, value in os.environ.items() if name not in overridden}
