"""Ctrl-C ends a confirmation or a watch, but not the operation."""

from __future__ import annotations

import os
import pty
import signal
import subprocess

from tidelog.cli.exit_status import ExitStatus
from tidelog.v1 import admin_pb2 as pb
from unit.cli.conftest import Commands
from unit.cli.test_operation_commands import PLAN, operation
from unit.cli.test_process import TIDELOG, WAIT_SECONDS, started

QUESTION = b"Go on? [y/N] "


def test_ctrl_c_ends_a_watch_and_says_that_the_operation_continues(commands: Commands) -> None:
    commands.controller.answer(
        "DescribeOperation", pb.DescribeOperationResponse(operation=operation())
    )
    with started(commands, "operations", "watch", "grow", "--interval", "60") as watcher:
        assert watcher.stdout is not None
        assert b"running; 0 of 2 partitions done" in watcher.stdout.readline()
        watcher.send_signal(signal.SIGINT)
        _, said = watcher.communicate(timeout=WAIT_SECONDS)
    assert watcher.returncode == ExitStatus.INTERRUPTED
    assert said.startswith(b"Operation grow goes on.")
    assert b"tidelog operations cancel grow" in said


def test_ctrl_c_at_a_confirmation_is_not_consent(commands: Commands) -> None:
    commands.controller.answer("Rebalance", pb.RebalanceResponse(plan=PLAN))
    keyboard, terminal = pty.openpty()
    with subprocess.Popen(
        (*TIDELOG, "rebalance", "--bootstrap", ",".join(commands.cluster.bootstrap())),
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as asking:
        assert asking.stderr is not None
        said = b""
        while not said.endswith(QUESTION):
            more = os.read(asking.stderr.fileno(), 4096)
            assert more, said
            said += more
        asking.send_signal(signal.SIGINT)
        assert asking.wait(WAIT_SECONDS) == ExitStatus.INTERRUPTED
        assert asking.stdout is not None
        assert asking.stdout.read() == b""
    os.close(keyboard)
    os.close(terminal)
    assert [request.dry_run for request in commands.controller.asked["Rebalance"]] == [True]
