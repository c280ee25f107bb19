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

QUESTION = b"Continue? [y/N] "


def test_ctrl_c_ends_a_watch_and_says_that_the_operation_continues(commands: Commands) -> None:
    commands.controller.answer(
        "DescribeOperation", pb.DescribeOperationResponse(operation=operation())
    )
    with started(commands, "operations", "watch", "grow", "--interval", "60") as watcher:
        assert watcher.stdout is not None
        assert b"running; 0 of 2 partitions done" in watcher.stdout.readline()
        watcher.send_signal(signal.SIGINT)
        _, output = watcher.communicate(timeout=WAIT_SECONDS)
    assert watcher.returncode == ExitStatus.INTERRUPTED
    assert output.startswith(b"Operation grow continues.")
    assert b"tidelog operations cancel grow" in output


def test_ctrl_c_at_a_confirmation_is_not_consent(commands: Commands) -> None:
    commands.controller.answer("Rebalance", pb.RebalanceResponse(plan=PLAN))
    keyboard, terminal = pty.openpty()
    with subprocess.Popen(
        (*TIDELOG, "rebalance", "--bootstrap", ",".join(commands.cluster.bootstrap())),
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as raised:
        assert raised.stderr is not None
        output = b""
        while not output.endswith(QUESTION):
            more = os.read(raised.stderr.fileno(), 4096)
            assert more, output
            output += more
        raised.send_signal(signal.SIGINT)
        assert raised.wait(WAIT_SECONDS) == ExitStatus.INTERRUPTED
        assert raised.stdout is not None
        assert raised.stdout.read() == b""
    os.close(keyboard)
    os.close(terminal)
    assert [request.dry_run for request in commands.controller.requests["Rebalance"]] == [True]
