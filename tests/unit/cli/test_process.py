"""Behaviour that needs a separate process: signals, closed pipes, imports."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from tidelog.cli.exit_status import ExitStatus
from unit.cli.conftest import Commands
from unit.cli.test_produce_consume import fill

TIDELOG = (sys.executable, "-m", "tidelog.cli")
WAIT_SECONDS = 30


def started(commands: Commands, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        (*TIDELOG, *arguments, "--bootstrap", ",".join(commands.cluster.bootstrap())),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


async def first_record(commands: Commands) -> None:
    for _ in range(100 * WAIT_SECONDS):
        if commands.values("sea"):
            return
        await asyncio.sleep(0.01)


def test_help_imports_neither_grpc_nor_rich() -> None:
    program = (
        "import sys; import tidelog.cli.__main__; "
        "print(sorted({'grpc', 'google', 'rich', 'asyncio', 'zstandard'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=WAIT_SECONDS
    )
    assert done.stdout == b"[]\n"


def test_ctrl_c_ends_a_following_command_cleanly(commands: Commands) -> None:
    fill(commands, 0, [b"ebb"])
    with started(commands, "consume", "sea", "--follow") as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == b"ebb\n"
        follower.send_signal(signal.SIGINT)
        _, output = follower.communicate(timeout=WAIT_SECONDS)
    assert (follower.returncode, output) == (ExitStatus.DONE, b"")


def test_a_closed_pipe_ends_the_command_quietly(commands: Commands) -> None:
    fill(commands, 0, [b"ebb"])
    with started(commands, "consume", "sea", "--follow") as follower:
        assert follower.stdout is not None
        assert follower.stderr is not None
        assert follower.stdout.readline() == b"ebb\n"
        follower.stdout.close()
        fill(commands, 0, [b"flow"])
        assert follower.wait(WAIT_SECONDS) == ExitStatus.DONE
        assert follower.stderr.read() == b""


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("topics", "list", "--json")])
@pytest.mark.parametrize(
    ("redirected", "status", "message"),
    [
        (">/dev/full", ExitStatus.FAILED, "cannot write to stdout: No space left on device"),
        (">&-", ExitStatus.DONE, ""),
        ("<&- >&- 2>&-", ExitStatus.DONE, ""),
    ],
)
def test_unwritable_output_ends_the_command_with_one_line(
    commands: Commands,
    arguments: tuple[str, ...],
    redirected: str,
    status: ExitStatus,
    message: str,
) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$@" {redirected}', "sh", *TIDELOG, *arguments],
        env={**os.environ, "TIDELOG_BOOTSTRAP": ",".join(commands.cluster.bootstrap())},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=WAIT_SECONDS,
    )
    lines = done.stderr.splitlines()
    assert (done.returncode, len(lines)) == (status, 1 if message else 0), done.stderr
    assert message in done.stderr


def test_a_closed_stdin_counts_as_its_end(commands: Commands) -> None:
    bootstrap = ",".join(commands.cluster.bootstrap())
    done = subprocess.run(
        ["sh", "-c", '"$@" <&-', "sh", *TIDELOG, "produce", "sea", "--bootstrap", bootstrap],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_SECONDS,
    )
    assert (done.returncode, "0 records" in done.stderr) == (ExitStatus.DONE, True), done.stderr


def test_on_ctrl_c_lines_already_read_are_delivered(commands: Commands) -> None:
    with started(commands, "produce", "sea", "-p", "0", "--linger-ms", "0") as producer:
        assert producer.stdin is not None
        assert producer.stderr is not None
        os.write(producer.stdin.fileno(), b"ebb\nhalf a li")
        commands.in_loop(first_record(commands))
        producer.send_signal(signal.SIGINT)
        # Its stdin is still open, but it must not wait for more.
        assert producer.wait(WAIT_SECONDS) == ExitStatus.INTERRUPTED
        output = producer.stderr.read().decode()
    assert output.startswith("1 record (3 B) delivered")
    assert "Interrupted" in output
    assert commands.values("sea") == [b"ebb"]
