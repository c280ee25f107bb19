"""A process of a local cluster ends on request, by force, and with its parent."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tidelog_runtime.local.process import LocalProcess

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
ECHO_READY = "print('ready', flush=True)"
SLEEP = "import time; time.sleep(60)"


class Started:
    """Starts Python programs, and ends them all with the test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.processes: list[LocalProcess] = []

    async def __call__(self, program: str, until: str = "ready") -> LocalProcess:
        process = LocalProcess(
            "part",
            [sys.executable, "-I", "-S", "-c", program],
            log_path=self.directory / "logs" / "part.log",
            environment=os.environ,
        )
        self.processes.append(process)
        process.start()
        await until_logged(process, until)
        return process


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110 - another process's state can only be polled
            await asyncio.sleep(0.01)


async def until_logged(process: LocalProcess, text: str) -> None:
    await eventually(lambda: text in process.log_tail())


def has_ended(pid: int) -> bool:
    """Whether the process ended, even if its adoptive parent has not reaped it yet."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Started]:
    starter = Started(tmp_path)
    yield starter
    for process in starter.processes:
        await process.kill()


async def test_a_process_ends_on_request(started: Started) -> None:
    process = await started(f"{ECHO_READY}; {SLEEP}")

    assert process.running
    assert await process.stop()
    assert not process.running
    assert process.exit_status == -signal.SIGTERM
    assert not process.died


async def test_a_process_that_does_not_end_in_time_is_killed(started: Started) -> None:
    process = await started(f"{STUBBORN}; {ECHO_READY}; {SLEEP}")

    assert not await process.stop(timeout_seconds=0.1)
    assert process.exit_status == -signal.SIGKILL


async def test_a_paused_process_can_be_stopped(started: Started) -> None:
    process = await started(f"{ECHO_READY}; {SLEEP}")

    process.pause()

    assert await process.stop()


def state_of(process: LocalProcess) -> str:
    """The state as `ps` shows it; T means stopped."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2][0]


async def test_a_paused_process_is_stopped_at_once(started: Started) -> None:
    process = await started(f"{ECHO_READY}\nwhile True: pass")

    process.pause()

    assert state_of(process) == "T"


async def test_a_restarted_process_keeps_its_log(started: Started) -> None:
    process = await started(f"import os; print('life', os.getpid(), flush=True); {SLEEP}", "life")
    first = process.pid
    await process.kill()

    process.start()
    await until_logged(process, f"life {process.pid}")

    assert f"life {first}" in process.log_tail()
    assert process.pid != first


async def test_a_running_process_cannot_be_started_again(started: Started) -> None:
    process = await started(f"{ECHO_READY}; {SLEEP}")

    with pytest.raises(RuntimeError, match=f"part is already running, as process {process.pid}"):
        process.start()


async def test_a_process_that_ends_by_itself_counts_as_dead(started: Started) -> None:
    process = await started(f"{ECHO_READY}; raise SystemExit(3)")

    await process.wait()

    assert process.died
    assert process.exit_status == 3
    assert await process.stop()
    assert process.died, "a stop afterwards does not make it an end that was asked for"


async def test_the_tail_has_the_last_lines(started: Started) -> None:
    process = await started("print(*range(100), sep='\\n'); print('ready', flush=True)")

    assert process.log_tail(3) == "98\n99\nready"


async def test_a_process_ends_with_its_parent(tmp_path: Path) -> None:
    parent = (
        "import os, sys, pathlib, signal\n"
        "from tidelog_runtime.local.process import LocalProcess\n"
        "child = LocalProcess('child', [sys.executable, '-c', 'import time; time.sleep(60)'],\n"
        f"    log_path=pathlib.Path({str(tmp_path)!r}) / 'child.log', environment=os.environ)\n"
        "child.start()\n"
        "print(child.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = await asyncio.create_subprocess_exec(
        sys.executable, "-c", parent, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await ended.communicate()

    assert ended.returncode == -signal.SIGKILL
    await eventually(lambda: has_ended(int(output)))
